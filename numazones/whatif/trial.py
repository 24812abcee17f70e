"""One run: pods arrive at nodes and leave them, each kubelet or other placement model decides.

A pod goes to the node that it names. For one that names none a scheduler chooses, in one of the ways of
``numazones.prediction.node_choice``. By default, of the nodes that pass its filters
(``numazones.cluster.scheduling``) it is the one with the largest share of CPU and memory not yet requested,
as NodeResourcesFit scores by default (LeastAllocated); ties go to the node that comes first. Its other scores
are left out. On nodes of a placement model whose scheduler decides, that one filters as well by what it can
place on their NUMA nodes, so that no pod is rejected there that another node would take. Every pod is tried
once: what is rejected is counted, and gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cpuset import CPUSet
from numazones.dra.allocated import AllocatedTable
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices, shares_devices
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import NodeInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletCrash, KubeletHang
from numazones.placement import Placement
from numazones.placement.fragmentation import Shape
from numazones.prediction.device_answer import CANNOT_ALLOCATE, NOT_ALIGNED, DeviceAnswer
from numazones.prediction.node_choice import Chooser, NodeChoice
from numazones.prediction.pod_devices import pod_devices
from numazones.prediction.room import FittingPods
from numazones.whatif.workload import Leaving, WorkloadEvent

UNSCHEDULABLE = "Unschedulable"
"""Reason of a pod for which the scheduler finds no node."""
UNREADABLE = "Unreadable"
"""Reason of a pod that cannot be read."""
UNDECIDED = "Undecided"
"""Reason of a pod for which the model gives no verdict: its kubelet would crash or hang."""

_MILLI = 1000
_PROBE_MEMORY = "1Mi"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one run."""

    arrived: int
    """Arrivals, those of pods that came back included."""
    admitted: int
    rejected: tuple[tuple[str, int], ...]
    """(reason, arrivals), by reason."""
    crossing: int
    """Admitted arrivals with a container whose CPUs, memory and devices, also claimed ones, are on several
    NUMA nodes."""
    lopsided: int
    """Exclusive CPUs by which those pods' fullest NUMA nodes exceed their emptiest ones, added up."""
    exclusive: tuple[tuple[int, int], ...]
    """(NUMA id, exclusive CPUs of all nodes together) at the end, as KEP-2902 counts them."""
    spread: int
    """Exclusive CPUs by which each node's fullest NUMA node exceeds its emptiest one at the end, added up."""
    free: int
    """CPUs that could still be given exclusively at the end."""
    stranded: int | None
    """Those of them that no further pod of the shape would get; None if no shape was given."""
    largest: int
    """Most CPUs of a Guaranteed pod with one container and little memory that some node would still admit."""


def run(
    nodes: Iterable[ClusterNode],
    events: Iterable[WorkloadEvent],
    *,
    shape: Shape | None = None,
    choice: NodeChoice = NodeChoice.DEFAULT,
    shapes: Sequence[Shape] = (),
) -> TrialResult:
    """Play events on nodes, and say what came out.

    Nodes whose state is not known must have been left out: they would take every pod that names them as
    rejected. Pods that are on the nodes already stay, and count for nothing but the room they take.
    ``shapes``: what ``NodeChoice.SHAPES`` keeps room for; none: ``shape``.
    """
    trial = _Trial(nodes, choice, shapes or (() if shape is None else (shape,)))
    for event in events:
        if isinstance(event, Leaving):
            trial.leave(event.uid)
        else:
            trial.arrive(event)
    return trial.outcome(shape)


class _Host:
    """A node as it changes."""

    def __init__(self, node: ClusterNode, placement: Placement) -> None:
        self._node = node
        self.placement = placement
        """The placement for the next pod."""
        occupancy = placement.occupancy(None)
        self.numas = {} if occupancy is None else occupancy.cpus_of_numa
        self.infos = {pod.kubelet_uid: pod.info for pod in node.pods.values()}
        self.cpus: dict[str, CPUSet] = {}
        """Uid → exclusive CPUs, of the pods that arrived."""
        self._info: NodeInfo | None = None

    @property
    def node(self) -> ClusterNode:
        """Return the node as it is now."""
        if self._node.placement is not self.placement:
            self._node = self._node.with_placement(self.placement)
        return self._node

    def info(self, state: Node) -> NodeInfo:
        """Put what is around a kubelet's state beside it: of that, only the pods change in a run."""
        if self._info is None:
            self._info = self.node.info(state, beside="")
        return replace(self._info, state=state, pods=self.infos)

    def add(self, pod: ClusterPod, cpus: CPUSet) -> None:
        """Count a pod that was admitted."""
        self._node = self._node.with_pod(replace(pod, node=self._node.name), self.placement)
        self.infos = {**self.infos, pod.kubelet_uid: pod.info}
        self.cpus[pod.kubelet_uid] = cpus

    def drop(self, pod: ClusterPod) -> None:
        """Let a pod go."""
        uid = pod.kubelet_uid
        self.placement = self.placement.remove(uid)
        self._node = self._node.without_pod(pod.uid, self.placement)
        self.infos = {other: info for other, info in self.infos.items() if other != uid}
        del self.cpus[uid]


