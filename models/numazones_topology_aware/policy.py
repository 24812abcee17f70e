"""The started policy: machine, configuration and what follows from both before any container exists."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import InvalidQuantity
from numazones.cpuset import CPUSet
from numazones.kubelet import go
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.cpu_allocator import CPUAllocator
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.memory import MemoryAllocator
from numazones_topology_aware.memory_types import PMEM
from numazones_topology_aware.pools import PoolKind, Tree
from numazones_topology_aware.rejection import StartFailed
from numazones_topology_aware.topology import Topology

_CPUSET = "cpuset:"
_EXCLUDE = "exclude-cpuset:"
# Names of levels in the configuration and in annotations; the last three have no pools.
LEVEL_NUMBERS = {
    "system": 1, "package": 2, "die": 3, "numa": 4, "l3cache": 5, "l2cache": 6, "core": 7, "thread": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Policy:
    """Constant part of the policy while containers come and go."""

    topology: Topology
    config: Configuration
    cpus: CPUAllocator = field(repr=False)
    memory: MemoryAllocator = field(repr=False)
    available: CPUSet
    reserved: CPUSet
    tree: Tree
    burstable_level: PoolKind
    """Where unlimited burstable containers go by configuration."""
    cold_start_off: bool
    """Some PMEM is movable memory, so cold starts are disabled on the node."""

    @classmethod
    def start(cls, hardware: Hardware, config: Configuration) -> "Policy":
        """Start on a machine.

        Raises:
            StartFailed: the plugin would not start; ``code`` says why.
        """
        topology = Topology.discover(hardware)
        allocator = CPUAllocator.of(topology)
        memory = MemoryAllocator(topology.memory_nodes)
        off = any(node.kind == PMEM and not node.normal for node in topology.memory_nodes.values())
        return cls._configure(topology, config, allocator, memory, off=off)

    def with_configuration(self, config: Configuration) -> "Policy":
        """Return the policy on the same machine with another configuration.

        Raises:
            StartFailed: the configuration does not fit the machine.
        """
        return self._configure(self.topology, config, self.cpus, self.memory, off=self.cold_start_off)

    @classmethod
    def _configure(
        cls,
        topology: Topology,
        config: Configuration,
        allocator: CPUAllocator,
        memory: MemoryAllocator,
        *,
        off: bool,
    ) -> "Policy":
        available = _available(topology, config)
        reserved = _reserved_cpus(allocator, config, available)
        tree = Tree.build(topology, available=available, reserved=reserved)
        return cls(
            topology=topology,
            config=config,
            cpus=allocator,
            memory=memory,
            available=available,
            reserved=reserved,
            tree=tree,
            burstable_level=tree.existing_level(LEVEL_NUMBERS.get(config.unlimited_burstable, 0)),
            cold_start_off=off,
        )

    @property
    def fingerprint(self) -> Hashable:
        """Equal for the same configuration on the same hardware."""
        return (self.topology.hardware.fingerprint, self.config.fingerprint)


def _available(topology: Topology, config: Configuration) -> CPUSet:
    amount = config.available_cpu
    everything = topology.online | topology.offline
    path = "spec.availableResources.cpu"
    if amount is None:
        cpus = everything
    elif amount.startswith(_CPUSET):
        cpus = _cpu_list(amount.removeprefix(_CPUSET), path)
    elif amount.startswith(_EXCLUDE):
        cpus = everything & ~_cpu_list(amount.removeprefix(_EXCLUDE), path)
    else:
        raise StartFailed(
            f"available CPUs can't be given as an amount ({amount}); use cpuset:LIST or exclude-cpuset:LIST",
            code="available-quantity",
            path=path,
        )
    return cpus & topology.online


def _reserved_cpus(allocator: CPUAllocator, config: Configuration, available: CPUSet) -> CPUSet:
    amount = config.reserved_cpu
    isolated = allocator.topology.isolated & available
    path = "spec.reservedResources.cpu"
    missing = StartFailed("the plugin can't start without reserved CPUs", code="reserved-missing", path=path)
    if amount is None:
        raise missing
    if amount.startswith(_CPUSET):
        reserved = _cpu_list(amount.removeprefix(_CPUSET), path)
        _check_reserved(reserved, available=available, isolated=isolated, path=path)
    elif amount.startswith(_EXCLUDE):
        reserved = available & ~_cpu_list(amount.removeprefix(_EXCLUDE), path)
        _check_reserved(reserved, available=available, isolated=isolated, path=path)
    else:
        reserved = _reserved_amount(allocator, amount, available & ~isolated, path)
    if not reserved:
        raise missing
    return reserved


def _reserved_amount(allocator: CPUAllocator, amount: str, candidates: CPUSet, path: str) -> CPUSet:
    try:
        milli = quantity.parse(amount).milli()
    except InvalidQuantity as error:
        raise StartFailed(str(error), code="parse", path=path) from error
    cpus = allocator.take(candidates, -(-milli // 1000), Priority.NORMAL)
    if cpus is None:
        raise StartFailed(
            f"{amount} CPUs are too many: only {candidates.bit_count()} are available and not isolated",
            code="reserved-too-many",
            path=path,
        )
    return cpus


def _check_reserved(reserved: CPUSet, *, available: CPUSet, isolated: CPUSet, path: str) -> None:
    if outside := reserved & ~available:
        raise StartFailed(
            f"reserved CPUs {cpuset.format(outside)} are not among the available online CPUs "
            f"{cpuset.format(available)}",
            code="reserved-not-available",
            path=path,
        )
    overlap = reserved & isolated
    if overlap and overlap != reserved:
        raise StartFailed(
            f"reserved CPUs mix isolated ones ({cpuset.format(overlap)}) with others",
            code="reserved-mixed-isolated",
            path=path,
        )
    if overlap.bit_count() > 1:
        raise StartFailed(
            f"several reserved CPUs are isolated ({cpuset.format(overlap)}); at most one may be",
            code="reserved-multiple-isolated",
            path=path,
        )


def _cpu_list(text: str, path: str) -> CPUSet:
    try:
        return go.parse_cpu_list(text)
    except ValueError as error:
        raise StartFailed(str(error), code="parse", path=path) from error
