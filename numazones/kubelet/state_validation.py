"""Checks of state files by a kubelet that starts, with its words where it does not take one.

Each manager looks at its own file: is it of the configured policy, and does it agree with machine and
configuration (``validateState`` of the static policies, kubelet 1.36)? A file that is refused keeps the
kubelet from starting until it is removed, which is safe on a drained node alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.kubelet import cures, go
from numazones.kubelet.checkpoint_values import CPUManagerCheckpoint, MemoryManagerCheckpoint
from numazones.kubelet.cpu_manager import CPUState
from numazones.kubelet.cures import CPU_STATE_FILE, MEMORY_STATE_FILE
from numazones.kubelet.machine_state import MachineState, MemoryTable
from numazones.kubelet.memory_manager import MemoryManager
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers

RESTART_FAILS = "a restart of the kubelet would fail: "
"""Words of conditions before the kubelet's own message."""
MEMORY_DIFFERS = "[memorymanager] the expected machine state is different from the real one"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kubelet would not start."""

    message: str
    """The kubelet's own."""
    file: str = ""
    """The state file to be removed on a drained node; empty: the configuration itself is at fault."""
    cure: str = ""
    """What helps where no file is at fault."""

    def cure_on(self, node: str) -> str:
        """Return what to do.

        >>> Refusal("default cpuset cannot be empty", CPU_STATE_FILE).cure_on("worker-1")
        'drain worker-1, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start it again'
        """
        if not self.file:
            return self.cure
        return cures.without_state_file(node, self.file)


def refusals_of_node(state: Node, kubelet: KubeletManagers) -> tuple[Refusal, ...]:
    """Return why another kubelet would not take the state files of one that runs."""
    config, cpus = state.config, state.cpus
    return refusals_of_files(
        kubelet,
        CPUManagerCheckpoint(config.cpu_manager_policy, cpus.default, cpus.assignments, cpus.pods),
        MemoryManagerCheckpoint(config.memory_manager_policy, state.machine_state),
    )


def refusals_of_files(
    kubelet: KubeletManagers, cpus: CPUManagerCheckpoint | None, memory: MemoryManagerCheckpoint | None
) -> tuple[Refusal, ...]:
    """Return why a kubelet would not take state files, None: there is no such file; empty: it starts."""
    return (*_refusals_of_cpus(kubelet, cpus), *_refusals_of_memory(kubelet, memory))


def _refusals_of_cpus(kubelet: KubeletManagers, found: CPUManagerCheckpoint | None) -> Iterator[Refusal]:
    configured = kubelet.config.cpu_manager_policy
    if found is not None and found.policy != configured:
        yield Refusal(_other_policy(configured, found.policy), CPU_STATE_FILE)
    elif found is not None and kubelet.cpus.static:
        message = _objection_to_cpus(CPUState(found.default, found.entries, found.pod_entries), kubelet)
        if message:
            yield Refusal(message, CPU_STATE_FILE)


def _refusals_of_memory(kubelet: KubeletManagers, found: MemoryManagerCheckpoint | None) -> Iterator[Refusal]:
    configured = kubelet.config.memory_manager_policy
    if found is not None and found.policy != configured:
        yield Refusal(f"[memorymanager] {_other_policy(configured, found.policy)}", MEMORY_STATE_FILE)
    elif found is not None and kubelet.memory.static and _differs(found.machine, kubelet.memory):
        yield Refusal(MEMORY_DIFFERS, MEMORY_STATE_FILE)


def _other_policy(configured: str, found: str) -> str:
    return f"configured policy {go.quote(configured)} differs from state checkpoint policy {go.quote(found)}"


def _objection_to_cpus(state: CPUState, kubelet: KubeletManagers) -> str:
    """Return the static CPU Manager's objection to a state file; empty if it accepts it."""
    manager, default, held = kubelet.cpus, state.default, state.exclusive_cpus()
    if not default:
        # Only where reserved CPUs are apart can none be left, when every other CPU is assigned.
        return "default cpuset cannot be empty" if held else ""
    shared = cpuset.format(default)
    if manager.strict_reservation:
        if manager.reserved & default:
            common = cpuset.format(manager.reserved & default)
            return f'some of strictly reserved cpus: "{common}" are present in defaultCpuSet: "{shared}"'
    elif manager.reserved & ~default and not manager.keeps_reserved_apart:
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
    if kubelet.config.workload_partitioning or not kubelet.config.release.openshift:
        # OpenShift's kubelet expects all CPUs though strict-cpu-reservation has it leave out reserved ones.
        expected &= ~(manager.reserved if manager.keeps_reserved_apart else 0)
    if default | held != expected:
        return (
            f'current set of available CPUs "{cpuset.format(expected)}" '
            f'doesn\'t match with CPUs in state "{cpuset.format(default | held)}"'
        )
    return ""


def _differs(found: MachineState, manager: MemoryManager) -> bool:
    """Return whether tables of memory are not those that the kubelet makes of machine and configuration."""
    expected = {
        numa: {kind: _column(manager, kind, position) for kind in manager.capacity}
        for position, numa in enumerate(manager.numas)
    }
    return expected != {numa: _amounts(state.memory, manager) for numa, state in found.items()}


def _column(manager: MemoryManager, kind: str, position: int) -> tuple[int, int, int]:
    columns = manager.capacity, manager.system_reserved, manager.allocatable
    total, reserved, allocatable = (column[kind][position] for column in columns)
    return total, reserved, allocatable


def _amounts(tables: Mapping[str, MemoryTable], manager: MemoryManager) -> dict[str, tuple[int, int, int]]:
    """Return the amounts of types that each NUMA node has; the kubelet has no table of the others."""
    return {
        kind: (table.total, table.system_reserved, table.allocatable)
        for kind, table in tables.items()
        if kind in manager.capacity
    }
