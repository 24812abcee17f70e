"""Keeps as many pods running as each ReplicaSet asks for, as the controller manager does.

A pod that the kubelet rejected has failed for good, so it is replaced, and its replacement may meet the same
fate: the runaway loop of rejected replicas that NUMA-blind scheduling brings (kubernetes/kubernetes 84869).
The real controller replaces as fast as it can; here a pause between rounds keeps the loop watchable, and
failed pods beyond a number are removed, oldest first, as the pod garbage collector does it.
"""

import asyncio
import random

from numazones_client import APIError, Client, NotFound, Resource
from numazones_client.resources import PODS
from numazones_simulator.mirror import Body, mirror

REPLICA_SETS = Resource("apps", "v1", "replicasets")
_ENDED = ("Failed", "Succeeded")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class ReplicaSets:
    """The controller; run ``run`` as a task.

    Args:
        client: how to reach the server.
        pause: seconds between two rounds of replacements.
        kept_failures: failed pods that each ReplicaSet may leave behind.
        draw: where random name suffixes come from.
    """

    def __init__(
        self,
        client: Client,
        *,
        pause: float = 1.0,
        kept_failures: int = 20,
        draw: random.Random | None = None,
    ) -> None:
        self._client = client
        self._pause = pause
        self._kept_failures = kept_failures
        self._draw = draw or random.Random()
        self._sets = mirror(client, REPLICA_SETS, self._set_changed)
        self._pods = mirror(client, PODS, self._pod_changed)
        self._pods_of: dict[str, dict[str, Body]] = {}
        """Owner's uid → pod uid → pod."""
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Control until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sets.reflector.run())
            tasks.create_task(self._pods.reflector.run())
            tasks.create_task(self._reconcile_all())

    def _set_changed(self, _before: Body | None, _after: Body | None) -> None:
        self._work.set()

    def _pod_changed(self, before: Body | None, after: Body | None) -> None:
        for pod in (before, after):
            owner = None if pod is None else _controller(pod)
            if pod is not None and owner is not None:
                pods = self._pods_of.setdefault(owner, {})
                if pod is after:
                    pods[pod["metadata"]["uid"]] = pod
                else:
                    pods.pop(pod["metadata"]["uid"], None)
        self._work.set()

    async def _reconcile_all(self) -> None:
        # Before the pods that exist are known, every replica would seem to be missing.
        await self._pods.reflector.synced.wait()
        while True:
            await self._work.wait()
            self._work.clear()
            for replica_set in list(self._sets.objects):
                try:
                    await self._reconcile(replica_set)
                except NotFound:
                    continue  # deleted under our hands; the watch tells
                except APIError:
                    self._work.set()
            await asyncio.sleep(self._pause)

    async def _reconcile(self, replica_set: Body) -> None:
        if replica_set["metadata"].get("deletionTimestamp"):
            return
        pods = list(self._pods_of.get(replica_set["metadata"]["uid"], {}).values())
        active = [pod for pod in pods if _is_active(pod)]
        wanted = replica_set["spec"].get("replicas", 1)
        for _ in range(wanted - len(active)):
            await self._create(replica_set)
        for pod in sorted(active, key=_deletion_order)[: max(0, len(active) - wanted)]:
            await self._delete(pod)
        failed = [pod for pod in pods if _phase(pod) == "Failed" and not _is_leaving(pod)]
        for pod in sorted(failed, key=_created)[: max(0, len(failed) - self._kept_failures)]:
            await self._delete(pod)
        await self._report(replica_set, active)

    async def _create(self, replica_set: Body) -> None:
        metadata, template = replica_set["metadata"], replica_set["spec"]["template"]
        suffix = "".join(self._draw.choices(_SUFFIX, k=5))
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "name": f"{metadata['name']}-{suffix}",
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        created = await self._client.create(PODS, body, namespace=metadata["namespace"])
        self._pods.objects.put(created)  # counted before the watch tells of it

    async def _delete(self, pod: Body) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except NotFound:
            return

    async def _report(self, replica_set: Body, active: list[Body]) -> None:
        ready = sum(_phase(pod) == "Running" for pod in active)
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": replica_set["metadata"].get("generation", 1),
        }
        known = replica_set.get("status") or {}
        if all(known.get(key, 0) == value for key, value in status.items()):
            return
        metadata = replica_set["metadata"]
        await self._client.patch(
            REPLICA_SETS,
            metadata["name"],
            {"status": status},
            namespace=metadata["namespace"],
            subresource="status",
        )


def _controller(pod: Body) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def _phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _created(pod: Body) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))


def _is_leaving(pod: Body) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_active(pod: Body) -> bool:
    return _phase(pod) not in _ENDED and not _is_leaving(pod)


def _deletion_order(pod: Body) -> tuple[bool, bool, str]:
    """Pods without a node go first, then those that do not run; of equals the first in order of age."""
    return (bool(pod["spec"].get("nodeName")), _phase(pod) == "Running", _created(pod))
