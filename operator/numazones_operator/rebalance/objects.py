"""Translates between the custom resources and the library's values: policies and recommendations."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeVar

from numazones.api.meta import API_VERSION, MAX_LABEL, OwnerReference
from numazones.api.rebalance import (
    DisruptionCost,
    Gain,
    Mode,
    MovePhase,
    MoveProgress,
    OwnerOfPod,
    PodReference,
    RebalancePolicy,
    RebalancePolicySpec,
    RebalanceRecommendationSpec,
    RecommendedMove,
    RecommendedPlacement,
)
from numazones.apimachinery import duration, timestamp
from numazones.apimachinery.quantity import format_milli
from numazones.cluster.cluster import ClusterPod
from numazones.errors import About, NumazonesError
from numazones.prediction import doubts
from numazones.rebalance.custom_resources import goals_of, title
from numazones.rebalance.goals import Goal
from numazones.rebalance.moves import Move, PlacedPod, PlanFound
from numazones.rebalance.recommendation import Recommendation, parse_time
from numazones.wording import claimed_name

POLICY_LABEL = "numazones.io/rebalance-policy"

GONE = frozenset({MovePhase.EVICTED, MovePhase.PLACED, MovePhase.VERIFIED})
"""Phases of a move whose pod has been evicted for certain."""


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A RebalancePolicy as it was read."""

    KIND: ClassVar[str] = "RebalancePolicy"

    name: str
    uid: str
    version: str
    """Resource version."""
    generation: int
    spec: RebalancePolicySpec
    status: Mapping[str, Any]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "PolicyObject":
        """Read the object."""
        model = RebalancePolicy.from_api(body)
        metadata = model.metadata
        return cls(
            metadata.name,
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            model.spec,
            body.get("status") or {},
        )

    @property
    def edition(self) -> tuple[str, int]:
        """Return the key that distinguishes this policy from an edited one, or another of the same name."""
        return self.uid, self.generation

    @property
    def goals(self) -> frozenset[str]:
        """Keys of the goals that the policy names, without pending pods; none where they make no sense."""
        try:
            return frozenset(goal.key for goal in goals_of(self.spec.goals))
        except NumazonesError:
            return frozenset()

    def allows(self, item: Recommendation) -> bool:
        """Return whether the policy, as it is now, allows executing a plan."""
        mode = self.spec.mode
        return mode == Mode.AUTO or (mode == Mode.APPROVE and item.spec.approved)

    @property
    def interval(self) -> timedelta:
        """Time between two searches."""
        return duration.parse(self.spec.schedule.interval)


def recommendation_body(
    plan: PlanFound, goal: Goal, policy: PolicyObject, now: datetime, uncertain: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the object that publishes a plan; ``uncertain``: doubts about the cluster's kubelets."""
    disruption = plan.disruption
    spec = RebalanceRecommendationSpec(
        policy=policy.name,
        goal=title(goal),
        goal_key=goal.key,
        moves=tuple(_each(plan.moves, _move)),
        placements=tuple(_each(plan.placements, _placement)),
        gain=Gain(before=plan.before, after=plan.after, total=plan.gain, minimal=plan.minimal),
        disruption=DisruptionCost(
            evictions=len(plan.moves),
            cpus=format_milli(plan.cpus),
            priority=disruption.priority,
            reluctant=disruption.reluctant,
            cost=disruption.cost,
        ),
        doubts=doubts.bounded(uncertain),
        digest=plan.digest,
        expires=timestamp.format(now + duration.parse(policy.spec.expiry)),
    )
    owner = OwnerReference(
        api_version=API_VERSION, kind="RebalancePolicy", name=policy.name, uid=policy.uid, controller=True
    )
    return {
        "apiVersion": API_VERSION,
        "kind": "RebalanceRecommendation",
        "metadata": {
            "generateName": f"{policy.name[:200]}-",
            "labels": {POLICY_LABEL: policy.name[:63]},
            "ownerReferences": [owner.to_api()],
        },
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def reference(pod: ClusterPod) -> PodReference:
    """Return a reference to a pod."""
    return PodReference(namespace=pod.namespace, name=pod.name, uid=pod.uid)


def was_evicted(progress: MoveProgress) -> bool:
    """Return whether the pod of a move has been evicted, whatever happened next."""
    return progress.phase in GONE or (progress.phase == MovePhase.FAILED and progress.since is not None)


def emptied_nodes(item: Recommendation) -> dict[str, datetime]:
    """Return the nodes that pods were evicted from by a plan, and when the last one was."""
    emptied: dict[str, datetime] = {}
    for move, progress in item.moves_with_progress:
        since = parse_time(progress.since)
        if since is not None and progress.phase in GONE:
            emptied[move.source.node] = max(since, emptied.get(move.source.node, since))
    return emptied


class _OfPod(Protocol):
    """Part of a plan that is about one pod."""

    @property
    def pod(self) -> ClusterPod:
        """The pod."""


_Part = TypeVar("_Part", bound=_OfPod)


def _each(parts: Iterable[_Part], write: Callable[[_Part], Any]) -> Iterator[Any]:
    for part in parts:
        with About(part.pod):
            written = write(part)
        yield written


def _move(move: Move) -> RecommendedMove:
    owner = move.pod.controller
    return RecommendedMove(
        pod=reference(move.pod),
        owner=None
        if owner is None
        else OwnerOfPod(
            kind=claimed_name(owner.kind)[:MAX_LABEL], name=claimed_name(owner.name), uid=owner.uid[:128]
        ),
        source=move.source,
        target=move.target,
        affinity=move.affinity,
        after_pending=move.after_pending,
        why=move.why,
    )


def _placement(placement: PlacedPod) -> RecommendedPlacement:
    return RecommendedPlacement(pod=reference(placement.pod), target=placement.target)
