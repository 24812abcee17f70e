"""Decide whether a node admits a pod that is bound to it: all of the kubelet's checks, in its own order.

Rules: kubelet 1.36. The eviction manager comes first (``pkg/kubelet/eviction``: a node under pressure
takes no more pods). Then the resource managers decide **and allocate** (``numazones.kubelet.admission``),
and only after them comes the look at the node as a whole (``pkg/kubelet/lifecycle/predicate``): operating
system, pod slots, requests against what is allocatable, node affinity, host ports, taints that evict. So a
pod may be given CPUs and then be rejected with OutOfcpu. What it was given stays on record, in state files
and zones, until the next admission, which frees the share of every pod that is active no more before it
decides anything. A critical pod that lacks nothing but amounts is admitted, and others are preempted
(``pkg/kubelet/preemption``): as few Guaranteed pods as can be, then as few Burstable ones, then BestEffort
ones; among equals those nearest to what is missing, then those that ask for less.

A pod that is being deleted counts until its containers have stopped. The kubelet then gives its share back
at once, in both respects, some time before the object leaves the API. There is no check of the architecture
but through node affinity. Not covered: sysctls, AppArmor, volumes, supplemental groups, a node shutting down.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from numazones.apimachinery.resources import CPU, MEMORY, STORAGE, figures, is_memory
from numazones.apimachinery.taints import Taint
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.demand import PodLevel, QOSClass, effective
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import OS_LABEL, NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import UNEXPECTED
from numazones.wording import pluralize

PODS = "pods"
"""Stands for the pod slots of a node among its resources."""
EVICTED = "Evicted"
OUT_OF = "OutOf"
"""Reasons for lack of a resource begin with it: OutOfcpu, OutOfpods."""
NODE_AFFINITY = "NodeAffinity"
NODE_PORTS = "NodePorts"
TAINT_TOLERATION = "TaintToleration"
PODOS_LABEL = "PodOSSelectorNodeLabelDoesNotMatch"
POD_OS = "PodOSNotSupported"

_FIRST = (CPU, MEMORY, STORAGE)
_NATIVE_DOMAIN = "kubernetes.io/"
_MEMORY_PRESSURE = "MemoryPressure"
_MEMORY_PRESSURE_TAINT = Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule")
_NANOS_PER_MILLI, _NANOS_PER_UNIT = 10**6, 10**9

Needs = tuple[tuple[str, int], ...]
"""(resource, amount that is missing)"""


@dataclass(frozen=True, slots=True)
class NodeAdmission:
    """A node's decision about one pod."""

    admitted: bool
    reason: str
    """Of a rejection, as in the pod's status; empty if admitted."""
    message: str
    """Of a rejection, as in the pod's status without ``Pod was rejected: ``; empty if admitted."""
    sentence: str
    """A rejection by the node as a whole in plain words; of the managers' ``explain`` tells more."""
    managers: Admission | None
    """The resource managers' decision; None where the pod did not come so far."""
    state: Node = field(repr=False)
    """What the next pod is decided on."""
    recorded: Node = field(repr=False)
    """What state files and zones show until then: the shares of rejected and preempted pods included."""
    preempted: tuple[str, ...] = ()
    """Uids of the pods that make room for a critical one."""


def admit_to_node(node: NodeInfo, pod: PodInfo) -> NodeAdmission:
    """Decide about a pod that is bound to the node.

    Raises:
        KubeletCrash, KubeletHang: the kubelet would not decide.
    """
    pressure = _pressure(node, pod)
    if pressure is not None:
        return NodeAdmission(False, *pressure, None, node.state, node.state)
    before = _remove_all(node.state, node.ended)
    managers = admit(before, pod.pod)
    if not managers.admitted:
        return NodeAdmission(
            False, managers.reason, managers.message, "", managers, managers.node, managers.node
        )
    granted = managers.node
    objections = list(_objections(node, pod, granted))
    if not objections:
        return NodeAdmission(True, "", "", "", managers, granted, granted)
    if pod.critical and all(isinstance(one, _Insufficient) for one in objections):
        return _preempt(node, pod, managers, [one for one in objections if isinstance(one, _Insufficient)])
    if pod.critical:
        objections = [one for one in objections if not isinstance(one, _Insufficient)]
    first = objections[0]
    return NodeAdmission(
        False, first.reason, first.message, first.sentence, managers, remove(granted, pod.pod.uid), granted
    )


def _remove_all(state: Node, uids: Iterable[str]) -> Node:
    for uid in sorted(uids):
        state = remove(state, uid)
    return state


def _pressure(node: NodeInfo, pod: PodInfo) -> tuple[str, str, str] | None:
    """Return the eviction manager's objection: reason, message, sentence."""
    if not node.pressures or pod.critical:
        return None
    if node.pressures == (_MEMORY_PRESSURE,) and (
        node.state.kubelet.demand_of(pod.pod).qos is not QOSClass.BEST_EFFORT
        or pod.constraints.tolerates(_MEMORY_PRESSURE_TAINT)
    ):
        return None
    return (
        EVICTED,
        f"The node had condition: [{' '.join(node.pressures)}]. ",
        f"the node is under pressure ({', '.join(node.pressures)}) and rejects such pods until that ends",
    )


