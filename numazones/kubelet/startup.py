"""Set up the four managers of a starting kubelet, in the order in which it rejects things.

Order as in ``cmd/kubelet/app/server`` and ``container_manager_linux``: the configuration by itself,
the reserved CPUs against the online ones, then Topology, CPU and Memory Manager.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.kubelet import go
from numazones.kubelet.config import POLICY_NONE, InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.cpu_manager import NONE, CPUManager
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.demand import PodDemand, PodLevel
from numazones.kubelet.device_manager import Device, DeviceManager, PreferredAllocation
from numazones.kubelet.machine import InvalidMachine, Machine
from numazones.kubelet.memory_manager import MemoryManager
from numazones.kubelet.pod import Pod
from numazones.kubelet.topology_manager import TopologyManager


@dataclass(frozen=True, slots=True, eq=False)
class KubeletManagers:
    """The managers of a started kubelet: everything about a node that pods do not change."""

    config: KubeletConfiguration
    machine: Machine
    topology: TopologyManager
    cpus: CPUManager
    memory: MemoryManager
    devices: DeviceManager
    pod_level: PodLevel
    """What it makes of pod-level resources."""
    reads_empty_pod_resources: bool
    """Even those that name nothing decide the QoS class."""
    doubts: tuple[str, ...]
    """What is not certain about its decisions, see ``Release.doubts``."""

    def demand_of(self, pod: Pod) -> PodDemand:
        """Return what its managers see in a pod."""
        if pod.resources is not None and pod.resources.empty and not self.reads_empty_pod_resources:
            return pod.demand(PodLevel.DROPPED)
        return pod.demand(self.pod_level)

    @classmethod
    def start(
        cls,
        config: KubeletConfiguration,
        machine: Machine,
        devices: Mapping[str, Iterable[Device]],
        *,
        preferred_allocation: PreferredAllocation | None = None,
    ) -> "KubeletManagers":
        """Start a kubelet.

        Raises:
            InvalidConfiguration: the kubelet rejects the configuration on this machine.
            InvalidMachine: the machine has no NUMA nodes, or no CPUs though the configuration needs them.
            InvalidDevices: a device id appears twice in a resource.
        """
        if not machine.numa_nodes or (not machine.cpus and _needs_cpus(config)):
            raise InvalidMachine("a machine needs at least one CPU and one NUMA node")
        config.check()
        reserved = go.parse_cpu_list(config.reserved_system_cpus)
        if reserved & ~machine.all_cpus:
            raise InvalidConfiguration(
                f"reserved-cpus: {config.reserved_system_cpus} is not a subset of "
                f"online-cpus: {cpuset.format(machine.all_cpus)}"
            )
        config.check_option_gates()
        return cls(
            config=config,
            machine=machine,
            pod_level=config.pod_level,
            reads_empty_pod_resources=config.reads_empty_pod_resources,
            doubts=config.doubts,
            topology=TopologyManager.start(config, machine),
            cpus=CPUManager.start(config, CPUTopology(machine)),
            memory=MemoryManager.start(config, machine),
            devices=DeviceManager.start(
                devices,
                machine.numa_mask,
                over_hosting_nodes=config.release.device_hints_over_hosting_nodes,
                skips_claimed=config.skips_claimed_devices,
                preferred_allocation=preferred_allocation,
            ),
        )


def _needs_cpus(config: KubeletConfiguration) -> bool:
    """Return whether a kubelet deals with single CPUs; else it runs where the kernel tells of no cores."""
    return config.cpu_manager_policy != NONE or config.topology_manager_policy != POLICY_NONE
