"""Every cure for a kubelet's settings and state files is tried: a simulated kubelet stops, and starts again.

``follow`` does what the text says, and nothing else. The list of texts comes from the code, so that a new one
fails until it has a trial.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kubectl_numazones.doctor.reading_cures import CURES
from numazones.apimachinery import quantity
from numazones.dra import conflicts
from numazones.kubelet import cures
from numazones.kubelet.checkpoints import dump_cpu_manager_state
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.cures import CPU_STATE_FILE, MEMORY_STATE_FILE
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones_simulator.kubelet.kubelet import (
    NoDecision,
    RefusesToStart,
    SimulatedKubelet,
    cpu_manager_state,
)
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_spec import NodeSpec
from tests.numazones.kubelet import building
from tests.places import ROOT

GI = building.GI
GPU = "vendor/gpu"
DISTRIBUTE = "distribute-cpus-across-numa"
STRICT = "strict-cpu-reservation"
UNRELEASED = "prefer-most-allocated-numa-node"
Body = dict[str, Any]
Settings = dict[str, Any]


def settings(**changed: Any) -> Settings:
    """Both static managers; CPU 0 and 1Gi of NUMA node 0 are reserved."""
    return {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "systemReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "0"},
        "topologyManagerPolicy": "single-numa-node",
        **changed,
    }


UNPINNED = {"memoryManagerPolicy": "None", "reservedMemory": []}
MANY = {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"}}


def wide(ids: Iterable[int], *, with_cpus: int = 2, cpus: int = 8) -> Machine:
    """NUMA nodes of 16Gi; the CPUs are in the first ones."""
    known = tuple(ids)
    return Machine(
        tuple(CPU(cpu, cpu, 0, 0, known[cpu % with_cpus]) for cpu in range(cpus)),
        tuple(NUMANode(numa, 16 * GI) for numa in known),
    )


def body(name: str, cpus: int = 2, memory: str = "1Gi", **devices: str) -> Body:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"nodeName": "worker", "containers": [building.container("main", cpus, memory, **devices)]},
    }


@dataclass
class Host:
    """A node with a kubelet, or without one while it is stopped."""

    directory: Path
    machine: Machine
    settings: Settings
    version: str = "v1.36.2"
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    pods: list[Body] = field(default_factory=list)
    kubelet: SimulatedKubelet | None = None

    @property
    def node(self) -> Node:
        assert self.kubelet is not None
        return self.kubelet.node

    def start(self) -> None:
        spec = NodeSpec("worker", self.machine, self.settings, self.devices, self.version)
        files = KubeletFiles(self.directory)
        self.kubelet, verdicts = SimulatedKubelet.start(spec, files.read(), self.pods)
        assert all(verdict.rejection is None for verdict in verdicts.values())
        files.write(self.kubelet.recorded)

    def stop(self) -> None:
        self.kubelet = None

    def run(self, pod: Body) -> None:
        """Have a pod admitted."""
        assert self.kubelet is not None
        assert self.kubelet.admit(pod).rejection is None
        self.pods.append(pod)
        KubeletFiles(self.directory).write(self.kubelet.recorded)

    def remove(self, pods: list[Body]) -> None:
        for pod in pods:
            self.pods.remove(pod)
            if self.kubelet is not None:
                self.kubelet.remove(pod["metadata"]["uid"])
                KubeletFiles(self.directory).write(self.kubelet.recorded)

    def problem(self, pod: Body | None) -> str:
        """Return why the kubelet does not start, or does not get to a verdict about a pod."""
        try:
            if self.kubelet is None:
                self.start()
            if pod is not None:
                self.run(pod)
        except (NoDecision, RefusesToStart, InvalidConfiguration) as error:
            return str(error)
        return ""


# Doing what a text says

_OPTIONS = {
    "max-allowable-numa-nodes": "topologyManagerPolicyOptions",
    DISTRIBUTE: "cpuManagerPolicyOptions",
    STRICT: "cpuManagerPolicyOptions",
    "InPlacePodVerticalScalingExclusiveCPUs": "featureGates",
}
_ALTERNATIVE = re.compile(r",? or (?=(?:set|delete|drain|change|take|where|remove|topologyManagerPolicy)\b)")
_VALUES = re.compile(r"((?:[a-z]+ManagerPolicy)): ([\w-]+) or ([\w-]+)")
_SETTING = re.compile(r"([A-Za-z-]+): \"?([\w-]+)\"?")


def alternatives(text: str) -> Iterator[str]:
    """Yield the ways of following a text."""
    for part in _ALTERNATIVE.split(text.partition("; topologyManagerPolicy: none does not help")[0]):
        if values := _VALUES.search(part):
            field_name, *both = values.groups()
            yield from (part.replace(values[0], f"{field_name}: {value}") for value in both)
        else:
            yield part


def follow(host: Host, text: str) -> None:
    """Do what one alternative says."""
    if "drain" in text:
        host.remove(list(host.pods))
    if re.search(r"\bdelete (a pod|them|the pods)\b", text):
        host.remove(host.pods[-1:])
    if "driver" in text or "numazones" in text:  # the kubelet knows nothing about them
        return
    host.stop()
    if text == cures.CORRECT_CONFIGURATION:
        host.settings = settings()
    if release := re.search(r"upgrade the kubelet to ([\d.]+)", text):
        host.version = f"v{release[1]}.0"
    _configure(host, text)
    for file in re.findall(r"remove (?:/var/lib/kubelet/)?(\w+_manager_state|the (?:state )?file)", text):
        for name in (file,) if "_" in file else (CPU_STATE_FILE, MEMORY_STATE_FILE):
            (host.directory / name).unlink(missing_ok=True)
    host.start()


def _configure(host: Host, text: str) -> None:
    for name in re.findall(r"write (\w+) as text, in quotes", text):
        host.settings[name] = {key: str(value).lower() for key, value in host.settings[name].items()}
    for name, value in _SETTING.findall(text):
        _set(host, name, value)
    if "with reservedSystemCPUs" in text:
        host.settings["reservedSystemCPUs"] = "0"
    if "with reservedMemory" in text:
        host.settings["reservedMemory"] = settings()["reservedMemory"]
    if re.search(r"(take|remove) (the option|it from)", text):
        host.settings |= {"cpuManagerPolicyOptions": {}, "topologyManagerPolicyOptions": {}}
    if total := re.search(r"make reservedMemory add up to .*?(\d+) bytes", text):
        host.settings["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": total[1]}}]
    if other := re.search(r"systemReserved by the same amount: (\S+) (more|less)", text):
        before = quantity.parse(host.settings["systemReserved"]["memory"]).value()
        change = quantity.parse(other[1]).value() * (1 if other[2] == "more" else -1)
        host.settings["systemReserved"] = {"memory": str(before + change)}
    if kind := re.search(r"remove (\S+) from reservedMemory", text):
        for entry in host.settings["reservedMemory"]:
            entry["limits"].pop(kind[1], None)


def _set(host: Host, name: str, value: str) -> None:
    if name in _OPTIONS:
        switch = value == "true" if _OPTIONS[name] == "featureGates" else value
        host.settings[_OPTIONS[name]] = {**host.settings.get(_OPTIONS[name], {}), name: switch}
    elif name.endswith("ManagerPolicy"):
        host.settings[name] = value
        if name == "memoryManagerPolicy" and value == "None":
            host.settings["reservedMemory"] = []
        if name == "topologyManagerPolicy" and value == "none":
            host.settings.pop("topologyManagerPolicyOptions", None)


# Trials


@dataclass(frozen=True)
class Trial:
    """A node on which something is wrong, and what must be true once the text was followed."""

    text: str
    broken: Callable[[Path], Host]
    """A host with a kubelet that runs, or does not start."""
    said: str = ""
    """Words of the kubelet when it starts, or about ``pod``; empty: it only does less than it might."""
    pod: Body | None = None
    """Runs afterwards."""
    cured: Callable[[Host], bool] = lambda _: True
    needs_all: bool = False
    """The kubelet would not start if the state file were left there."""


def running(machine: Machine, config: Settings, *pods: Body, **more: Any) -> Callable[[Path], Host]:
    def made(directory: Path) -> Host:
        host = Host(directory, machine, deepcopy(config), **more)
        host.start()
        for pod in pods:
            host.run(pod)
        return host

    return made


def changed(before: Callable[[Path], Host], **fields: Any) -> Callable[[Path], Host]:
    """Stop the kubelet, and change the machine or the settings."""

    def made(directory: Path) -> Host:
        host = before(directory)
        host.stop()
        for name, value in fields.items():
            setattr(host, name, deepcopy(value))
        return host

    return made


def overwritten(before: Callable[[Path], Host], content: Callable[[Node], bytes]) -> Callable[[Path], Host]:
    """Stop the kubelet, and have something else write the CPUs' state file."""

    def made(directory: Path) -> Host:
        host = before(directory)
        node = host.node
        host.stop()
        (directory / CPU_STATE_FILE).write_bytes(content(node))
        return host

    return made


