"""Plan for a policy from objects as kubectl prints them: the shortest way into the planner.

A policy has goals; for each goal, ``what_if`` returns the moves that reach it. Nothing is evicted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from numazones.api.rebalance import RebalancePolicy
from numazones.cluster.dump import Dump, items_of
from numazones.rebalance.custom_resources import gain_of, goals_of, policy_of
from numazones.rebalance.dump import situation_of
from numazones.rebalance.goals import pending_goals
from numazones.rebalance.moves import Move
from numazones.rebalance.whatif import PolicyReport, what_if
from numazones.wording import pluralize

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves that reach the goals of a policy. ``str()`` returns them as text.

    >>> Plan(()).moves
    ()
    """

    goals: tuple[PolicyReport, ...]
    """Each goal with its moves, as if it were the policy's only goal."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """Return the moves of all goals, in order."""
        return tuple(move for goal in self.goals for made in goal.plans for move in made.moves)

    def __str__(self) -> str:
        """Return a line per goal, followed by its moves."""
        return "\n".join(line for goal in self.goals for line in _lines(goal))


def _lines(goal: PolicyReport) -> list[str]:
    moves = [move for made in goal.plans for move in made.moves]
    return [
        gain_of(goal.goal, goal.before, goal.after, pluralize(goal.evictions, "eviction") if moves else ""),
        *(f"  {move.pod.full_name}: {move.source} -> {move.target}" for move in moves),
        *(() if moves else (f"  {goal.reason}",)),
    ]


def plan(
    cluster: Object | Iterable[Object], policy: Object, *, now: datetime | None = None, effort: int = 100_000
) -> Plan:
    """Plan the moves that reach the goals of a policy.

    Args:
        cluster: what ``kubectl get nodes,pods,numazones,... -A -o json`` prints, or its items.
        policy: a RebalancePolicy.
        now: when the cluster was read; by default the latest time that its objects name.
        effort: most steps of each search, so that the answer is the same on every machine.

    Raises:
        InvalidDump: ``cluster`` is not a list of objects, or has no nodes.
        NumazonesError: an object cannot be read, or the policy is not valid.

    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}
    >>> shape = {"name": "large", "resources": {"cpu": "6"}, "count": 1}
    >>> policy = {"metadata": {"name": "room"}, "spec": {"goals": {"shapes": [shape]}}}
    >>> print(plan([node], policy))
    shape large x1: 0 now
      no pod may be moved
    """
    spec = RebalancePolicy.from_api(policy, strict=True).spec
    dump = Dump.of(items_of(cluster))
    situation = situation_of(dump, now or dump.moment)
    waiting = situation.cluster.pending.values() if spec.goals.pending_pods else ()
    goals = (*pending_goals(waiting), *goals_of(spec.goals))
    return Plan(tuple(what_if(goal, situation, policy_of(spec, {}), effort=effort) for goal in goals))
