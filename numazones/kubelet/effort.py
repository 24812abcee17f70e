"""The time that a kubelet needs to find hints and to merge them, and when that is too much.

The kubelet walks over all sets of NUMA nodes for every resource (2**n of them), and over every combination
of the hints found (their product). The figures are fitted to times measured on kubelet 1.36.2; a machine
may be two or three times slower or faster. Within a minute there is a verdict; beyond it there is none to
be had in practice: the kubelet admits no other pod meanwhile, and its health check fails after two.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb, prod

from numazones import cpuset
from numazones.apimachinery.resources import hugepage_type
from numazones.kubelet import cures
from numazones.kubelet.config import (
    BEST_EFFORT,
    POLICY_NONE,
    RESTRICTED,
    KubeletConfiguration,
)
from numazones.kubelet.machine import Machine
from numazones.kubelet.rejection import KubeletCrash, KubeletHang

PATIENCE = 60.0
"""Seconds after which a verdict counts as never given."""
NOTICEABLE = 5.0
"""Seconds that are worth a warning."""

_PER_CPU = 1e-6
_PER_MEMORY_NODE = 3.3e-6
_PER_DEVICE = 0.5e-6
_PER_COMBINED_HINT = 0.4e-6
_PER_DISTRIBUTION = 5e-6
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_SHORT = 1.5
"""Up to so many of a unit the next smaller one is used."""
_AGE = 10_000
_COMMON_RESOURCES = 5
"""How many resources a pod may well ask for: CPUs, memory, hugepages, two of devices."""


def cpu_walk(nodes: int, cpus: int) -> float:
    """Return the seconds that the CPU Manager's hints take."""
    return _sets(nodes) * cpus * _PER_CPU


def memory_walk(nodes: int) -> float:
    """Return the seconds that the static Memory Manager's hints take."""
    return _sets(nodes) * nodes * _PER_MEMORY_NODE


def device_walk(nodes: int, devices: int) -> float:
    """Return the seconds that hints for a device plugin's resource take."""
    return _sets(nodes) * (nodes + devices) * _PER_DEVICE


def merging(lengths: Collection[int]) -> float:
    """Return the seconds that the Topology Manager takes to combine lists of hints."""
    return prod(lengths) * len(lengths) * _PER_COMBINED_HINT


def distribution(nodes: int, size: int) -> float:
    """Return the seconds of a search among all combinations of NUMA nodes to spread CPUs over."""
    return comb(nodes, size) * _PER_DISTRIBUTION


def device_cure(*, over_hosting: bool) -> str:
    """Return what helps where hints for devices take too long; over NUMA nodes with devices or over all."""
    return cures.NO_ALIGNMENT if over_hosting else cures.NEWER_DEVICE_HINTS


def _sets(nodes: int) -> int:
    return (1 << nodes) - 1


# The next three are asked for every container, and of one kubelet always the same.


@lru_cache(maxsize=256)
def check_cpu_walk(nodes: int, cpus: int) -> None:
    """Raise ``KubeletHang`` where the CPU Manager's hints take too long."""
    _check_walk("cpu", nodes, cpu_walk(nodes, cpus), cures.NO_ALIGNMENT)


@lru_cache(maxsize=256)
def check_memory_walk(nodes: int) -> None:
    """Raise ``KubeletHang`` where the static Memory Manager's hints take too long."""
    _check_walk("memory", nodes, memory_walk(nodes), cures.NO_MEMORY_MANAGER)


@lru_cache(maxsize=256)
def check_device_walk(resource: str, nodes: int, devices: int, *, over_hosting: bool) -> None:
    """Raise ``KubeletHang`` where hints for a device plugin's resource take too long."""
    _check_walk(resource, nodes, device_walk(nodes, devices), device_cure(over_hosting=over_hosting))


def _check_walk(resource: str, nodes: int, seconds: float, cure: str) -> None:
    if seconds > PATIENCE:
        raise KubeletHang(
            f"the kubelet would hang: for {resource} it tries all sets of {nodes} NUMA nodes, which takes "
            f"{duration(seconds)} per container; {cure}"
        )


def check_merge(lengths: Mapping[str, int]) -> None:
    """Raise ``KubeletHang`` where combining the hints of all resources takes too long."""
    seconds = merging(lengths.values())
    if seconds > PATIENCE:
        lists = ", ".join(f"{name} ({length})" for name, length in lengths.items())
        raise KubeletHang(
            f"the kubelet would hang: it tries all combinations of the hints for {lists}, which takes "
            f"{duration(seconds)}; {cures.FEWER_COMBINATIONS}"
        )


def check_distribution(count: int, nodes: int, size: int) -> None:
    """Raise ``KubeletHang`` where spreading CPUs over NUMA nodes takes too long."""
    seconds = distribution(nodes, size)
    if seconds > PATIENCE:
        raise KubeletHang(
            f"the kubelet would hang: to distribute {count} CPUs it tries all sets of {size} of {nodes} NUMA "
            f"nodes, which takes {duration(seconds)}; {cures.NO_DISTRIBUTION}"
        )