def _resized(node: Node) -> bytes:
    text = dump_cpu_manager_state(cpu_manager_state(node)).decode()
    return text.replace("{", '{"allocations":{"a":{}},', 1).encode()


def sharing(before: Callable[[Path], Host]) -> Callable[[Path], Host]:
    """Have the kubelet that runs take a CPU for free that a pod holds."""

    def made(directory: Path) -> Host:
        host = before(directory)
        assert host.kubelet is not None
        held, cpus = host.node.cpus.exclusive_cpus(), host.node.cpus
        host.kubelet.node = replace(host.node, cpus=cpus._replace(default=cpus.default | held & -held))
        host.kubelet.recorded = host.kubelet.node
        KubeletFiles(directory).write(host.kubelet.recorded)
        return host

    return made


def without_file(before: Callable[[Path], Host], file: str) -> Callable[[Path], Host]:
    """Remove a state file while the kubelet runs."""

    def made(directory: Path) -> Host:
        host = before(directory)
        (directory / file).unlink()
        return host

    return made


def does_not_share(host: Host) -> bool:
    return not host.node.cpus.exclusive_cpus() & host.node.cpus.default


def pins(host: Host) -> bool:
    return bool(host.node.cpus.exclusive_cpus())


def aligned(host: Host) -> bool:
    """Return whether the new pod is on one NUMA node."""
    held = host.node.cpus.held_by("new")
    return sum(1 for cpus in host.node.machine.cpus_of_numa.values() if cpus & held) == 1


