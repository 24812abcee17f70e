"""A tenant who may create pods, and creates hostile ones while everything else goes on.

Its pods carry the label ``HOSTILE``, and none of them ever gets a node: they ask for a scheduler that does
not exist, or wait at the gate. The checker expects nothing for them, and everything for the pods of others.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from checks.clusters.chaos.checker import GATE
from numazones_client import AlreadyExists, APIError, Client, Forbidden
from numazones_client.resources import NAMESPACES, PODS, PRIORITY_CLASSES

HOSTILE = "hostile"
POISON = "poison-"
"""Prefix of pods that the API server refuses to patch."""
IMPORTANT, LOWEST = "important", "lowest"
_PRIORITIES = {IMPORTANT: 1000, LOWEST: -1000}
_TENANT = "tenant"
_PODS_OF_A_KIND = 3
_RELEASED = "numazones.io/admission-released"
_COLD_START = "cold-start.resource-policy.nri.io/pod"
_LEVELS = 9

Body = dict[str, Any]


def bomb() -> Body:
    """Return a pod whose annotation grows a billion times when its YAML is merged."""
    merges = (f"g{n}: &g{n} {{<<: [{','.join([f'*g{n - 1}'] * 9)}]}}\n" for n in range(1, _LEVELS + 1))
    annotations = {_COLD_START: "g0: &g0 {k: v}\n" + "".join(merges)}
    return _pod("bomb", 2, annotations=annotations, tolerations=[{"operator": "Exists"}])


def squatter() -> Body:
    """Return a pod that says the gate released it, so that room for it is held on every node."""
    return _pod("squatter", 30, annotations={_RELEASED: _soon()})


def greedy() -> Body:
    """Return a pod of the lowest priority that waits for room."""
    return _pod("greedy", 24, priorityClassName=LOWEST)


def digits() -> Body:
    """Return a gated pod whose node affinity compares with a number of 6,000 digits."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Gt", "values": ["9" * 6000]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return _pod("digits", 4, affinity=affinity, **_gated())


def poison() -> Body:
    """Return a gated pod whose release fails."""
    return _pod(POISON.rstrip("-"), 4, **_gated())


_KINDS: tuple[Callable[[], Body], ...] = (bomb, squatter, greedy, digits, poison)


def _pod(kind: str, cpus: int, *, annotations: dict[str, str] | None = None, **spec: Any) -> Body:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {HOSTILE: kind}, "annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/app", "resources": resources}],
            **({} if "schedulingGates" in spec else {"schedulerName": "missing"}),
            **spec,
        },
    }


def _gated() -> dict[str, Any]:
    return {"schedulingGates": [{"name": GATE}]}


def _soon() -> str:
    return (datetime.now(UTC) + timedelta(seconds=55)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def prepare(client: Client) -> None:
    """Create the tenant's namespace and the priorities that all pods choose from."""
    await client.create(NAMESPACES, _object("v1", "Namespace", _TENANT))
    for name, value in _PRIORITIES.items():
        # The simulated scheduler evicts no pods for others.
        body = _object("scheduling.k8s.io/v1", "PriorityClass", name)
        await client.create(PRIORITY_CLASSES, body | {"value": value, "preemptionPolicy": "Never"})


def _object(version: str, kind: str, name: str) -> Body:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


class Tenant:
    """Creates, renews and deletes hostile pods; run ``run`` as a task."""

    def __init__(self, client: Client, draw: random.Random) -> None:
        self._client = client
        self._draw = draw

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            for make in _KINDS:
                number = self._draw.randrange(_PODS_OF_A_KIND)
                await self._attempt(self._create(make(), number))
            for number in range(_PODS_OF_A_KIND):
                patch = {"metadata": {"annotations": {_RELEASED: _soon()}}}
                name = f"squatter-{number}"
                await self._attempt(self._client.patch(PODS, name, patch, namespace=_TENANT))
            await asyncio.sleep(self._draw.uniform(1.0, 4.0))
            if self._draw.random() < 0.2:
                body = self._draw.choice(_KINDS)()
                name = f"{body['metadata']['labels'][HOSTILE]}-{self._draw.randrange(_PODS_OF_A_KIND)}"
                await self._attempt(self._client.delete(PODS, name, namespace=_namespace(body)))

    async def _create(self, body: Body, number: int) -> None:
        body["metadata"]["name"] = f"{body['metadata']['labels'][HOSTILE]}-{number}"
        try:
            await self._client.create(PODS, body, namespace=_namespace(body))
        except AlreadyExists:
            return
        except Forbidden:
            # The annotation is reserved to others: have the pod without it, and try to add it later.
            body["metadata"]["annotations"] = {}
            await self._client.create(PODS, body, namespace=_namespace(body))

    async def _attempt(self, asked: Awaitable[Any]) -> None:
        try:
            await asked
        except APIError:
            return  # the API server is away, or the pod is gone


def _namespace(body: Body) -> str:
    return "default" if "schedulingGates" in body["spec"] else _TENANT
