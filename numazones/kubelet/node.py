"""A node as a value: machine, kubelet configuration, and what is assigned to pods.

Nodes are immutable. Admission returns a new one that shares what did not change, so that a search
over many nodes or many moves is just calling functions. A node comes from nothing (``fresh``) or
from a snapshot of a running kubelet (``restore``): its state files, or the NUMAZones of a node.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.cpu_manager import CPUState
from numazones.kubelet.device_manager import (
    Device,
    DeviceManager,
    DeviceResource,
    DeviceState,
    PreferredAllocation,
    in_use,
)
from numazones.kubelet.machine import Machine
from numazones.kubelet.machine_state import Block, MachineState, MemoryTable, NUMANodeState
from numazones.kubelet.memory_manager import MemoryManager, MemoryState
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.topology_manager import TopologyManager


class InvalidNodeState(NumazonesError):
    """A snapshot contradicts itself or the machine; the message names the NUMA node or the pod."""


@dataclass(frozen=True, slots=True)
class Node:
    """A started kubelet and what it has assigned.

    >>> from numazones import build
    >>> node = Node.fresh(build.machine(cores=8, memory="16Gi"), KubeletConfiguration())
    >>> node.config.topology_manager_policy
    'none'
    """

    kubelet: KubeletManagers = field(repr=False)
    cpus: CPUState
    memory: MemoryState
    devices: DeviceState

    @classmethod
    def fresh(
        cls,
        machine: Machine,
        config: KubeletConfiguration,
        devices: Mapping[str, Iterable[Device]] | None = None,
        *,
        preferred_allocation: PreferredAllocation | None = None,
    ) -> "Node":
        """Return a node without pods.

        Args:
            machine: its hardware.
            config: its kubelet's.
            devices: resource → what its plugins announce.
            preferred_allocation: stands for the plugins' GetPreferredAllocation, for all resources.

        Raises:
            InvalidConfiguration: the kubelet would not start; the message is its own.
            InvalidMachine, InvalidDevices: the description contradicts itself.

        >>> from numazones import build
        >>> nics = {"example.com/nic": [Device("nic-0", (0,))]}
        >>> Node.fresh(build.machine(cores=8, memory="16Gi"), KubeletConfiguration(), nics).pods
        frozenset()
        """
        kubelet = KubeletManagers.start(
            config, machine, devices or {}, preferred_allocation=preferred_allocation
        )
        return cls(kubelet, *_initial_states(kubelet))

    @classmethod
    def restore(
        cls,
        kubelet: KubeletManagers,
        *,
        default_cpus: CPUSet | None = None,
        cpu_assignments: Mapping[str, Mapping[str, CPUSet]] | None = None,
        machine_state: MachineState | None = None,
        memory_assignments: Mapping[str, Mapping[str, Iterable[Block]]] | None = None,
        cpu_pods: Mapping[str, CPUSet] | None = None,
        memory_pods: Mapping[str, Iterable[Block]] | None = None,
        device_assignments: Mapping[str, Mapping[str, Mapping[str, Iterable[str]]]] | None = None,
    ) -> "Node":
        """Return a node from a snapshot; what is None starts as on a fresh node.

        Args:
            kubelet: the kubelet, started on the machine with the devices that its plugins announce.
            default_cpus: the shared CPU set, reserved CPUs included as the kubelet keeps it. None: all
                CPUs that are not assigned (nor, with strict-cpu-reservation, reserved).
            cpu_assignments: pod uid → container → exclusive CPUs. Init containers' entries are part of it.
            machine_state: the Memory Manager's state per NUMA node. Must cover every NUMA node: free and
                reserved amounts of a node and its group cannot be derived from the blocks.
            memory_assignments: pod uid → container → blocks (affinity as a NUMA mask, bytes).
            cpu_pods: pod uid → CPUs, of pods that are served as a whole.
            memory_pods: pod uid → blocks, likewise.
            device_assignments: pod uid → container → resource → device ids. Devices and resources that
                are not announced (any more) are taken as unregistered or unhealthy.

        Raises:
            InvalidNodeState: a snapshot that no kubelet on this machine can have, such as an assigned
                CPU that does not exist or negative free memory.

        >>> from numazones import build
        >>> fresh = build.node(build.machine(cores=8, memory="16Gi"))
        >>> held = {"uid-1": {"main": 0b110}}
        >>> Node.restore(fresh.kubelet, cpu_assignments=held, machine_state=fresh.machine_state).pods
        frozenset({'uid-1'})
        """
        held = {
            uid: {
                name: {kind: tuple(ids) for kind, ids in kinds.items()} for name, kinds in containers.items()
            }
            for uid, containers in (device_assignments or {}).items()
        }
        manager = _with_unannounced_devices(kubelet.devices, held)
        return cls(
            kubelet if manager is kubelet.devices else replace(kubelet, devices=manager),
            _cpu_state(kubelet, default_cpus, cpu_assignments or {}, cpu_pods or {}),
            _memory_state(kubelet.memory, machine_state, memory_assignments or {}, memory_pods or {}),
            _device_state(manager, held),
        )

    def with_devices(self, devices: Mapping[str, Iterable[Device]]) -> "Node":
        """Return the node after its plugins announced other devices, or others as healthy; assignments stay.

        Args:
            devices: resource → all that its plugin announces now.

        Raises:
            InvalidDevices: a device id appears twice in a resource.

        >>> from numazones import admit, build
        >>> node = build.node(build.machine(cores=8, memory="16Gi"), devices={"example.com/nic": 1})
        >>> broken = node.with_devices({"example.com/nic": [Device("numa0-0", (0,), healthy=False)]})
        >>> admit(broken, build.pod(cpu=1, memory="1Gi", devices={"example.com/nic": 1})).admitted
        False
        """
        before = self.kubelet.devices
        held = self.device_assignments
        manager = DeviceManager.start(
            devices,
            before.numa_mask,
            over_hosting_nodes=before.over_hosting_nodes,
            skips_claimed=before.skips_claimed,
            preferred_allocation=before.preferred_allocation,
        )
        manager = _with_unannounced_devices(manager, held)
        return replace(
            self, kubelet=replace(self.kubelet, devices=manager), devices=_device_state(manager, held)
        )

    def with_topology_settings(self, *, policy: str | None = None, scope: str | None = None) -> "Node":
        """Return the node under another policy or scope of the Topology Manager; assignments stay.

        Args:
            policy: the other policy; None: the same.
            scope: the other scope; None: the same.

        Raises:
            InvalidConfiguration: the kubelet would not start with it; the message is its own.

        >>> from numazones import build
        >>> node = build.node(build.machine(cores=8, memory="16Gi"))
        >>> node.with_topology_settings(policy="restricted").config.topology_manager_policy
        'restricted'
        """
        before = self.config
        config = replace(
            before,
            topology_manager_policy=before.topology_manager_policy if policy is None else policy,
            topology_manager_scope=before.topology_manager_scope if scope is None else scope,
        )
        topology = TopologyManager.start(config, self.machine)
        return replace(self, kubelet=replace(self.kubelet, config=config, topology=topology))

    @property
    def machine(self) -> Machine:
        """The hardware."""
        return self.kubelet.machine

    @property
    def config(self) -> KubeletConfiguration:
        """The kubelet's configuration."""
        return self.kubelet.config

    def holds(self, uid: str) -> bool:
        """Return whether a pod has CPUs, memory or devices of its own here.

        Args:
            uid: the pod's.

        >>> from numazones import admit, build
        >>> node = build.node(build.machine(cores=8, memory="16Gi"))
        >>> admit(node, build.pod("web", cpu=2, memory="1Gi")).node.holds("web")
        True
        """
        return (
            uid in self.cpus.assignments or uid in self.memory.assignments or uid in self.devices.assignments
        )

    @property
    def pods(self) -> frozenset[str]:
        """Uids of the pods that hold something here."""
        return frozenset({*self.cpus.assignments, *self.memory.assignments, *self.devices.assignments})

    @property
    def machine_state(self) -> dict[int, NUMANodeState]:
        """The Memory Manager's state per NUMA node, as ``restore`` takes it; empty with policy None."""
        manager = self.kubelet.memory
        return {
            numa: NUMANodeState(
                assignments=self.memory.users[position],
                memory={
                    kind: MemoryTable(
                        total=manager.capacity[kind][position],
                        system_reserved=manager.system_reserved[kind][position],
                        allocatable=manager.allocatable[kind][position],
                        reserved=self.memory.reserved[kind][position],
                        free=self.memory.free[kind][position],
                    )
                    for kind in manager.allocatable
                },
                cells=self.memory.groups[position],
            )
            for position, numa in enumerate(manager.numas)
        }

    @property
    def device_assignments(self) -> dict[str, dict[str, dict[str, tuple[str, ...]]]]:
        """Pod uid → container → resource → device ids, as ``restore`` takes them."""
        resources = self.kubelet.devices.resources
        return {
            uid: {
                name: {kind: resources[kind].ids(mask) for kind, mask in kinds.items()}
                for name, kinds in containers.items()
            }
            for uid, containers in self.devices.assignments.items()
        }

    @property
    def hosting_devices(self) -> dict[str, tuple[int, int]]:
        """Resource → mask of the NUMA nodes that host its devices, and their number."""
        return {
            name: (resource.hosting, len(resource.devices))
            for name, resource in self.kubelet.devices.resources.items()
        }

    @property
    def emptied(self) -> "Node":
        """The same kubelet without any pod."""
        return Node(self.kubelet, *_initial_states(self.kubelet))

    @property
    def equipment_key(self) -> Hashable:
        """A key that is equal for nodes that decide alike when they are empty."""
        resources = self.kubelet.devices.resources
        return (
            self.machine,
            self.config,
            tuple((name, item.registered, item.numa_masks, item.healthy) for name, item in resources.items()),
        )

    @property
    def state_key(self) -> Hashable:
        """A key that is equal for nodes that decide alike on new pods, whatever pods and devices are called.

        Devices count by NUMA nodes, health and use, in the order of their ids; so equal keys promise
        equal verdicts, CPUs and memory, and devices of equal NUMA nodes.
        """
        resources = self.kubelet.devices.resources
        return (
            self.machine,
            self.config,
            self.cpus.default,
            self.cpus.exclusive_cpus(),
            self.memory.users,
            self.memory.groups,
            tuple(self.memory.free.items()),
            tuple(self.memory.reserved.items()),
            tuple(
                (name, item.registered, item.numa_masks, item.healthy, self.devices.allocated.get(name))
                for name, item in resources.items()
            ),
        )


