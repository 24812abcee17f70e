"""Alignment of one running pod: its CPUs, memory and devices, NUMA node by NUMA node.

Where the Topology Manager's policy is ``none`` or ``best-effort`` nothing is rejected, and pods run with CPUs
on two NUMA nodes or with a device behind another socket. A container is *aligned* if one NUMA node has all
that it holds exclusively; it *spans* NUMA nodes if one kind of thing alone lies on several, or no NUMA node
is common to its devices; else its CPUs are together, and something is *remote* from them. A pod is what the
worst of its containers is: scope ``container`` aligns each for itself.

What is shared, CPUs of the shared pool and memory that nobody promised, is not looked at here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from numazones import cpuset
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cpuset import CPUSet
from numazones.dra.uses import Uses, used_by
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.pod import Pod
from numazones.placement.occupancy import HeldDevices, Holder, Occupancy

if TYPE_CHECKING:  # many nodes have no devices that are claimed
    from numazones.api.claimed_devices import ClaimedDevices
    from numazones.dra.amounts import NodeDevices
    from numazones.dra.devices import Key, PublishedDevice


class Alignment(StrEnum):
    """Kinds of alignment, the best first."""

    ALIGNED = "aligned"
    """One NUMA node has all of it."""
    REMOTE = "remote"
    """Its CPUs are on one NUMA node; memory or a device is on another."""
    SPANNING = "spanning"
    """Its CPUs, its memory or its devices are on several NUMA nodes."""


_ORDER = tuple(Alignment)


@dataclass(frozen=True, slots=True)
class ContainerAlignment:
    """Alignment of what one container holds."""

    name: str
    """Empty where only the pod as a whole is known."""
    alignment: Alignment
    cpus: Mapping[int, int]
    """NUMA id → exclusive CPUs."""
    memory: Mapping[int, int]
    """NUMA id → bytes promised, hugepages included; what is promised of several NUMA nodes together counts in
    equal parts."""
    devices: Mapping[str, tuple[int, ...]]
    """Resource → NUMA nodes of its devices, ascending; resources near none in particular are left out."""
    home: int
    """The NUMA node that has most of it: of its CPUs, else of its memory, else of its devices."""
    remote: tuple[str, ...] = ()
    """Resources that are not at home: ``cpu``, ``memory``, names of devices."""
    apart: CPUSet = 0
    """Exclusive CPUs that are not at home."""

    @property
    def remote_cpus(self) -> int:
        """Return how many exclusive CPUs are remote."""
        return self.apart.bit_count()

    @property
    def remote_memory(self) -> int:
        """Bytes promised that are not at home."""
        return sum(size for numa, size in self.memory.items() if numa != self.home)

    @property
    def numas(self) -> tuple[int, ...]:
        """NUMA nodes that it uses, ascending; of devices those that are nowhere nearer."""
        used = {numa for held in (self.cpus, self.memory) for numa, amount in held.items() if amount}
        for near in self.devices.values():
            if not used & set(near):
                used.update(near)
        return tuple(sorted(used))


@dataclass(frozen=True, slots=True)
class PodAlignment:
    """Alignment of what one pod holds."""

    name: str
    """NAMESPACE/NAME."""
    uid: str
    """As the kubelet knows it."""
    containers: tuple[ContainerAlignment, ...]
    """Those that hold something of NUMA nodes; at least one."""
    distance: int | None = None
    """The largest distance (SLIT) between two NUMA nodes that one of its containers uses; None: unknown, or
    there is but one."""

    @property
    def alignment(self) -> Alignment:
        """That of the worst of its containers."""
        return max((one.alignment for one in self.containers), key=_ORDER.index)

    @property
    def aligned(self) -> bool:
        """Return whether every container is aligned."""
        return self.alignment is Alignment.ALIGNED

    @property
    def numas(self) -> tuple[int, ...]:
        """NUMA nodes that it uses, ascending."""
        return tuple(sorted({numa for one in self.containers for numa in one.numas}))

    @property
    def cpus(self) -> dict[int, int]:
        """NUMA id → exclusive CPUs."""
        return _sum(one.cpus for one in self.containers)

    @property
    def memory(self) -> dict[int, int]:
        """NUMA id → bytes promised."""
        return _sum(one.memory for one in self.containers)

    @property
    def remote_cpus(self) -> int:
        """Exclusive CPUs that are not at their container's home."""
        return sum(one.remote_cpus for one in self.containers)

    @property
    def remote_memory(self) -> int:
        """Bytes promised that are not at their container's home."""
        return sum(one.remote_memory for one in self.containers)

    @property
    def apart(self) -> CPUSet:
        """Exclusive CPUs that are not at their container's home."""
        return cpuset.union(one.apart for one in self.containers)

    @property
    def memory_apart(self) -> tuple[int, ...]:
        """NUMA nodes, ascending, of memory that is not at its container's home."""
        held = ((one.home, numa) for one in self.containers for numa, size in one.memory.items() if size)
        return tuple(sorted({numa for home, numa in held if numa != home}))

    @property
    def remote(self) -> tuple[str, ...]:
        """Resources that are not at home in one of its containers, each once."""
        return tuple(dict.fromkeys(name for one in self.containers for name in one.remote))

    @property
    def sentence(self) -> str:
        """The same in few words: ``spanning 2 NUMA nodes``, ``remote from nic.example/vf``."""
        worst = max(self.containers, key=lambda one: _ORDER.index(one.alignment))
        match worst.alignment:
            case Alignment.ALIGNED:
                return "aligned"
            case Alignment.REMOTE:
                return f"remote from {', '.join(worst.remote)}"
            case Alignment.SPANNING:
                return f"spanning {len(worst.numas)} NUMA nodes"

    @property
    def badness(self) -> tuple[int, int, int, int]:
        """Return the sort key of tables, worst first: kind, remote CPUs, NUMA nodes, remote memory."""
        return (_ORDER.index(self.alignment), self.remote_cpus, len(self.numas), self.remote_memory)


