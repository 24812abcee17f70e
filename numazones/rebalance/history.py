"""What was done before, so that plans do not chase each other.

The owner of an evicted pod makes a new one, which may be as attractive to move as the first: so a pair of
owner and node rests for a while after a move that left or reached it. A plan that failed is not proposed
again as long as it is the same plan. The history is rebuilt from the recommendations that are still in
the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from numazones.cluster import ClusterPod


@dataclass(frozen=True, slots=True)
class History:
    """Moves that were made and plans that failed."""

    moved: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """(owner UID, node) → when a pod of the owner last left or reached the node by a move."""
    failed: frozenset[str] = frozenset()
    """Digests of failed plans."""

    def cooling_until(self, pod: ClusterPod, cooldown: timedelta) -> datetime | None:
        """When the pod may be moved again; None if nothing like it was moved."""
        times = [
            self.moved[owner.uid, pod.node] for owner in pod.owners if (owner.uid, pod.node) in self.moved
        ]
        return max(times) + cooldown if times else None

    def after_move(self, pod: ClusterPod, node: str, when: datetime) -> "History":
        """The history with a move of the pod to a node."""
        moved = dict(self.moved)
        for owner in pod.owners:
            for place in (pod.node, node):
                moved[owner.uid, place] = max(when, moved.get((owner.uid, place), when))
        return replace(self, moved=moved)
