"""Find changes that let a waiting pod in, on the closest nodes: the advice that all surfaces give.

``numazones.advice.changes`` tries changes on one node; here nodes are chosen, and the planner's own rules say
which pods may be moved.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from numazones.advice.changes import Advice, NodeContext, advise_on, in_order
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.device_answer import NOT_ALIGNED
from numazones.prediction.forecast import ADMISSIBLE, Forecast, Prediction
from numazones.prediction.joined_verdict import APART
from numazones.rebalance.candidates import Situation, why_not
from numazones.rebalance.policy import Policy
from numazones.rebalance.single_move import Destinations

_MAX_NODES_ADVISED = 3
_MAX_NODES_LOOKED_AT = 12
"""Trying changes on copies takes time."""


def helpful_changes(
    pod: ClusterPod, situation: Situation, prediction: Prediction, looked_at: Iterable[str]
) -> list[Advice]:
    """Return what would let a pod in, on the nearest nodes where something would, the cheapest first.

    If a pod would be admitted, or only not as aligned as it requires: what would bring the devices that it
    claims to its CPUs.

    Args:
        pod: the pod, which some node is to admit.
        situation: the cluster, and what protects its pods.
        prediction: of the pod.
        looked_at: the nodes on which changes are tried (``nodes_looked_at``).
    """
    nodes = situation.cluster.nodes
    around = NodeContext(
        Destinations(nodes.values(), situation.templates),
        lambda other: objection_to_move(other, situation),
    )
    looked_at = list(looked_at)
    found: list[Advice] = []
    if apart := nodes_apart(prediction, looked_at):
        from numazones.advice.aligning_changes import aligning_changes  # noqa: PLC0415 - few pods have claims

        found = aligning_changes(pod, nodes, apart, around)
    if found or prediction.verdict == ADMISSIBLE:
        return list(in_order(found))
    told: set[str] = set()
    advised = 0
    for name in looked_at:
        if name not in nodes:
            continue
        fresh = [item for item in advise_on(pod, nodes[name], around) if item.sentence not in told]
        told.update(item.sentence for item in fresh)
        found.extend(fresh)
        advised += bool(fresh)
        if advised == _MAX_NODES_ADVISED:
            break
    return list(in_order(found))


def nodes_apart(prediction: Prediction, looked_at: Iterable[str]) -> list[str]:
    """Return the nodes that would take a pod if only its devices were near its CPUs, the best first.

    That is, those that admit it, but not aligned; or those that fail its own condition. Otherwise none.
    """
    if prediction.verdict == ADMISSIBLE:
        best = prediction.candidates
        return [one.node for one in best] if best and best[0].alignment == NOT_ALIGNED else []
    return list(looked_at) if prediction.reason == APART else []


def nodes_looked_at(prediction: Prediction, forecast: Forecast) -> Iterator[str]:
    """Yield the nodes on which changes are tried: that of the headline, then the nearest first."""
    first = [reason.node for reason in prediction.reasons[:1] if reason.node]
    return islice(dict.fromkeys([*first, *forecast.nearest]), _MAX_NODES_LOOKED_AT)


def objection_to_move(pod: ClusterPod, situation: Situation) -> str:
    """Return why no plan of the default policy moves a pod; empty where it may be moved."""
    return next((one.message for one in why_not(pod, situation, Policy())), "")


def plan_made(name: str) -> str:
    """Say of a recommendation that places a waiting pod how it is looked at, and carried out."""
    return (
        f"a plan exists: see kubectl describe rebalancerecommendation {name}; "
        f"to run it: kubectl numazones approve {name}"
    )
