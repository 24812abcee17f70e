"""Explain why a running pod is not aligned, and what would help on its node.

Nobody keeps what was free when a pod came. What let it in follows from the policy that is in force now, so
sentences about that moment say what they rest on. Whether its node could hold it aligned, and what would
help, has been tried on a copy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from numazones import cpuset
from numazones.advice.misfits import misfits
from numazones.alignment import alignable
from numazones.alignment import pod_alignment as alignment
from numazones.alignment.alignable import Alignable, Trials
from numazones.alignment.pod_alignment import Alignment, ContainerAlignment, PodAlignment
from numazones.apimachinery.quantity import format_rounded
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet import cures
from numazones.kubelet.admission import Admission
from numazones.kubelet.config import BEST_EFFORT, POLICY_NONE
from numazones.kubelet.machine import name_numas
from numazones.placement.kubelet import decision_of
from numazones.rebalance.candidates import Situation, why_not
from numazones.rebalance.goals import Align
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import Effort
from numazones.wording import enumeration, pluralize

_EFFORT = 20_000
"""Steps of the search for a plan: what an answer may take that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Misalignment:
    """Reason why a running pod is not aligned."""

    TITLE: ClassVar = "WhyNotAligned"
    alignment: Annotated[Alignment, "Alignment of the pod's worst container: remote or spanning."]
    sentence: Annotated[str, "The alignment in a few words."]
    alignable: Annotated[Alignable, "Whether its node could align it: now, emptier, never or unknown."]
    why: Annotated[
        tuple[str, ...],
        "How the pod is spread, why the kubelet admitted it, and whether its node could align it.",
    ]
    help: Annotated[tuple[str, ...], "What would help; each change was tried on a copy of the node."]


def misalignment_of(pod: ClusterPod, situation: Situation) -> Misalignment | None:
    """Return why a pod that runs is not aligned; None where it is, or where that is not known."""
    node = situation.cluster.nodes.get(pod.node)
    found = None if node is None else alignment.of_pod(node, pod)
    if node is None or found is None or found.aligned:
        return None
    trials = alignable.trials_on(node, pod)
    could = Alignable.UNKNOWN if trials is None else trials.alignable
    why = (*map(_where, _worst(found)), *_let_in(node, pod, could), _could(node, pod, trials))
    help_ = tuple(_help(node, pod, situation, known=trials is not None))
    return Misalignment(found.alignment, found.sentence, could, why, help_)


def _worst(found: PodAlignment) -> Iterator[ContainerAlignment]:
    return (one for one in found.containers if one.alignment is not Alignment.ALIGNED)


def _where(one: ContainerAlignment) -> str:
    """Say where what a container holds is: ``container main has 2 CPUs on NUMA node 0, 4 on NUMA node 1``."""
    parts = []
    if one.cpus:
        first, *others = sorted(one.cpus.items())
        counts = [f"{pluralize(first[1], 'CPU')} on {_numa(first[0])}"]
        parts.append(enumeration([*counts, *(f"{count} on {_numa(numa)}" for numa, count in others)]))
    if one.memory:
        sizes = (f"{format_rounded(size)} on {_numa(numa)}" for numa, size in sorted(one.memory.items()))
        parts.append(f"memory: {enumeration(sizes)}")
    parts += [f"{resource} on {name_numas(cpuset.of(numas))}" for resource, numas in one.devices.items()]
    return f"{f'container {one.name}' if one.name else 'it'} has {'; '.join(parts)}"


def _numa(numa: int) -> str:
    return name_numas(1 << numa)


def _let_in(node: ClusterNode, pod: ClusterPod, could: Alignable) -> Iterator[str]:
    """Yield what let the pod in like this."""
    if node.state is None:
        return
    by_kubelet = dict(alignment.of_node(node, claims=False) or ()).get(pod)
    if by_kubelet is None or by_kubelet.aligned:
        yield (
            "the kubelet admitted it because the scheduler allocates the devices of its claims, and Topology "
            "Manager policies do not consider those devices"
        )
        return
    policy = node.state.config.topology_manager_policy
    if policy == POLICY_NONE:
        yield "policy none admitted it: the kubelet ignores NUMA nodes"
    elif could is Alignable.NEVER:
        yield f"policy {policy} admitted it: no single NUMA node is large enough, so several are allowed"
    elif policy == BEST_EFFORT:
        yield (
            "policy best-effort admitted it: the kubelet prefers one NUMA node, but uses several if none "
            "has room; unless the policy has changed since, none had room when the pod arrived"
        )
    else:
        yield f"policy {policy} would not admit it like this, so it was admitted under different settings"


def _could(node: ClusterNode, pod: ClusterPod, trials: Trials | None) -> str:
    """Say whether the node could hold the pod aligned, and what is missing."""
    if trials is None:
        reason = ", because the scheduler chooses its devices" if pod.kubelet_uid in node.claimed else ""
        return f"it is unknown whether {node.name} could align it{reason}"
    if trials.now is None:
        return f"{node.name} could not align it even if the node were empty: {_short(trials.empty, node)}"
    if not trials.now.admitted:
        return f"{node.name} could align it if other pods left: {_short(trials.now, node)}"
    zones = decision_of(trials.now).zones
    where = f" on {name_numas(cpuset.of(zones))}" if zones else ""
    return f"{node.name} could align it now{where}"


def _short(admission: Admission, node: ClusterNode) -> str:
    """Say what an aligned pod lacks, and who holds it."""
    short = decision_of(admission).shortfall(node.name)
    names = node.pod_names
    holders = [f"{names.get(uid, uid)} ({amount})" for uid, amount in short.holders]
    return short.sentence + (f"; held by {enumeration(holders)}" if holders else "")


def _help(node: ClusterNode, pod: ClusterPod, situation: Situation, *, known: bool) -> Iterator[str]:
    """Yield what would help; ``known``: whether it is known what the node would say to the pod."""
    made = plan(Align(frozenset({pod.uid})), situation, Policy(), expired=Effort(_EFFORT)).plan
    if made is not None:
        (move,) = made.moves
        where = f"on {name_numas(cpuset.of(move.target_zones))} of {move.node}"
        confined = ", if it is confined to that node" if move.affinity else ""
        yield (
            f"evict it: its replacement will be aligned, {where}{confined} "
            f"(kubectl numazones plan --align {pod.full_name})"
        )
        return
    kept = [objection.message for objection in why_not(pod, situation, Policy())]
    again = alignable.made_anew(node, pod) if known else None
    if again is not None and again.aligned:
        why = f"; no plan does this: {kept[0]}" if kept else ""
        yield f"recreate it: {node.name} would then align it{why}"
    elif again is not None and (better := _under_best_effort(node)) is not None:
        anew = alignable.made_anew(better, pod)
        if anew is not None and anew.aligned:
            yield (
                f"{cures.best_effort_on(node.name)}, which will then be aligned; "
                f"with the current policy, it would be misaligned again ({again.sentence})"
            )
    if node.state is not None and pod.admission is not None:
        yield from (f"{miss.cure}: {miss.why}" for miss in misfits(pod.admission, node.state.emptied))


def _under_best_effort(node: ClusterNode) -> ClusterNode | None:
    """Return the node as it would be under best-effort; None where its policy is not none."""
    state = node.state
    if state is None or state.config.topology_manager_policy != POLICY_NONE:
        return None
    try:
        return node.with_state(state.with_topology_settings(policy=BEST_EFFORT))
    except NumazonesError:  # such a kubelet would not start
        return None
