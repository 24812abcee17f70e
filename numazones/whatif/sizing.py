"""Count the machines of a type that a list of pods needs, by policy and reserved CPUs.

By simulation, first fit decreasing: pods come by the largest share of an empty machine that they ask of any
resource, larger first; each goes to the first machine whose scheduler's filters and whose kubelet take it,
and where none does, a machine is added. The number found is sufficient. How far it may be from
the fewest is shown by a bound from below: sums of what is asked, and pods of which no two fit one NUMA node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from numazones import cpuset
from numazones.apimachinery.answer import Named, or_null
from numazones.apimachinery.resources import CPU
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod, why_undecided
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit
from numazones.kubelet.config import POLICY_NONE, RESTRICTED, SINGLE_NUMA_NODE, InvalidConfiguration
from numazones.kubelet.effort import CRASH, HANG, delays
from numazones.kubelet.explanation import explain
from numazones.kubelet.machine import Machine
from numazones.kubelet.topology_manager import DEFAULT_MAX_NUMA_NODES
from numazones.kubelet.versions import MAX_ALLOWABLE
from numazones.placement import fragmentation
from numazones.prediction.forecast import beside
from numazones.prediction.wanted_shapes import shape_of_pod
from numazones.whatif.node_template import NodeTemplate, start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.settings import MEMORY_POLICY, RESERVED_CPUS, Settings
from numazones.whatif.trial import TrialResult, run
from numazones.whatif.workload import PodGroup

_MILLI = 1000
_MOST_NUMA_NODES = f"topologyManagerPolicyOptions.{MAX_ALLOWABLE}"


@dataclass(frozen=True, slots=True)
class Size:
    """Number of machines that some settings need."""

    TITLE: ClassVar = "MachineCount"
    ANSWER: ClassVar = ("settings", "machines", "at_least", "left", "stranded", "crossing", "misfit")
    settings: Annotated[Settings, "Settings of the kubelet."]
    machines: Annotated[
        int, "Number of machines; null if some pod does not fit even on an empty machine.", or_null
    ]
    at_least: Annotated[int, "A lower bound: fewer machines cannot hold the pods.", or_null]
    outcome: TrialResult
    """Of all pods on those machines; what no further pod of the smallest group could use is stranded."""
    left: Annotated[int, "CPUs that stay free on these machines.", Named("cpusLeft")]
    misfit: Annotated[str, "The pod that does not fit on the machine; empty if all pods fit."] = ""
    """With why; the figures are then of no pods."""

    @property
    def stranded(
        self,
    ) -> Annotated[
        int | None,
        "CPUs left over that no further pod can use; null if unknown.",
        Named("strandedCPUs"),
    ]:
        """CPUs that no further pod of the smallest group could use."""
        return self.outcome.stranded

    @property
    def crossing(
        self,
    ) -> Annotated[int, "Pods that get CPUs from several NUMA nodes.", Named("podsAcrossNUMANodes")]:
        """Pods on several NUMA nodes."""
        return self.outcome.crossing


def size(machine: NodeTemplate, groups: Sequence[PodGroup], settings: Settings) -> Size:
    """Say how many machines hold all pods under some settings."""
    try:
        (empty,) = start_nodes([machine.with_settings(settings)])
    except InvalidConfiguration as error:
        return Size(settings, 0, 0, run([], []), 0, f"{error}; {error.cure}")
    ordered = sorted(groups, key=lambda group: -_share(group.largest, empty))
    shapes = [shape for group in groups if (shape := shape_of_pod(group.largest)) is not None]
    smallest = min(shapes, key=lambda shape: shape.cpus, default=None)
    for group in ordered:
        why = _why_not(group.largest, empty)
        if why:
            return Size(settings, 0, 0, run([], []), 0, f"{group}: {why}")
    placed, machines = _first_fit(empty, ordered)
    outcome = run([replace(empty, name=name) for name in machines], placed, shape=smallest)
    requested = sum(pod.requests.get(CPU, 0) for pod in placed)
    left = (len(machines) * empty.allocatable[CPU] - requested) // _MILLI
    return Size(settings, len(machines), _lower_bound(empty, groups), outcome, left)


def _share(pod: ClusterPod, empty: ClusterNode) -> float:
    """Return the largest share of an empty machine that a pod asks of any resource."""
    shares = [amount / max(empty.allocatable.get(name, 0), 1) for name, amount in pod.requests.items()]
    return max(shares, default=0)


def _why_not(pod: ClusterPod, empty: ClusterNode) -> str:
    """Say why not even an empty machine takes a pod; empty if it does."""
    if lacks := scheduling.lacks(pod.requests, empty):
        return "; ".join(map(str, lacks))
    if obstacles := scheduling.obstacles(pod.constraints, pod.requests, empty):
        return obstacles[0]
    if beside(pod, empty) is not None:
        return ""
    if empty.state is None or pod.admission is None:
        return "it cannot be read"
    try:
        return explain(admit(empty.state, pod.admission)).shortfall
    except NumazonesError as error:
        return f"{why_undecided(error)}: {error}"


def _first_fit(empty: ClusterNode, groups: Iterable[PodGroup]) -> tuple[list[ClusterPod], list[str]]:
    """Return the pods, each bound to its machine, and the machines' names."""
    machines: list[ClusterNode] = []
    placed: list[ClusterPod] = []
    for group in groups:
        first = 0  # nobody leaves: what has rejected a pod of the group would reject the next one too
        for pod in group.pods(RandomNumbers(0, 0), len(placed)):
            while (taken := _machine_with(pod, machines, first, empty)) is None:
                first += 1
            machines[first : first + 1] = [taken]
            placed.append(pod.placed(taken.name))
    return placed, [machine.name for machine in machines]


