"""Groups of CPUs that are best taken together: clusters of hybrid machines, CPUs of one cache.

One cache level serves for the whole machine: the first, from the outermost inwards, at which some CPU
shares its cache with more than its core and less than its die or package (``pkg/cpuallocator``).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_topology_aware.topology import Topology


@dataclass(frozen=True, slots=True)
class CPUGroup:
    """A cluster or the CPUs of one cache."""

    id: int
    """Cluster id (unique within the die), or position among the machine's cache groups."""
    package: int
    die: int
    numa: int
    cpus: CPUSet
    efficient: bool
    """Its lowest CPU is an E-core."""


def clusters(topology: Topology) -> tuple[CPUGroup, ...]:
    """Logical clusters of packages that have more than one."""
    found: list[CPUGroup] = []
    for package in topology.packages:
        own = [
            _group(topology, cpus, number=number)
            for die in package.dies
            for number, cpus in die.logical_clusters.items()
        ]
        if len(own) > 1:
            found.extend(own)
    return tuple(found)


def cache_groups(topology: Topology) -> tuple[CPUGroup, ...]:
    """Cache groups by package, die, NUMA node and lowest CPU; empty where no cache level groups CPUs."""
    level = _grouping_level(topology)
    if level is None:
        return ()
    found: list[CPUGroup] = []
    for package in topology.packages:
        own: list[CPUGroup] = []
        assigned = 0
        for cpu in cpuset.ids(package.cpus):
            if not assigned >> cpu & 1 and (cpus := _grouping_cache(topology, cpu, level)):
                own.append(_group(topology, cpus, first=cpu))
                assigned |= cpus
        if len(own) > 1:
            found.extend(own)
    return _numbered_groups(topology, found)


def _grouping_level(topology: Topology) -> int | None:
    for cpu in cpuset.ids(topology.online):
        for level in range(len(topology.caches_of[cpu]) - 1, 0, -1):
            if _grouping_cache(topology, cpu, level):
                return level
    return None


def _grouping_cache(topology: Topology, cpu: int, level: int) -> CPUSet:
    """The CPUs with which a CPU shares a cache, if they are worth a group."""
    cpus = topology.shared_cache(cpu, level) & topology.online
    too_obvious = {topology.threads[cpu], topology.die_of[cpu].cpus, topology.package_of[cpu].cpus}
    return 0 if cpus.bit_count() <= 1 or cpus in too_obvious else cpus


def _group(topology: Topology, cpus: CPUSet, *, number: int = 0, first: int | None = None) -> CPUGroup:
    """Return a group with the place of its first CPU (the lowest, unless another one is given)."""
    lowest = next(cpuset.ids(cpus)) if first is None else first
    return CPUGroup(
        id=number,
        package=topology.package_of[lowest].id,
        die=topology.die_of[lowest].id,
        numa=topology.hardware.machine.by_cpu[lowest].numa,
        cpus=cpus,
        efficient=bool(topology.efficient >> lowest & 1),
    )


def _numbered_groups(topology: Topology, groups: list[CPUGroup]) -> tuple[CPUGroup, ...]:
    by_die = True
    for group in sorted(groups, key=_with_die):
        for cpu in cpuset.ids(group.cpus):
            if topology.package_of[cpu].id != group.package:
                return ()
            if topology.die_of[cpu].id != group.die:
                by_die = False
                break
            if topology.hardware.machine.by_cpu[cpu].numa != group.numa:
                return ()
    ordered = sorted(groups, key=_with_die if by_die else _without_die)
    return tuple(replace(group, id=position) for position, group in enumerate(ordered))


def _with_die(group: CPUGroup) -> tuple[int, ...]:
    return group.package, group.die, group.numa, next(cpuset.ids(group.cpus))


def _without_die(group: CPUGroup) -> tuple[int, ...]:
    return group.package, group.numa, next(cpuset.ids(group.cpus))


def picked_kinds(topology: Topology, groups: tuple[CPUGroup, ...], *, low: bool) -> Iterator[CPUGroup]:
    """Return the kinds that may serve: on hybrid machines E-cores for low priority, P-cores for all else."""
    for group in groups:
        if not topology.hybrid or group.efficient is low:
            yield group