class _Trial:
    """A run in progress."""

    def __init__(self, nodes: Iterable[ClusterNode], choice: NodeChoice, shapes: Sequence[Shape]) -> None:
        nodes = list(nodes)
        self._chooser = Chooser(choice, shapes)
        self._devices = RunDevices(nodes)
        self._hosts: dict[str, _Host] = {}
        self._unknown: set[str] = set()
        """Names of nodes whose placement is not known."""
        for node in nodes:
            if node.known is None:
                self._unknown.add(node.name)
            else:
                self._hosts[node.name] = _Host(self._devices.on(node), node.known)
        self._placed: dict[str, tuple[ClusterPod, _Host]] = {}
        self._arrived = self._admitted = self._crossing = self._lopsided = 0
        self._rejected: dict[str, int] = {}

    def arrive(self, pod: ClusterPod) -> None:
        """Try a pod once."""
        self._arrived += 1
        reason = self._reason_against(pod)
        if reason:
            self._rejected[reason] = self._rejected.get(reason, 0) + 1
        else:
            self._admitted += 1

    def leave(self, uid: str) -> None:
        """End a pod; one that was rejected or preempted is gone already."""
        placed = self._placed.pop(uid, None)
        if placed is not None:
            pod, host = placed
            host.drop(pod)
            self._devices.leave(pod)

    def _reason_against(self, pod: ClusterPod) -> str:
        """Return why a pod is rejected; if it is not, place it and return ""."""
        if pod.admission is None:
            return UNREADABLE
        if pod.node in self._unknown:
            return UNDECIDED
        host = self._hosts.get(pod.node) if pod.node else self._chosen_host(pod)
        if host is None:
            return UNDECIDED if self._devices_unknown(pod) else UNSCHEDULABLE
        try:
            return self._ask(host, pod)
        except (KubeletCrash, KubeletHang) as error:
            return type(error).__name__
        except NumazonesError:
            return UNDECIDED

    def _devices_unknown(self, pod: ClusterPod) -> bool:
        """Return whether it is not known on some node which devices the pod would get."""
        answers = (pod_devices(pod, host.node) for host in self._hosts.values())
        return any(found is not None and found.fits is None for found in answers)

    def _chosen_host(self, pod: ClusterPod) -> _Host | None:
        node = self._chooser.choose(pod, (host.node for host in self._hosts.values()))
        return None if node is None else self._hosts[node.name]

    def _ask(self, host: _Host, pod: ClusterPod) -> str:
        """Return why the decider on the node rejects a pod; if it does not, place it and return ""."""
        if host.placement.kubelet is None:
            # Who else places pods leaves the sums to the scheduler's own filters.
            lacking = scheduling.lacks(pod.requests, host.node)
            if lacking:
                return lacking[0].reason
        found = pod_devices(pod, host.node)
        if found is not None and not found.fits:
            return CANNOT_ALLOCATE if found.fits is False else UNDECIDED
        said = host.placement.admit_bound(pod.info, host.info)
        host.placement = said.placement
        for uid in said.preempted:
            self.leave(uid)
        if not said.admitted:
            return said.reason
        crosses = said.spans
        if found is not None:
            self._devices.take(pod, found)
            lying = replace(found, zones=said.zones, shares=said.shares)
            crosses = crosses or lying.alignment == NOT_ALIGNED
        self._take(host, pod, said.exclusive, crosses=crosses)
        return ""

    def _take(self, host: _Host, pod: ClusterPod, cpus: CPUSet, *, crosses: bool) -> None:
        host.add(pod, cpus)
        self._placed[pod.kubelet_uid] = (pod, host)
        self._crossing += crosses
        held = [count for count in _counts(cpus, host.numas).values() if count]
        if len(held) > 1:
            self._lopsided += max(held) - min(held)

    def outcome(self, shape: Shape | None) -> TrialResult:
        """Look at the nodes as they are now."""
        exclusive: dict[int, int] = {}
        spread = free = largest = 0
        room = FittingPods()
        stranded = None if shape is None else 0
        for host in self._hosts.values():
            held = _counts(cpuset.union(host.cpus.values()), host.numas)
            for numa, count in held.items():
                exclusive[numa] = exclusive.get(numa, 0) + count
            spread += max(held.values(), default=0) - min(held.values(), default=0)
            free += host.placement.room.free
            if shape is not None and stranded is not None:
                stranded += host.placement.room.free - room.count(host.node, shape).usable
            largest = max(largest, _largest(host, above=largest))
        return TrialResult(
            arrived=self._arrived,
            admitted=self._admitted,
            rejected=tuple(sorted(self._rejected.items())),
            crossing=self._crossing,
            lopsided=self._lopsided,
            exclusive=tuple(sorted(exclusive.items())),
            spread=spread,
            free=free,
            stranded=stranded,
            largest=largest,
        )


def _counts(cpus: CPUSet, numas: Mapping[int, CPUSet]) -> dict[int, int]:
    return {numa: (cpus & members).bit_count() for numa, members in numas.items()}


def _largest(host: _Host, *, above: int) -> int:
    """CPUs of the largest pod that the node would admit; 0 if that is no more than ``above``."""
    node, placement = host.node, host.placement
    unrequested = (node.allocatable.get(CPU, 0) - node.requested.get(CPU, 0)) // _MILLI
    most = min(unrequested, placement.room.largest)
    state = placement.kubelet
    if state is None:
        return most if most > above else 0
    if not state.kubelet.cpus.static:
        return 0
    if state.config.topology_manager_policy != SINGLE_NUMA_NODE:
        most = min(unrequested, placement.room.free)
    for count in range(most, above, -1):
        try:
            if admit(state, _probe(count)).admitted:
                return count
        except NumazonesError:  # no verdict is no admission
            continue
    return 0


def _probe(cpus: int) -> Pod:
    amounts = {CPU: str(cpus), MEMORY: _PROBE_MEMORY}
    resources = {"requests": amounts, "limits": amounts}
    return Pod.from_api(
        {
            "metadata": {"name": "probe", "uid": "probe"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        }
    )


class RunDevices:
    """The devices of a cluster as they are allocated in one run.

    A run begins without pods, so what pods of the cluster hold is free at first; claims that no pod uses keep
    their devices. A claim that pods share keeps its devices until the last of them leaves.
    """

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
