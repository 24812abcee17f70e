"""Checks of what placement depends on: the kubelets' settings, the pods' requests, the zones they leave."""

from collections.abc import Iterator
from dataclasses import replace

from kubectl_numazones.doctor.evidence import Evidence
from kubectl_numazones.doctor.findings import Finding, Severity, hint, warning
from numazones.advice import misfits
from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.scheduling import placement_obstacles
from numazones.dra.conflicts import CURE, cpu_conflict
from numazones.kubelet import cures, effort
from numazones.kubelet.config import BEST_EFFORT, POLICY_NONE, SINGLE_NUMA_NODE, KubeletConfiguration
from numazones.kubelet.demand import PodLevel
from numazones.kubelet.machine import Machine
from numazones.kubelet.memory_manager import STATIC
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.state_validation import refusals_of_node
from numazones.kubelet.versions import STRICT_CPU_RESERVATION, Maturity
from numazones.placement.fragmentation import Shape
from numazones.wording import pluralize, some_of

_DISTRIBUTE = "distribute-cpus-across-numa"
_NOTHING_TO_ALIGN = (
    "has one NUMA node and cpuManagerPolicy none, as on kind and minikube: no pod gets exclusive CPUs, "
    "so nothing can be misplaced, and NUMAZones show nothing assigned or free"
)
_WHERE_THERE_IS = (
    "numazones-simulator demo shows what numazones does on machines with several NUMA nodes; for "
    f"exclusive CPUs, {cures.STATIC_CPUS}"
)


def settings(evidence: Evidence) -> Iterator[Finding]:
    """The kubelets are set so that locality is enforced, and are of a release whose rules are known."""
    for node in evidence.seen.situation.cluster.nodes.values():
        if node.state is not None:
            for delay in delays_of(node.state):
                slow = delay.reason == effort.SLOW
                yield Finding(
                    Severity.WARNING if slow else Severity.ERROR,
                    (node.name,),
                    delay.message if slow else f"{delay.reason}: {delay.message}",
                    delay.cure,
                )
            for doubt in node.state.kubelet.doubts:
                yield warning(
                    node.name,
                    f"not certain: kubelet {doubt}",
                    "upgrade numazones; docs/guides/upgrade.md explains how it follows Kubernetes",
                )
            for option in node.state.config.unreleased_options:
                yield warning(
                    node.name,
                    f"its kubelet is not a released build: {option}",
                    cures.RELEASED_OPTIONS,
                )
            yield from _next_restart(node.name, node.state)
            for severity, message, cure in _settings_of(node.state):
                yield Finding(severity, (node.name,), message, cure)


def delays_of(node: Node) -> tuple[effort.Delay, ...]:
    """Return the pods on which the kubelet crashes, hangs or is slow, from the node's shape."""
    return effort.delays(node.machine, node.config, node.hosting_devices)


def _adds_no_delay(node: Node, config: KubeletConfiguration) -> bool:
    """Return whether a kubelet with another configuration crashes on no pod, and is no slower than now."""
    with_it = effort.delays(node.machine, config, node.hosting_devices)
    crashes = any(delay.reason == effort.CRASH for delay in with_it)
    return not crashes and not set(with_it).difference(delays_of(node))


def _next_restart(name: str, node: Node) -> Iterator[Finding]:
    """Warn where the kubelet would not start again, though nothing but its own state has changed."""
    for refusal in refusals_of_node(node, node.kubelet):
        cure = refusal.cure_on(name)
        if not node.cpus.default:
            cure = cures.fuller_shared_pool(name)
        shared = "" if node.cpus.default else "; the shared pool is empty"
        yield warning(name, f"a restart of its kubelet would fail: {refusal.message}{shared}", cure)


def _settings_of(node: Node) -> Iterator[tuple[Severity, str, str]]:
    config, policy = node.config, node.config.topology_manager_policy
    yield from _shared_reserved(node)
    if len(node.machine.numa_nodes) == 1:
        if policy not in {POLICY_NONE, BEST_EFFORT}:
            yield (
                Severity.HINT,
                f"has one NUMA node, so topologyManagerPolicy {policy} has nothing to align",
                cures.NOTHING_TO_ALIGN,
            )
        if not node.kubelet.cpus.static:
            yield (Severity.HINT, _NOTHING_TO_ALIGN, _WHERE_THERE_IS)
        return
    if policy == POLICY_NONE and _adds_no_delay(
        node, replace(config, topology_manager_policy=SINGLE_NUMA_NODE)
    ):
        yield (
            Severity.WARNING,
            "topologyManagerPolicy is none: a pod's CPUs, memory and devices may be on different NUMA nodes",
            cures.alignment(len(node.machine.numa_nodes)),
        )
    elif policy == BEST_EFFORT:
        yield (
            Severity.HINT,
            "topologyManagerPolicy is best-effort: pods are admitted even if they cannot be aligned",
            cures.REQUIRED_ALIGNMENT,
        )
    if not node.kubelet.cpus.static:
        yield (
            Severity.WARNING,
            "cpuManagerPolicy is none: no pod gets exclusive CPUs, so only devices and memory are aligned",
            cures.STATIC_CPUS,
        )
    has_memory = any(numa.memory for numa in node.machine.numa_nodes)
    if (
        has_memory
        and not node.kubelet.memory.allocatable
        and _adds_no_delay(node, replace(config, memory_manager_policy=STATIC))
    ):
        paged = any(numa.hugepages for numa in node.machine.numa_nodes)
        yield (
            Severity.WARNING if paged else Severity.HINT,
            "memoryManagerPolicy is None: memory "
            + ("and hugepages come" if paged else "comes")
            + " from any NUMA node, wherever the CPUs are",
            cures.STATIC_MEMORY,
        )
    options = dict(config.cpu_manager_policy_options)
    if policy == SINGLE_NUMA_NODE and options.get(_DISTRIBUTE) == "true":
        yield (
            Severity.HINT,
            f"{_DISTRIBUTE} has no effect under topologyManagerPolicy {SINGLE_NUMA_NODE}",
            cures.EFFECTIVE_DISTRIBUTION,
        )


