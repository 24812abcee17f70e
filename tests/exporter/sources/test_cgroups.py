"""Control groups of pods as kubelets lay them out, of both versions, and what the kernel counts in them."""

import os
from pathlib import Path

import pytest

from numazones import cpuset
from numazones_exporter.sources.cgroups import CgroupReader, ContainerGroup, PodMemory
from numazones_node.problems import SourceError

PAGE = os.sysconf("SC_PAGE_SIZE")
UID = "0d9a6b6e-9b3c-4f4e-8f1e-6a5e0b2f7c11"
STATIC = "f3b1c6a2d7e84950a1b2c3d4e5f60718"
"""A static pod's uid is a hash, without dashes."""
V2 = """anon N0=1000 N1=200
file N0=50 N1=7
kernel_stack N0=16384 N1=0
shmem N0=40 N1=0
file_mapped N0=30 N1=0
slab_reclaimable N0=99999 N1=1
pgdemote_kswapd N0=5 N1=5
"""
V1 = """total=12 N0=8 N1=4
file=4 N0=3 N1=1
anon=8 N0=5 N1=3
unevictable=0 N0=0 N1=0
hierarchical_total=120 N0=80 N1=40
hierarchical_file=40 N0=30 N1=10
hierarchical_anon=80 N0=50 N1=30
hierarchical_unevictable=0 N0=0 N1=0
"""


class _Any:
    """Every uid."""

    def __contains__(self, _uid: object) -> bool:
        return True


ANY = _Any()


def v2(root: Path, group: str, text: str = V2) -> Path:
    """A group of cgroup v2."""
    (root / "cgroup.controllers").parent.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids")
    path = root / group
    path.mkdir(parents=True)
    (path / "memory.numa_stat").write_text(text)
    return path


def v1(root: Path, group: str, text: str = V1) -> Path:
    """A group of cgroup v1, whose controllers have a mount each."""
    path = root / "memory" / group
    path.mkdir(parents=True)
    (path / "memory.numa_stat").write_text(text)
    return path


SLICE = UID.replace("-", "_")
SYSTEMD, ON_KIND = "kubepods.slice/kubepods", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods"
LAYOUTS = {
    "systemd, Guaranteed": (f"{SYSTEMD}-pod{SLICE}.slice", UID),
    "systemd, Burstable": (f"{SYSTEMD}-burstable.slice/kubepods-burstable-pod{SLICE}.slice", UID),
    "systemd, BestEffort": (f"{SYSTEMD}-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice", UID),
    "systemd, as on kind": (f"{ON_KIND}-burstable.slice/kubelet-kubepods-burstable-pod{SLICE}.slice", UID),
    "systemd, static pod": (f"{SYSTEMD}-burstable.slice/kubepods-burstable-pod{STATIC}.slice", STATIC),
    "cgroupfs, Guaranteed": (f"kubepods/pod{UID}", UID),
    "cgroupfs, Burstable": (f"kubepods/burstable/pod{UID}", UID),
    "cgroupfs, below a root": (f"rig-a/kubepods/besteffort/pod{UID}", UID),
}


@pytest.mark.parametrize(("group", "uid"), LAYOUTS.values(), ids=LAYOUTS)
def test_pods_are_found_in_every_layout_of_the_kubelet(tmp_path: Path, group: str, uid: str) -> None:
    v2(tmp_path / "two", group)
    v1(tmp_path / "one", group)
    assert CgroupReader(tmp_path / "two").read(ANY) == {uid: PodMemory({0: 1050, 1: 207})}
    assert CgroupReader(tmp_path / "one").read(ANY) == {uid: PodMemory({0: 80 * PAGE, 1: 40 * PAGE})}


def test_containers_below_a_pod_are_not_taken_for_pods(tmp_path: Path) -> None:
    pod = v2(tmp_path, f"kubepods.slice/kubepods-pod{SLICE}.slice")
    v2(tmp_path, f"{pod.relative_to(tmp_path)}/cri-containerd-{'a' * 64}.scope")
    v2(tmp_path, f"{pod.relative_to(tmp_path)}/crio-conmon-{'b' * 64}.scope")
    assert list(CgroupReader(tmp_path).read(ANY)) == [UID]


CONTAINERS = {
    "containerd": f"cri-containerd-{'a' * 64}.scope",
    "CRI-O": f"crio-{'b' * 64}.scope",
    "cgroupfs": "c" * 64,
}


