"""Moves of earlier plans, so that later ones do not undo or repeat them.

The owner of an evicted pod makes a new one, which may be as attractive to move as the first: so pods of
an owner stay on a node for a cooldown after a move that left or reached it. A plan that failed sets no
cooldown, as it gained nothing; but its moves are not planned again for as long, and neither are those of a
plan that people rejected. The history is rebuilt from the recommendations that are still in the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from numazones.cluster import ClusterPod

Relocation = tuple[str, str, str]
"""UID of an owner, the node that its pod leaves, the node that the replacement goes to."""


@dataclass(frozen=True, slots=True)
class History:
    """Moves that were made, and those of plans that failed or were rejected."""

    moved: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """(owner UID, node) → when a pod of the owner last left or reached the node by a move."""
    failed: Mapping[Relocation, datetime] = field(default_factory=dict)
    """Move → when its plan failed or was rejected; of failed plans, those that were begun."""

    def cooling_until(self, pod: ClusterPod, cooldown: timedelta) -> datetime | None:
        """Return when the pod may be moved again; None if it is in no cooldown."""
        times = [
            self.moved[owner.uid, pod.node] for owner in pod.owners if (owner.uid, pod.node) in self.moved
        ]
        return max(times) + cooldown if times else None

    def forbidden_moves(self, now: datetime, cooldown: timedelta) -> frozenset[Relocation]:
        """Return the moves that are not to be planned now: plans with them failed or were rejected."""
        return frozenset(move for move, failed in self.failed.items() if now < failed + cooldown)

    def after_move(self, pod: ClusterPod, node: str, when: datetime) -> "History":
        """Return the history with a move of the pod to a node."""
        moved = dict(self.moved)
        for owner in pod.owners:
            for place in (pod.node, node):
                moved[owner.uid, place] = max(when, moved.get((owner.uid, place), when))
        return replace(self, moved=moved)