def _initial_states(kubelet: KubeletManagers) -> tuple[CPUState, MemoryState, DeviceState]:
    return kubelet.cpus.initial_state(), kubelet.memory.initial_state(), DeviceState()


def _cpu_state(
    kubelet: KubeletManagers,
    default: CPUSet | None,
    assignments: Mapping[str, Mapping[str, CPUSet]],
    pods: Mapping[str, CPUSet],
) -> CPUState:
    online = kubelet.machine.all_cpus
    assigned = cpuset.union(pods.values())
    for containers in assignments.values():
        assigned |= cpuset.union(containers.values())
    if assigned & ~online:
        owner, cpus = next(
            (owner, cpus & ~online) for owner, cpus in _holders_of_cpus(assignments, pods) if cpus & ~online
        )
        raise InvalidNodeState(
            f"{owner} holds CPUs {cpuset.format(cpus)}, which no NUMA node of this machine has "
            f"(online: {cpuset.format(online)}); read the node again"
        )
    if default is None:
        default = kubelet.cpus.initial_state().default & ~assigned
    elif default & ~online:
        raise InvalidNodeState(
            f"the shared CPU set holds CPUs {cpuset.format(default & ~online)}, "
            f"which no NUMA node of this machine has (online: {cpuset.format(online)}); read the node again"
        )
    return CPUState(default, {uid: dict(containers) for uid, containers in assignments.items()}, dict(pods))