def _shared_reserved(node: Node) -> Iterator[tuple[Severity, str, str]]:
    """Say that reserved CPUs are not kept from pods, where the release has an option for it."""
    cpus, release = node.kubelet.cpus, node.config.release
    if not cpus.static or cpus.keeps_reserved_apart or release.openshift:
        return  # a state file that OpenShift's kubelet writes with the option is refused when it restarts
    if release.cpu_options.get(STRICT_CPU_RESERVATION) in {None, Maturity.ALPHA}:
        return
    yield (
        Severity.HINT,
        "reserved CPUs stay in the shared pool: pods without exclusive CPUs also run on them",
        cures.STRICT_RESERVATION,
    )


def cpu_drivers(evidence: Evidence) -> Iterator[Finding]:
    """No node has two that give out CPUs: dra-driver-cpu needs cpuManagerPolicy none beside it."""
    for node in evidence.seen.situation.cluster.nodes.values():
        if node.dra is None or node.state is None:
            continue
        if why := cpu_conflict(node.dra.drivers, node.state.config.cpu_manager_policy):
            yield warning(node.name, why, CURE)


def requests(evidence: Evidence) -> Iterator[Finding]:
    """No request misses whole cores, or what a NUMA node has, by little."""
    for pod, admission, node, empty in _placements(evidence):
        for miss in misfits.misfits(admission, empty):
            yield _misfit(pod, node, miss)


def _misfit(pod: ClusterPod, node: str, miss: misfits.Misfit) -> Finding:
    outcome = "it is always rejected" if miss.rejected else "it spans several NUMA nodes"
    severity = Severity.WARNING if miss.rejected and not _is_running(pod) else Severity.HINT
    return Finding(severity, (_owner(pod),), f"{miss.why}, so on nodes such as {node} {outcome}", miss.cure)


def pods_without_own_cpus(evidence: Evidence) -> Iterator[Finding]:
    """Guaranteed pods with more than one CPU get CPUs of their own."""
    for pod, admission, _, empty in _placements(evidence):
        floating = misfits.unpinned_containers(admission, empty)
        if floating:
            yield hint(
                _owner(pod),
                f"is Guaranteed, but requests a fraction of a CPU in container {some_of(floating)}: it "
                "gets no exclusive CPUs",
                "request whole CPUs, or set no limits where pinning is not needed",
            )


def stranded_cpus(evidence: Evidence) -> Iterator[Finding]:
    """Check that a pod of the cluster can use what is free on a NUMA node."""
    admissions = [pod.admission for pod in _one_of_each(evidence) if pod.admission is not None]
    shapes: dict[PodLevel, list[Shape]] = {}
    for node in evidence.seen.situation.cluster.nodes.values():
        if node.state is None or node.approximate:
            continue
        level = node.state.config.pod_level
        if level not in shapes:
            found = (misfits.shape_of(admission, node.state) for admission in admissions)
            shapes[level] = list(dict.fromkeys(shape for shape in found if shape is not None))
        for zone in misfits.stranded_zones(node.state, shapes[level]):
            short = "they request more CPUs" if zone.lacking == CPU else f"too little {zone.lacking} is left"
            yield hint(
                f"{node.name}, NUMA node {zone.numa}",
                f"{pluralize(zone.cpus, 'CPU')} {'is' if zone.cpus == 1 else 'are'} free, but no pod of the "
                f"{pluralize(len(shapes[level]), 'shape')} seen in this cluster can use them: {short}",
                "see which moves would help: kubectl numazones plan --shape cpu=…; or size pods so that "
                "CPUs, memory and devices run out together",
            )


def _placements(evidence: Evidence) -> Iterator[tuple[ClusterPod, Pod, str, Node]]:
    """Yield (pod, what it asks, a node that it is on or may go to, that node's like without pods).

    One pod of each controller, with one node of each kind of machine and configuration.
    """
    kinds: dict[tuple[Machine, KubeletConfiguration], tuple[Node, list[ClusterNode]]] = {}
    for node in evidence.seen.situation.cluster.nodes.values():
        if node.state is not None and not node.approximate:
            kinds.setdefault((node.state.machine, node.state.config), (node.state, []))[1].append(node)
    empty = [(misfits.without_pods(state), alike) for state, alike in kinds.values()]
    for pod in _one_of_each(evidence):
        for like, alike in empty:
            name = next((node.name for node in alike if _may_be_on(pod, node)), "")
            if name and pod.admission is not None:
                yield pod, pod.admission, name, like


def _may_be_on(pod: ClusterPod, node: ClusterNode) -> bool:
    return pod.node == node.name if _is_running(pod) else not placement_obstacles(pod.constraints, node)


def _one_of_each(evidence: Evidence) -> list[ClusterPod]:
    """One pod of each controller, those without one by themselves; none that has run to its end."""
    pods: dict[str, ClusterPod] = {}
    for pod in evidence.seen.pods:
        if not pod.terminal or (pod.reason and not pod.acknowledged):
            pods.setdefault(pod.uid if pod.controller is None else pod.controller.uid, pod)
    return list(pods.values())


def _owner(pod: ClusterPod) -> str:
    owner = pod.controller
    return pod.full_name if owner is None else f"{pod.namespace}/{owner.name} ({owner.kind})"


def _is_running(pod: ClusterPod) -> bool:
    return bool(pod.node) and not pod.terminal
