"""Writes a machine as the files of sysfs and procfs, so that programs which read a node can read it.

The layout is the kernel's (Documentation/ABI/stable/sysfs-devices-system-cpu, sysfs-devices-node,
admin-guide/cputopology); it holds what cAdvisor, and so the kubelet, derives its machine from. Two of
cAdvisor's rules shape the tree: a core's L3 cache counts only where it does not span just the NUMA node's
CPUs, and its id is the one in the file ``id``. A machine that no tree could describe, such as one with odd
bytes of memory, is rejected.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.machine import CPU, Machine, NUMANode

_KIB = 1024
_BITS_PER_GROUP = 32
_KERNEL_MAX = 8191

Files = Iterator[tuple[str, str]]


class UnwritableMachine(NumazonesError):
    """A machine that sysfs has no way to describe; the message names the part and the cure."""


@dataclass(frozen=True, slots=True)
class MachineTree:
    """Paths of a machine's files."""

    sysfs: Path
    procfs: Path


def write(
    machine: Machine, directory: Path, *, offline: Mapping[int, int] | None = None, isolated: CPUSet = 0
) -> MachineTree:
    """Write ``sys/`` and ``proc/`` into a directory.

    ``offline``: CPUs that are present but switched off, with the NUMA node of each; ``isolated``: CPUs
    that the kernel's scheduler leaves alone.

    Raises:
        UnwritableMachine: sysfs cannot describe the machine.
    """
    tree = MachineTree(directory / "sys", directory / "proc")
    hidden = dict(offline or {})
    _check(machine, hidden)
    made: set[Path] = set()
    for root, files in (
        (tree.sysfs, _sysfs(machine, hidden, isolated)),
        (tree.procfs, _procfs(machine)),
    ):
        for name, text in files:
            path = root / name
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_text(text, encoding="ascii")
    for cpu, numa in [*((cpu.id, cpu.numa) for cpu in machine.cpus), *hidden.items()]:
        _link(tree.sysfs / f"devices/system/node/node{numa}/cpu{cpu}", f"../../cpu/cpu{cpu}")
        _link(tree.sysfs / f"devices/system/cpu/cpu{cpu}/node{numa}", f"../../node/node{numa}")
    return tree


def _check(machine: Machine, offline: Mapping[int, int]) -> None:
    for node in machine.numa_nodes:
        if node.memory % _KIB:
            raise UnwritableMachine(
                f"NUMA node {node.id} has {node.memory} bytes of memory; "
                "sysfs counts in KiB, so use a multiple of 1024"
            )
    for hidden, numa in offline.items():
        if hidden in machine.by_cpu or numa not in machine.by_numa:
            raise UnwritableMachine(
                f"offline CPU {hidden} of NUMA node {numa}: "
                "the CPU must not be online, and the NUMA node must exist"
            )
    for cpu in machine.cpus:
        core = machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core]
        if {machine.by_cpu[sibling].uncore_cache for sibling in cpuset.ids(core)} != {cpu.uncore_cache}:
            raise UnwritableMachine(f"CPUs {cpuset.format(core)} are one core but have different L3 caches")
        if cpu.uncore_cache is None:
            continue
        if machine.cpus_of_uncore_cache[cpu.uncore_cache].bit_count() == _cpus_of_node_by_core(machine, cpu):
            raise UnwritableMachine(
                f"L3 cache {cpu.uncore_cache} has as many CPUs as NUMA node {cpu.numa}: "
                "the kubelet takes it for the cache of the whole NUMA node; give those CPUs uncore_cache=None"
            )


def _cpus_of_node_by_core(machine: Machine, cpu: CPU) -> int:
    """Return how many CPUs the NUMA node would have if all its cores had as many threads as this CPU's."""
    cores = {(other.socket, other.core) for other in machine.cpus if other.numa == cpu.numa}
    return len(cores) * machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core].bit_count()


def _link(path: Path, target: str) -> None:
    if not path.is_symlink():
        path.symlink_to(target)


def _sysfs(machine: Machine, offline: Mapping[int, int], isolated: CPUSet) -> Files:
    present = machine.all_cpus | cpuset.of(offline)
    yield from _cpu_lists(machine, present, cpuset.of(offline), isolated)
    whole_node_caches = _whole_node_caches(machine)
    for cpu in machine.cpus:
        folder = f"devices/system/cpu/cpu{cpu.id}"
        yield f"{folder}/online", "1\n"
        yield from _topology(machine, cpu, f"{folder}/topology", present)
        yield from _caches(machine, cpu, f"{folder}/cache", present, whole_node_caches)
    for cpu_id in offline:
        yield f"devices/system/cpu/cpu{cpu_id}/online", "0\n"
    yield from _node_lists(machine)
    for node in machine.numa_nodes:
        yield from _node(machine, node, present)
    yield from _machine_hugepages(machine)


