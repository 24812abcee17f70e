"""Control groups beside real kubelets: what the exporter counts there, reckoned anew from the files.

Cases of ``tests/data/kubectl/aligned.jsonl.gz`` that have ``control_groups`` are nodes whose runtime kept,
below the parent that the kubelet named, a group for each container with the cpuset that the kubelet asked
for. The files are in a plain directory, in the form of cgroup v1 and v2, named as by both drivers of the
kubelet and by two runtimes; how much memory lies where was made up. The reckoning here shares no code with
the product.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from numazones import cpuset
from numazones.api.snapshot import ContainerHolding
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.resident_memory import homes
from numazones_exporter.sources.cgroups import CgroupReader
from tests.kubectl.test_recorded_alignment import cases, members, numas, of_container, of_kind

WITH_GROUPS = [case for case in cases() if "control_groups" in case]
PAGE = 4096
SHOWN = ("numazones_node_resident_memory", "numazones_node_confined_containers")


class Group(NamedTuple):
    """Contents of the files of one container's group."""

    cpus: set[int]
    mems: set[int]
    resident: Counter[int]


def is_v2(case: dict[str, Any]) -> bool:
    return "cgroup.controllers" in case["control_groups"]


def amounts(line: str) -> Counter[int]:
    return Counter({int(numa): int(amount) for numa, amount in re.findall(r" N(\d+)=(\d+)", line)})


def groups(case: dict[str, Any]) -> Iterator[tuple[str, str, Group]]:
    """Uid of the pod, id and group of each leaf: containers, sandboxes, monitors of the runtime."""
    files, old = case["control_groups"], not is_v2(case)
    for path, text in files.items():
        found = re.fullmatch(
            r"(?:memory/)?(.*pod([0-9a-f_-]{36})(?:\.slice)?/[^/]*?([0-9a-f]{64})(?:\.scope)?)"
            r"/memory\.numa_stat",
            path,
        )
        if found is None:
            continue
        where, uid, identity = found[1], found[2].replace("_", "-"), found[3]
        prefix = "cpuset/" if old else ""
        names = ("cpuset.cpus", "cpuset.mems") if old else ("cpuset.cpus.effective", "cpuset.mems.effective")
        cpus, mems = ({*members(files[f"{prefix}{where}/{name}"].strip())} for name in names)
        resident: Counter[int] = Counter()
        for line in text.splitlines():
            if re.match(r"(anon|file)[ =]", line):
                resident.update({numa: size * (PAGE if old else 1) for numa, size in amounts(line).items()})
        for size in ("2MB", "1GB"):
            first = files[f"{'hugetlb/' if old else ''}{where}/hugetlb.{size}.numa_stat"].splitlines()[0]
            resident.update(amounts(first))
        yield uid, identity if "conmon" not in path else "", Group(cpus, mems, resident)