def alignments(
    occupancy: Occupancy, started: Mapping[str, Collection[str]] | None = None
) -> Iterator[PodAlignment]:
    """Yield how what the pods of a node hold lies, of those that hold something of NUMA nodes.

    Args:
        occupancy: who holds what.
        started: pod uid → names of the containers to look at; those that have ended keep CPUs on record. Pods
            that are missing are looked at with all their containers.

    >>> from numazones import build
    >>> from numazones.kubelet.admission import admit
    >>> from numazones.placement.kubelet import KubeletPlacement
    >>> machine = build.machine(numa=2, cores=8, threads=1, memory="16Gi")
    >>> static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    >>> node = build.node(machine, {**static, "topologyManagerPolicy": "best-effort"})
    >>> wide = admit(node, build.pod("wide", cpu=6, memory="1Gi"))
    >>> [found.sentence for found in alignments(KubeletPlacement(wide.node).occupancy({"wide": "team/wide"}))]
    ['spanning 2 NUMA nodes']
    """
    cpus_of_numa = occupancy.cpus_of_numa
    for holder in occupancy.holders:
        wanted = (started or {}).get(holder.uid)
        parts = [
            part
            for part in holder.containers or (replace(holder, name=""),)
            if wanted is None or not part.name or part.name in wanted
        ]
        found = tuple(one for part in parts if (one := _of_part(part, cpus_of_numa)) is not None)
        if found:
            yield PodAlignment(holder.name, holder.uid, found, _distance(found, occupancy.distances))


def of_node(node: ClusterNode, *, claims: bool = True) -> list[tuple[ClusterPod, PodAlignment]] | None:
    """Return the pods of a cluster's node that hold something of NUMA nodes, and how that lies.

    None where it is not known who holds what, or only how much of it.

    Args:
        node: with its pods.
        claims: whether devices count that pods hold through claims (DRA).
    """
    if node.approximate or (occupancy := node.occupancy) is None:
        return None
    pods = {pod.kubelet_uid: pod for pod in node.pods.values()}
    started = {
        uid: started_containers(pod.admission) for uid, pod in pods.items() if pod.admission is not None
    }
    if claims and node.claimed and node.dra is not None:
        occupancy = replace(
            occupancy, holders=tuple(_with_claimed(node.dra, node.claimed, occupancy.holders, pods))
        )
    return [(pods[found.uid], found) for found in alignments(occupancy, started) if found.uid in pods]


def by_name(node: ClusterNode) -> dict[str, PodAlignment]:
    """Return NAMESPACE/NAME → how what each pod of a node holds lies; empty where that is not known."""
    return {found.name: found for _, found in of_node(node) or ()}


def of_pod(node: ClusterNode, pod: ClusterPod) -> PodAlignment | None:
    """Return how what a pod holds on its node lies; None where it holds nothing, or that is not known."""
    return next((found for other, found in of_node(node) or () if other.uid == pod.uid), None)


def started_containers(pod: Pod) -> frozenset[str]:
    """Return the names of the containers of a running pod that run: all but plain init containers."""
    return frozenset(one.name for one in pod.containers if one.kind is not ContainerKind.INIT)