def _cpu_lists(machine: Machine, present: CPUSet, offline: CPUSet, isolated: CPUSet) -> Files:
    folder = "devices/system/cpu"
    smt = any(cpus.bit_count() > 1 for cpus in machine.cpus_of_core.values())
    yield f"{folder}/kernel_max", f"{_KERNEL_MAX}\n"
    yield f"{folder}/possible", _list((1 << present.bit_length()) - 1)
    yield f"{folder}/present", _list(present)
    yield f"{folder}/online", _list(machine.all_cpus)
    yield f"{folder}/offline", _list(offline)
    yield f"{folder}/isolated", _list(isolated)
    yield f"{folder}/smt/active", f"{int(smt)}\n"
    yield f"{folder}/smt/control", "on\n" if smt else "notsupported\n"


def _topology(machine: Machine, cpu: CPU, folder: str, present: CPUSet) -> Files:
    core = machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core]
    package = machine.cpus_of_socket[cpu.socket]
    die = cpuset.of(other.id for other in machine.cpus if (other.socket, other.die) == (cpu.socket, cpu.die))
    yield f"{folder}/core_id", f"{cpu.core}\n"
    yield f"{folder}/die_id", f"{cpu.die}\n"
    yield f"{folder}/physical_package_id", f"{cpu.socket}\n"
    for names, cpus in (
        (("core_cpus", "thread_siblings"), core),
        (("die_cpus",), die),
        (("package_cpus", "core_siblings"), package),
    ):
        for name in names:
            yield f"{folder}/{name}", _map(cpus, present)
            yield f"{folder}/{name}_list", _list(cpus)


def _whole_node_caches(machine: Machine) -> dict[int, int]:
    """NUMA id → id of the L3 cache of its own, for the NUMA nodes whose CPUs show no other L3 cache.

    Only where all cores have equally many threads: elsewhere cAdvisor would not see that the cache
    spans the NUMA node, so such a NUMA node gets no L3 cache at all.
    """
    first = max(machine.cpus_of_uncore_cache, default=-1) + 1
    caches: dict[int, int] = {}
    for node in machine.numa_nodes:
        cpus = [cpu for cpu in machine.cpus if cpu.numa == node.id]
        if (
            cpus
            and all(cpu.uncore_cache is None for cpu in cpus)
            and all(_cpus_of_node_by_core(machine, cpu) == len(cpus) for cpu in cpus)
        ):
            caches[node.id] = first + len(caches)
    return caches


def _caches(
    machine: Machine, cpu: CPU, folder: str, present: CPUSet, whole_node_caches: Mapping[int, int]
) -> Files:
    core = machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core]
    core_cache = next(cpuset.ids(core))
    rows = [
        (1, core_cache, "Data", 48, core),
        (1, core_cache, "Instruction", 32, core),
        (2, core_cache, "Unified", 2048, core),
    ]
    if cpu.uncore_cache is not None:
        rows.append((3, cpu.uncore_cache, "Unified", 32768, machine.cpus_of_uncore_cache[cpu.uncore_cache]))
    elif cpu.numa in whole_node_caches:
        rows.append((3, whole_node_caches[cpu.numa], "Unified", 32768, machine.cpus_of_numa[cpu.numa]))
    for index, (level, cache, kind, kibibytes, cpus) in enumerate(rows):
        yield f"{folder}/index{index}/level", f"{level}\n"
        yield f"{folder}/index{index}/id", f"{cache}\n"
        yield f"{folder}/index{index}/type", f"{kind}\n"
        yield f"{folder}/index{index}/size", f"{kibibytes}K\n"
        yield f"{folder}/index{index}/coherency_line_size", "64\n"
        yield f"{folder}/index{index}/shared_cpu_list", _list(cpus)
        yield f"{folder}/index{index}/shared_cpu_map", _map(cpus, present)


def _node_lists(machine: Machine) -> Files:
    folder = "devices/system/node"
    with_cpus = cpuset.of(numa for numa, cpus in machine.cpus_of_numa.items() if cpus)
    with_memory = cpuset.of(node.id for node in machine.numa_nodes if node.memory)
    yield f"{folder}/online", _list(machine.numa_mask)
    yield f"{folder}/possible", _list((1 << machine.numa_mask.bit_length()) - 1)
    yield f"{folder}/has_cpu", _list(with_cpus)
    yield f"{folder}/has_memory", _list(with_memory)
    yield f"{folder}/has_normal_memory", _list(with_memory)


