"""Real machines: how the exporter reads sysfs trees and what ``admit`` says, against the kubelet's answers.

Folders hold trees, ``NAME/sys`` and ``NAME/proc`` each. Answers are recorded, one JSON object a line: of
machines what cAdvisor and the CPU Manager's topology make of the tree of that name (``MI`` is cAdvisor's
MachineInfo), of admissions what the managers decide on that machine, pod after pod, by configurations and
pods that ``SCENARIOS`` and ``pods_of`` make again. A kubelet that crashed, or was given up after 20 seconds,
gave no verdict, and ``admit`` must give none either.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletCrash, KubeletHang
from numazones_node.problems import SourceError
from numazones_node.sysfs import SysfsReader

RELEASE = "v1.36.2"
SAME = "same"
DIFFERS = "DIFFERS"
_GI = 1 << 30
_DEFAULT_MAX_NUMAS = 8
_MAX_NUMAS_RECORDED = 11
"""Machines of more NUMA nodes are recorded with the default of max-allowable-numa-nodes only."""

Answers = Mapping[str, Mapping[str, Any]]


class Result(NamedTuple):
    """The result of a comparison of one tree, or of one scenario."""

    name: str
    verdict: str
    details: tuple[str, ...] = ()


def trees_in(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the trees of folders: a folder that holds sys, else those in it that do."""
    for folder in folders:
        if (folder / "sys").is_dir():
            yield folder
        else:
            yield from sorted(path for path in folder.iterdir() if (path / "sys").is_dir())


def read_machine(tree: Path) -> Machine | SourceError:
    """Return the machine as the exporter reads it, or why it cannot."""
    try:
        return SysfsReader(tree / "sys", tree / "proc").read().value.machine
    except SourceError as error:
        return error


def compare_machine(tree: Path, answer: Mapping[str, Any]) -> Result:
    """Compare what is read of a tree with the kubelet's view of it."""
    machine = read_machine(tree)
    refused = answer.get("Err") or answer.get("TopoErr") or answer.get("Panic")
    if isinstance(machine, SourceError):
        return Result(tree.name, "both refuse" if refused else DIFFERS, (str(machine), str(refused)))
    if refused and _of_another_tree(tree, answer):
        return Result(tree.name, "not comparable", (f"recorded without this tree's files: {refused}",))
    if refused:
        knows_cpus = bool(machine.cpus)
        return Result(tree.name, DIFFERS if knows_cpus else "both see no CPU", (str(refused),))
    differing = tuple(_differences(_kubelets_view(answer), _own_view(machine)))
    return Result(tree.name, DIFFERS if differing else SAME, differing)


def _of_another_tree(tree: Path, answer: Mapping[str, Any]) -> bool:
    """Return whether the recorded machine has other memory than the tree: it was recorded of other files."""
    total = re.search(r"MemTotal:\s+(\d+) kB", (tree / "proc/meminfo").read_text(encoding="utf-8"))
    recorded = (answer.get("MI") or {}).get("memory_capacity")
    return total is not None and recorded not in {None, 0, int(total[1]) << 10}


def _kubelets_view(answer: Mapping[str, Any]) -> dict[str, Any]:
    topology, nodes = answer["Topo"], answer["MI"]["topology"] or []
    view: dict[str, Any] = {"NUMA ids": sorted(node["node_id"] for node in nodes) or [0]}
    for node in nodes:
        numa = node["node_id"]
        view[f"memory of {numa}"] = node["memory"]
        view[f"hugepages of {numa}"] = sorted(
            (pages["page_size"], pages["num_pages"]) for pages in node["hugepages"] or ()
        )
        view[f"distances of {numa}"] = node.get("distances")
        view[f"cores of {numa}"] = sorted(
            (tuple(sorted(core["thread_ids"])), core["socket_id"]) for core in node["cores"] or ()
        )
    for key, parts in (("core", "NumCores"), ("socket", "NumSockets"), ("uncore cache", "NumUncoreCache")):
        view[f"CPUs per {key}"] = topology["NumCPUs"] // topology[parts] if topology["NumCores"] else 0
    view["uncore caches"] = {int(cpu): at["UncoreCacheID"] for cpu, at in topology["CPUDetails"].items()}
    return view


