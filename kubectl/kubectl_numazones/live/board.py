"""What the view shows of one state of the cluster: zones, stuck pods and plans, without a terminal.

Made anew whenever the cluster has changed. Pods of one owner stand in one line, for a ReplicaSet whose
replicas are rejected leaves hundreds of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubectl_numazones import answers, stuck
from kubectl_numazones.cluster import Seen
from kubectl_numazones.files import Object
from kubectl_numazones.on_the_way import Coming, coming
from kubectl_numazones.zone_figures import Zone, why_no_zones, zones_of
from numazones.api.rebalance import RebalancePolicySpec
from numazones.cluster import ClusterPod
from numazones.prediction import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Kind, Prediction
from numazones.rebalance.custom_resources import policy_of, title
from numazones.rebalance.goals import Goal, pending_goals
from numazones.rebalance.whatif import Report, what_if

_EFFORT = 20_000
"""Steps of the search per plan: what a view may take that is looked at, not waited for."""
_MAX_GOALS = 20
FAILED = "Failed"
_VERDICT_ORDER = (INADMISSIBLE, UNKNOWN, ADMISSIBLE, FAILED)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Pods of one owner that wait or were rejected, and what is foreseen for them."""

    pods: list[ClusterPod]
    example: ClusterPod
    prediction: Prediction

    @property
    def name(self) -> str:
        """The owner, or the pod that has none."""
        owner = self.example.controller
        return f"{self.example.namespace}/{self.example.name if owner is None else owner.name}"

    @property
    def waiting(self) -> int:
        """Pods without a node."""
        return sum(1 for pod in self.pods if not pod.node)

    @property
    def rejected(self) -> int:
        """Pods that a kubelet rejected."""
        return len(self.pods) - self.waiting

    @property
    def verdict(self) -> str:
        """What is foreseen for the pods that wait; failed ones stay failed, whatever would be admitted."""
        return self.prediction.verdict if self.waiting else FAILED

    @property
    def why(self) -> str:
        """The same in a sentence."""
        if self.waiting:
            return self.prediction.sentence
        return f"{self.example.reason} on {self.example.node}; a failed pod is not tried again: delete it"

    @property
    def reason(self) -> str:
        """What stands in the way, in a word or two that many pods share."""
        if not self.waiting:
            return self.example.reason
        return self.prediction.reasons[0].reason if self.prediction.reasons else ""

    @property
    def since(self) -> str:
        """When the first of them was created."""
        return min(pod.created for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that is shown, but plans, which are sought when they are looked at."""

    seen: Seen
    zones: tuple[Zone, ...]
    unknown: tuple[tuple[str, str], ...]
    """(node, why) of nodes whose state is unknown."""
    stuck: tuple[Stuck, ...]
    held: Mapping[str, Sequence[Coming]]
    """Node → the pods on their way to it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that the view has found, or a recommendation that the operator has made."""

    goal: str
    report: Report | None = None
    recommendation: Object | None = None


def board_of(seen: Seen) -> Board:
    """Ask the library about a cluster."""
    nodes = seen.situation.cluster.nodes
    unknown = tuple(
        (node.name, why_no_zones(node).removeprefix("unknown: "))
        for _, node in sorted(nodes.items())
        if node.occupancy is None
    )
    zones = tuple(zone for node in nodes.values() for zone in zones_of(node))
    situation = seen.situation
    on_the_way = coming(situation.cluster.pending.values(), nodes, situation.surroundings.now)
    return Board(seen, zones, unknown, tuple(sorted(_stuck(seen), key=_urgency)), on_the_way)


def _urgency(item: Stuck) -> tuple[int, str, str]:
    """What hurts first: pods that wait for a node that no node is, the oldest on top; failed pods last."""
    return _VERDICT_ORDER.index(item.verdict), item.since, item.name


def _stuck(seen: Seen) -> Iterator[Stuck]:
    owned: dict[str, list[ClusterPod]] = {}
    rejected = (pod for pod in seen.ended if pod.reason and not pod.acknowledged)
    for pod in (*seen.situation.cluster.pending.values(), *rejected):
        owned.setdefault(pod.uid if pod.controller is None else pod.controller.uid, []).append(pod)
    nodes = seen.situation.cluster.nodes
    foreseen: dict[Kind, Prediction] = {}
    for pods in owned.values():
        example = stuck.most_telling(pods)
        kind = Kind.of(example)
        known = None if kind is None else foreseen.get(kind)
        prediction = answers.predict_if_new(example, nodes) if known is None else known
        if kind is not None:
            foreseen[kind] = prediction
        yield Stuck(pods, example, prediction)


def plans_of(seen: Seen) -> list[Planned]:
    """Return the recommendations in the cluster, and what would help each waiting pod beside them."""
    made = [
        Planned(str((item.get("spec") or {}).get("goal") or ""), recommendation=item) for item in seen.made
    ]
    policy = policy_of(RebalancePolicySpec(), {})
    goals: Sequence[Goal] = list(pending_goals(seen.situation.cluster.pending.values()))
    found = (
        Planned(title(goal), what_if(goal, seen.situation, policy, effort=_EFFORT))
        for goal in goals[:_MAX_GOALS]
    )
    return [*made, *found]