def _node(machine: Machine, node: NUMANode, present: CPUSet) -> Files:
    folder = f"devices/system/node/node{node.id}"
    cpus = machine.cpus_of_numa[node.id]
    yield f"{folder}/cpulist", _list(cpus)
    yield f"{folder}/cpumap", _map(cpus, present)
    if node.distances is not None:
        yield f"{folder}/distance", " ".join(map(str, node.distances)) + "\n"
    yield f"{folder}/meminfo", _node_meminfo(node)
    for size, pages in node.hugepages:
        pool = f"{folder}/hugepages/hugepages-{size}kB"
        yield f"{pool}/nr_hugepages", f"{pages}\n"
        yield f"{pool}/free_hugepages", f"{pages}\n"
        yield f"{pool}/surplus_hugepages", "0\n"


def _node_meminfo(node: NUMANode) -> str:
    pages = dict(node.hugepages).get(2048, 0)
    free = max(0, node.memory // _KIB - sum(size * count for size, count in node.hugepages)) * 7 // 8
    rows = [
        ("MemTotal", f"{node.memory // _KIB:>14} kB"),
        ("MemFree", f"{free:>14} kB"),
        ("MemUsed", f"{node.memory // _KIB - free:>14} kB"),
        ("FilePages", f"{free // 20:>14} kB"),
        ("HugePages_Total", f"{pages:>6}"),
        ("HugePages_Free", f"{pages:>6}"),
        ("HugePages_Surp", f"{0:>6}"),
    ]
    return "".join(f"Node {node.id} {name}:{value}\n" for name, value in rows)


def _machine_hugepages(machine: Machine) -> Files:
    totals: dict[int, int] = {}
    for node in machine.numa_nodes:
        for size, pages in node.hugepages:
            totals[size] = totals.get(size, 0) + pages
    for size, pages in totals.items():
        pool = f"kernel/mm/hugepages/hugepages-{size}kB"
        yield f"{pool}/nr_hugepages", f"{pages}\n"
        yield f"{pool}/free_hugepages", f"{pages}\n"
        yield f"{pool}/nr_hugepages_mempolicy", f"{pages}\n"
        yield f"{pool}/nr_overcommit_hugepages", "0\n"
        yield f"{pool}/resv_hugepages", "0\n"
        yield f"{pool}/surplus_hugepages", "0\n"


def _procfs(machine: Machine) -> Files:
    total = sum(node.memory for node in machine.numa_nodes) // _KIB
    hugetlb = sum(size * pages for node in machine.numa_nodes for size, pages in node.hugepages)
    free = max(0, total - hugetlb)
    yield (
        "meminfo",
        (
            f"MemTotal:       {total} kB\nMemFree:        {free} kB\nMemAvailable:   {free} kB\n"
            f"Buffers:        0 kB\nCached:         0 kB\nSwapTotal:      0 kB\nSwapFree:       0 kB\n"
            f"Hugepagesize:   2048 kB\nHugetlb:        {hugetlb} kB\n"
        ),
    )
    yield "cpuinfo", "\n".join(_cpuinfo(machine, cpu) for cpu in machine.cpus)


def _cpuinfo(machine: Machine, cpu: CPU) -> str:
    siblings = machine.cpus_of_socket[cpu.socket]
    cores = {(machine.by_cpu[other].numa, machine.by_cpu[other].core) for other in cpuset.ids(siblings)}
    rows: Iterable[tuple[str, object]] = (
        ("processor", cpu.id),
        ("vendor_id", "Simulated"),
        ("model name", "Simulated CPU"),
        ("cpu MHz", "2500.000"),
        ("physical id", cpu.socket),
        ("siblings", siblings.bit_count()),
        ("core id", cpu.core),
        ("cpu cores", len(cores)),
        ("flags", "fpu ht" if siblings.bit_count() > len(cores) else "fpu"),
    )
    return "".join(f"{name:<16}: {value}\n" for name, value in rows)


def _list(cpus: CPUSet) -> str:
    return cpuset.format(cpus) + "\n"


def _map(cpus: CPUSet, present: CPUSet) -> str:
    """The kernel's mask format: hexadecimal groups of 32 bits, the highest first."""
    groups = max(1, -(-present.bit_length() // _BITS_PER_GROUP))
    digits = f"{cpus:0{groups * 8}x}"
    return ",".join(digits[start : start + 8] for start in range(0, len(digits), 8)) + "\n"