def _holders_of_cpus(
    assignments: Mapping[str, Mapping[str, CPUSet]], pods: Mapping[str, CPUSet]
) -> Iterator[tuple[str, CPUSet]]:
    for uid, cpus in pods.items():
        yield f"pod {uid}", cpus
    for uid, containers in assignments.items():
        for name, cpus in containers.items():
            yield f"container {name} of pod {uid}", cpus


def _memory_state(
    manager: MemoryManager,
    machine: MachineState | None,
    assignments: Mapping[str, Mapping[str, Iterable[Block]]],
    pods: Mapping[str, Iterable[Block]],
) -> MemoryState:
    if not manager.static:
        return manager.initial_state()
    blocks = {
        uid: {name: tuple(items) for name, items in containers.items()}
        for uid, containers in assignments.items()
    }
    whole = {uid: tuple(items) for uid, items in pods.items()}
    for uid, items in whole.items():
        _check_blocks(manager, items, uid)
        blocks.setdefault(uid, {})
    for uid, containers in blocks.items():
        for name, items in containers.items():
            _check_blocks(manager, items, uid, name)
    if machine is None:
        if blocks:
            raise InvalidNodeState(
                "memory is assigned but the Memory Manager's state per NUMA node is missing; "
                "give machine_state too"
            )
        return manager.initial_state()
    for numa in manager.numas:
        _check_machine_state(manager, numa, machine)
    states = [machine[numa] for numa in manager.numas]
    return MemoryState(
        users=tuple(state.assignments for state in states),
        groups=tuple(state.cells for state in states),
        free={kind: tuple(state.memory[kind].free for state in states) for kind in manager.allocatable},
        reserved={
            kind: tuple(state.memory[kind].reserved for state in states) for kind in manager.allocatable
        },
        assignments=blocks,
        pods=whole,
    )


