"""A RebalanceRecommendation as it is read by whoever carries it out, decides about it or shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from numazones.api.rebalance import (
    ACTIVE,
    MovePhase,
    MoveProgress,
    PlanPhase,
    RebalanceRecommendation,
    RebalanceRecommendationSpec,
    RebalanceRecommendationStatus,
    RecommendedMove,
)
from numazones.apimachinery import timestamp


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A RebalanceRecommendation as it was read."""

    KIND: ClassVar[str] = "RebalanceRecommendation"

    name: str
    uid: str
    version: str
    """Resource version: what is written is written on this version only."""
    created: str
    spec: RebalanceRecommendationSpec
    status: RebalanceRecommendationStatus

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read the object; one that was never given a status is Proposed."""
        model = RebalanceRecommendation.from_api(body)
        status = model.status or RebalanceRecommendationStatus()
        if not status.phase:
            status = status.model_copy(update={"phase": PlanPhase.PROPOSED})
        metadata = model.metadata
        return cls(
            metadata.name,
            metadata.uid,
            metadata.resource_version,
            metadata.creation_timestamp or "",
            model.spec,
            status,
        )

    @property
    def phase(self) -> str:
        """Return the phase."""
        return self.status.phase

    @property
    def active(self) -> bool:
        """Return whether it may still be executed, or is being executed."""
        return self.phase in ACTIVE

    @property
    def ended(self) -> datetime | None:
        """Return when it ended; None while it has not."""
        complete = (one for one in self.status.conditions if (one.type, one.status) == ("Complete", "True"))
        return next((parse_time(one.last_transition_time) for one in complete), None)

    @property
    def is_about_to_evict(self) -> bool:
        """Return whether the next step is an eviction, or the announcement of one."""
        ahead = next((one.phase for one in self.progress if one.phase != MovePhase.VERIFIED), "")
        return self.phase == PlanPhase.EXECUTING and ahead in {MovePhase.PENDING, MovePhase.EVICTING}

    @property
    def progress(self) -> tuple[MoveProgress, ...]:
        """Return the progress of each move, one entry per move."""
        return tuple(progress for _, progress in self.moves_with_progress)

    @property
    def moves_with_progress(self) -> tuple[tuple[RecommendedMove, MoveProgress], ...]:
        """Return each move with its progress."""
        known = {item.pod.uid: item for item in self.status.progress}
        return tuple(
            (move, known.get(move.pod.uid, MoveProgress(pod=move.pod, phase=MovePhase.PENDING)))
            for move in self.spec.moves
        )


def parse_time(text: str | None) -> datetime | None:
    """Return a metav1.Time; None where there is none."""
    return timestamp.parse(text) if text else None
