"""What a restart of a kubelet would do to a node: whether it starts, and which pods it would admit again.

A kubelet that starts reads its state files and then admits every pod again, the oldest first, each on what
the ones before it have left (``HandlePodAdditions``, kubelet 1.36). It does not start where a state file is
of another policy, or contradicts what it has found (``validateState`` of the static policies).

Device plugins may not have registered again by then. A container that runs keeps the devices that it has, and
they have no say in where the rest goes. One that does not run, as an init container that has ended, must be
given some, so its pod is rejected unless the plugin was faster (``devicesToAllocate``): a race, told as one.

A pod that is rejected so keeps no reason in its status: the kubelet leaves the phase as it was, stops the
containers, and the pod ends as they did, as Succeeded or Failed. The reason is in an event.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from numazones import cpuset
from numazones.kubelet import go
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.cpu_manager import CPUState
from numazones.kubelet.device_manager import DeviceState
from numazones.kubelet.memory_manager import MemoryManager
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node, counted_requests
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.rejection import UNEXPECTED
from numazones.kubelet.startup import Kubelet
from numazones.resources import CPU, MEMORY

CPU_STATE_FILE = "cpu_manager_state"
MEMORY_STATE_FILE = "memory_manager_state"

_MILLIS = 1000


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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kubelet would not start."""

    message: str
    """The kubelet's own."""
    file: str = ""
    """The state file to be removed on a drained node; empty: the configuration itself is at fault."""


@dataclass(frozen=True, slots=True)
class Readmission:
    """What becomes of one pod."""

    name: str
    admitted: bool
    reason: str = ""
    """Of a rejection, as in the kubelet's event; the containers are stopped."""
    message: str = ""
    awaited: str = ""
    """Of a pod that is admitted only if the device plugin of this resource has registered again before; else
    it is rejected with ``reason`` and ``message``."""
    cpus: tuple[int, int] | None = None
    """Exclusive CPUs before and after, as masks, where they are not the same."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What a restart would do."""

    refusals: tuple[Refusal, ...] = ()
    """Why the kubelet would not start; empty: it would."""
    readmissions: tuple[Readmission, ...] = ()
    """Every pod, in the order in which it would be admitted again; where the kubelet refuses a state file,
    as it would be after that file is removed under the running pods. Empty where no kubelet would start."""

    @property
    def rejected(self) -> tuple[Readmission, ...]:
        """The pods that would be rejected, and stopped."""
        return tuple(one for one in self.readmissions if not one.admitted)

    @property
    def in_doubt(self) -> tuple[Readmission, ...]:
        """The pods that would be rejected, and stopped, if a device plugin comes too late."""
        return tuple(one for one in self.readmissions if one.awaited)

    @property
    def moved(self) -> tuple[Readmission, ...]:
        """The pods that would be admitted with other CPUs than they have now."""
        return tuple(one for one in self.readmissions if one.admitted and one.cpus is not None)