def names_of(case: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Id of each running container → uid of its pod, its name."""
    return {
        status["containerID"].rpartition("/")[2]: (pod["metadata"]["uid"], status["name"])
        for pod in of_kind(case, "Pod")
        for part in ("containerStatuses", "initContainerStatuses")
        for status in pod["status"].get(part, ())
        if "running" in status["state"]
    }


def numa_of(case: dict[str, Any]) -> dict[int, int]:
    return {cpu: int(numa) for numa, listed in case["cpus_of_numa"].items() for cpu in members(listed)}


def uids(case: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (it["metadata"]["namespace"], it["metadata"]["name"]): it["metadata"]["uid"]
        for it in of_kind(case, "Pod")
    }


def listed(case: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Uid and name of each container that podresources list."""
    return {
        (uids(case)[pod["namespace"], pod["name"]], each["name"]): each
        for pod in case["podresources"]
        for each in pod["containers"]
    }


def differences(case: dict[str, Any]) -> list[str]:
    """Containers whose group has other CPUs or NUMA nodes of memory than the kubelet gave them."""
    found, told = [], listed(case)
    by_name = {
        names_of(case)[identity]: group for _, identity, group in groups(case) if identity in names_of(case)
    }
    every = {*map(int, case["cpus_of_numa"])}
    for key in names_of(case).values():
        if key not in told:
            continue  # a plain init container that still runs
        if (group := by_name.get(key)) is None:
            found.append(f"{key} has no group")
            continue
        exclusive = {int(cpu) for cpu in told[key].get("cpuIds", ())}
        if group.cpus != (exclusive or {*members(case["default_cpuset"])}):
            found.append(f"{key} runs on {sorted(group.cpus)}")
        promised = set().union(*(numas(block["topology"]) for block in told[key].get("memory", ())))
        if group.mems != (promised or every):
            found.append(f"{key} may have memory of {sorted(group.mems)}, promised {sorted(promised)}")
        if exclusive:
            where = numa_of(case)
            seen = of_container({**told[key], "cpuIds": sorted(group.cpus)}, where, {})
            if seen != of_container(told[key], where, {}):
                found.append(f"{key} lies otherwise")
    return found


def exclusive_of(case: dict[str, Any]) -> dict[str, set[int]]:
    """Uid → exclusive CPUs of each pod that podresources list; those of init containers stay the pod's."""
    pods = {uid for uid, _ in listed(case)}
    held = {
        uid: set().union(*({*members(cpus)} for cpus in containers.values()))
        for uid, containers in case["cpu_manager_state"].items()
        if uid in pods
    }
    return {uid: cpus for uid, cpus in held.items() if cpus}


def reckoned(case: dict[str, Any]) -> dict[str, float]:
    """The metrics, of what the leaves of the groups have."""
    where, node = numa_of(case), case["node"]
    own = {uid: {where[cpu] for cpu in cpus} for uid, cpus in exclusive_of(case).items()}
    every = {*where.values()}
    parts: list[tuple[str, set[int], Counter[int]]] = []
    confined: Counter[int] = Counter(dict.fromkeys(every, 0))
    known = names_of(case)
    for uid, identity, group in groups(case):
        runs_on = {where[cpu] for cpu in group.cpus}
        if uid in own:
            parts.append((uid, own[uid], group.resident))
        elif identity in known and runs_on != every:
            parts.append((uid, runs_on, group.resident))
            confined.update(runs_on)
    sizes: Counter[tuple[int, str]] = Counter()
    remote, whole = Counter[str](), Counter[str]()
    for uid, home, resident in parts:
        for numa, size in resident.items():
            sizes[numa, "local" if numa in home else "remote"] += size
            whole[uid] += size
            remote[uid] += 0 if numa in home else size
    far = sum(remote[uid] > whole[uid] / 10 for uid in whole)
    found: dict[str, float] = {
        f'numazones_node_resident_memory_pods{{node="{node}",remote="false"}}': len(whole) - far,
        f'numazones_node_resident_memory_pods{{node="{node}",remote="true"}}': far,
    }
    for numa in {numa for numa, _ in sizes} | set().union(*(home for _, home, _ in parts)):
        for place in ("local", "remote"):
            label = f'node="{node}",numa_node="{numa}",placement="{place}"'
            found[f"numazones_node_resident_memory_bytes{{{label}}}"] = sizes[numa, place]
    for numa, count in confined.items():
        found[f'numazones_node_confined_containers{{node="{node}",numa_node="{numa}"}}'] = count
    return found


def machine(case: dict[str, Any]) -> Machine:
    cpus = tuple(
        CPU(id=cpu, core=cpu, socket=0, die=0, numa=numa) for cpu, numa in sorted(numa_of(case).items())
    )
    return Machine(cpus, tuple(NUMANode(id=numa, memory=0) for numa in sorted({*numa_of(case).values()})))


def shown(case: dict[str, Any], root: Path) -> dict[str, float]:
    """Return the metrics that the exporter shows for a tree of these files."""
    for path, text in case["control_groups"].items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    metrics = ExporterMetrics(CollectorRegistry(), cgroups=CgroupReader(root))
    holders = [
        ContainerHolding("rig", uid, uid, "c", cpus=cpuset.parse(",".join(map(str, cpus))))
        for uid, cpus in exclusive_of(case).items()
    ]
    of = machine(case)
    metrics.show(case["node"], {}, homes(holders, of), of.cpus_of_numa)
    lines = generate_latest(metrics.registry).decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(SHOWN))
    return {name: float(value) for name, _, value in found}


@pytest.mark.parametrize("case", WITH_GROUPS, ids=lambda case: case["id"])
def test_groups_have_the_kubelets_cpus_and_memory_nodes(case: dict[str, Any]) -> None:
    """Podresources, the runtime's groups and so the source of the alignment agree."""
    assert differences(case) == []


@pytest.mark.parametrize("case", WITH_GROUPS, ids=lambda case: case["id"])
def test_metrics_are_the_sums_of_the_containers_groups(case: dict[str, Any], tmp_path: Path) -> None:
    assert shown(case, tmp_path) == reckoned(case)


@pytest.mark.parametrize("case", WITH_GROUPS, ids=lambda case: case["id"])
def test_an_exporter_beside_the_kubelet_showed_the_same(case: dict[str, Any]) -> None:
    assert case["resident_memory"] == reckoned(case)


def test_the_recording_has_both_versions_drivers_and_runtimes() -> None:
    found = {
        (
            is_v2(case),
            any("kubepods.slice" in path for path in case["control_groups"]),
            any("crio-conmon" in path for path in case["control_groups"]),
            case["settings"]["topologyManagerPolicy"],
        )
        for case in WITH_GROUPS
    }
    assert {(v2, systemd) for v2, systemd, _, _ in found} == {
        (v2, systemd) for v2 in (True, False) for systemd in (True, False)
    }
    assert {crio for _, _, crio, _ in found} == {True, False}
    assert {policy for *_, policy in found} == {"none", "best-effort", "restricted"}


def test_the_recording_has_remote_memory_huge_pages_and_confined_containers() -> None:
    counts = [reckoned(case) for case in WITH_GROUPS]
    for wanted in ('placement="remote"', 'placement="local"', 'remote="true"', 'remote="false"', "confined"):
        assert any(value > 0 for found in counts for name, value in found.items() if wanted in name), wanted
    for old in (True, False):
        assert any(
            re.search(r"hugetlb.*numa_stat$", path) and not text.startswith("total=0 ")
            for case in WITH_GROUPS
            if is_v2(case) is not old
            for path, text in case["control_groups"].items()
        )