@pytest.mark.parametrize("name", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_are_found_with_the_cpus_that_they_may_use(tmp_path: Path, name: str) -> None:
    pod = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice"
    two, one = tmp_path / "two", tmp_path / "one"
    (v2(two, f"{pod}/{name}") / "cpuset.cpus.effective").write_text("0-3,8\n")
    v1(one, f"{pod}/{name}")
    groups = one / "cpuset" / pod / name
    groups.mkdir(parents=True)
    (groups / "cpuset.cpus").write_text("0-3,8\n")
    sizes = {two: PodMemory({0: 1050, 1: 207}), one: PodMemory({0: 80 * PAGE, 1: 40 * PAGE})}
    for root, memory in sizes.items():
        expected = ContainerGroup(UID, cpuset.parse("0-3,8"), memory)
        assert list(CgroupReader(root).confined((), bool)) == [expected]
        assert list(CgroupReader(root).confined({UID}, bool)) == []
    # What is in force goes before what was asked for.
    (groups / "cpuset.effective_cpus").write_text("1\n")
    assert [found.cpus for found in CgroupReader(one).confined((), bool)] == [0b10]


def test_groups_that_are_no_containers_are_not_read(tmp_path: Path) -> None:
    pod = f"kubepods/pod{UID}"
    for name in (f"crio-conmon-{'b' * 64}.scope", "init.scope", "f" * 12):
        (v2(tmp_path, f"{pod}/{name}", "nonsense") / "cpuset.cpus.effective").write_text("0\n")
    assert list(CgroupReader(tmp_path).confined((), bool)) == []


def test_only_wanted_groups_are_read_and_vanished_ones_are_skipped(tmp_path: Path) -> None:
    pod = f"kubepods/pod{UID}"
    (v2(tmp_path, f"{pod}/{'a' * 64}", "nonsense") / "cpuset.cpus.effective").write_text("0-15\n")
    v2(tmp_path, f"{pod}/{'b' * 64}", "nonsense")
    (v2(tmp_path, f"{pod}/{'c' * 64}", "nonsense") / "cpuset.cpus.effective").write_text("\n")
    gone = v2(tmp_path, f"{pod}/{'d' * 64}")
    (gone / "cpuset.cpus.effective").write_text("1\n")
    (gone / "memory.numa_stat").unlink()
    (v2(tmp_path, f"{pod}/{'e' * 64}") / "cpuset.cpus.effective").write_text("2\n")
    found = CgroupReader(tmp_path).confined((), lambda cpus: cpus.bit_count() < 16)
    assert [one.cpus for one in found] == [0b100]


def test_cpus_that_the_kernel_does_not_write_are_named(tmp_path: Path) -> None:
    file = v2(tmp_path, f"kubepods/pod{UID}/{'a' * 64}") / "cpuset.cpus.effective"
    file.write_text("all of them\n")
    with pytest.raises(SourceError, match="is not a list of CPUs: 'all of them") as caught:
        list(CgroupReader(tmp_path).confined((), bool))
    assert str(file) in str(caught.value)


def test_groups_of_other_pods_are_not_read(tmp_path: Path) -> None:
    v2(tmp_path, f"kubepods/pod{UID}")
    v2(tmp_path, f"kubepods/burstable/pod{STATIC}", "nonsense")
    assert list(CgroupReader(tmp_path).read({UID})) == [UID]


def test_huge_pages_count_by_numa_node_without_reserved_ones(tmp_path: Path) -> None:
    for root, path in (
        (tmp_path / "two", v2(tmp_path / "two", f"kubepods/pod{UID}")),
        (tmp_path / "one", tmp_path / f"one/hugetlb/kubepods/pod{UID}"),
    ):
        path.mkdir(parents=True, exist_ok=True)
        (path / "hugetlb.2MB.numa_stat").write_text("total=6291456 N0=2097152 N1=4194304\n")
        (path / "hugetlb.1GB.numa_stat").write_text("total=1073741824 N0=1073741824 N1=0\n")
        (path / "hugetlb.2MB.rsvd.numa_stat").write_text("total=9 N0=9 N1=0\n")
        if root.name == "one":
            v1(root, f"kubepods/pod{UID}")
        (found,) = CgroupReader(root).read(ANY).values()
        assert found.hugepages == {0: (1 << 30) + (2 << 20), 1: 4 << 20}


def test_containers_huge_pages_count_for_their_pod_on_v1(tmp_path: Path) -> None:
    """The kernel's plain ``total`` leaves out the groups below, and a pod's group itself has no huge page."""
    path = tmp_path / f"hugetlb/kubepods/pod{UID}"
    path.mkdir(parents=True)
    (path / "hugetlb.2MB.numa_stat").write_text(
        "total=0 N0=0 N1=0\nhierarchical_total=6291456 N0=2097152 N1=4194304\n"
    )
    v1(tmp_path, f"kubepods/pod{UID}")
    (found,) = CgroupReader(tmp_path).read(ANY).values()
    assert found.hugepages == {0: 2 << 20, 1: 4 << 20}


def test_vanished_pod_is_skipped_and_new_pod_is_found(tmp_path: Path) -> None:
    path = v2(tmp_path, f"kubepods/pod{UID}")
    reader = CgroupReader(tmp_path)
    assert list(reader.read(ANY)) == [UID]
    (path / "memory.numa_stat").unlink()
    v2(tmp_path, f"kubepods/burstable/pod{STATIC}")
    assert list(reader.read(ANY)) == [STATIC]


def test_a_kubelet_that_moved_its_root_is_found_again(tmp_path: Path) -> None:
    v2(tmp_path, f"kubepods/pod{UID}")
    reader = CgroupReader(tmp_path)
    reader.read(ANY)
    (tmp_path / "kubepods").rename(tmp_path / "elsewhere")
    v2(tmp_path, f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice")
    assert list(reader.read(ANY)) == [UID]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anon 12\n", "has an unexpected line"),
        ("anon N0=x\n", "has an unexpected line"),
        ("\x00\x01\n", "has an unexpected line"),
        pytest.param(f"anon N0={'9' * 5000}\n", "has an unexpected line", id="endless"),
        ("", "has no per-NUMA-node values of anon and file"),
        ("slab N0=1\n", "has no per-NUMA-node values of anon and file"),
    ],
)
def test_a_file_that_the_kernel_does_not_write_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = v2(tmp_path, f"kubepods/pod{UID}", text)
    with pytest.raises(SourceError, match=message) as caught:
        CgroupReader(tmp_path).read(ANY)
    assert str(path) in str(caught.value)


def test_wrong_cgroup_mount_is_reported_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a cgroup mount: mount the host's /sys/fs/cgroup"):
        CgroupReader(tmp_path / "absent").read(ANY)
    v2(tmp_path, "system.slice/sshd.service")
    with pytest.raises(SourceError, match="not this container's own"):
        CgroupReader(tmp_path).read(ANY)
