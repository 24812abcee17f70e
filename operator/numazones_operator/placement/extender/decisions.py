"""The answers of filter, prioritize and preempt, each a function of verdicts.

They reserve nothing: the scheduler may ask and go elsewhere without a word. The point of decision is
``binding``. A node that our rules turn down is unresolvable to the scheduler, since evicting the pods that
it would choose does not mend NUMA fragmentation; in its other list it makes kube-scheduler try for ever
(specs/scheduler-extender.md, section 5). Nodes of unknown state are the last resort unless set otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from numazones.cluster import ClusterNode, ClusterPod
from numazones.prediction import NodeVerdict, Standing, preference
from numazones.scheduler_reasons import scheduler_reason
from numazones_operator.placement.extender.unknown_nodes import UnknownNodes

MAX_SCORE = 10
"""The best score of an extender (KS ``extender/v1`` MaxExtenderPriority)."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """Which nodes pass, and why the others do not."""

    passing: tuple[str, ...]
    reasons: Mapping[str, str]


def sift(verdicts: Mapping[str, NodeVerdict], unknown: UnknownNodes) -> Sifted:
    """Sort nodes into those that pass and those that do not, in the order given."""
    admitting = [name for name, one in verdicts.items() if one.standing is Standing.ADMITS]
    unknowns = [name for name, one in verdicts.items() if one.standing is Standing.UNKNOWN]
    if unknown is UnknownNodes.ALLOW or (unknown is UnknownNodes.LAST_RESORT and not admitting):
        admitting = [*admitting, *unknowns]
    passing = frozenset(admitting)
    return Sifted(tuple(admitting), _reasons(verdicts, passing))


def _reasons(verdicts: Mapping[str, NodeVerdict], passing: frozenset[str]) -> dict[str, str]:
    texts: dict[int, str] = {}
    found: dict[str, str] = {}
    for name, one in verdicts.items():
        if name not in passing:
            text = texts.get(id(one))
            if text is None:
                text = texts[id(one)] = scheduler_reason(one)
            found[name] = text
    return found


def scores(verdicts: Mapping[str, NodeVerdict]) -> dict[str, int]:
    """Return node → score, 0 to 10: the best ones alone get 10, nodes not known to admit the pod get 0."""
    ranks = sorted({preference(one) for one in verdicts.values() if one.standing is Standing.ADMITS})
    of_rank = {rank: _score(place, len(ranks)) for place, rank in enumerate(ranks)}
    return {
        name: of_rank[preference(one)] if one.standing is Standing.ADMITS else 0
        for name, one in verdicts.items()
    }


def _score(place: int, ranks: int) -> int:
    """Return the score of a place, the best being 0: evenly from 9 down to 1 behind the best."""
    if place == 0:
        return MAX_SCORE
    return max(1, (MAX_SCORE - 1) * (ranks - place) // (ranks - 1))


def without_victims(node: ClusterNode, uids: Iterable[str]) -> ClusterNode | None:
    """Return the node without pods that are on it; None where one is not, or nothing is known of it."""
    placement = node.known
    if placement is None:
        return None
    for uid in uids:
        pod: ClusterPod | None = node.pods.get(uid)
        if pod is None:
            return None
        node, placement = node.without_pod(uid), placement.remove(pod.kubelet_uid)
    return node.with_placement(placement)