OLD = building.machine()
GROWN = building.machine(cores=6)
MOVED = Machine(OLD.cpus, tuple(node._replace(memory=(15 + 2 * node.id) * GI) for node in OLD.numa_nodes))
BUSY = running(OLD, settings(), body("a", 3))
CPUS_DIFFER = 'current set of available CPUs "0-23" doesn\'t match with CPUs in state "0-15"'
MEMORY_DIFFERS = "[memorymanager] the expected machine state is different from the real one"

TRIALS: dict[str, Trial | tuple[Trial, ...]] = {
    "NO_ALIGNMENT": Trial(
        cures.NO_ALIGNMENT,
        running(wide(range(34), with_cpus=34, cpus=68), settings(**UNPINNED, **MANY)),
        "the kubelet would hang: for cpu",
        body("new"),
        pins,
    ),
    "NO_MEMORY_MANAGER": Trial(
        cures.NO_MEMORY_MANAGER,
        running(wide(range(34)), settings(topologyManagerPolicy="none")),
        "the kubelet would hang: for memory",
        body("new"),
        needs_all=True,
    ),
    "NEWER_DEVICE_HINTS": Trial(
        cures.NEWER_DEVICE_HINTS,
        running(
            wide(range(34)),
            settings(**UNPINNED, **MANY, topologyManagerPolicy="best-effort"),
            version="v1.35.2",
            devices={GPU: (Device("gpu-0", (0,)),)},
        ),
        f"the kubelet would hang: for {GPU}",
        body("new", vendor_gpu="1"),
    ),
    "NO_MANAGERS": Trial(
        cures.NO_MANAGERS,
        running(wide((0, 64)), settings()),
        "the kubelet would crash under topologyManagerPolicy",
        body("new"),
        needs_all=True,
    ),
    "FEWER_COMBINATIONS": Trial(
        cures.FEWER_COMBINATIONS,
        running(
            wide(range(6), with_cpus=6, cpus=36),
            settings(topologyManagerPolicy="best-effort"),
            devices={
                f"vendor/{kind}": tuple(Device(f"{kind}-{numa}", (numa,)) for numa in range(6))
                for kind in "abc"
            },
        ),
        "combinations of the hints for",
        body("new", vendor_a="1", vendor_b="1", vendor_c="1"),
    ),
    "NO_DISTRIBUTION": Trial(
        cures.NO_DISTRIBUTION,
        running(
            wide(range(64), with_cpus=64, cpus=256),
            settings(**UNPINNED, topologyManagerPolicy="none", cpuManagerPolicyOptions={DISTRIBUTE: "true"}),
        ),
        "to distribute 40 CPUs it tries all sets",
        body("new", 40),
    ),
    "STATIC_CPUS": Trial(
        cures.STATIC_CPUS,
        running(OLD, settings(cpuManagerPolicy="none", reservedSystemCPUs=""), body("a", 3)),
        pod=body("new"),
        cured=pins,
        needs_all=True,
    ),
    "STATIC_MEMORY": Trial(
        cures.STATIC_MEMORY,
        running(OLD, settings(**UNPINNED), body("a", 3)),
        pod=body("new"),
        cured=lambda host: bool(host.node.memory.assignments),
        needs_all=True,
    ),
    "STRICT_RESERVATION": Trial(
        cures.STRICT_RESERVATION,
        BUSY,
        pod=body("new"),
        cured=lambda host: not host.node.cpus.default & 1,
        needs_all=True,
    ),
    "alignment": (
        Trial(
            cures.alignment(2),
            running(OLD, settings(**UNPINNED, topologyManagerPolicy="none"), body("a", 3)),
            pod=body("new", 6),
            cured=aligned,
        ),
        Trial(
            cures.alignment(9),
            running(
                wide(range(9), cpus=16), settings(**UNPINNED, topologyManagerPolicy="none"), body("a", 3)
            ),
            pod=body("new", 6),
            cured=aligned,
        ),
    ),
    "REQUIRED_ALIGNMENT": Trial(
        cures.REQUIRED_ALIGNMENT,
        running(OLD, settings(topologyManagerPolicy="best-effort"), body("a", 3)),
        pod=body("new", 6),
        cured=aligned,
    ),
    "NOTHING_TO_ALIGN": Trial(
        cures.NOTHING_TO_ALIGN,
        running(building.machine(1), settings(topologyManagerPolicy="restricted"), body("a", 3)),
        pod=body("new"),
        cured=pins,
    ),
    "EFFECTIVE_DISTRIBUTION": Trial(
        cures.EFFECTIVE_DISTRIBUTION,
        running(
            OLD,
            settings(
                cpuManagerPolicyOptions={DISTRIBUTE: "true"},
                featureGates={"CPUManagerPolicyAlphaOptions": True},
            ),
            body("a", 3),
        ),
        pod=body("new"),
        cured=pins,
    ),
    "RELEASED_OPTIONS": Trial(
        cures.RELEASED_OPTIONS,
        running(
            OLD,
            settings(
                topologyManagerPolicyOptions={UNRELEASED: "true"},
                featureGates={"TopologyManagerPolicyAlphaOptions": True},
            ),
            body("a", 3),
        ),
        pod=body("new"),
        cured=lambda host: not host.node.config.unreleased_options,
    ),
    "UNKNOWN_OPTION": Trial(
        cures.UNKNOWN_OPTION.partition(", or ")[2],
        changed(BUSY, settings=settings(topologyManagerPolicyOptions={"newest-option": "true"})),
        "newest-option",
        body("new"),
    ),
    "DAMAGED_FILE": Trial(
        cures.DAMAGED_FILE,
        overwritten(BUSY, lambda node: dump_cpu_manager_state(cpu_manager_state(node))[:-9]),
        "could not restore state from checkpoint",
        body("new"),
    ),
    "NO_EXCLUSIVE_RESIZE": Trial(
        cures.NO_EXCLUSIVE_RESIZE,
        overwritten(BUSY, _resized),
        "could not restore state from checkpoint",
        body("new"),
        needs_all=True,
    ),
    "restart": Trial(
        cures.restart("the kubelet of worker"),
        changed(BUSY, settings=settings(topologyManagerPolicy="restricted")),
        pod=body("new"),
        cured=lambda host: host.node.config.topology_manager_policy == "restricted",
    ),
    "without_state_file": (
        Trial(
            cures.without_state_file("worker", CPU_STATE_FILE),
            changed(BUSY, machine=GROWN),
            CPUS_DIFFER,
            body("new"),
            needs_all=True,
        ),
        Trial(
            cures.without_state_file("worker", MEMORY_STATE_FILE),
            changed(BUSY, machine=MOVED),
            MEMORY_DIFFERS,
            body("new"),
            needs_all=True,
        ),
        Trial(
            cures.without_state_file("worker", CPU_STATE_FILE),
            overwritten(BUSY, lambda _: b"{}"),
            "could not restore state from checkpoint",
            body("new"),
            needs_all=True,
        ),
    ),
    "fuller_shared_pool": Trial(
        cures.fuller_shared_pool("worker"),
        running(
            OLD,
            settings(**UNPINNED, topologyManagerPolicy="none", cpuManagerPolicyOptions={STRICT: "true"}),
            body("large", 13),
            body("small", 2),
        ),
        pod=body("new", 1),
        cured=lambda host: bool(host.node.cpus.default),
    ),
    "in_quotes": Trial(
        cures.in_quotes("cpuManagerPolicyOptions"),
        changed(
            BUSY,
            settings=settings(
                cpuManagerPolicyOptions={DISTRIBUTE: True},
                featureGates={"CPUManagerPolicyAlphaOptions": True},
            ),
        ),
        "cannot unmarshal bool into Go struct field KubeletConfiguration.cpuManagerPolicyOptions",
        body("new"),
        cured=lambda host: host.node.config.cpu_manager_policy_options == ((DISTRIBUTE, "true"),),
    ),
    "CORRECT_CONFIGURATION": Trial(
        cures.CORRECT_CONFIGURATION,
        changed(BUSY, settings=settings(featureGates={"CPUManagerPolicyAlphaOptions": "true"})),
        "cannot unmarshal string into Go struct field KubeletConfiguration.featureGates of type bool",
        body("new"),
    ),
    "RESERVED_CPUS": Trial(
        cures.RESERVED_CPUS,
        changed(BUSY, settings=settings(reservedSystemCPUs="")),
        "unable to determine reserved CPU resources",
        body("new"),
    ),
    "known_option": Trial(
        cures.known_option("unheard-of", ()),
        changed(BUSY, settings=settings(cpuManagerPolicyOptions={"unheard-of": "true"})),
        'unknown CPU Manager Policy option: "unheard-of"',
        body("new"),
    ),
    "allowed_numa_nodes": Trial(
        cures.allowed_numa_nodes(9),
        changed(
            running(wide(range(9)), settings(**UNPINNED, topologyManagerPolicy="none"), body("a", 1)),
            settings=settings(**UNPINNED),
        ),
        "unsupported on machines with more than 8 NUMA Nodes",
        body("new"),
    ),
    "no_reservation_of": Trial(
        cures.no_reservation_of("hugepages-2Mi"),
        changed(
            running(building.machine(hugepages={2048: 512}), settings()),
            settings=settings(
                reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}]
            ),
        ),
        'the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0"',
        body("new"),
    ),
    "matching_reservations": tuple(
        Trial(
            cures.matching_reservations("1Gi (1073741824 bytes)", "systemReserved", difference),
            changed(
                BUSY,
                settings=settings(reservedMemory=[{"numaNode": 0, "limits": {"memory": reserved}}]),
            ),
            f'the total amount "{reserved}" of type "memory" is not equal to the value "1Gi"',
            body("new"),
        )
        for reserved, difference in (("1124Mi", "100Mi more"), ("924Mi", "100Mi less"))
    ),
    "best_effort_on": Trial(
        cures.best_effort_on("worker"),
        running(OLD, settings(**UNPINNED, topologyManagerPolicy="none"), body("a", 3)),
        pod=body("new", 6),
        cured=aligned,
    ),
    "dra.conflicts.CURE": Trial(conflicts.CURE, BUSY, pod=body("new"), needs_all=True),
    "SourcesDisagree": (
        Trial(
            CURES["SourcesDisagree"].partition(", or ")[0],
            changed(BUSY, settings=settings(topologyManagerPolicy="restricted")),
            pod=body("new"),
        ),
        Trial(
            CURES["SourcesDisagree"].partition(", or ")[2],
            changed(BUSY, machine=MOVED),
            MEMORY_DIFFERS,
            body("new"),
        ),
    ),
    **dict.fromkeys(
        ("CPUsOfTwoPods", "CPUsInSharedSet"),
        Trial(CURES["CPUsOfTwoPods"], sharing(BUSY), pod=body("new"), cured=does_not_share),
    ),
    "NotFound": Trial(
        CURES["NotFound"],
        without_file(BUSY, MEMORY_STATE_FILE),
        pod=body("new"),
        cured=lambda host: (host.directory / MEMORY_STATE_FILE).exists(),
    ),
    **dict.fromkeys(
        ("InvalidCheckpoint", "WrongChecksum"),
        Trial(
            CURES["WrongChecksum"],
            overwritten(BUSY, lambda _: b"{}"),
            "could not restore state from checkpoint",
            body("new"),
        ),
    ),
}
CASES = {
    f"{name} {number}": (trial, way)
    for name, tried in TRIALS.items()
    for number, (trial, way) in enumerate(
        (trial, way)
        for trial in (tried if isinstance(tried, tuple) else (tried,))
        for way in alternatives(trial.text)
    )
}
NEEDED = {
    name: (trial, way) for name, (trial, way) in CASES.items() if trial.needs_all and "_manager_state" in way
}