def restart(
    node: NodeInfo, pods: Iterable[RunningPod], config: KubeletConfiguration | None = None
) -> Restart:
    """Foresee a restart of a node's kubelet, with its configuration or with another one.

    Args:
        node: as its kubelet sees it now; its pods are not looked at, ``pods`` are.
        pods: all that run there and have not ended.
        config: what the kubelet is configured with when it starts again; None: as it is now.

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
        kubelet = Kubelet.start(config, state.machine, {})
    except InvalidConfiguration as error:
        return Restart((Refusal(str(error)),))
    refusals = tuple(_refusals(state, kubelet))
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
    ordered = sorted(pods, key=lambda pod: (not pod.info.static, pod.created, pod.name))
    return Restart(refusals, tuple(_readmissions(after, state, ordered)))


def _refusals(state: Node, kubelet: Kubelet) -> Iterator[Refusal]:
    """Yield why the managers would not take their state files; each looks at its own."""
    before, now = state.config, kubelet.config
    if before.cpu_manager_policy != now.cpu_manager_policy:
        yield _other_policy(now.cpu_manager_policy, before.cpu_manager_policy, CPU_STATE_FILE)
    elif kubelet.cpus.static:
        message = _objection_to_cpus(state.cpus, kubelet)
        if message:
            yield Refusal(message, CPU_STATE_FILE)
    if before.memory_manager_policy != now.memory_manager_policy:
        refusal = _other_policy(now.memory_manager_policy, before.memory_manager_policy, MEMORY_STATE_FILE)
        yield replace(refusal, message=f"[memorymanager] {refusal.message}")
    elif _tables(state.kubelet.memory) != _tables(kubelet.memory):
        message = "[memorymanager] the expected machine state is different from the real one"
        yield Refusal(message, MEMORY_STATE_FILE)


def _other_policy(configured: str, found: str, file: str) -> Refusal:
    return Refusal(
        f"configured policy {go.quote(configured)} differs from state checkpoint policy {go.quote(found)}",
        file,
    )


def _objection_to_cpus(state: CPUState, kubelet: Kubelet) -> str:
    """What the static CPU Manager says against a state file; empty where it takes it."""
    manager, default, held = kubelet.cpus, state.default, state.exclusive_cpus()
    if not default:
        # Strict reservation alone can leave none, when every other CPU is assigned.
        return "default cpuset cannot be empty" if held else ""
    shared = cpuset.format(default)
    if manager.strict_reservation:
        if manager.reserved & default:
            common = cpuset.format(manager.reserved & default)
            return f'some of strictly reserved cpus: "{common}" are present in defaultCpuSet: "{shared}"'
    elif manager.reserved & ~default:
        reserved = cpuset.format(manager.reserved)
        return f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"'
    for uid, containers in state.assignments.items():
        for container, cpus in containers.items():
            if cpus & default:
                return (
                    f'pod: {uid}, container: {container} cpuset: "{cpuset.format(cpus)}" '
                    f'overlaps with default cpuset "{shared}"'
                )
    expected = manager.topology.all_cpus
    if manager.strict_reservation:
        expected &= ~manager.reserved
    if default | held != expected:
        return (
            f'current set of available CPUs "{cpuset.format(expected)}" '
            f'doesn\'t match with CPUs in state "{cpuset.format(default | held)}"'
        )
    return ""


def _tables(manager: MemoryManager) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """What the Memory Manager compares of its state with the machine and its configuration."""
    return manager.capacity, manager.system_reserved, manager.allocatable


def _kept_cpus(state: Node, kubelet: Kubelet) -> CPUState:
    """What a CPU Manager starts with that takes its state file; an empty one is filled anew."""
    return state.cpus if state.cpus.default else kubelet.cpus.initial_state()


def _allocatable(node: NodeInfo, config: KubeletConfiguration) -> Mapping[str, int]:
    """What the node offers to pods with another reservation: that much more or less than it does now."""
    before, changed = node.state.config, dict(node.allocatable)
    if CPU in changed:
        changed[CPU] -= _reserved_millis(config) - _reserved_millis(before)
    if MEMORY in changed and before.total_reserved_memory and config.total_reserved_memory:
        changed[MEMORY] -= config.total_reserved_memory.value() - before.total_reserved_memory.value()
    return MappingProxyType(changed)


def _reserved_millis(config: KubeletConfiguration) -> int:
    listed = go.parse_cpu_list(config.reserved_system_cpus)
    return listed.bit_count() * _MILLIS if listed else config.reserved_cpu.nanos // 10**6


def _readmissions(node: NodeInfo, before: Node, pods: Iterable[RunningPod]) -> Iterator[Readmission]:
    managed = frozenset(before.kubelet.devices.resources)
    for pod in pods:
        uid = pod.info.pod.uid
        decided = admit_to_node(node, _without_devices(pod.info, managed))
        if not decided.admitted:
            # What it had stays on record: shares are freed only when the kubelet knows all of its pods.
            if decided.managers is not None and decided.managers.admitted:
                node = replace(node, state=decided.recorded)
            yield Readmission(pod.name, False, decided.reason, decided.message)
            continue
        # Init containers don't run again, so they don't give back now what they are given again.
        state = decided.managers.fresh if decided.managers is not None else decided.state
        counted = replace(pod.info, requests=counted_requests(pod.info.pod, node.state.config))
        node = replace(node, state=state, pods={**node.pods, uid: counted})
        held, given = before.cpus.held_by(uid), state.cpus.held_by(uid)
        cpus = None if held == given else (held, given)
        awaited = _devices_to_be_given(pod, before, managed)
        if awaited:
            message = (
                "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
                f"{awaited}, which is unexpected"
            )
            yield Readmission(pod.name, True, UNEXPECTED, message, awaited, cpus)
        else:
            yield Readmission(pod.name, True, cpus=cpus)


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


def _devices_to_be_given(pod: RunningPod, before: Node, managed: Collection[str]) -> str:
    """The first resource that a container which does not run asks a plugin for; empty: there is none."""
    held = before.devices.assignments.get(pod.info.pod.uid, {})
    for container in pod.info.pod.containers:
        if container.name in pod.running:
            continue
        for resource, amount in container.limits:
            if resource in managed and amount.nanos > 0 and (resource in held.get(container.name, {})):
                return resource
    return ""