@dataclass(frozen=True, slots=True)
class NodeObjection:
    """Reason why the node as a whole does not run a pod, amounts aside."""

    reason: str
    message: str
    """The kubelet's, without ``Pod was rejected: ``."""
    sentence: str
    """The same in plain words."""


@dataclass(frozen=True, slots=True)
class _Insufficient:
    """Too little of a resource is left."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        return OUT_OF + self.resource

    @property
    def message(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        )

    @property
    def sentence(self) -> str:
        if self.resource == PODS:
            return f"the node runs {pluralize(self.used, 'pod')} and allows at most {self.capacity}"
        asked, used, capacity = figures(self.resource, self.requested, self.used, self.capacity)
        return f"requests {asked} {self.resource}; pods on the node request {used} of its {capacity}"

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)


_AnyObjection = NodeObjection | _Insufficient


def _objections(node: NodeInfo, pod: PodInfo, granted: Node) -> Iterator[_AnyObjection]:
    """Yield every objection of the node as a whole; the first one counts."""
    foreign = operating_system(node.os, pod)
    if foreign is not None:
        yield foreign
        return  # the kubelet looks no further, not even for room that preemption could make
    yield from _insufficient(node, pod, granted)
    if not pod.constraints.selects(node.name, node.labels):
        yield _predicate(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector")
    if _has_port_conflict(node, pod):
        yield _predicate(NODE_PORTS, "node(s) didn't have free ports for the requested pod ports")
    evicting = [taint for taint in node.taints if taint.effect == "NoExecute"]
    if not pod.static and not all(pod.constraints.tolerates(taint) for taint in evicting):
        yield _predicate(TAINT_TOLERATION, "node(s) had taints that the pod didn't tolerate")


_SENTENCES = {
    NODE_AFFINITY: "its node selector or affinity does not match this node",
    NODE_PORTS: "a host port that it requests is taken on this node",
    TAINT_TOLERATION: "the node has a NoExecute taint that the pod does not tolerate",
}


def _predicate(name: str, description: str) -> NodeObjection:
    return NodeObjection(name, f"Predicate {name} failed: {description}", _SENTENCES[name])


def operating_system(os: str, pod: PodInfo) -> NodeObjection | None:
    """Return the objection to a pod for another operating system, which no scheduler looks at."""
    if dict(pod.pod.labels).get(OS_LABEL, os) != os:
        reason, differs = PODOS_LABEL, "`kubernetes.io/os` label doesn't match node label"
    elif pod.constraints.os not in ("", os):
        reason, differs = POD_OS, "OS field doesn't match node OS"
    else:
        return None
    sentence = f"it is not for {os}, the node's operating system"
    return NodeObjection(reason, f"Failed to admit pod as the {differs}", sentence)


def _insufficient(node: NodeInfo, pod: PodInfo, granted: Node) -> Iterator[_Insufficient]:
    if len(node.pods) + 1 > node.pod_slots:
        yield _Insufficient(PODS, 1, len(node.pods), node.pod_slots)
    allocatable = _with_held_devices(node.allocatable, granted, pod.pod.uid)
    requests = counted_requests(pod.pod, granted.config)
    for resource in (*_FIRST, *sorted(requests.keys() - set(_FIRST))):
        amount, capacity = requests.get(resource, 0), allocatable.get(resource, 0)
        # Extended resources that the node does not know are taken to be cluster-wide.
        if amount > 0 and (resource in allocatable or not _is_extended(resource)):
            used = sum(other.requests.get(resource, 0) for other in node.pods.values())
            if amount > capacity - used:
                yield _Insufficient(resource, amount, used, capacity)


def _with_held_devices(allocatable: Mapping[str, int], granted: Node, uid: str) -> Mapping[str, int]:
    """Return what is allocatable; of devices at least as many as are in use, if the pod has some."""
    if uid not in granted.devices.assignments:
        return allocatable
    held = {name: devices.bit_count() for name, devices in granted.devices.allocated.items()}
    return {**allocatable, **{name: max(count, allocatable.get(name, 0)) for name, count in held.items()}}


def _is_extended(resource: str) -> bool:
    return "/" in resource and _NATIVE_DOMAIN not in resource


def counted_requests(pod: Pod, config: KubeletConfiguration) -> dict[str, int]:
    """Return what a pod counts for when it is admitted; cpu in milli-CPUs, others in whole units."""
    claimed = pod.claimed_resources if config.skips_claimed_devices else frozenset()
    totals = dict(
        effective(
            (
                container.kind,
                tuple(
                    (name, amount.nanos)
                    for name, amount in container.requests
                    if (container.name, name) not in claimed
                ),
            )
            for container in pod.containers
        )
    )
    if pod.resources is not None and config.pod_level not in {PodLevel.DROPPED, PodLevel.LEFT_ALONE_UNSEEN}:
        for name, amount in pod.resources.requests:
            if name == CPU or is_memory(name):
                totals[name] = amount.nanos
    for name, amount in pod.overhead:
        totals[name] = totals.get(name, 0) + amount.nanos
    return {
        name: -(-nanos // (_NANOS_PER_MILLI if name == CPU else _NANOS_PER_UNIT))
        for name, nanos in totals.items()
    }


def _has_port_conflict(node: NodeInfo, pod: PodInfo) -> bool:
    wanted = pod.constraints.host_ports
    if not wanted:
        return False
    taken = [port for other in node.pods.values() for port in other.constraints.host_ports]
    return any(one.collides(other) for one in wanted for other in taken)


def _preempt(
    node: NodeInfo, pod: PodInfo, managers: Admission, lacking: list[_Insufficient]
) -> NodeAdmission:
    """Preempt others for a critical pod; rejected only where all of them together would not be enough."""
    granted = managers.node
    try:
        victims = victims_for(node, pod, tuple((one.resource, one.missing) for one in lacking))
    except NoVictims as error:
        message = f"Unexpected error while attempting to recover from admission failure: {error}"
        after = remove(granted, pod.pod.uid)
        return NodeAdmission(False, UNEXPECTED, message, lacking[0].sentence, managers, after, granted)
    return NodeAdmission(True, "", "", "", managers, _remove_all(granted, victims), granted, victims)


class NoVictims(NumazonesError):
    """Not even all pods that may be preempted would make room; the message is the kubelet's."""

    def __init__(self, left: Needs) -> None:
        """Name what would still be missing."""
        listed = "".join(f"(res: {resource}, q: {amount}), " for resource, amount in left)
        super().__init__(
            "preemption: error finding a set of pods to preempt: "
            f"no set of running pods found to reclaim resources: [{listed}]"
        )


