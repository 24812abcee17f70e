"""Foresee a restart of a kubelet: whether it starts, and which pods it would admit again.

A kubelet that starts reads its state files and then admits every pod again, the oldest first, each on what
the ones before it have left (``HandlePodAdditions``, kubelet 1.36). It does not start where a state file is
of another policy, or contradicts what it has found (``validateState`` of the static policies).

Two things are left to chance. Creation times have whole seconds, and pods of the same one come in any order:
a map's, sorted by an algorithm that is not stable. And device plugins may not have registered again by then:
then devices have no say in where the rest of a pod goes, and a container that runs keeps what it has of them.
One that does not run, as an init container that has ended, cannot get any, and its pod is rejected
(``devicesToAllocate``). So several orders are played, with plugins that are late and with such that are not.

A pod that is rejected so keeps no reason in its status: the kubelet leaves the phase as it was, stops the
containers, and the pod ends as they did, as Succeeded or Failed. The reason is in an event.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from types import MappingProxyType

from numazones.apimachinery.resources import CPU, MEMORY
from numazones.errors import NumazonesError
from numazones.kubelet import go
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.cpu_manager import CPUState
from numazones.kubelet.cures import CPU_STATE_FILE, MEMORY_STATE_FILE
from numazones.kubelet.device_manager import DeviceState
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node, counted_requests
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.rejection import UNEXPECTED, KubeletCrash, KubeletHang
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.state_validation import Refusal, refusals_of_node

_MILLIS = 1000
_TURNS = 8
"""How many of the pods created in the same second are tried as the first and as the last of them."""


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod of the node as a kubelet that starts finds it."""

    name: str
    """For people: namespace/name."""
    info: PodInfo
    created: str = ""
    """Creation time as in its metadata: the oldest pod is admitted first."""
    running: Collection[str] = frozenset()
    """Names of the containers that run."""


class Uncertainty(Enum):
    """Things left to chance when a kubelet starts."""

    ORDER = "order"
    """In which it takes pods that were created in the same second."""
    PLUGINS = "plugins"
    """Whether device plugins have registered again by then."""


@dataclass(frozen=True, slots=True)
class Readmission:
    """Outcome of one pod."""

    name: str
    admitted: bool
    reason: str = ""
    """Of a rejection, as in the kubelet's event; the containers are stopped."""
    message: str = ""
    chance: Uncertainty | None = None
    """What it depends on; the rest is then the worst that was found for this pod. None: it happens."""
    cpus: tuple[int, int] | None = None
    """Exclusive CPUs before and after, as masks, where they are not the same."""


@dataclass(frozen=True, slots=True)
class BlockingPod:
    """A pod that a kubelet which starts crashes or hangs on, in each attempt."""

    name: str
    reason: str
    """KubeletCrash or KubeletHang."""
    message: str
    cure: str


class _NoVerdictError(NumazonesError):
    def __init__(self, stuck: BlockingPod) -> None:
        super().__init__(stuck.message)
        self.stuck = stuck


@dataclass(frozen=True, slots=True)
class Restart:
    """Outcome of a restart."""

    refusals: tuple[Refusal, ...] = ()
    """Why the kubelet would not start; empty: it would."""
    readmissions: tuple[Readmission, ...] = ()
    """Every pod, in the order in which it would be admitted again; where the kubelet refuses a state file,
    as it would be after that file is removed under the running pods. Empty where no kubelet would start."""
    stuck: "BlockingPod | None" = None
    """The pod that the kubelet does not get beyond; then ``readmissions`` are empty."""

    @property
    def rejected(self) -> tuple[Readmission, ...]:
        """The pods that would be rejected, and stopped, in any case."""
        return tuple(one for one in self.readmissions if not one.admitted and one.chance is None)

    @property
    def uncertain(self) -> tuple[Readmission, ...]:
        """The pods that may be rejected, and stopped."""
        return tuple(one for one in self.readmissions if not one.admitted and one.chance is not None)

    @property
    def moved(self) -> tuple[Readmission, ...]:
        """The pods that would be admitted with other CPUs than they have now, or may be."""
        return tuple(one for one in self.readmissions if one.admitted and one.cpus is not None)


