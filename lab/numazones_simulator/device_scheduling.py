"""Dynamic resource allocation as kube-scheduler and the claim controller do it, with the library's allocator.

The controller makes ResourceClaims from templates, and deletes them with their pods. The scheduler filters
nodes by what the allocator says, keeps what it decided in memory, and writes it into the claims before it
binds the pod (kube-scheduler 1.36, plugin DynamicResources). Left out: extended resources, binding
conditions, finalizers, and freeing claims for others.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.dra.allocation import Allocated, ClaimAllocation
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.device_tables import DeviceTables
from numazones.dra.devices import Slice
from numazones.dra.slices import AllocationNode
from numazones.prediction.device_answer import CANNOT_ALLOCATE
from numazones.prediction.pod_devices import device_answer
from numazones_client import AlreadyExists, APIError, Client, Decoder, NotFound, Resource
from numazones_client.reflector import Reflector
from numazones_client.resources import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from numazones_client.table import Table
from numazones_simulator.mirror import Body

_NO_CLAIM = "waiting for a resource claim to be made"


class DeviceScheduling:
    """Allocates devices for a simulated scheduler; run ``run`` as a task."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tables = DeviceTables()
        self._changed: Callable[[], None] = lambda: None
        self._assumed: dict[str, DeviceClaim] = {}
        """NAMESPACE/NAME → a claim that this scheduler allocated, until the API shows it."""
        self._pods: asyncio.Queue[tuple[Body | None, Body | None]] = asyncio.Queue()
        self._reflectors = [
            self._reflector(RESOURCE_SLICES, Slice.from_api, lambda one: one.name, self._tables.take_slice),
            self._reflector(
                DEVICE_CLASSES, DeviceClass.from_api, lambda one: one.name, self._tables.take_class
            ),
            self._reflector(RESOURCE_CLAIMS, DeviceClaim.from_api, _full_name, self._claim_changed),
            self._reflector(
                RESOURCE_CLAIM_TEMPLATES, DeviceClaim.from_api, _full_name, self._tables.take_template
            ),
        ]

    def _reflector(
        self,
        resource: Resource,
        read: Callable[[Any], Any],
        key: Callable[[Any], str],
        take: Callable[[Any, Any], Any],
    ) -> Reflector[Any]:
        def changed(old: Any, new: Any) -> None:
            take(old, new)
            self._changed()

        table: Table[Any] = Table(key, changed)
        return Reflector(
            self._client,
            resource,
            decoder=Decoder(read),
            table=table,
            optional=True,
            quiet=True,
        )

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the objects until cancelled; ``changed`` is called after each change."""
        self._changed = changed
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._control())

    # The scheduler's part

    def take_version(self, node: str, body: Body | None) -> None:
        """Take in a Node: the newest kubelet tells the scheduler's release."""
        info = ((body or {}).get("status") or {}).get("nodeInfo") or {}
        self._tables.take_version(node, info.get("kubeletVersion") or "")

    def obstacle(self, pod: ClusterPod, node: ClusterNode) -> str:
        """Return why a node has not the devices for a pod, in the scheduler's words; empty: it has."""
        kind = PodKind.of(pod)
        if not pod.claims or kind is None:
            return ""
        if not all(one.claim for one in pod.claims):
            return _NO_CLAIM
        found = device_answer(kind, replace(node, cluster_devices=self._tables.current), ())
        if found is None or found.fits:
            return ""
        return found.message or CANNOT_ALLOCATE

    def assume(self, pod: ClusterPod, node: ClusterNode) -> list[ClaimAllocation]:
        """Allocate devices on a node in memory; return what ``write`` has to write."""
        current = self._tables.current
        if not pod.claims or current is None:
            return []
        claims = [found for one in pod.claims if (found := current.read(one)) is not None]
        wanted = [claim for claim in claims if not claim.allocated]
        outcome = current.allocate(AllocationNode(node.name, node.labels), wanted)
        if not isinstance(outcome, Allocated):
            return []
        after = current.after(outcome, [claim.full_name for claim in wanted]).claims or {}
        for claim in wanted:
            self._assumed[claim.full_name] = after[claim.full_name]
            self._tables.take_claim(claim, after[claim.full_name])
        return list(outcome.claims)

    async def write(self, pod: ClusterPod, node: str, found: list[ClaimAllocation]) -> None:
        """Write allocations, and for which pod, into the claims."""
        user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for one in found:
            status = {"allocation": _allocation(one, node), "reservedFor": [user]}
            await self._patch(one.claim, {"status": status}, subresource="status")

    async def free(self, found: list[ClaimAllocation]) -> None:
        """Give back what was allocated to a pod that was not bound after all."""
        for one in found:
            claim = self._assumed.pop(one.claim, None)
            if claim is not None:
                self._tables.take_claim(claim, claim.freed())
            with contextlib.suppress(APIError):
                await self._patch(
                    one.claim, {"status": {"allocation": None, "reservedFor": None}}, subresource="status"
                )

    def _claim_changed(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        name = (new or old or DeviceClaim("", "")).full_name
        assumed = self._assumed.get(name)
        if assumed is not None and new is not None and not new.allocated:
            return  # older than what is being written
        self._assumed.pop(name, None)
        self._tables.take_claim(assumed or old, new)

    async def _patch(self, claim: str, patch: Body, *, subresource: str = "") -> None:
        namespace, _, name = claim.partition("/")
        await self._client.patch(RESOURCE_CLAIMS, name, patch, namespace=namespace, subresource=subresource)

    # The controller's part

    def pod_changed(self, before: Body | None, after: Body | None) -> None:
        """Take in a change of a pod with claims."""
        if ((after or before or {}).get("spec") or {}).get("resourceClaims"):
            self._pods.put_nowait((before, after))

    async def _control(self) -> None:
        while True:
            before, after = await self._pods.get()
            with contextlib.suppress(NotFound):
                if after is None or (after.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                    await self._end(after or before or {})
                elif not after["spec"].get("nodeName"):
                    await self._make(after)

    async def _make(self, pod: Body) -> None:
        """Make the claims of a pod that it has templates for."""
        metadata, made = pod["metadata"], (pod.get("status") or {}).get("resourceClaimStatuses") or []
        names = {one["name"]: one.get("resourceClaimName") for one in made}
        missing = [
            one
            for one in pod["spec"]["resourceClaims"]
            if one.get("resourceClaimTemplateName") and one["name"] not in names
        ]
        for one in missing:
            template = await self._client.get(
                RESOURCE_CLAIM_TEMPLATES, one["resourceClaimTemplateName"], namespace=metadata["namespace"]
            )
            names[one["name"]] = f"{metadata['name']}-{one['name']}"
            owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": names[one["name"]],
                    "namespace": metadata["namespace"],
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": template["spec"]["spec"],
            }
            with contextlib.suppress(AlreadyExists):
                await self._client.create(RESOURCE_CLAIMS, body, namespace=metadata["namespace"])
        if missing:
            statuses = [{"name": name, "resourceClaimName": claim} for name, claim in names.items()]
            patch = {"metadata": {"uid": metadata["uid"]}, "status": {"resourceClaimStatuses": statuses}}
            await self._client.patch(
                PODS, metadata["name"], patch, namespace=metadata["namespace"], subresource="status"
            )

    async def _end(self, pod: Body) -> None:
        """Delete the claims that were made for a pod that is over, and give others back."""
        namespace, made = pod["metadata"]["namespace"], (pod.get("status") or {}).get("resourceClaimStatuses")
        for one in made or ():
            with contextlib.suppress(NotFound):
                await self._client.delete(RESOURCE_CLAIMS, one["resourceClaimName"], namespace=namespace)
        for one in pod["spec"]["resourceClaims"]:
            if one.get("resourceClaimName"):
                status = {"allocation": None, "reservedFor": None}
                claim = f"{namespace}/{one['resourceClaimName']}"
                with contextlib.suppress(NotFound):
                    await self._patch(claim, {"status": status}, subresource="status")


def _full_name(claim: DeviceClaim) -> str:
    return claim.full_name


def _allocation(found: ClaimAllocation, node: str) -> Body:
    """Return the allocation that the scheduler writes into a claim."""
    results = [
        {
            "request": one.request,
            "driver": one.device.driver,
            "pool": one.device.pool,
            "device": one.device.name,
            **({"adminAccess": True} if one.admin else {}),
        }
        for one in found.devices
    ]
    there = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [there]}]},
    }
