"""Devices of claims in a run: the scheduler's allocator gives them to pods that arrive, and takes them back.

A run begins without pods, so what pods of the cluster hold is free at first; claims that no pod uses keep
their devices. A claim that pods share keeps its devices until the last of them leaves.
"""

from collections.abc import Iterable
from dataclasses import replace

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.dra.allocated import AllocatedTable
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices, shares_devices
from numazones.prediction.device_answer import DeviceAnswer


class ClaimedDevices:
    """The devices of a cluster as they are allocated in one run."""

    def __init__(self, nodes: Iterable[ClusterNode]) -> None:
        """Free what pods hold that are not on the nodes."""
        nodes = list(nodes)
        here = {pod.uid for node in nodes for pod in node.pods.values()}
        known = next((node.cluster_devices for node in nodes if node.cluster_devices is not None), None)
        self._table = AllocatedTable(shares=known is not None and shares_devices(known.rules))
        self._claims: dict[str, DeviceClaim] = {}
        self._users: dict[str, set[str]] = {}
        """NAMESPACE/NAME of a claim → UIDs of the pods that share it."""
        self._made: dict[str, list[DeviceClaim]] = {}
        """UID of a pod → claims that are its own."""
        self._known: ClusterDevices | None = None
        if known is None:
            return
        for name, claim in (known.claims or {}).items():
            kept = claim if not claim.pods or claim.pods & here else claim.freed()
            self._claims[name] = kept
            self._table.take(None, kept)
        claims = None if known.claims is None else self._claims
        self._known = replace(known, claims=claims, allocated=self._table.current)

    def on(self, node: ClusterNode) -> ClusterNode:
        """Return a node that sees the devices as they are in the run, whenever it is asked."""
        return node if self._known is None else replace(node, cluster_devices=self._known)

    def take(self, pod: ClusterPod, found: DeviceAnswer) -> None:
        """Allocate what a pod gets."""
        shared = {one.claim for one in pod.claims if not one.template}
        for name in shared:
            self._users.setdefault(name, set()).add(pod.uid)
        for claim in found.made:
            if claim.full_name in shared and claim.full_name in self._claims:
                held = replace(self._claims[claim.full_name], allocated=True, allocations=claim.allocations)
                self._claims[claim.full_name] = held
            else:
                held = _own(claim, pod.uid)
                self._made.setdefault(pod.uid, []).append(held)
            self._table.take(None, held)

    def leave(self, pod: ClusterPod) -> None:
        """Free what a pod had."""
        for claim in self._made.pop(pod.uid, ()):
            self._table.take(claim, None)
        for name in {one.claim for one in pod.claims if not one.template} & self._users.keys():
            self._users[name].discard(pod.uid)
            if not self._users[name] and name in self._claims:
                self._table.take(self._claims[name], None)
                self._claims[name] = self._claims[name].freed()


def _own(claim: DeviceClaim, uid: str) -> DeviceClaim:
    """Return the claim with a name of its own; those of one template have the template's."""
    name = f"{claim.name} of {uid}"
    allocations = tuple(replace(one, claim=f"{claim.namespace}/{name}") for one in claim.allocations)
    return replace(claim, name=name, allocations=allocations)