def _own_view(machine: Machine) -> dict[str, Any]:
    topology = CPUTopology(machine)
    view: dict[str, Any] = {"NUMA ids": sorted(machine.kubelet_ids)}
    for numa, own in machine.kubelet_ids.items():
        node = machine.by_numa[own]
        view[f"memory of {numa}"] = node.memory
        view[f"hugepages of {numa}"] = sorted(node.hugepages)
        view[f"distances of {numa}"] = None if node.distances is None else list(node.distances)
        view[f"cores of {numa}"] = sorted(
            (tuple(cpuset.ids(cpus)), socket)
            for (where, socket, _), cpus in machine.cpus_of_core.items()
            if where == own
        )
    cores = bool(machine.cpus)
    view["CPUs per core"] = topology.cpus_per_core if cores else 0
    view["CPUs per socket"] = topology.cpus_per_socket if cores else 0
    view["CPUs per uncore cache"] = topology.cpus_per_uncore_cache if cores else 0
    view["uncore caches"] = {
        cpu.id: cpu.socket if cpu.uncore_cache is None else cpu.uncore_cache for cpu in machine.cpus
    }
    return view


def _differences(kubelet: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs; without NUMA nodes, the exporter shows memory that the kubelet misses."""
    bare = len(kubelet["NUMA ids"]) == 1 and all(
        not theirs for key, theirs in kubelet.items() if key.startswith(("memory", "hugepages", "distances"))
    )
    for key, theirs in kubelet.items():
        ours = own.get(key)
        if bare and key.startswith(("memory", "hugepages")):
            continue
        if ours != theirs:
            yield f"{key}: kubelet {theirs!s:.120}, exporter {ours!s:.120}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One configuration of a kubelet."""

    name: str
    policy: str
    scope: str = "container"
    cpu_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    memory: str = "None"

    def settings(self, reserved: str, with_memory: int, limit: int) -> dict[str, Any]:
        """Return the KubeletConfiguration, with ``limit`` NUMA nodes allowed where that is not 0."""
        options = dict.fromkeys(self.options, "true")
        if limit:
            options["max-allowable-numa-nodes"] = str(limit)
        settings: dict[str, Any] = {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": dict.fromkeys(self.cpu_options, "true"),
            "reservedSystemCPUs": reserved,
            "topologyManagerPolicy": self.policy,
            "topologyManagerScope": self.scope,
            "topologyManagerPolicyOptions": options,
            "memoryManagerPolicy": self.memory,
            "featureGates": {
                "CPUManagerPolicyAlphaOptions": True,
                "TopologyManagerPolicyAlphaOptions": True,
            },
        }
        if self.memory == "Static":
            settings["reservedMemory"] = [{"numaNode": with_memory, "limits": {"memory": "256Mi"}}]
            settings["systemReserved"] = {"memory": "156Mi"}
        return settings


_FULL, _DISTRIBUTE = "full-pcpus-only", "distribute-cpus-across-numa"
_UNCORE = "prefer-align-cpus-by-uncorecache"
SCENARIOS = (
    Scenario("none", "none"),
    Scenario("best-effort", "best-effort"),
    Scenario("restricted", "restricted"),
    Scenario("single", "single-numa-node"),
    Scenario("single-full", "single-numa-node", cpu_options=(_FULL,)),
    Scenario("restricted-dist", "restricted", cpu_options=(_DISTRIBUTE,)),
    Scenario("best-dist-full", "best-effort", cpu_options=(_DISTRIBUTE, _FULL)),
    Scenario("best-cores", "best-effort", cpu_options=("distribute-cpus-across-cores",)),
    Scenario("best-socket", "best-effort", cpu_options=("align-by-socket",)),
    Scenario("best-closest", "best-effort", options=("prefer-closest-numa-nodes",)),
    Scenario("single-uncore", "single-numa-node", "pod", cpu_options=(_UNCORE,)),
    Scenario("restricted-uncore-full", "restricted", cpu_options=(_UNCORE, _FULL)),
    Scenario("restricted-mem", "restricted", "pod", memory="Static"),
    Scenario(
        "single-mem-strict", "single-numa-node", cpu_options=("strict-cpu-reservation",), memory="Static"
    ),
    Scenario("none-mem", "none", memory="Static"),
)


def has_books(answer: Mapping[str, Any]) -> bool:
    """Return whether core ids repeat in books (s390x), of which the recorded admissions knew nothing."""
    ids = [
        (node["node_id"], core["socket_id"], core["core_id"])
        for node in answer["MI"]["topology"] or ()
        for core in node["cores"] or ()
    ]
    return len(ids) > len(set(ids))


def pods_of(machine: Machine) -> list[Pod]:
    """Return the pods that were asked for, in their order: sizes around NUMA nodes and the largest core."""
    total = len(machine.cpus)
    numas = sorted(cpus.bit_count() for cpus in machine.cpus_of_numa.values() if cpus)
    core = max(cpus.bit_count() for cpus in machine.cpus_of_core.values())
    sizes = [
        1,
        core,
        2,
        numas[0] // 2,
        numas[-1],
        numas[-1] + core,
        numas[0] + 1,
        3,
        2 * core,
        total // 2,
        4,
        5,
    ]
    sizes.append(total - core)
    mebibytes = [64, 128, 64, 512, 1024, 2048, 4096, 64, 96, 128, 8192, 64, 64]
    return [
        _pod(f"p{number}", str(size), f"{memory}Mi")
        for number, (size, memory) in enumerate(zip(sizes, mebibytes, strict=True))
        if size > 0
    ]


def _pod(name: str, cpus: str, memory: str) -> Pod:
    amounts = {"cpu": cpus, "memory": memory}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    return Pod.from_api(
        {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"containers": [container]}}
    )