@pytest.mark.parametrize(("trial", "way"), CASES.values(), ids=CASES)
def test_kubelet_starts_and_runs_pods_after_each_cure(trial: Trial, way: str, tmp_path: Path) -> None:
    host = trial.broken(tmp_path)
    if trial.said:
        assert trial.said in host.problem(trial.pod)
    follow(host, way)
    assert host.problem(trial.pod) == ""
    assert trial.cured(host)
    host.stop()
    host.start()  # again, on what it has written


@pytest.mark.parametrize(("trial", "way"), NEEDED.values(), ids=NEEDED)
def test_no_cure_removes_a_state_file_without_need(trial: Trial, way: str, tmp_path: Path) -> None:
    host = trial.broken(tmp_path)
    with pytest.raises(RefusesToStart):
        follow(host, re.sub(r"remove (?:/var/lib/kubelet/)?\w+_manager_state", "leave it there", way))


# The list of texts


def printed() -> set[str]:
    """Return the names of all cures for settings and state files of a kubelet."""
    public = {name: item for name, item in vars(cures).items() if name[0] != "_" and name != "Final"}
    restarts = re.compile("restart the kubelet|start it")
    return {
        *(
            name
            for name, item in public.items()
            if isinstance(item, str) or getattr(item, "__module__", "") == cures.__name__
        ),
        "dra.conflicts.CURE",
        *(reason for reason, cure in CURES.items() if restarts.search(cure)),
    } - {"CPU_STATE_FILE", "MEMORY_STATE_FILE"}


