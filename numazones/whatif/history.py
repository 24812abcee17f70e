"""A node's history, replayed: what arrived, what left, and whether the model decides as the kubelet did.

Operations come one after the other, as a recorder wrote them. An arrival carries what was observed of it;
``replay`` decides it on the state that the operations before it left, and names every difference. Where a
kubelet picks devices at random among equals, its pick is offered to the model as the plugin's preference
(``Preference``): that the model takes it shows that it was open to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, after_start, remove
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import NodeAdmission, admit_to_node, counted_requests
from numazones.kubelet.node_info import NodeInfo, PodInfo

MemoryBlocks = tuple[tuple[str, tuple[int, ...], int], ...]
"""(type, NUMA ids, bytes), sorted."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of an arrival; None for what was not observed."""

    admitted: bool | None
    """None: the kubelet had not decided by the time it was looked at."""
    reason: str = ""
    message: str = ""
    """Of a rejection, without ``Pod was rejected: ``."""
    cpus: Mapping[str, int] | None = None
    """Container → exclusive CPUs in the CPU manager's state."""
    memory: Mapping[str, MemoryBlocks] | None = None
    """Container → blocks in the memory manager's state."""
    devices: frozenset[str] = frozenset()
    """Ids that containers were given."""
    default_cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod reached the kubelet."""

    name: str
    """For people: namespace/name."""
    pod: PodInfo
    observed: Observed
    ended: bool = False
    """Whether it had ended by the time it was looked at, and holds nothing any more."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class KubeletRestart:
    """The kubelet restarted: it admits the running pods again."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """A plugin reported a device as healthy or not."""

    resource: str
    device: str
    healthy: bool


@dataclass(frozen=True, slots=True)
class AlreadyRunning:
    """A pod was there when the recording began; its share is part of the node's state."""

    name: str
    """For people: namespace/name."""
    pod: PodInfo
    cpus: Mapping[str, int]
    """Container → exclusive CPUs, as the kubelet told it; of the containers that it told of."""
    memory: Mapping[str, MemoryBlocks]
    devices: frozenset[str] = frozenset()


Operation = AlreadyRunning | Arrival | Departure | KubeletRestart | DeviceHealth


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One decision of the kubelet, compared."""

    name: str
    differences: tuple[str, ...] = ()
    """What was observed and what the model says, one line each; empty where they agree."""
    at_restart: str = ""
    """Reason and message with which a kubelet that restarts now would reject the pod, although it runs."""


class Preference:
    """The device plugins' preference: the devices that the kubelet took."""

    def __init__(self) -> None:
        self._taken: frozenset[str] = frozenset()

    def set(self, taken: frozenset[str]) -> None:
        """Prefer these devices from now on."""
        self._taken = taken

    def __call__(
        self, _resource: str, available: Sequence[str], _must_include: Sequence[str], _size: int
    ) -> Iterable[str]:
        """Return what a plugin's GetPreferredAllocation would return."""
        return [device for device in available if device in self._taken]


def replay(
    node: NodeInfo,
    devices: Mapping[str, tuple[Device, ...]],
    operations: Iterable[Operation],
    *,
    preference: Preference,
) -> Iterator[ReplayedDecision]:
    """Replay a history from a node's state before it; yield one outcome per decision of the kubelet.

    ``devices`` are those that the plugins announce at the start, ``preference`` is the one that the node's
    state was made with.
    """
    names: dict[str, str] = {}
    announced = dict(devices)
    for operation in operations:
        match operation:
            case Arrival(name, pod, observed):
                preference.set(observed.devices)
                outcome, node = _arrive(_with_allocatable_devices(node, announced), operation)
                names[pod.pod.uid] = name
                if observed.admitted is not None:
                    yield outcome
            case AlreadyRunning(name, pod):
                names[pod.pod.uid] = name
                node = replace(node, pods={**node.pods, pod.pod.uid: pod})
                yield _held_outcome(node.state, operation)
            case Departure(uid):
                node = _without_pod(node, uid)
            case DeviceHealth(resource, device, healthy):
                announced[resource] = tuple(
                    Device(item.id, item.numa, healthy) if item.id == device else item
                    for item in announced.get(resource, ())
                )
                node = replace(node, state=node.state.with_devices(announced))
            case KubeletRestart():
                for uid, pod in node.pods.items():
                    yield _readmission(node.state, names[uid], pod)


def _with_allocatable_devices(node: NodeInfo, announced: Mapping[str, tuple[Device, ...]]) -> NodeInfo:
    """Return the node with as many devices allocatable as are healthy."""
    healthy = {resource: sum(item.healthy for item in items) for resource, items in announced.items()}
    return replace(node, allocatable={**node.allocatable, **healthy})


def _without_pod(node: NodeInfo, uid: str) -> NodeInfo:
    pods = {other: pod for other, pod in node.pods.items() if other != uid}
    return replace(node, state=remove(node.state, uid), pods=pods)


