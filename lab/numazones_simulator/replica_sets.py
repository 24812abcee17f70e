"""Keeps as many pods running as each ReplicaSet asks for, as the controller manager does.

A pod that the kubelet rejected has failed for good, so it is replaced, and its replacement may meet the same
fate: the runaway loop of rejected replicas that NUMA-blind scheduling brings (kubernetes/kubernetes 84869).
The real controller replaces as fast as it can; here a pause between rounds keeps the loop watchable, and
failed pods beyond a number are removed, oldest first, as the pod garbage collector does it.
"""

import random

from numazones_client import Client, NotFound
from numazones_client.resources import PODS, REPLICA_SETS
from numazones_simulator.controlling import Controller, reference
from numazones_simulator.mirror import Body

_ENDED = ("Failed", "Succeeded")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_KEPT_FAILURES = 20
"""Failed pods that each ReplicaSet may leave behind."""


class ReplicaSets(Controller):
    """The controller; run ``run`` as a task."""

    def __init__(self, client: Client, *, pause: float = 1.0) -> None:
        """``pause``: seconds between two rounds of replacements."""
        super().__init__(client, REPLICA_SETS, PODS, pause=pause)

    async def _reconcile(self, owner: Body, owned: list[Body]) -> None:
        active = [pod for pod in owned if _is_active(pod)]
        wanted = owner["spec"].get("replicas", 1)
        for _ in range(wanted - len(active)):
            await self._create(owner)
        for pod in sorted(active, key=_deletion_order)[: max(0, len(active) - wanted)]:
            await self._delete(pod)
        failed = [pod for pod in owned if _phase(pod) == "Failed" and not _is_leaving(pod)]
        for pod in sorted(failed, key=_creation_time)[: max(0, len(failed) - _KEPT_FAILURES)]:
            await self._delete(pod)
        ready = sum(_phase(pod) == "Running" for pod in active)
        await self._report(
            owner,
            {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": ready,
                "availableReplicas": ready,
            },
        )

    async def _create(self, replica_set: Body) -> None:
        metadata, template = replica_set["metadata"], replica_set["spec"]["template"]
        suffix = "".join(random.choices(_SUFFIX, k=5))
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "name": f"{metadata['name']}-{suffix}",
                "ownerReferences": [reference("ReplicaSet", replica_set)],
            },
            "spec": template["spec"],
        }
        created = await self._client.create(PODS, body, namespace=metadata["namespace"])
        self._owned.objects.put(created)  # counted before the watch tells of it

    async def _delete(self, pod: Body) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except NotFound:
            return


def _phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _creation_time(pod: Body) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))


def _is_leaving(pod: Body) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_active(pod: Body) -> bool:
    return _phase(pod) not in _ENDED and not _is_leaving(pod)


def _deletion_order(pod: Body) -> tuple[bool, bool, str]:
    """Pods without a node go first, then those that do not run; of equals the first in order of age."""
    return (bool(pod["spec"].get("nodeName")), _phase(pod) == "Running", _creation_time(pod))
