"""What the CPUs of a node do, added up by NUMA node and kind of CPU, and by container with exclusive CPUs.

The kernel counts by CPU, and a CPU changes its kind whenever a container gets or returns it. So nothing is
shown of what the kernel counted before: each reading adds what came since the one before to the kind and the
container that the CPU had in between. Before either changes, a reading is taken. Counters begin at zero when
the exporter starts, as Prometheus expects of counters, and never go backwards, whatever the kernel's do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from numazones import cpuset
from numazones.api.snapshot import ContainerHolding, NodeSnapshot
from numazones.cpuset import CPUSet
from numazones_exporter.sources.cpu_times import MODES, CPUTimes

EXCLUSIVE, SHARED, RESERVED, UNKNOWN, OFFLINE = "exclusive", "shared", "reserved", "unknown", "offline"
_IDLE = MODES.index("idle")
_LONGEST = 1e7
"""Seconds between two readings; stolen time can jump to centuries when a virtual machine moves."""


class ContainerLabels(NamedTuple):
    """Labels of a container; of a pod that holds CPUs as a whole, ``container`` is empty."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class CPUKinds:
    """Which CPU is of which kind, and whose."""

    node: str = ""
    cpus: Mapping[tuple[int, str], CPUSet] = field(default_factory=dict)
    """(NUMA id, kind) → its CPUs, where there are any; offline ones, too."""
    containers: Mapping[tuple[ContainerLabels, str], CPUSet] = field(default_factory=dict)
    """(container, uid of its pod) → its exclusive CPUs."""
    online: CPUSet = 0
    numas: tuple[int, ...] = ()
    """All NUMA nodes, those without CPUs too."""

    @classmethod
    def of(cls, snapshot: NodeSnapshot) -> "CPUKinds":
        """Return the kinds as the kubelet has given CPUs; those that it says nothing about are unknown."""
        found: dict[tuple[int, str], CPUSet] = {}
        for numa, own in snapshot.machine.cpus_of_numa.items():
            for kind, cpus in _by_kind(snapshot).items():
                if cpus & own:
                    found[numa, kind] = cpus & own
            if offline := snapshot.offline.get(numa, 0):
                found[numa, OFFLINE] = offline
        numas = {*snapshot.machine.by_numa, *snapshot.offline}
        return cls(
            snapshot.node_name,
            found,
            _holders(snapshot.holders),
            snapshot.machine.all_cpus,
            tuple(sorted(numas)),
        )

    @property
    def exclusive(self) -> CPUSet:
        """All exclusive CPUs."""
        return cpuset.union(cpus for (_, kind), cpus in self.cpus.items() if kind == EXCLUSIVE)


def _by_kind(snapshot: NodeSnapshot) -> dict[str, CPUSet]:
    every = snapshot.machine.all_cpus
    if snapshot.reserved_cpus is None or snapshot.exclusive_cpus is None:
        return {UNKNOWN: every}
    exclusive = snapshot.exclusive_cpus
    reserved = snapshot.reserved_cpus & ~exclusive
    rest = every & ~exclusive & ~reserved
    shared = rest if snapshot.default_cpus is None else rest & snapshot.default_cpus
    return {EXCLUSIVE: exclusive, RESERVED: reserved, SHARED: shared, UNKNOWN: rest & ~shared}


def _holders(holders: Iterable[ContainerHolding]) -> dict[tuple[ContainerLabels, str], CPUSet]:
    found: dict[tuple[ContainerLabels, str], CPUSet] = {}
    for one in holders:
        if one.cpus:
            key = ContainerLabels(one.namespace, one.pod, one.container), one.uid
            found[key] = found.get(key, 0) | one.cpus
    return found


@dataclass(slots=True)
class ContainerUse:
    """Seconds of a container's exclusive CPUs."""

    busy: float = 0.0
    held: float = 0.0


class CPUUsage:
    """The counters; fed with readings, and with the kinds whenever they change."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.kinds = CPUKinds()
        self.seconds: dict[tuple[int, str], list[float]] = {}
        """(NUMA id, kind) → seconds by mode."""
        self.containers: dict[tuple[ContainerLabels, str], ContainerUse] = {}
        self.measured = False
        """Whether the kernel's counts could be read."""
        self._last: Mapping[int, CPUTimes] = {}

    def forget(self) -> None:
        """Forget the last reading: what comes until the next one is not known."""
        self.measured, self._last = False, {}

    def assign(self, kinds: CPUKinds) -> None:
        """Replace the kinds; what was read before has been added to the old ones."""
        self.kinds = kinds
        for key in kinds.cpus:
            if key[1] != OFFLINE:
                self.seconds.setdefault(key, [0.0] * len(MODES))
        self.containers = {key: self.containers.get(key) or ContainerUse() for key in kinds.containers}

    def add(self, times: Mapping[int, CPUTimes]) -> None:
        """Add what came since the last reading; a CPU that was away then begins again."""
        spent = {
            cpu: [
                came if 0.0 <= (came := new - old) <= _LONGEST else 0.0
                for new, old in zip(now, self._last[cpu], strict=True)
            ]
            for cpu, now in times.items()
            if cpu in self._last
        }
        self._last, self.measured = times, True
        for key, cpus in self.kinds.cpus.items():
            if key[1] == OFFLINE:
                continue
            total = self.seconds[key]
            for cpu in cpuset.ids(cpus):
                for mode, seconds in enumerate(spent.get(cpu, ())):
                    total[mode] += seconds
        for name, cpus in self.kinds.containers.items():
            use = self.containers[name]
            for cpu in cpuset.ids(cpus):
                if modes := spent.get(cpu):
                    whole = sum(modes)
                    use.held += whole
                    use.busy += whole - modes[_IDLE]