def restart(
    node: NodeInfo,
    pods: Iterable[RunningPod],
    config: KubeletConfiguration | None = None,
    *,
    refused: Iterable[Refusal] = (),
) -> Restart:
    """Foresee a restart of a node's kubelet, with its configuration or with another one.

    Args:
        node: as its kubelet sees it now; its pods are not looked at, ``pods`` are.
        pods: all that run there and have not ended.
        config: what the kubelet is configured with when it starts again; None: as it is now.
        refused: state files that are known not to be taken, whatever ``node`` says.

    >>> from numazones import build
    >>> machine = build.machine(cores=4, memory="8Gi")
    >>> config = build.configuration({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    >>> node = NodeInfo(Node.fresh(machine, config))
    >>> restart(node, [], build.configuration({})).refusals[0].file
    'cpu_manager_state'
    """
    state = node.state
    config = config or state.config
    try:
        kubelet = KubeletManagers.start(config, state.machine, {})
    except InvalidConfiguration as error:
        return Restart((Refusal(str(error), cure=error.cure),))
    known = {refusal.file: refusal for refusal in (*refused, *refusals_of_node(state, kubelet))}
    refusals = tuple(known[file] for file in sorted(known))
    files = {refusal.file for refusal in refusals}
    found = Node(
        kubelet,
        kubelet.cpus.initial_state() if CPU_STATE_FILE in files else _kept_cpus(state, kubelet),
        kubelet.memory.initial_state() if MEMORY_STATE_FILE in files else state.memory,
        DeviceState(),
    )
    after = replace(
        node, state=found, pods={}, ended=frozenset(), pressures=(), allocatable=_allocatable(node, config)
    )
    orders = list(_orders(pods))
    try:
        late = in_time = _agreed(_played(after, state, orders, late=True))
        if state.kubelet.devices.resources:
            in_time = _agreed(_played(after, state, orders, late=False))
    except _NoVerdictError as error:
        return Restart(refusals, stuck=error.stuck)
    return Restart(refusals, tuple(_whatever_plugins_do(late, in_time)))


def _orders(pods: Iterable[RunningPod]) -> Iterator[list[RunningPod]]:
    """Yield orders in which a kubelet may take the pods, at least one; the second reverses the first."""
    ordered = sorted(pods, key=lambda pod: (not pod.info.static, pod.created, pod.name))
    groups = [list(found) for _, found in groupby(ordered, lambda pod: (pod.info.static, pod.created))]
    turns = min(max(map(len, groups), default=1), _TURNS)
    for turn in range(turns):
        for step in (1, -1) if turns > 1 else (1,):
            yield [pod for group in groups for pod in _turned(group, turn)[::step]]


def _turned(group: list[RunningPod], turn: int) -> list[RunningPod]:
    """The pods with another one of them first."""
    first = turn % len(group)
    return group[first:] + group[:first]


def _played(
    node: NodeInfo, before: Node, orders: Sequence[list[RunningPod]], *, late: bool
) -> list[tuple[Readmission, ...]]:
    """Play orders of the pods; where the first of them and its reverse agree in everything, no others."""
    played = [tuple(_readmissions(node, before, order, late=late)) for order in orders[:2]]
    if len({frozenset((one.name, *_fate(one)) for one in order) for order in played}) > 1:
        played += (tuple(_readmissions(node, before, order, late=late)) for order in orders[2:])
    return played


def _fate(one: Readmission) -> tuple[bool, str, tuple[int, int] | None, Uncertainty | None]:
    """Return what matters of a pod's outcome; messages have figures that depend on what came before."""
    return one.admitted, one.reason, one.cpus, one.chance


def _agreed(foreseen: Sequence[tuple[Readmission, ...]]) -> list[Readmission]:
    """Return what becomes of each pod, given that of several orders."""
    others = [{one.name: one for one in order} for order in foreseen[1:]]
    return [_worst([one, *(order[one.name] for order in others)], Uncertainty.ORDER) for one in foreseen[0]]


def _whatever_plugins_do(late: list[Readmission], in_time: list[Readmission]) -> Iterator[Readmission]:
    for one, other in zip(late, in_time, strict=True):
        found = [one, other]
        by_order = any(each.chance is Uncertainty.ORDER for each in found)
        yield _worst(found, Uncertainty.ORDER if by_order else Uncertainty.PLUGINS)