def _machine_with(
    pod: ClusterPod, machines: Sequence[ClusterNode], index: int, empty: ClusterNode
) -> ClusterNode | None:
    """Return a machine with the pod, a new one after the last; None where it does not take the pod."""
    if index == len(machines):
        return beside(pod, replace(empty, name=f"machine-{index + 1}"))
    if scheduling.obstacles(pod.constraints, pod.requests, machines[index]):
        return None
    return beside(pod, machines[index])


def _lower_bound(empty: ClusterNode, groups: Sequence[PodGroup]) -> int:
    """Bound the number of machines from below."""
    asked: dict[str, int] = {}
    for group in groups:
        for name, amount in group.largest.requests.items():
            asked[name] = asked.get(name, 0) + group.count * amount
    by_sums = [-(-amount // empty.allocatable[name]) for name, amount in asked.items() if amount]
    by_slots = -(-sum(group.count for group in groups) // empty.pod_slots)
    return max([*by_sums, by_slots, *_machines_for_large_pods(empty, groups)])


def _machines_for_large_pods(empty: ClusterNode, groups: Sequence[PodGroup]) -> list[int]:
    """Return how many machines pods need of which no two fit one NUMA node, by resource and size."""
    state = empty.state
    if state is None or state.config.topology_manager_policy not in {SINGLE_NUMA_NODE, RESTRICTED}:
        return []
    shapes = [(group.count, shape) for group in groups if (shape := shape_of_pod(group.largest))]
    needed = []
    for name, zones in fragmentation.room(state).items():
        most = max(zones.values(), default=0)
        asked = [(count, dict(shape.resources).get(name, 0)) for count, shape in shapes]
        large = [(count, amount) for count, amount in asked if most < 2 * amount <= 2 * most]
        for _, least in large:
            pods = sum(count for count, amount in large if amount >= least)
            needed.append(-(-pods // sum(amount >= least for amount in zones.values())))
    return needed


# Choices


POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
"""Strictest first: what promises more is preferred where it costs nothing."""


def choices(machine: NodeTemplate, reserved: int) -> list[Settings]:
    """Return the settings worth comparing: every policy, the reserved CPUs in one place or spread.

    ``reserved`` CPUs are whole cores as far as it goes: those with the lowest CPUs of the first NUMA node, or
    as many of each NUMA node as of the others. On machines with many NUMA nodes the policies that need it
    have the option that lets a kubelet start there. Where it cannot pin memory, not to do so is a choice too.
    """
    together = _lowest_cores(machine.machine, reserved, spread=False)
    spread = _lowest_cores(machine.machine, reserved, spread=True)
    sets = dict.fromkeys((cpuset.format(together), cpuset.format(spread)))
    count = len(machine.machine.numa_nodes)
    options = dict(machine.config.topology_manager_policy_options)
    many = {_MOST_NUMA_NODES: str(count)}
    if count <= DEFAULT_MAX_NUMA_NODES or MAX_ALLOWABLE in options:
        many = {}
    policies: list[Settings] = [
        {"topologyManagerPolicy": policy, **({} if policy == POLICY_NONE else many)} for policy in POLICIES
    ]
    if _never_pins_memory(machine):
        policies.append({"topologyManagerPolicy": POLICY_NONE, MEMORY_POLICY: "None"})
    return [{**policy, RESERVED_CPUS: cpus} for policy in policies for cpus in sets]


def _never_pins_memory(machine: NodeTemplate) -> bool:
    """Return whether the Static Memory Manager would hang or crash on every pod that it serves."""
    config = replace(machine.config, topology_manager_policy=POLICY_NONE)
    return any(delay.reason in {CRASH, HANG} for delay in delays(machine.machine, config, {}))


def _lowest_cores(machine: Machine, count: int, *, spread: bool) -> CPUSet:
    cores = sorted((cpus & -cpus, numa, cpus) for (numa, _, _), cpus in machine.cpus_of_core.items())
    rank: dict[int, int] = {}
    ranked = []
    for _, numa, cpus in cores:
        rank[numa] = rank.get(numa, -1) + 1
        ranked.append(((rank[numa], numa) if spread else (numa, rank[numa]), cpus))
    chosen = [cpu for _, cpus in sorted(ranked) for cpu in cpuset.ids(cpus)]
    return cpuset.of(chosen[:count])


def best(sizes: Iterable[Size]) -> Size | None:
    """Return the size with the fewest machines, of those the one with the fewest pods across NUMA nodes.

    Then fewer stranded CPUs count, then the order of the sizes. None: some pod fits none of them.
    """
    able = [one for one in sizes if not one.misfit]
    return min(able, key=lambda one: (one.machines, one.crossing, one.stranded or 0), default=None)
