"""What was done before, so that plans do not chase each other.

The owner of an evicted pod makes a new one, which may be as attractive to move as the first: so a pair of
owner and node rests for a while after a move that left or reached it. A plan that failed is not proposed
again as long as it is the same plan, nor for a while with the pods that came in the evicted ones' place; its
owners rest no longer for it, other plans may move their pods at once. The history is rebuilt from the
recommendations that are still in the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from numazones.cluster import ClusterPod


@dataclass(frozen=True, slots=True)
class History:
    """Moves that were made and plans that failed."""

    moved: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """(owner UID, node) → when a pod of the owner last left or reached the node by a move that was of use."""
    failed: frozenset[str] = frozenset()
    """Digests of failed plans."""
    failed_for: Mapping[str, datetime] = field(default_factory=dict)
    """Digests, by owners, of plans that evicted and then failed → when they last evicted."""

    def barred(self, now: datetime, cooldown: timedelta) -> frozenset[str]:
        """Digests of the plans that are not proposed now."""
        return self.failed | {made for made, when in self.failed_for.items() if now - when < cooldown}

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