def victims_for(node: NodeInfo, pod: PodInfo, needs: Needs) -> tuple[str, ...]:
    """Return the uids of the pods to preempt for a critical pod.

    Raises:
        NoVictims: there are not enough.
    """
    ranks: dict[QOSClass, list[str]] = {qos: [] for qos in QOSClass}
    for uid, other in node.pods.items():
        if pod.outranks(other):
            ranks[node.state.kubelet.demand_of(other.pod).qos].append(uid)
    search = _Search(node)
    best_effort, burstable, guaranteed = (
        ranks[qos] for qos in (QOSClass.BEST_EFFORT, QOSClass.BURSTABLE, QOSClass.GUARANTEED)
    )
    left = search.without(needs, (*best_effort, *burstable, *guaranteed))
    if left:
        raise NoVictims(left)
    dearest = search.nearest(guaranteed, search.without(needs, (*best_effort, *burstable)))
    dear = search.nearest(burstable, search.without(needs, (*best_effort, *dearest)))
    cheap = search.nearest(best_effort, search.without(needs, (*dear, *dearest)))
    return (*cheap, *dear, *dearest)


class _Search:
    """Looks for pods of one node whose requests cover what is missing."""

    def __init__(self, node: NodeInfo) -> None:
        self._pods = node.pods

    def without(self, needs: Needs, uids: Iterable[str]) -> Needs:
        """Return what is still missing when pods are gone."""
        gone = list(uids)
        left = (
            (resource, amount - sum(self._request(uid, resource) for uid in gone))
            for resource, amount in needs
        )
        return tuple((resource, amount) for resource, amount in left if amount > 0)

    def nearest(self, uids: Sequence[str], needs: Needs) -> list[str]:
        """Return pods that cover what is missing, the nearest to it first."""
        candidates, chosen = list(uids), list[str]()
        while needs:
            best = 0
            for position in range(1, len(candidates)):
                if self._prefers(candidates[position], candidates[best], needs):
                    best = position
            chosen.append(candidates[best])
            needs = self.without(needs, (candidates[best],))
            candidates[best] = candidates[-1]
            candidates.pop()
        return chosen

    def _prefers(self, uid: str, other: str, needs: Needs) -> bool:
        mine, theirs = self._distance(uid, needs), self._distance(other, needs)
        return mine < theirs or (mine == theirs and self._size(uid) <= self._size(other))

    def _distance(self, uid: str, needs: Needs) -> float:
        remains = ((amount - self._request(uid, resource), amount) for resource, amount in needs)
        return sum((left / amount) ** 2 for left, amount in remains if left > 0)

    def _size(self, uid: str) -> tuple[int, int]:
        return self._request(uid, MEMORY), self._request(uid, CPU)

    def _request(self, uid: str, resource: str) -> int:
        return 1 if resource == PODS else self._pods[uid].requests.get(resource, 0)