def compare_admissions(tree: Path, answer: Mapping[str, Any], answers: Answers) -> Iterator[Result]:
    """Compare ``admit`` with the kubelet in every scenario that was recorded on a tree's machine."""
    machine = read_machine(tree)
    if isinstance(machine, SourceError) or not machine.cpus:
        return
    pods = pods_of(machine)
    first = min(machine.cpus_of_core.values(), key=lambda cpus: cpus & -cpus)
    many = len(machine.numa_nodes) > _DEFAULT_MAX_NUMAS
    for scenario in SCENARIOS:
        limits = [0]
        if many and scenario.policy != "none" and len(machine.numa_nodes) <= _MAX_NUMAS_RECORDED:
            limits.append(len(machine.numa_nodes))
        for limit in limits:
            name = f"{tree.name}/{scenario.name}{'+max' if limit else ''}"
            if name in answers and has_books(answer) and "Pods" in answers[name]:
                yield Result(name, "recorded without the books of s390x")
            elif name in answers:
                with_memory = next((node.id for node in machine.numa_nodes if node.memory > _GI), 0)
                settings = scenario.settings(cpuset.format(first), with_memory, limit)
                yield _compare_scenario(name, machine, settings, pods, answers[name])


def _compare_scenario(
    name: str, machine: Machine, settings: Mapping[str, Any], pods: Sequence[Pod], answer: Mapping[str, Any]
) -> Result:
    try:
        node = Node.fresh(machine, KubeletConfiguration.from_api(settings, version=RELEASE))
    except InvalidConfiguration as error:
        if "Invalid" in answer:
            return Result(name, "both refuse to start")
        return Result(name, DIFFERS, (f"only numazones refuses: {error}",))
    if "Invalid" in answer:
        return Result(name, DIFFERS, (f"only the kubelet refuses: {answer['Invalid']}",))
    if answer.get("Panic") or answer.get("GaveUp"):
        return _without_verdict(name, node, pods, answer)
    return _compare_pods(name, node, pods, answer)


def _compare_pods(name: str, node: Node, pods: Sequence[Pod], answer: Mapping[str, Any]) -> Result:
    for number, (pod, recorded) in enumerate(zip(pods, answer["Pods"], strict=False)):
        try:
            admission = admit(node, pod)
        except NumazonesError as error:
            return Result(name, DIFFERS, (f"pod {number}: {type(error).__name__}: {error}",))
        node = admission.node
        differing = {
            key: value for key, value in outcome(admission).items() if (recorded[key] or None) != value
        }
        if differing:
            theirs = {key: recorded[key] for key in differing}
            return Result(name, DIFFERS, (f"pod {number}: kubelet {theirs}, admit {differing}",))
    return Result(name, SAME)


def _without_verdict(name: str, node: Node, pods: Sequence[Pod], answer: Mapping[str, Any]) -> Result:
    """Check that a kubelet that crashed or hung is never shown with a verdict on all pods."""
    what = "crashes" if answer.get("Panic") else "hangs"
    expected = KubeletCrash if answer.get("Panic") else KubeletHang
    for pod in pods:
        try:
            node = admit(node, pod).node
        except expected as error:
            return Result(name, f"kubelet {what}: so said", (str(error),))
        except NumazonesError as error:
            return Result(name, DIFFERS, (f"kubelet {what}, {type(error).__name__}: {error}",))
    return Result(
        name, DIFFERS, (f"kubelet {what}: {answer.get('Panic') or 'given up after 20 s'}; verdicts",)
    )


def outcome(admission: Admission) -> dict[str, Any]:
    """Return what an answer records of a pod."""
    shown: dict[str, Any] = {
        "Admitted": admission.admitted or None,
        "Reason": admission.reason or None,
        "Message": admission.message or None,
        "CPUs": None,
        "Affinity": None,
        "Pref": None,
        "Mem": None,
    }
    if admission.admitted:
        given = admission.containers["main"]
        affinity = given.affinity.affinity
        shown |= {
            "CPUs": cpuset.format(given.cpus) or None,
            "Affinity": list(cpuset.ids(affinity or 0)) or None,
            "Pref": given.affinity.preferred or None,
            "Mem": [[list(cpuset.ids(block.affinity)), block.type, block.size] for block in given.memory]
            or None,
        }
    return shown
