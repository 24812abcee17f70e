"""Contents of the view for one state of the cluster: zones, stuck pods and plans, without a terminal.

Made anew whenever the cluster has changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubectl_numazones.printing.zone_figures import ZoneFigures, why_no_zones, zones_of
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.reading.files import Object
from kubectl_numazones.stuck.on_the_way import HeldRoomEntry, coming
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pods import StuckPods, stuck_pods
from numazones.alignment.pod_alignment import PodAlignment, by_name
from numazones.api.rebalance import RebalancePolicySpec
from numazones.prediction import doubts
from numazones.prediction.stuck import PodCounts
from numazones.rebalance.custom_resources import policy_of, title
from numazones.rebalance.goals import Goal, pending_goals
from numazones.rebalance.whatif import PolicyReport, what_if

_EFFORT = 20_000
"""Steps of the search per plan: what a view may take that is looked at, not waited for."""
_MAX_GOALS = 20


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that is shown, but plans, which are sought when they are looked at."""

    seen: ClusterView
    zones: tuple[ZoneFigures, ...]
    unknown: tuple[tuple[str, str], ...]
    """(node, why) of nodes whose state is unknown."""
    stuck: tuple[StuckPods, ...]
    counts: PodCounts
    """Number of stuck and rejected pods."""
    held: Mapping[str, Sequence[HeldRoomEntry]]
    """Node → the pods on their way to it."""
    misaligned: Mapping[str, Sequence[PodAlignment]]
    """Node → its pods that are not aligned; nodes that have none are left out."""
    doubts: tuple[str, ...]
    """Doubts about the kubelets' releases; usually empty."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that the view has found, or a recommendation that the operator has made."""

    goal: str
    report: PolicyReport | None = None
    recommendation: Object | None = None


def board_of(seen: ClusterView) -> Board:
    """Ask the library about a cluster."""
    nodes = seen.situation.cluster.nodes
    unknown = tuple(
        (node.name, why_no_zones(node).removeprefix("unknown: "))
        for _, node in sorted(nodes.items())
        if node.occupancy is None
    )
    zones = tuple(zone for node in nodes.values() for zone in zones_of(node))
    situation = seen.situation
    on_the_way = coming(situation.cluster.pending.values(), nodes, situation.context.now)
    outlooks = Outlooks(seen)
    return Board(
        seen,
        zones,
        unknown,
        tuple(stuck_pods(outlooks)),
        outlooks.counts(),
        on_the_way,
        dict(_misaligned(seen)),
        doubts.of_nodes(nodes.values()),
    )


def _misaligned(seen: ClusterView) -> Iterator[tuple[str, list[PodAlignment]]]:
    for node in seen.situation.cluster.nodes.values():
        found = [one for one in by_name(node).values() if not one.aligned]
        if found:
            yield node.name, found


def plans_of(seen: ClusterView) -> list[Planned]:
    """Return the recommendations, and plans for the waiting pods that no recommendation in force places."""
    made = [
        Planned(str((item.get("spec") or {}).get("goal") or ""), recommendation=item) for item in seen.made
    ]
    policy = policy_of(RebalancePolicySpec(), {})
    waiting = seen.situation.cluster.pending.values()
    goals: Sequence[Goal] = list(pending_goals(pod for pod in waiting if not seen.recommendations([pod])))
    found = (
        Planned(title(goal), what_if(goal, seen.situation, policy, effort=_EFFORT))
        for goal in goals[:_MAX_GOALS]
    )
    return [*made, *found]
