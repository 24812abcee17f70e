"""Moves of earlier plans, so that later ones do not undo or repeat them.

The owner of an evicted pod makes a new one, which may be as attractive to move as the first: so pods of
an owner stay on a node for a cooldown after a move that left or reached it. A plan that failed sets no
cooldown, as it gained nothing; but its moves are not planned again for as long, and neither are those of a
plan that people rejected. And what a plan of one policy has made room on, no plan of another fills within a
day, lest two policies that contradict each other evict by turns. The history is rebuilt from the
recommendations that are still in the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from numazones.cluster.cluster import ClusterPod

Relocation = tuple[str, str, str]
"""UID of an owner, the node that its pod leaves, the node that the replacement goes to."""

PRECEDENCE = timedelta(days=1)
"""How long the plans of other policies leave a node alone that a plan has made room on."""


@dataclass(frozen=True, slots=True)
class FreedNode:
    """A node that a plan of another policy moved a pod away from, or aside on."""

    policy: str
    when: datetime

    @property
    def until(self) -> datetime:
        """Return when plans of other policies may fill it again."""
        return self.when + PRECEDENCE


@dataclass(frozen=True, slots=True)
class MoveHistory:
    """Moves that were made, and those of plans that failed or were rejected."""

    moved: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """(owner UID, node) → when a pod of the owner last left or reached the node by a move."""
    failed: Mapping[Relocation, datetime] = field(default_factory=dict)
    """Move → when its plan failed or was rejected; of failed plans, those that were begun."""
    emptied: Mapping[str, FreedNode] = field(default_factory=dict)
    """Node → the plan of another policy that made room there last."""

    def cooling_until(self, pod: ClusterPod, cooldown: timedelta) -> datetime | None:
        """Return when the pod may be moved again; None if it is in no cooldown."""
        times = [
            self.moved[owner.uid, pod.node] for owner in pod.owners if (owner.uid, pod.node) in self.moved
        ]
        return max(times) + cooldown if times else None

    def forbidden_moves(self, now: datetime, cooldown: timedelta) -> frozenset[Relocation]:
        """Return the moves that are not to be planned now: plans with them failed or were rejected."""
        return frozenset(move for move, failed in self.failed.items() if now < failed + cooldown)

    def closed_nodes(self, now: datetime) -> dict[str, FreedNode]:
        """Return the nodes that no pod is moved to now, unless for pods that wait."""
        return {node: emptied for node, emptied in self.emptied.items() if now < emptied.until}

    def after_move(self, pod: ClusterPod, node: str, when: datetime) -> "MoveHistory":
        """Return the history with a move of the pod to a node."""
        moved = dict(self.moved)
        for owner in pod.owners:
            for place in (pod.node, node):
                moved[owner.uid, place] = max(when, moved.get((owner.uid, place), when))
        return replace(self, moved=moved)