def _with_claimed(
    dra: "NodeDevices", claimed: "ClaimedDevices", holders: Iterable[Holder], pods: Mapping[str, ClusterPod]
) -> Iterator[Holder]:
    """The holders with the devices that their containers use of claims, and those that hold no more."""
    missing = dict(claimed)
    for holder in holders:
        containers = missing.pop(holder.uid, None)
        yield holder if containers is None else _holding(dra, pods.get(holder.uid), holder, containers)
    for uid, containers in missing.items():
        if uid in pods:
            yield _holding(dra, pods[uid], Holder(pods[uid].full_name, uid), containers)


def _holding(
    dra: "NodeDevices", pod: ClusterPod | None, holder: Holder, claimed: "Mapping[str, frozenset[Key]]"
) -> Holder:
    parts = {part.name: part for part in holder.containers}
    for container, device in _used(dra, {} if pod is None else pod.claim_uses, claimed):
        part = parts.get(container, Holder(container))
        near = HeldDevices(device.full_name, (device.name,), (cpuset.of(device.numas),))
        parts[container] = replace(part, devices=(*part.devices, *([near] if device.numas else [])))
    return replace(holder, containers=tuple(parts.values()))


def pcie_roots(node: ClusterNode, pod: ClusterPod) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return (container, DRIVER/DEVICE) → PCIe root complexes, of the claimed devices that have them."""
    claimed = node.claimed.get(pod.kubelet_uid, {})
    if node.dra is None or not claimed:
        return {}
    used = _used(node.dra, pod.claim_uses, claimed)
    return {(name, device.full_name): device.pcie_root for name, device in used if device.pcie_root}


def _used(
    dra: "NodeDevices", uses: Mapping[str, Uses], claimed: "Mapping[str, frozenset[Key]]"
) -> "Iterator[tuple[str, PublishedDevice]]":
    """Yield (container, device that it uses of claims); those that nobody publishes are left out."""
    for container, keys in sorted(claimed.items()):
        for key in sorted(keys):
            device = dra.devices.get(key)
            if device is not None and used_by(container, uses, dra.allocated.get(key, ())):
                yield container, device


def _of_part(part: Holder, cpus_of_numa: Mapping[int, CPUSet]) -> ContainerAlignment | None:
    """Return how what a container holds lies; None where it holds nothing of NUMA nodes."""
    cpus = {numa: count for numa, mask in cpus_of_numa.items() if (count := (part.cpus & mask).bit_count())}
    memory: dict[int, int] = {}
    for _, size, numas in part.memory:
        for position, numa in enumerate(numas):
            memory[numa] = memory.get(numa, 0) + size // len(numas) + (position < size % len(numas))
    near = {held.resource: [mask for mask in held.near if mask] for held in part.devices}
    masks = [mask for found in near.values() for mask in found]
    if not (cpus or memory or masks):
        return None
    home = _home(cpus, memory, masks)
    away = [
        *(["cpu"] if cpus.keys() - {home} else []),
        *(["memory"] if memory.keys() - {home} else []),
        *(resource for resource, found in near.items() if any(not mask >> home & 1 for mask in found)),
    ]
    spans = len(cpus) > 1 or len(memory) > 1 or (bool(masks) and not _common(masks))
    kind = Alignment.SPANNING if spans else Alignment.REMOTE if away else Alignment.ALIGNED
    devices = {name: tuple(cpuset.ids(cpuset.union(found))) for name, found in near.items() if found}
    apart = part.cpus & cpuset.union(mask for numa, mask in cpus_of_numa.items() if numa != home)
    return ContainerAlignment(part.name, kind, cpus, memory, devices, home, tuple(away), apart)


def _home(cpus: Mapping[int, int], memory: Mapping[int, int], masks: Iterable[int]) -> int:
    """The NUMA node with the most CPUs; equal ones are told apart by memory, then by devices, then by id."""
    devices: dict[int, int] = {}
    for mask in masks:
        for numa in cpuset.ids(mask):
            devices[numa] = devices.get(numa, 0) + 1
    known = {*(cpus or memory or devices)}
    return max(known, key=lambda numa: (cpus.get(numa, 0), memory.get(numa, 0), devices.get(numa, 0), -numa))


def _common(masks: Iterable[int]) -> int:
    found = -1
    for mask in masks:
        found &= mask
    return found


def _distance(found: Iterable[ContainerAlignment], distances: Mapping[tuple[int, int], int]) -> int | None:
    pairs = {(one, other) for part in found for one in part.numas for other in part.numas if one != other}
    known = [distances[pair] for pair in pairs if pair in distances]
    return max(known, default=None)


def _sum(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for part in parts:
        for numa, amount in part.items():
            total[numa] = total.get(numa, 0) + amount
    return dict(sorted(total.items()))