def _check_blocks(manager: MemoryManager, blocks: Iterable[Block], uid: str, container: str = "") -> None:
    for block in blocks:
        known = block.affinity and not block.affinity & ~manager.numa_mask
        if known and block.type in manager.allocatable and block.size >= 0:
            continue
        owner = f"container {container} of pod {uid}" if container else f"pod {uid}"
        if not known:
            raise InvalidNodeState(
                f"{owner} holds {block.type} on NUMA nodes {cpuset.format(block.affinity) or 'none'}; "
                f"the machine has NUMA nodes {cpuset.format(manager.numa_mask)}"
            )
        if block.type not in manager.allocatable:
            raise InvalidNodeState(
                f"{owner} holds {block.type} on NUMA node {cpuset.format(block.affinity)}, "
                "which has no such memory"
            )
        raise InvalidNodeState(
            f"{owner} holds a negative amount of {block.type} ({block.size} bytes) "
            f"on NUMA node {cpuset.format(block.affinity)}"
        )


def _check_machine_state(manager: MemoryManager, numa: int, machine: MachineState) -> None:
    state = machine.get(numa)
    if state is None:
        raise InvalidNodeState(f"NUMA node {numa}: the Memory Manager's state is missing")
    if state.assignments < 0:
        raise InvalidNodeState(
            f"NUMA node {numa}: the number of memory assignments is negative ({state.assignments})"
        )
    if not state.cells >> numa & 1 or state.cells & ~manager.numa_mask:
        raise InvalidNodeState(
            f"NUMA node {numa}: it cannot be in the memory group {list(cpuset.ids(state.cells))} "
            f"on a machine with NUMA nodes {cpuset.format(manager.numa_mask)}"
        )
    for kind in manager.allocatable:
        table = state.memory.get(kind)
        if table is None:
            raise InvalidNodeState(f"NUMA node {numa}: the amounts of {kind} are missing")
        for title, amount in (("free", table.free), ("assigned", table.reserved)):
            if amount < 0:
                raise InvalidNodeState(
                    f"NUMA node {numa}: the {title} amount of {kind} is negative ({amount})"
                )


def _with_unannounced_devices(
    manager: DeviceManager, held: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]
) -> DeviceManager:
    """Add devices that containers hold although no plugin announces them now."""
    missing: dict[str, set[str]] = {}
    for containers in held.values():
        for kinds in containers.values():
            for kind, ids in kinds.items():
                known = manager.resources[kind].index if kind in manager.resources else {}
                unknown = set(ids) - set(known)
                if unknown or kind not in manager.resources:
                    missing.setdefault(kind, set()).update(unknown)
    if not missing:
        return manager
    resources = dict(manager.resources)
    for kind, unknown in missing.items():
        announced = resources.get(kind)
        gone = tuple(Device(device, healthy=False) for device in sorted(unknown))
        resources[kind] = DeviceResource.of(
            kind, (*(announced.devices if announced else ()), *gone), registered=announced is not None
        )
    return replace(manager, resources=dict(sorted(resources.items())))


def _device_state(
    manager: DeviceManager, held: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]
) -> DeviceState:
    assignments = {
        uid: {
            name: {
                kind: cpuset.of(manager.resources[kind].index[device] for device in ids)
                for kind, ids in kinds.items()
            }
            for name, kinds in containers.items()
        }
        for uid, containers in held.items()
    }
    return DeviceState(in_use(assignments), assignments)