def test_every_cure_has_a_trial() -> None:
    assert printed() == TRIALS.keys()


_GIVEN = re.compile(r"\bcure=f?['\"(]")
_IMPERATIVE = re.compile(
    r"(?:^|[;,:] |\bor )(?:set|switch|drain|remove|restart|take|delete|change|let) [^;]*"
    r"(?:ManagerPolicy|manager_state|(?:the|its) kubelet\b|reserved(?:Memory|SystemCPUs)|-cpu-reservation)"
)
_ELSEWHERE = {"cures.py", "conflicts.py", "reading_cures.py"}


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_kubelets_errors_take_their_cures_from_the_list() -> None:
    modules = (ROOT / "numazones" / "kubelet").glob("*.py")
    assert [path.name for path in modules if _GIVEN.search(path.read_text(encoding="utf-8"))] == []


def test_no_cure_for_kubelets_is_written_elsewhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("numazones", "models", "exporter", "operator", "kubectl", "support")
        for path in (ROOT / folder).rglob("*.py")
        if path.name not in _ELSEWHERE
        for text in texts(path)
        if _IMPERATIVE.search(text)
    ]
    assert found == []


def test_docs_remove_state_files_of_drained_nodes_only() -> None:
    removal = re.compile(r"\b(?:remove|delete|rm)\b[^.]*\w+_manager_state")
    told = [
        line
        for path in (ROOT / "docs").rglob("*.md")
        for line in path.read_text(encoding="utf-8").splitlines()
        if removal.search(line)
    ]
    assert len(told) > 1
    assert [line for line in told if "drain" not in line] == []
