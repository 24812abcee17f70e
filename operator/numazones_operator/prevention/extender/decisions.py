"""The answers of filter, prioritize and preempt, each a function of verdicts.

They reserve nothing: the scheduler may ask and go elsewhere without a word. The point of decision is
``binding``. A node that our rules turn down is unresolvable to the scheduler, since evicting the pods that
it would choose does not mend NUMA fragmentation; in its other list it makes kube-scheduler try for ever
(specs/scheduler-extender.md, section 5). Nodes of unknown state are the last resort unless set otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from numazones.prediction.forecast import NodeAnswer, NodeVerdict
from numazones.prediction.scheduler_reasons import scheduler_reason
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes

MAX_SCORE = 10
"""The best score of an extender (KS ``extender/v1`` MaxExtenderPriority)."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Nodes that pass, and the reasons against the others."""

    passing: tuple[str, ...]
    reasons: Mapping[str, str]


def sift(verdicts: Mapping[str, NodeVerdict], unknown: UnknownNodes) -> FilterResult:
    """Sort nodes into those that pass and those that do not, in the order given."""
    admitting: list[str] = []
    unknowns: list[str] = []
    reasons: dict[str, str] = {}
    for name, one in verdicts.items():
        if one.answer is NodeAnswer.ADMITS:
            admitting.append(name)
        elif may_take(one, unknown):
            unknowns.append(name)
        else:
            reasons[name] = scheduler_reason(one)
    if unknown is UnknownNodes.ALLOW or not admitting:
        admitting += unknowns
    else:
        reasons |= {name: scheduler_reason(verdicts[name]) for name in unknowns}
    return FilterResult(tuple(admitting), reasons)


def may_take(verdict: NodeVerdict, unknown: UnknownNodes) -> bool:
    """Return whether a node may get the pod, if no other is better.

    One of unknown state may as long as what was known of it last does not speak against it, and it has not
    rejected a pod like this since: a ReplicaSet answers each rejection with another pod. Where its zones are
    just being written, as of a new node, or lack pods that were bound before this process started and may be
    on any NUMA node, the next zones are waited for; and so are the first ones where an exporter runs, unless
    nodes of unknown state are allowed.
    """
    if verdict.answer is NodeAnswer.UNKNOWN:
        if unknown is UnknownNodes.ALLOW:
            return not (verdict.would_reject or verdict.awaited)
        return unknown is UnknownNodes.LAST_RESORT and verdict.may_admit
    return verdict.answer is NodeAnswer.ADMITS


def scores(keys: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """Return node → score: 10 for the best ones, one less for each that is behind; 0 is left out.

    ``keys``: what nodes that admit the pod are sorted by (``node_choice.Ranking``).
    """
    best = nsmallest(MAX_SCORE, set(keys.values()))
    of_rank = {rank: MAX_SCORE - place for place, rank in enumerate(best)}
    return {name: of_rank[rank] for name, rank in keys.items() if rank in of_rank}
