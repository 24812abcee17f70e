"""Resources that the kubelet reserves: CPUs as a set, memory per NUMA node and type.

CPUs: the configuration's explicit list (reservedSystemCPUs), else the online CPUs that podresources do not
call allocatable; without either, the set that the static policy takes at its start is computed, which is
exact because it depends on machine and configuration only. Under policy none no CPU is kept apart.
Memory: reservedMemory as the memory manager wrote it down, else as configured.
"""

from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.api.kubelet_settings import is_strict
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.cpu_manager import CPUManager, CPUState
from numazones.kubelet.cpu_topology import CPUTopology
from numazones_exporter.observation import DISAGREE, KUBELET_CONFIG, Observation
from numazones_node.problems import Problem
from numazones_node.sysfs import Hardware

STATIC_CPU = "static"
STATIC_MEMORY = "Static"


@dataclass(frozen=True, slots=True)
class ReservedCPUs:
    """The reserved CPUs that are online, or why they are not known."""

    cpus: CPUSet | None
    problems: tuple[Problem, ...] = ()


def cpu_policy(observation: Observation) -> str | None:
    """The CPU manager's policy, from the configuration, else from its state, else from its offer."""
    if observation.kubelet is not None:
        return observation.kubelet.cpu_manager_policy
    if observation.cpu_manager is not None:
        return observation.cpu_manager.policy
    if observation.podresources is not None:  # only the static policy has CPUs to offer
        return STATIC_CPU if observation.podresources.allocatable_cpus else "none"
    return None


def memory_policy(observation: Observation) -> str | None:
    """The memory manager's policy, from the configuration, else from its state, else from its offer."""
    if observation.kubelet is not None:
        return observation.kubelet.memory_manager_policy
    if observation.memory_manager is not None:
        return observation.memory_manager.policy
    if observation.podresources is not None:
        return STATIC_MEMORY if observation.podresources.allocatable_memory else "None"
    return None


def reserved_cpus(observation: Observation, hardware: Hardware) -> ReservedCPUs:
    """Return the reserved CPUs, from the most exact source that could be read."""
    online = hardware.machine.all_cpus
    policy = cpu_policy(observation)
    explicit, problems = _configured_cpus(observation)
    offered = None
    if policy == STATIC_CPU and observation.podresources is not None:
        offered = online & ~observation.podresources.allocatable_cpus
    if explicit is not None:
        if offered is not None and offered != explicit & online:
            problems += (
                Problem(
                    KUBELET_CONFIG,
                    DISAGREE,
                    f"reservedSystemCPUs is {cpuset.format(explicit)}, but according to podresources, "
                    f"CPUs {cpuset.format(offered) or 'none'} are reserved",
                ),
            )
        return ReservedCPUs(explicit & online, problems)
    if offered is not None:
        return ReservedCPUs(offered, problems)
    if policy is None:
        return ReservedCPUs(None, problems)
    if policy != STATIC_CPU:
        return ReservedCPUs(0, problems)
    return _computed_cpus(observation, hardware, problems)


def with_partitioning(observation: Observation) -> Observation:
    """Note in the kubelet's settings that workload partitioning keeps its reserved CPUs apart, if it does.

    Where neither Node nor machine could be asked, the CPU Manager's state tells: no other kubelet takes
    exactly the reserved CPUs out of its sets without the option strict-cpu-reservation.
    """
    kubelet, hardware = observation.kubelet, observation.hardware
    if kubelet is None or hardware is None or kubelet.cpu_manager_policy != STATIC_CPU:
        return observation
    partitioned = observation.partitioned
    if partitioned is None:
        missing = hardware.machine.all_cpus & ~covered_cpus(observation)
        strict = is_strict(dict(kubelet.cpu_manager_policy_options))
        partitioned = bool(missing) and not strict and missing == reserved_cpus(observation, hardware).cpus
    return replace(observation, kubelet=replace(kubelet, workload_partitioning=partitioned))


def covered_cpus(observation: Observation) -> CPUSet:
    """Return the CPUs of the CPU Manager's shared and exclusive sets."""
    state = observation.cpu_manager
    if state is None:
        return 0
    return state.default | CPUState(state.default, state.entries, state.pod_entries).exclusive_cpus()


def _configured_cpus(observation: Observation) -> tuple[CPUSet | None, tuple[Problem, ...]]:
    kubelet = observation.kubelet
    if kubelet is None or not kubelet.reserved_system_cpus.strip():
        return None, ()
    try:
        return cpuset.parse(kubelet.reserved_system_cpus), ()
    except cpuset.InvalidCPUSet as error:
        return None, (
            Problem(
                KUBELET_CONFIG, "InvalidCPUList", f"reservedSystemCPUs of the kubelet configuration: {error}"
            ),
        )


def _computed_cpus(
    observation: Observation, hardware: Hardware, problems: tuple[Problem, ...]
) -> ReservedCPUs:
    """Return the CPUs that the static policy reserves at its start; unknown if the configuration is."""
    if observation.kubelet is None:
        problem = Problem(
            KUBELET_CONFIG,
            "ReservedCPUsUnknown",
            "the reserved CPUs are unknown: neither the kubelet configuration nor podresources could be read",
        )
        return ReservedCPUs(None, (*problems, problem))
    try:
        manager = CPUManager.start(observation.kubelet, CPUTopology(hardware.machine))
    except NumazonesError as error:
        problem = Problem(
            KUBELET_CONFIG,
            "ReservedCPUsUnknown",
            f"a kubelet with this configuration would not start on this machine: {error}",
        )
        return ReservedCPUs(None, (*problems, problem))
    return ReservedCPUs(manager.reserved, problems)


def reserved_memory(observation: Observation, numa: int, kind: str) -> int | None:
    """Bytes of a type that the kubelet keeps from pods on a NUMA node; None where no source says."""
    if memory_policy(observation) is None:
        return None
    if memory_policy(observation) != STATIC_MEMORY:
        return 0
    if observation.memory_manager is not None:
        node = observation.memory_manager.machine.get(numa)
        if node is not None and kind in node.memory:
            return node.memory[kind].system_reserved
    return configured_memory(observation, numa, kind)


def configured_memory(observation: Observation, numa: int, kind: str) -> int | None:
    """Bytes by ``reservedMemory`` of the configuration; None where there is none to read."""
    if observation.kubelet is None:
        return None
    return sum(
        amount.value()
        for entry in observation.kubelet.reserved_memory
        if entry.numa == numa
        for name, amount in entry.limits
        if name == kind
    )