def _arrive(node: NodeInfo, arrival: Arrival) -> tuple[ReplayedDecision, NodeInfo]:
    """Return the outcome, and the node afterwards."""
    seen, info = arrival.observed, arrival.pod
    try:
        said = admit_to_node(node, info)
    except NumazonesError as error:
        return _undecided(arrival.name, error), node
    differences = list(_verdicts(said, seen))
    if not differences and seen.admitted and said.managers is not None:
        differences = list(_shares(said.managers, arrival))
    after = replace(node, state=said.state)
    for uid in said.preempted:
        after = _without_pod(after, uid)
    if said.admitted:
        counted = replace(info, requests=counted_requests(info.pod, node.state.config))
        after = replace(after, pods={**after.pods, info.pod.uid: counted})
        if seen.admitted is False or arrival.ended:
            after = _without_pod(after, info.pod.uid)
    return ReplayedDecision(arrival.name, tuple(differences)), after


def _undecided(name: str, error: NumazonesError) -> ReplayedDecision:
    return ReplayedDecision(name, (f"the model does not decide: {error}",))


def _readmission(node: Node, name: str, pod: PodInfo) -> ReplayedDecision:
    """Check that the kubelet admits its pods again after a restart, and that nothing changes.

    Whether init containers still ran, or had given their memory back, makes no difference.
    """
    try:
        again = admit(node, pod.pod)
    except NumazonesError as error:
        return _undecided(name, error)
    if not again.admitted:
        return ReplayedDecision(
            name, (f"after a restart: observed admitted, model {again.reason}: {again.message}",)
        )
    changed = again.node.state_key != after_start(node, pod.pod).state_key
    return ReplayedDecision(
        name, ("after a restart: the model gives it different resources",) if changed else ()
    )


def _held_outcome(node: Node, held: AlreadyRunning) -> ReplayedDecision:
    """Check that the model lets the pod keep what the kubelet says that it holds, as at a restart."""
    uid = held.pod.pod.uid
    try:
        again = admit(node, held.pod.pod)
    except NumazonesError as error:
        return _undecided(held.name, error)
    at_restart = ""
    if not again.admitted and any(it.kind is ContainerKind.INIT for it in held.pod.pod.containers):
        # They need again what they have given back: kubelets reject and stop such pods when they restart.
        at_restart = f"{again.reason}: {again.message}"
        outcome = ReplayedDecision(held.name)
    else:
        outcome = _readmission(node, held.name, held.pod)
    cpus, memory = node.cpus.assignments.get(uid, {}), node.memory.assignments.get(uid, {})
    differences = list(outcome.differences)
    known = {name: cpus.get(name, 0) for name in held.cpus}
    if known != dict(held.cpus):
        differences.append(f"CPUs: observed {_cpus_text(held.cpus)}, in the state {_cpus_text(known)}")
    blocks = {name: _blocks(memory.get(name, ())) for name in held.memory}
    if blocks != dict(held.memory):
        differences.append(f"memory: observed {dict(held.memory)}, in the state {blocks}")
    kinds = node.device_assignments.get(uid, {})
    given = {one for container in kinds.values() for ids in container.values() for one in ids}
    if not held.devices <= given:
        differences.append(f"devices: observed {sorted(held.devices)}, in the state {sorted(given)}")
    return ReplayedDecision(held.name, tuple(differences), at_restart)


def _blocks(blocks: Iterable[Block]) -> MemoryBlocks:
    return tuple(
        sorted((block.type, tuple(cpuset.ids(block.affinity)), block.size) for block in blocks if block.size)
    )


def _verdicts(admission: NodeAdmission, seen: Observed) -> Iterator[str]:
    if seen.admitted is None:
        return
    expected = "admitted" if seen.admitted else f"{seen.reason}: {seen.message}"
    said = "admitted" if admission.admitted else f"{admission.reason}: {admission.message}"
    if expected != said:
        yield f"observed {expected}, model {said}"


def _shares(admission: Admission, arrival: Arrival) -> Iterator[str]:
    seen, node, uid = arrival.observed, admission.node, admission.pod.uid
    cpus = node.cpus.assignments.get(uid, {})
    memory = {
        name: tuple(sorted((block.type, tuple(cpuset.ids(block.affinity)), block.size) for block in blocks))
        for name, blocks in node.memory.assignments.get(uid, {}).items()
    }
    if arrival.ended:
        # State files lag: what is still in them of a pod that has ended is compared as it was given.
        cpus = {
            name: admission.containers[name].cpus for name in seen.cpus or {} if name in admission.containers
        }
        memory = {
            name: tuple(
                sorted((block.type, tuple(cpuset.ids(block.affinity)), block.size) for block in given.memory)
            )
            for name, given in admission.containers.items()
            if name in (seen.memory or {})
        }
    if seen.cpus is not None and dict(seen.cpus) != dict(cpus):
        yield f"CPUs: observed {_cpus_text(seen.cpus)}, model {_cpus_text(cpus)}"
    if seen.memory is not None and dict(seen.memory) != memory:
        yield f"memory: observed {dict(seen.memory)}, model {memory}"
    if seen.default_cpus is not None and not arrival.ended and seen.default_cpus != node.cpus.default:
        observed, said = cpuset.format(seen.default_cpus), cpuset.format(node.cpus.default)
        yield f"shared CPUs: observed {observed}, model {said}"
    given = {
        device for share in admission.containers.values() for ids in share.devices.values() for device in ids
    }
    if not seen.devices <= given:
        yield f"devices: observed {sorted(seen.devices)}, model {sorted(given)}"


def _cpus_text(cpus: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {cpuset.format(members)}" for name, members in sorted(cpus.items())) or "none"