def check_ids(unmaskable: Collection[int], setting: str) -> None:
    """Raise ``KubeletCrash`` where NUMA nodes have ids that the kubelet's sets cannot hold."""
    if unmaskable:
        raise KubeletCrash(f"the kubelet would crash {_crash(unmaskable, setting)}; {cures.NO_MANAGERS}")


def _crash(unmaskable: Iterable[int], setting: str) -> str:
    return (
        f"under {setting}: its sets of NUMA nodes can only hold ids from 0 to 63, but this machine has "
        f"NUMA node {_enumerated(unmaskable)}"
    )


def _enumerated(ids: Iterable[int]) -> str:
    negative = [str(numa) for numa in sorted(ids) if numa < 0]
    others = cpuset.format(cpuset.of(min(numa, cpuset.MAX_ID) for numa in ids if numa >= 0))
    return ", ".join([*negative, *([others] if others else [])])


def duration(seconds: float) -> str:
    """Write an estimate.

    >>> duration(75), duration(3e5), duration(1e25)
    ('about 75 seconds', 'about 3 days', 'longer than 10000 years')
    """
    if seconds >= _AGE * _YEAR:
        return f"longer than {_AGE} years"
    for unit, name in ((_YEAR, "years"), (_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= _SHORT * unit:
            return f"about {seconds / unit:.0f} {name}"
    return f"about {seconds:.0f} seconds"


@dataclass(frozen=True, slots=True)
class Delay:
    """Pods on which the kubelet crashes, hangs, or spends seconds."""

    reason: str
    """KubeletCrash, KubeletHang or SlowAdmission."""
    message: str
    cure: str


SLOW = "SlowAdmission"
HANG = KubeletHang.__name__
CRASH = KubeletCrash.__name__


def delays(
    machine: Machine, config: KubeletConfiguration, devices: Mapping[str, tuple[int, int]]
) -> tuple[Delay, ...]:
    """Foresee, from a node's shape alone, pods on which its kubelet crashes, hangs or is slow.

    ``devices``: resource → mask of the NUMA nodes that host its devices, and their number.
    """
    aligned = config.topology_manager_policy != POLICY_NONE
    pinned = config.memory_manager_policy == "Static"
    if machine.unmaskable and (aligned or pinned):
        setting = f"topologyManagerPolicy {config.topology_manager_policy}"
        who, where = ("every pod", setting) if aligned else ("Guaranteed pods", "memoryManagerPolicy Static")
        return (
            Delay(
                CRASH, f"the kubelet crashes on {who} {_crash(machine.unmaskable, where)}", cures.NO_MANAGERS
            ),
        )
    lists = dict(_lists(machine, config, devices, aligned=aligned, pinned=pinned))
    found = [
        Delay(
            HANG if seconds > PATIENCE else SLOW,
            f"a pod that requests {resource} keeps the kubelet busy for {duration(seconds)}: it tries all "
            f"sets of {nodes} NUMA nodes",
            cure,
        )
        for resource, (nodes, seconds, cure) in lists.items()
        if seconds > NOTICEABLE
    ]
    if not found and config.topology_manager_policy in {BEST_EFFORT, RESTRICTED}:
        found.extend(_slow_merge({name: _sets(nodes) for name, (nodes, _, _) in lists.items()}))
    return tuple(found)


def _lists(
    machine: Machine,
    config: KubeletConfiguration,
    devices: Mapping[str, tuple[int, int]],
    *,
    aligned: bool,
    pinned: bool,
) -> Iterable[tuple[str, tuple[int, float, str]]]:
    """Yield what hints are made for, each with NUMA nodes, seconds and cure."""
    if aligned and config.cpu_manager_policy == "static":
        nodes = sum(1 for cpus in machine.cpus_of_numa.values() if cpus)
        yield "cpu", (nodes, cpu_walk(nodes, machine.all_cpus.bit_count()), cures.NO_ALIGNMENT)
    if pinned:
        nodes = len(machine.numa_nodes)
        yield "memory", (nodes, memory_walk(nodes), cures.NO_MEMORY_MANAGER)
        sizes = {size for node in machine.numa_nodes for size, pages in node.hugepages if pages}
        for size in sorted(sizes) if aligned else ():
            yield hugepage_type(size), (nodes, 0.0, cures.NO_MEMORY_MANAGER)
    for name, (hosting, count) in sorted(devices.items()) if aligned else ():
        if hosting:
            own = hosting & machine.numa_mask if config.release.device_hints_over_hosting_nodes else 0
            nodes = (own or machine.numa_mask).bit_count()
            yield name, (nodes, device_walk(nodes, count), device_cure(over_hosting=bool(own)))


def _slow_merge(lengths: Mapping[str, int]) -> Iterable[Delay]:
    longest = sorted(lengths, key=lambda name: lengths[name], reverse=True)[:_COMMON_RESOURCES]
    seconds = merging([lengths[name] for name in longest])
    if seconds > NOTICEABLE:
        yield Delay(
            SLOW,
            f"a pod that requests {', '.join(longest)} together can keep the kubelet busy for "
            f"{duration(seconds)}: it tries all combinations of their hints",
            cures.FEWER_COMBINATIONS,
        )
