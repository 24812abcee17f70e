"""Turns each Deployment into a ReplicaSet, so that what people usually create runs in a simulated cluster.

The latest template gets a ReplicaSet of its own, named after a hash of it; earlier ones are scaled to zero at
once. Rolling updates, pauses and rollbacks are left out: here a Deployment is a way to keep pods running.
"""

import asyncio
import hashlib
import json
from typing import Any

from numazones_client import AlreadyExists, APIError, Client, NotFound, Resource
from numazones_simulator.mirror import Body, mirror
from numazones_simulator.replica_sets import REPLICA_SETS

DEPLOYMENTS = Resource("apps", "v1", "deployments")
HASH_LABEL = "pod-template-hash"
_PAUSE = 0.2


class Deployments:
    """The controller; run ``run`` as a task."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._deployments = mirror(client, DEPLOYMENTS, self._changed)
        self._sets = mirror(client, REPLICA_SETS, self._changed)
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Control until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deployments.reflector.run())
            tasks.create_task(self._sets.reflector.run())
            tasks.create_task(self._reconcile_all())

    def _changed(self, _before: Body | None, _after: Body | None) -> None:
        self._work.set()

    async def _reconcile_all(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            for deployment in list(self._deployments.objects):
                try:
                    await self._reconcile(deployment)
                except NotFound:
                    continue  # deleted under our hands; the watch tells
                except APIError:
                    self._work.set()
            await asyncio.sleep(_PAUSE)

    async def _reconcile(self, deployment: Body) -> None:
        metadata = deployment["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        wanted = replica_set(deployment)
        name, replicas = wanted["metadata"]["name"], wanted["spec"]["replicas"]
        own = {
            item["metadata"]["name"]: item for item in self._sets.objects if _owner(item) == metadata["uid"]
        }
        if name not in own:
            try:
                await self._client.create(REPLICA_SETS, wanted, namespace=metadata["namespace"])
            except AlreadyExists:
                return  # the watch has yet to tell
        for other, item in own.items():
            goal = replicas if other == name else 0
            if item["spec"].get("replicas") != goal:
                await self._client.patch(
                    REPLICA_SETS, other, {"spec": {"replicas": goal}}, namespace=metadata["namespace"]
                )
        await self._report(deployment, own.get(name, wanted))

    async def _report(self, deployment: Body, current: Body) -> None:
        counted = current.get("status") or {}
        status = {
            "replicas": counted.get("replicas", 0),
            "updatedReplicas": counted.get("replicas", 0),
            "readyReplicas": counted.get("readyReplicas", 0),
            "availableReplicas": counted.get("availableReplicas", 0),
            "observedGeneration": deployment["metadata"].get("generation", 1),
        }
        known = deployment.get("status") or {}
        if all(known.get(key, 0) == value for key, value in status.items()):
            return
        metadata = deployment["metadata"]
        await self._client.patch(
            DEPLOYMENTS,
            metadata["name"],
            {"status": status},
            namespace=metadata["namespace"],
            subresource="status",
        )


def replica_set(deployment: Body) -> dict[str, Any]:
    """The ReplicaSet of a Deployment's current template."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    inner = template.get("metadata") or {}
    labels = {**(inner.get("labels") or {}), HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest},
            },
            "template": {**template, "metadata": {**inner, "labels": labels}},
        },
    }


def _owner(item: Body) -> str | None:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
