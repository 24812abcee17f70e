"""Hardware facts that the policy reads from sysfs beyond the kubelet's ``Machine``.

Clusters (L2 groups), caches, core kinds, base frequencies and energy preferences decide which CPUs
are picked; devices' local CPUs become topology hints; movable memory switches cold starts off.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import InvalidMachine, Machine

_L3 = 3


@dataclass(frozen=True, slots=True)
class CPUDetails:
    """Details that one logical CPU reports."""

    cluster: int = 0
    """Id as the kernel reports it, unique within the die."""
    base_frequency: int = 0
    """kHz; 0: unknown."""
    energy_preference: str = ""
    """``performance``, ``balance_performance``, ``balance_power`` or ``power``; others count as unknown."""


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache and the CPUs that share it."""

    id: int
    """Unique per level and kind."""
    level: int
    kind: str
    """``Data``, ``Instruction`` or ``Unified``."""
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Device:
    """A device node's place in the hardware."""

    kind: str
    """``c`` (character) or ``b`` (block)."""
    major: int
    minor: int
    path: str
    """Below ``/sys/devices/``."""
    numa: int | None = None
    """What the device's ``numa_node`` file says; None: no such file."""
    cpus: str | None = None
    """What its ``local_cpulist`` says; None: no such file."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine with everything that the policy looks at.

    Raises:
        InvalidMachine: an isolated or efficient CPU does not exist.
    """

    machine: Machine
    """Online CPUs and NUMA nodes."""
    details: Mapping[int, CPUDetails] = field(default_factory=dict)
    """CPU id → details; CPUs that are missing have the defaults."""
    caches: tuple[Cache, ...] = ()
    present: CPUSet = 0
    """CPUs that are there, offline ones included; 0: the online ones."""
    isolated: CPUSet = 0
    """CPUs that the kernel keeps its scheduler off (``isolcpus``)."""
    efficient: CPUSet = 0
    """E-cores of a hybrid machine; 0: the machine is not hybrid."""
    movable: int = 0
    """Mask of NUMA nodes without memory in a normal zone."""
    devices: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "present", self.present | self.machine.all_cpus)
        for name, cpus in (("isolated", self.isolated), ("efficient", self.efficient)):
            if cpus & ~self.present:
                raise InvalidMachine(f"{name} CPUs {cpuset.format(cpus & ~self.present)} do not exist")

    @classmethod
    def of(cls, machine: Machine, *, isolated: CPUSet = 0) -> "Hardware":
        """Return the hardware as far as a kubelet's machine shows it: no clusters, no frequencies."""
        caches = tuple(
            Cache(number, _L3, "Unified", cpus)
            for number, cpus in sorted(machine.cpus_of_uncore_cache.items())
        )
        return cls(machine, caches=caches, isolated=isolated)

    @property
    def fingerprint(self) -> Hashable:
        """Equal for equal hardware."""
        details = tuple(sorted(self.details.items(), key=lambda item: item[0]))
        return (
            self.machine, details, self.caches, self.present, self.isolated, self.efficient, self.movable,
            self.devices,
        )  # fmt: skip
