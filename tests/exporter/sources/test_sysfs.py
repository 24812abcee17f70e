"""The machine as the kubelet sees it, whole, unusual or damaged; every problem names its file."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from numazones import cpuset
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.versions import release
from numazones_node.problems import Problem, SourceError
from numazones_node.sysfs import Hardware, SysfsReader, may_be_read
from tests.exporter.sources.sysfs_tree import CPU, NODE, Tree
from tests.places import ROOT

KIB = 1024


def read(tree: Tree) -> tuple[Hardware, list[Problem]]:
    reading = SysfsReader(tree.sysfs, tree.procfs).read()
    return reading.value, list(reading.problems)


def only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, problems
    return problems[0]


def test_cpus_cores_sockets_memory_hugepages_and_distances_are_read(tmp_path: Path) -> None:
    hardware, problems = read(Tree(tmp_path, {0: "0-1,4-5", 1: "2-3,6-7"}, threads=2).write())
    machine = hardware.machine
    assert problems == []
    assert {numa: cpuset.format(cpus) for numa, cpus in machine.cpus_of_numa.items()} == {
        0: "0-1,4-5",
        1: "2-3,6-7",
    }
    assert sorted(map(cpuset.format, machine.cpus_of_core.values())) == ["0,4", "1,5", "2,6", "3,7"]
    assert {cpu.socket for cpu in machine.cpus} == {0, 1}
    assert [(node.memory, node.hugepages, node.distances) for node in machine.numa_nodes] == [
        (1048576 * KIB, ((2048, 3),), (10, 21)),
        (1048576 * KIB, ((2048, 3),), (21, 10)),
    ]


def test_hugepages_of_every_size_are_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0"}).write()
    for size, pages in ((64, 7), (32768, 1), (1048576, 2), (16777216, 0)):
        tree.put(f"{NODE}/node0/hugepages/hugepages-{size}kB/nr_hugepages", str(pages))
    hardware, _ = read(tree)
    assert hardware.machine.numa_nodes[0].hugepages == (
        (64, 7),
        (2048, 3),
        (32768, 1),
        (1048576, 2),
        (16777216, 0),
    )


def test_numa_id_gaps_and_nodes_without_cpus_or_memory_stay(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1", 3: "", 8: "2-3"}).write()
    tree.put(f"{NODE}/node3/meminfo", "Node 3 MemTotal:  2097152 kB")
    tree.put(f"{NODE}/node8/meminfo", "Node 8 MemTotal:  0 kB")
    hardware, problems = read(tree)
    nodes = hardware.machine.numa_nodes
    assert problems == []
    assert [(node.id, node.memory // KIB) for node in nodes] == [(0, 1048576), (3, 2097152), (8, 0)]
    assert [hardware.machine.cpus_of_numa[node.id].bit_count() for node in nodes] == [2, 0, 2]
    assert hardware.memory_unknown == 0
    assert nodes[2].distances == (21, 21, 10)


def test_thirty_four_numa_nodes_of_which_two_have_cpus(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-71", 1: "72-143", **dict.fromkeys(range(2, 34), "")}).write()
    hardware, problems = read(tree)
    assert problems == []
    assert len(hardware.machine.numa_nodes) == 34
    assert [len(node.distances or ()) for node in hardware.machine.numa_nodes] == [34] * 34
    assert cpuset.format(hardware.machine.cpus_of_numa[1]) == "72-143"


def test_core_ids_need_be_unique_in_their_socket_only(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1", 1: "2-3"}).write()
    for cpu, core in ((0, 0), (1, 1), (2, 0), (3, 1)):
        tree.put(f"{CPU}/cpu{cpu}/topology/core_id", str(core))
    hardware, _ = read(tree)
    assert len(hardware.machine.cpus_of_core) == 4


@pytest.mark.parametrize(
    ("caches", "uncore"),
    [
        pytest.param({0: "0-3", 1: "4-7"}, [None] * 8, id="an L3 of the whole NUMA node is none"),
        pytest.param(
            {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}, [0, 0, 1, 1, 2, 2, 3, 3], id="an L3 of some cores is"
        ),
        pytest.param({7: "0-7"}, [7] * 8, id="an L3 of several NUMA nodes is"),
    ],
)
def test_l3_cache_counts_as_uncore_cache_as_for_the_kubelet(
    tmp_path: Path, caches: dict[int, str], uncore: list[int | None]
) -> None:
    hardware, _ = read(Tree(tmp_path, {0: "0-3", 1: "4-7"}, caches=caches).write())
    assert [cpu.uncore_cache for cpu in hardware.machine.cpus] == uncore
    assert {cache.id: cpuset.format(cache.cpus) for cache in hardware.caches} == caches


def test_core_with_offline_thread_uses_the_nodes_l3_cache(tmp_path: Path) -> None:
    """cAdvisor multiplies the core's own threads with the node's cores and compares with the sharers."""
    tree = Tree(tmp_path, {0: "0-3"}, threads=2, offline="3", caches={0: "0-2"}).write()
    hardware, _ = read(tree)
    # Core 0 has two threads: 2·2 = 4 ≠ 3 sharers. Core 1 has one: 1·2 = 2 ≠ 3.
    assert [cpu.uncore_cache for cpu in hardware.machine.cpus] == [0, 0, 0]
    tree.put(f"{CPU}/cpu1/cache/index3/shared_cpu_map", "3")
    hardware, _ = read(tree)
    assert [cpu.uncore_cache for cpu in hardware.machine.cpus] == [0, None, 0]


def test_offline_cpus_are_no_cpus_of_the_machine_but_shown(tmp_path: Path) -> None:
    hardware, problems = read(Tree(tmp_path, {0: "0-3", 1: "4-7"}, offline="2,5-6").write())
    assert problems == []
    assert cpuset.format(hardware.machine.all_cpus) == "0-1,3-4,7"
    assert [(numa, cpuset.format(cpus)) for numa, cpus in hardware.offline] == [(0, "2"), (1, "5-6")]


def test_cpus_that_could_be_plugged_in_are_not_offline_cpus(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}).write()
    tree.put(f"{CPU}/offline", "4-239")
    hardware, _ = read(tree)
    assert hardware.offline == ()


def test_isolated_cpus_are_shown(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}).write()
    tree.put(f"{CPU}/isolated", "2-3")
    assert cpuset.format(read(tree)[0].isolated) == "2-3"


@pytest.mark.parametrize("name", ["isolated", "offline"])
def test_a_bad_cpu_list_is_a_problem_and_no_crash(tmp_path: Path, name: str) -> None:
    tree = Tree(tmp_path, {0: "0-3"}).write()
    tree.put(f"{CPU}/{name}", "0-")
    hardware, problems = read(tree)
    assert hardware.machine.all_cpus == 0b1111
    assert only(problems).reason == "InvalidCPUList"
    assert only(problems).message == (
        f"{tree.root / CPU / name}: '0-' is not a CPU list: '0-' is neither a CPU nor a range such as 0-3; "
        f"no CPU is shown as {name}"
    )


def test_bad_online_cpu_list_falls_back_to_each_cpus_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}, offline="3").write()
    tree.put(f"{CPU}/online", "0-")
    hardware, problems = read(tree)
    assert cpuset.format(hardware.machine.all_cpus) == "0-2"
    assert only(problems).message.endswith(
        "'0-' is neither a CPU nor a range such as 0-3; the CPUs' own files cpuN/online are used instead"
    )


def test_bad_cpu_list_of_a_node_falls_back_to_entries(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1", 1: "2-3"}).write()
    tree.put(f"{NODE}/node1/cpulist", "2-")
    hardware, problems = read(tree)
    assert cpuset.format(hardware.machine.cpus_of_numa[1]) == "2-3"
    assert problems == []


@pytest.mark.parametrize("junk", ["\0", "\n\0\0", "\0trailing", "\nsecond line", ",", " ;", "\0" * 3 + "7"])
@pytest.mark.parametrize("name", ["online", "offline", "isolated", "cpulist"])
def test_junk_behind_a_cpu_list_does_no_harm(tmp_path: Path, name: str, junk: str) -> None:
    tree = Tree(tmp_path, {0: "0-3", 2: ""}, offline="3").write()
    for numa in (0, 2):
        (tree.root / NODE / f"node{numa}/cpulist").write_text(
            "0-3" + junk if numa == 0 else junk.partition("second")[0]
        )
    for cpu in range(4 if name == "cpulist" else 0):
        tree.remove(f"{NODE}/node0/cpu{cpu}/online")
        (tree.root / NODE / f"node0/cpu{cpu}").rmdir()
    if name != "cpulist":
        path = tree.root / CPU / name
        path.write_text((path.read_text().strip() or "1") + junk)
    hardware, problems = read(tree)
    assert problems == []
    assert cpuset.format(hardware.machine.all_cpus) == "0-2"
    assert hardware.offline == ((0, 0b1000),)


def test_nul_list_is_empty_and_a_problem_for_online_cpus(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1"}).write()
    tree.put(f"{CPU}/isolated", "\0")
    assert read(tree)[1] == []
    tree.put(f"{CPU}/online", "\0")
    hardware, problems = read(tree)
    assert hardware.machine.all_cpus == 0b11
    assert only(problems).reason == "InvalidCPUList"


def test_without_entries_a_nodes_cpu_list_is_used(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1"}).write()
    for cpu in (0, 1):
        tree.remove(f"{NODE}/node0/cpu{cpu}/online")
        (tree.root / NODE / f"node0/cpu{cpu}").rmdir()
    assert read(tree)[0].machine.all_cpus == 0b11


def test_missing_meminfo_leaves_the_memory_unknown(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1", 1: "2-3"}).write()
    tree.remove(f"{NODE}/node1/meminfo")
    hardware, problems = read(tree)
    assert hardware.memory_unknown == 0b10
    assert only(problems).reason == "MeminfoMissing"
    assert only(problems).message == (
        f"{tree.root / NODE}/node1/meminfo cannot be read; the memory of node1 is unknown"
    )


def test_meminfo_without_total_leaves_the_memory_unknown(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0", 1: "1"}).write()
    tree.put(f"{NODE}/node0/meminfo", "Node 0 MemFree: 17 kB")
    hardware, problems = read(tree)
    assert hardware.memory_unknown == 0b01
    assert only(problems).message.endswith(
        "node0/meminfo has no line MemTotal; the memory of node0 is unknown"
    )


def test_unreadable_hugepages_are_left_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0"}).write()
    tree.put(f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "many")
    hardware, problems = read(tree)
    assert hardware.machine.numa_nodes[0].hugepages == ()
    assert only(problems).message.endswith(
        "nr_hugepages contains no number; huge pages of this size are left out"
    )


@pytest.mark.parametrize("text", ["10", "10 21 21", "10 far", "10 ²"])
def test_distances_that_do_not_fit_are_left_out(tmp_path: Path, text: str) -> None:
    tree = Tree(tmp_path, {0: "0", 1: "1"}).write()
    tree.put(f"{NODE}/node0/distance", text)
    hardware, problems = read(tree)
    assert [node.distances for node in hardware.machine.numa_nodes] == [None, (21, 10)]
    assert only(problems).message.endswith(
        f"distance contains {text!r}, not 2 numbers; the distances are left out"
    )


@pytest.mark.parametrize("text", ["9" * 5000, "-", "\x00", "0x10"], ids=["endless", "dash", "binary", "hex"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"{NODE}/node0/distance", "InvalidDistances"),
        (f"{NODE}/node0/meminfo", "MeminfoMissing"),
        (f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "HugepagesUnreadable"),
        (f"{CPU}/cpu0/topology/core_id", "CPUWithoutTopology"),
        (f"{CPU}/online", "InvalidCPUList"),
    ],
)
def test_nonsense_is_a_problem_and_no_crash(tmp_path: Path, path: str, reason: str, text: str) -> None:
    tree = Tree(tmp_path, {0: "0-1", 1: "2-3"}).write()
    tree.put(path, f"Node 0 MemTotal: {text} kB" if path.endswith("meminfo") else text)
    hardware, problems = read(tree)
    assert [node.id for node in hardware.machine.numa_nodes] == [0, 1]
    assert only(problems).reason == reason


@pytest.mark.parametrize("text", ["-1", "9" * 5000 + "x", ",", "ff,"])
def test_a_cache_shared_by_nobody_knows_whom_is_left_out(tmp_path: Path, text: str) -> None:
    tree = Tree(tmp_path, {0: "0-3"}, caches={0: "0-3"}).write()
    for cpu in range(4):
        tree.put(f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map", text)
    assert read(tree)[0].caches == ()


def test_numbers_that_no_numa_node_has_are_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}).write()
    (tmp_path / NODE / f"node{'9' * 200}").mkdir()
    (tmp_path / CPU / f"cpu{'9' * 200}").mkdir()
    assert [node.id for node in read(tree)[0].machine.numa_nodes] == [0]


def test_cpu_without_topology_is_left_out_as_the_kubelet_does(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-1"}).write()
    tree.remove(f"{CPU}/cpu1/topology/core_id")
    hardware, problems = read(tree)
    assert hardware.machine.all_cpus == 0b01
    assert only(problems).message.endswith("CPU 1 is left out, as in the kubelet")


def test_kernel_without_numa_shows_one_zone_with_the_machines_memory(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {}).write()
    for cpu in range(2):
        tree.put(f"{CPU}/cpu{cpu}/topology/core_id", str(cpu))
        tree.put(f"{CPU}/cpu{cpu}/topology/physical_package_id", "0")
    tree.put(f"{CPU}/online", "0-1")
    tree.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "5")
    hardware, problems = read(tree)
    (node,) = hardware.machine.numa_nodes
    assert (node.id, node.memory, node.hugepages) == (0, 1048576 * KIB, ((2048, 5),))
    assert only(problems).reason == "NoNUMANodes"


def sockets(tree: Tree, *packages: int, offline: tuple[int, ...] = ()) -> Tree:
    """Write CPUs of a kernel without NUMA nodes, each with the id of its socket."""
    for cpu, package in enumerate(packages):
        (tree.root / CPU / f"cpu{cpu}").mkdir(parents=True, exist_ok=True)
        if cpu not in offline:
            tree.put(f"{CPU}/cpu{cpu}/topology/core_id", str(cpu))
            tree.put(f"{CPU}/cpu{cpu}/topology/physical_package_id", str(package))
    online = [cpu for cpu in range(len(packages)) if cpu not in offline]
    tree.put(f"{CPU}/online", ",".join(map(str, online)))
    tree.put(f"{CPU}/offline", ",".join(map(str, offline)))
    return tree


@pytest.mark.parametrize(
    ("packages", "ids", "kubelet_ids"),
    [
        ((-1, -1), [0], {-1: 0}),
        ((0, 0, 1), [0, 1], {0: 0, 1: 1}),
        ((-1, 0), [0, 1], {0: 0, -1: 1}),
        ((-2, -1, 3), [0, 1, 3], {-2: 0, -1: 1, 3: 3}),
        ((4294967295, 4294967295), [0], {4294967295: 0}),
        ((70, 71), [70, 71], {70: 70, 71: 71}),
    ],
)
def test_without_numa_nodes_the_kubelet_names_them_by_socket(
    tmp_path: Path, packages: tuple[int, ...], ids: list[int], kubelet_ids: dict[int, int]
) -> None:
    hardware, problems = read(sockets(Tree(tmp_path, {}).write(), *packages))
    assert [node.id for node in hardware.machine.numa_nodes] == ids
    assert hardware.machine.kubelet_ids == kubelet_ids
    assert [node.memory for node in hardware.machine.numa_nodes] == (
        [1048576 * KIB] if len(ids) == 1 else [0] * len(ids)
    )
    assert only(problems).reason == "NoNUMANodes"


def test_without_numa_nodes_offline_cpus_are_shown_and_counted(tmp_path: Path) -> None:
    hardware, _ = read(sockets(Tree(tmp_path, {}).write(), 0, 0, 0, 0, offline=(2, 3)))
    assert hardware.machine.all_cpus == 0b11
    assert CPUTopology(hardware.machine).cpus_per_core == 2
    assert hardware.offline == ((0, 0b1100),)


def test_without_cpu_topology_zones_are_without_cpus(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {}).write()
    for cpu in range(4):
        (tree.root / CPU / f"cpu{cpu}").mkdir(parents=True)
    tree.put(f"{CPU}/online", "0-3")
    hardware, problems = read(tree)
    assert hardware.machine.cpus == ()
    assert [(node.id, node.memory) for node in hardware.machine.numa_nodes] == [(0, 1048576 * KIB)]
    assert [problem.reason for problem in problems] == ["NoCPUTopology", "NoNUMANodes"]


@pytest.mark.parametrize("damage", ["size", "type", "level", "id", "shared_cpu_map"])
@pytest.mark.parametrize("index", ["index0", "index3"])
def test_a_cache_without_a_file_hides_those_of_later_cores(tmp_path: Path, index: str, damage: str) -> None:
    tree = Tree(tmp_path, {0: "0-11"}, caches={n: f"{2 * n}-{2 * n + 1}" for n in range(6)}).write()
    for cpu in range(12):
        for name, text in (("level", "1"), ("id", str(cpu)), ("size", "32K"), ("type", "Data")):
            tree.put(f"{CPU}/cpu{cpu}/cache/index0/{name}", text)
        tree.put(f"{CPU}/cpu{cpu}/cache/index0/shared_cpu_map", f"{1 << cpu:x}")
    tree.remove(f"{CPU}/cpu2/cache/{index}/{damage}")
    hardware, _ = read(tree)
    # By name: cpu0, cpu1, cpu10, cpu11, cpu2.
    known = [cpu.id for cpu in hardware.machine.cpus if cpu.uncore_cache is not None]
    assert known == [0, 1, 10, 11]


def test_cpu_without_caches_hides_those_of_cores_with_later_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-11"}, caches={n: f"{2 * n}-{2 * n + 1}" for n in range(6)}).write()
    shutil.rmtree(tree.root / CPU / "cpu9/cache")
    known = [cpu.id for cpu in read(tree)[0].machine.cpus if cpu.uncore_cache is not None]
    assert known == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_cache_sizes_in_other_units_are_unknown_to_the_kubelet(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}, caches={0: "0-1", 1: "2-3"}).write()
    tree.put(f"{CPU}/cpu2/cache/index3/size", "32M")
    assert [cpu.uncore_cache for cpu in read(tree)[0].machine.cpus] == [0, 0, None, None]


def test_recordings_without_sizes_and_types_keep_their_uncore_caches(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}, caches={0: "0-1", 1: "2-3"}).write()
    for cpu in range(4):
        for name in ("size", "type"):
            tree.remove(f"{CPU}/cpu{cpu}/cache/index3/{name}")
    assert [cpu.uncore_cache for cpu in read(tree)[0].machine.cpus] == [0, 0, 1, 1]


def books(tmp_path: Path, *places: tuple[int, int]) -> Tree:
    """Write an s390x of two threads a core, each core in a drawer and a book, all with core id 1."""
    tree = sockets(Tree(tmp_path, {}).write(), *[0] * (2 * len(places)))
    tree.put("proc/cpuinfo", "vendor_id       : IBM/S390\n# processors    : 4")
    for cpu in range(2 * len(places)):
        drawer, book = places[cpu // 2]
        tree.put(f"{CPU}/cpu{cpu}/topology/core_id", "1")
        tree.put(f"{CPU}/cpu{cpu}/topology/drawer_id", str(drawer))
        tree.put(f"{CPU}/cpu{cpu}/topology/book_id", str(book))
    return tree


@pytest.mark.parametrize("places", [((0, 0), (0, 1), (1, 0)), ((4, 0), (3, 0)), ((0, -1), (-1, 0))])
def test_cores_of_different_books_or_drawers_are_different(
    tmp_path: Path, places: tuple[tuple[int, int], ...]
) -> None:
    machine = read(books(tmp_path, *places))[0].machine
    cores = sorted(cpuset.format(cpus) for cpus in machine.cpus_of_core.values())
    assert cores == [f"{2 * core}-{2 * core + 1}" for core in range(len(places))]


@pytest.mark.parametrize(("version", "cores"), [("1.31.9", ["0-5"]), ("1.32.0", ["0-1", "2-3", "4-5"])])
def test_kubelet_1_31_merges_cores_of_different_books(tmp_path: Path, version: str, cores: list[str]) -> None:
    machine = read(books(tmp_path, (0, 0), (0, 1), (1, 0)))[0].seen_by(release(version)).machine
    assert sorted(map(cpuset.format, machine.cpus_of_core.values())) == cores


def test_kubelet_1_31_knows_cpus_without_a_book(tmp_path: Path) -> None:
    tree = books(tmp_path, (0, 0), (0, 1))
    tree.remove(f"{CPU}/cpu3/topology/book_id")
    assert read(tree)[0].seen_by(release("1.31.0")).machine.all_cpus == 0b1111


@pytest.mark.parametrize("missing", ["book_id", "drawer_id"])
def test_cpu_of_s390x_without_book_or_drawer_is_left_out(tmp_path: Path, missing: str) -> None:
    tree = books(tmp_path, (0, 0), (0, 1))
    tree.remove(f"{CPU}/cpu3/topology/{missing}")
    hardware, problems = read(tree)
    assert hardware.machine.all_cpus == 0b111
    assert "CPU 3 is left out" in next(item.message for item in problems if item.reason != "NoNUMANodes")


def test_cpu_of_two_numa_nodes_belongs_to_the_last_name(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {2: "0-1", 10: "2-3"}).write()
    tree.put(f"{NODE}/node2/cpu3/online", "1")
    assert cpuset.format(read(tree)[0].machine.cpus_of_numa[2]) == "0-1,3"


def test_directory_that_is_no_sysfs_is_rejected_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match="--sysfs must name the directory that is mounted as /sys"
    ) as caught:
        SysfsReader(tmp_path, tmp_path).read()
    assert str(tmp_path / "devices/system/cpu") in str(caught.value)


def test_a_cpu_that_goes_offline_between_two_readings_is_noticed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}).write()
    reader = SysfsReader(tree.sysfs, tree.procfs)
    assert reader.read().value.machine.all_cpus == 0b1111
    tree.put(f"{CPU}/online", "0-2")
    tree.put(f"{CPU}/offline", "3")
    assert reader.read().value.machine.all_cpus == 0b0111


def test_memory_and_hugepages_are_read_every_time(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0"}).write()
    reader = SysfsReader(tree.sysfs, tree.procfs)
    reader.read()
    tree.put(f"{NODE}/node0/meminfo", "Node 0 MemTotal: 4 kB")
    tree.put(f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "9")
    (node,) = reader.read().value.machine.numa_nodes
    assert (node.memory, node.hugepages) == (4 * KIB, ((2048, 9),))


def test_files_of_which_nothing_is_read_change_no_machine(tmp_path: Path) -> None:
    assert _compared(ROOT / "tests/data", tmp_path) >= 2


def test_unread_files_change_no_machine_of_the_lab(shared: Path, tmp_path: Path) -> None:
    assert _compared(shared / "recordings", tmp_path) >= 4


def _compared(recordings: Path, tmp_path: Path) -> int:
    """Compare what is read of whole trees and of those without such files; return of how many."""
    archives = sorted(recordings.rglob("sys.tar.gz"))
    for number, archive in enumerate(archives):
        whole, needed = tmp_path / f"whole-{number}", tmp_path / f"needed-{number}"
        with tarfile.open(archive) as packed:
            kept = [one for one in packed if may_be_read(PurePosixPath(one.name))]
            packed.extractall(whole, filter="data")
            packed.extractall(needed, kept, filter="data")
        assert _reading(needed) == _reading(whole)
    return len(archives)


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("sys/devices/system/cpu/online", True),
        ("./sys/devices/system/cpu/cpu12/cache/index3", True),
        ("sys/devices/system/cpu/cpu12/cache/index3/level", True),
        ("sys/devices/system/cpu/cpu12/cache/index3/size", True),
        ("sys/devices/system/cpu/cpu12/cache/index3/coherency_line_size", False),
        ("sys/devices/system/cpu/cpufreq", False),
        ("sys/devices/system/cpu/cpu12/topology/core_id", True),
        ("sys/devices/system/cpu/cpu12/topology/core_siblings", False),
        ("sys/devices/system/node/node1/cpu12", True),
        ("sys/devices/pci0000:00/0000:00:03.0/numa_node", False),
        ("proc/meminfo", True),
        ("proc/cpuinfo", True),
        ("proc/1/cpuinfo", False),
        ("devices/system/cpu/online", False),
    ],
)
def test_machine_is_identified_by_the_path_it_is_read_from(path: str, *, read: bool) -> None:
    assert may_be_read(PurePosixPath(path)) is read


@pytest.mark.parametrize("missing", ["topology", "cache", "online", "core_id", "level"])
def test_directories_count_even_without_files_that_are_read(tmp_path: Path, missing: str) -> None:
    """A CPU, or a cache, of which nothing can be read is none the less one that the kernel lists."""
    whole, needed = tmp_path / "whole", tmp_path / "needed"
    tree = Tree(whole, {0: "0-1", 1: "2-3"}, caches={0: "0", 1: "1-3"}).write()
    (path,) = (tree.sysfs / "devices/system/cpu/cpu1").rglob(missing)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    (tree.sysfs / "devices/system/cpu/cpu7").mkdir()
    for path in sorted(whole.rglob("*")):
        place = needed / path.relative_to(whole)
        if may_be_read(PurePosixPath(path.relative_to(whole))):
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                shutil.copyfile(path, place)
    assert _reading(needed) == _reading(whole)


def _reading(machine: Path) -> tuple[Hardware, list[str]]:
    """Return what is read of a machine's tree, and what is wrong with it, wherever the tree is."""
    reading = SysfsReader(machine / "sys", machine / "proc").read()
    return reading.value, [one.message.replace(str(machine), "") for one in reading.problems]