def _worst(found: Sequence[Readmission], chance: Uncertainty) -> Readmission:
    """The worst of what may become of a pod, which depends on chance unless all is the same."""
    if len({_fate(one) for one in found}) == 1:
        return found[0]
    return replace(min(found, key=lambda one: (one.admitted, one.cpus is None)), chance=chance)


def _kept_cpus(state: Node, kubelet: KubeletManagers) -> CPUState:
    """Return the state of a CPU Manager that accepts its state file; an empty file is filled again."""
    return state.cpus if state.cpus.default else kubelet.cpus.initial_state()


def _allocatable(node: NodeInfo, config: KubeletConfiguration) -> Mapping[str, int]:
    """Return what the node offers to pods under another reservation, relative to the present one."""
    before, changed = node.state.config, dict(node.allocatable)
    if CPU in changed:
        changed[CPU] -= _reserved_millis(config) - _reserved_millis(before)
    if MEMORY in changed and before.kept_memory and config.kept_memory:
        memory = node.state.machine.memory
        changed[MEMORY] -= config.kept_memory.of(memory).value() - before.kept_memory.of(memory).value()
    return MappingProxyType(changed)


def _reserved_millis(config: KubeletConfiguration) -> int:
    listed = go.parse_cpu_list(config.reserved_system_cpus)
    return listed.bit_count() * _MILLIS if listed else config.reserved_cpu.nanos // 10**6


def _readmissions(
    node: NodeInfo, before: Node, pods: Iterable[RunningPod], *, late: bool
) -> Iterator[Readmission]:
    """Yield what becomes of each pod in this order; ``late``: device plugins register only afterwards."""
    managed = frozenset(before.kubelet.devices.resources) if late else frozenset()
    if not late:
        kubelet = replace(node.state.kubelet, devices=before.kubelet.devices)
        node = replace(node, state=replace(node.state, kubelet=kubelet, devices=before.devices))
    for pod in pods:
        uid = pod.info.pod.uid
        try:
            decided = admit_to_node(node, _without_devices(pod.info, managed))
        except (KubeletCrash, KubeletHang) as error:
            message, _, cure = str(error).partition("; ")
            raise _NoVerdictError(BlockingPod(pod.name, type(error).__name__, message, cure)) from error
        reason, message = decided.reason, decided.message
        if decided.admitted:
            missing = _devices_that_cannot_be_given(pod, before, managed)
            if missing:
                reason = UNEXPECTED
                message = (
                    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
                    f"{missing}, which is unexpected"
                )
        if reason:
            # What it had stays on record: shares are freed only when the kubelet knows all of its pods.
            if decided.managers is not None and decided.managers.admitted:
                node = replace(node, state=decided.recorded)
            yield Readmission(pod.name, False, reason, message)
            continue
        # Init containers don't run again, so they don't give back now what they are given again.
        state = decided.managers.fresh if decided.managers is not None else decided.state
        counted = replace(pod.info, requests=counted_requests(pod.info.pod, node.state.config))
        node = replace(node, state=state, pods={**node.pods, uid: counted})
        held, given = before.cpus.held_by(uid), state.cpus.held_by(uid)
        yield Readmission(pod.name, True, cpus=None if held == given else (held, given))


def _without_devices(info: PodInfo, managed: Collection[str]) -> PodInfo:
    """The pod without its requests for devices of plugins."""
    containers = tuple(
        container._replace(
            requests=tuple(item for item in container.requests if item[0] not in managed),
            limits=tuple(item for item in container.limits if item[0] not in managed),
        )
        for container in info.pod.containers
    )
    return replace(info, pod=replace(info.pod, containers=containers))


def _devices_that_cannot_be_given(pod: RunningPod, before: Node, managed: Collection[str]) -> str:
    """The first resource that a container which does not run asks a plugin for; empty: there is none."""
    held = before.devices.assignments.get(pod.info.pod.uid, {})
    for container in pod.info.pod.containers:
        if container.name in pod.running:
            continue
        for resource, amount in container.limits:
            if resource in managed and amount.nanos > 0 and (resource in held.get(container.name, {})):
                return resource
    return ""
