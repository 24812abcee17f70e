"""Plan for a policy on a copy of a cluster: the planner, offline.

Plans are made one after the other, each on the cluster as the one before leaves it, until
none is left; nothing is carried out. The same dump and policy give the same answer on every machine, so
effort is bounded by steps of the search, not by time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from numazones.rebalance.candidates import Situation, candidates, why_not
from numazones.rebalance.custom_resources import title
from numazones.rebalance.goals import Goal, measure, without_pods
from numazones.rebalance.moves import PlanFound, evict, place
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.wording import pluralize


def _by_rule(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """Goals of a policy, and the plans that reach them."""

    TITLE: ClassVar = "PlannedGoal"
    ANSWER: ClassVar = ("goal", "before", "after", "evictions", "movable", "unmovable", "plans", "reason")
    goal: Annotated[str, "In words."]
    before: Annotated[int, "Value of the goal now: how many pods or shapes fit."]
    after: Annotated[int, "How many fit after all plans."]
    plans: Annotated[tuple[PlanFound, ...], "The plans, to be run one after the other."]
    reason: Annotated[str, "Why no further plan was found."]
    movable: Annotated[int, "Pods that may be moved."]
    unmovable: Annotated[Mapping[str, int], "Rule → number of pods that it keeps in place.", _by_rule]
    """One pod may be kept by several."""

    @property
    def evictions(self) -> Annotated[int, "Number of evictions in all plans."]:
        """Evictions of all plans together."""
        return sum(len(made.moves) for made in self.plans)


class Effort:
    """Ends a search after a number of steps, so that its answer is the same on every machine."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __call__(self) -> bool:
        """Count a step; return whether the effort is spent."""
        self._left -= 1
        return self._left < 0


def what_if(
    goal: Goal, situation: Situation, policy: Policy, *, effort: int, max_plans: int = 100
) -> PolicyReport:
    """Say what a policy would do for a goal, plan after plan; ``effort`` bounds the steps of each search."""
    unmovable = unmovable_by_rule(situation, policy)
    name, movable = title(goal), len(candidates(situation, policy))
    before = situation.isolated(lambda sound: measure(goal, sound.cluster))
    plans: list[PlanFound] = []
    settled = 0
    reason = f"the search stopped after {pluralize(max_plans, 'plan')}"
    while len(plans) < max_plans:
        outcome = plan(goal, situation, policy, expired=Effort(effort))
        if outcome.plan is None:
            reason = f"after {_plans_text(plans)}, {outcome.reason}" if plans else outcome.reason
            break
        plans.append(outcome.plan)
        situation = situation_after(outcome.plan, situation)
        settled += len(outcome.plan.placements)
        goal = without_pods(goal, {placement.pod.uid for placement in outcome.plan.placements})
    after = settled + situation.isolated(lambda sound: measure(goal, sound.cluster))
    if left_out := str(situation.left_out):
        reason = f"{reason}; {left_out}"
    return PolicyReport(name, before, after, tuple(plans), reason, movable, unmovable)


def unmovable_by_rule(situation: Situation, policy: Policy) -> dict[str, int]:
    """Count the pods that stay where they are, by each rule that keeps them."""
    unmovable: dict[str, int] = {}
    for node in situation.cluster.nodes.values():
        for pod in node.pods.values():
            for rule in {objection.rule for objection in why_not(pod, situation, policy)}:
                unmovable[rule] = unmovable.get(rule, 0) + 1
    return unmovable


def _plans_text(plans: Sequence[PlanFound]) -> str:
    return "this plan" if len(plans) == 1 else f"these {len(plans)} plans"


def situation_after(made: PlanFound, situation: Situation) -> Situation:
    """Return the situation after a plan: the pods moved, running again, and in their cooldown."""
    cluster, history = situation.cluster, situation.history
    for move in made.moves:
        cluster = cluster.with_node(evict(cluster.nodes[move.pod.node], move.pod))
        running = replace(move.replacement, phase="Running", ready=True)
        placed = place(cluster.nodes[move.node], running).node
        if placed is not None:
            cluster = cluster.with_node(placed)
        history = history.after_move(move.pod, move.node, situation.context.now)
    for placement in made.placements:
        placed = place(cluster.nodes[placement.node], placement.pod).node
        if placed is not None:
            cluster = cluster.without_pod(placement.pod).with_node(placed)
    return replace(situation, cluster=cluster, history=history)
