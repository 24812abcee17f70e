"""A node's history, replayed: what arrived, what left, and whether the model decides as the kubelet did.

Operations come one after the other, as a recorder wrote them. An arrival carries what was observed of it;
``replay`` decides it on the state that the operations before it left, and names every difference. Where a
kubelet picks devices at random among equals, its pick is offered to the model as the plugin's preference
(``Preference``): that the model takes it shows that it was open to it.

Checks of the kubelet that come after its managers (node resources: ``OutOfcpu`` …) reject a pod that the
managers have served already; here the managers must admit it, and it is gone then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.device_manager import Device
from numazones.kubelet.node import Node
from numazones.pod import Pod

MemoryBlocks = tuple[tuple[str, tuple[int, ...], int], ...]
"""(type, NUMA ids, bytes), sorted."""

_AFTER_MANAGERS = "OutOf"


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of an arrival; what was not looked at is None."""

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
    pod: Pod
    observed: Observed
    ended: bool = False
    """Whether it had ended by the time it was looked at, and holds nothing any more."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The kubelet started anew: it admits the pods that run once more."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """A plugin reported a device as healthy or not."""

    resource: str
    device: str
    healthy: bool


Operation = Arrival | Departure | Restart | DeviceHealth


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision of the kubelet, compared."""

    name: str
    differences: tuple[str, ...] = ()
    """What was observed and what the model says, one line each; empty where they agree."""


class Preference:
    """Stands for the device plugins: prefers the devices that the kubelet took."""

    def __init__(self) -> None:
        self._taken: frozenset[str] = frozenset()

    def set(self, taken: frozenset[str]) -> None:
        """Prefer these devices from now on."""
        self._taken = taken

    def __call__(
        self, _resource: str, available: Sequence[str], _must_include: Sequence[str], _size: int
    ) -> Iterable[str]:
        """Return what a plugin's GetPreferredAllocation would."""
        return [device for device in available if device in self._taken]


def replay(
    node: Node,
    devices: Mapping[str, tuple[Device, ...]],
    operations: Iterable[Operation],
    *,
    preference: Preference,
) -> Iterator[Outcome]:
    """Replay a history from a node's state before it; yield one outcome per decision of the kubelet.

    ``devices`` are those that the plugins announce at the start, ``preference`` is the one that the node
    was made with.
    """
    running: dict[str, tuple[str, Pod]] = {}
    announced = dict(devices)
    for operation in operations:
        match operation:
            case Arrival():
                preference.set(operation.observed.devices)
                outcome, node, stays = _arrive(node, operation)
                if stays:
                    running[operation.pod.uid] = (operation.name, operation.pod)
                if operation.observed.admitted is not None:
                    yield outcome
            case Departure():
                node = remove(node, operation.uid)
                running.pop(operation.uid, None)
            case DeviceHealth():
                announced[operation.resource] = tuple(
                    Device(item.id, item.numa, operation.healthy) if item.id == operation.device else item
                    for item in announced.get(operation.resource, ())
                )
                node = node.with_devices(announced)
            case Restart():
                for name, pod in running.values():
                    yield _readmitted(node, name, pod)


def _arrive(node: Node, arrival: Arrival) -> tuple[Outcome, Node, bool]:
    """The outcome, the node afterwards, and whether the pod stays on it."""
    seen, pod = arrival.observed, arrival.pod
    try:
        admission = admit(node, pod)
    except NumazonesError as error:
        return Outcome(arrival.name, (f"the model does not decide: {error}",)), node, False
    late = seen.reason.startswith(_AFTER_MANAGERS)
    differences = list(_verdicts(admission, seen, late=late))
    if not differences and seen.admitted:
        differences = list(_shares(admission, arrival))
    stays = admission.admitted and seen.admitted is not False and not arrival.ended
    return Outcome(arrival.name, tuple(differences)), _after(admission, stays=stays), stays


def _after(admission: Admission, *, stays: bool) -> Node:
    return admission.node if stays or not admission.admitted else remove(admission.node, admission.pod.uid)


def _readmitted(node: Node, name: str, pod: Pod) -> Outcome:
    """After a restart a kubelet admits its pods again from its state files, and nothing changes."""
    again = admit(node, pod)
    if not again.admitted:
        return Outcome(name, (f"after a restart: observed admitted, model {again.reason}: {again.message}",))
    changed = again.node.state_key != node.state_key
    return Outcome(name, ("after a restart: the model gives it another share",) if changed else ())


def _verdicts(admission: Admission, seen: Observed, *, late: bool) -> Iterator[str]:
    expected = "admitted" if seen.admitted or late else f"{seen.reason}: {seen.message}"
    said = "admitted" if admission.admitted else f"{admission.reason}: {admission.message}"
    if expected != said:
        yield f"observed {expected}{' by the managers' if late else ''}, model {said}"


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
        yield f"CPUs: observed {_listed(seen.cpus)}, model {_listed(cpus)}"
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


def _listed(cpus: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {cpuset.format(members)}" for name, members in sorted(cpus.items())) or "none"
