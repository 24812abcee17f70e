"""Approving and rejecting plans on a live cluster, as ``approve``, ``reject`` and ``live`` do.

A decision is one field of a RebalanceRecommendation; the operator acts on it. What would make it vain is said
beforehand: a missing right, a policy that asks for no approval, a plan whose time is up or that has ended.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from kubectl_numazones.reading.access import may
from numazones.api.rebalance import (
    Mode,
    PlanPhase,
    RecommendedMove,
)
from numazones.errors import NumazonesError
from numazones.rebalance.custom_resources import gain_of
from numazones.rebalance.decisions import approval_problem, rejection_problem
from numazones.rebalance.recommendation import Recommendation
from numazones.wording import did_you_mean, pluralize
from numazones_client import APIError, Client, Conflict, Forbidden, NotFound
from numazones_client.errors import UnknownResource
from numazones_client.resources import REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_program.columns import Column

_MAX_NAMED = 5
TYPES = {"rebalancerecommendations", "rebalancerecommendation", "rbr"}

Object = dict[str, Any]


class PlanDecision(StrEnum):
    """Decision about a plan; the value is the verb of the command."""

    APPROVE = "approve"
    REJECT = "reject"

    @property
    def field(self) -> str:
        """The field of the recommendation's ``spec`` that says so, which is also the verb's participle."""
        return {PlanDecision.APPROVE: "approved", PlanDecision.REJECT: "rejected"}[self]


class Undecidable(NumazonesError):
    """Nothing can be decided, or nothing would come of it; the message says why, and what to do."""


class PendingPlan(Recommendation):
    """A recommendation that a person decides about."""

    __slots__ = ()

    @classmethod
    def of(cls, body: Object) -> "PendingPlan":
        """Read the object.

        Raises:
            Undecidable: it makes no sense.
        """
        try:
            return cls.from_api(body)
        except (NumazonesError, ValueError) as error:
            name = body["metadata"]["name"]
            raise Undecidable(f"recommendation {name} cannot be read: {error}") from error

    @property
    def promise(self) -> str:
        """Return what the plan brings, in one line."""
        gain, evictions = self.spec.gain, pluralize(len(self.spec.moves), "eviction")
        return gain_of(self.spec.goal, gain.before, gain.after, evictions)


MOVES: tuple[Column[RecommendedMove], ...] = (
    Column("POD", lambda move: move.pod.full_name),
    Column("FROM", lambda move: str(move.source)),
    Column("TO", lambda move: str(move.target)),
    Column("WHY", lambda move: move.why),
)


async def find(client: Client, name: str) -> PendingPlan:
    """Return the recommendation that a user named.

    Raises:
        Undecidable: there is none of that name, or none can be.
    """
    prefix, _, rest = name.partition("/")
    if prefix.partition(".")[0] in TYPES:  # as kubectl get -o name prints it, too
        name = rest
    try:
        return PendingPlan.of(await client.get(REBALANCE_RECOMMENDATIONS, name))
    except UnknownResource as error:
        raise Undecidable(
            "this cluster has no RebalanceRecommendations; kubectl apply -k crds, then create a "
            "RebalancePolicy to get plans"
        ) from error
    except NotFound as error:
        raise Undecidable(f"there is no recommendation {name}{await _others(client, name)}") from error


async def _others(client: Client, name: str) -> str:
    """Say which recommendations there are."""
    try:
        plans = sorted(
            (PendingPlan.of(body) for body in await client.list(REBALANCE_RECOMMENDATIONS)),
            key=lambda plan: (not plan.active, plan.name),
        )
    except NumazonesError:
        return "; run kubectl get rebalancerecommendations to list them"
    if meant := did_you_mean(name, [plan.name for plan in plans], cutoff=0.8):
        return meant
    if not plans:
        return "; there are none: no RebalancePolicy has found a plan that helps"
    some = ", ".join(f"{plan.name} ({plan.phase})" for plan in plans[:_MAX_NAMED])
    return f"; there {'is' if len(plans) == 1 else 'are'} {some}{', …' if len(plans) > _MAX_NAMED else ''}"


async def missing_right(client: Client) -> str:
    """Say which right is missing to decide about plans; empty where it is there, or cannot be asked about."""
    try:
        allowed = await may(client, "patch", REBALANCE_RECOMMENDATIONS)
    except APIError:
        return ""  # the decision itself is refused then
    return "" if allowed else _forbidden()


def _forbidden() -> str:
    name = f"{REBALANCE_RECOMMENDATIONS.plural}.{REBALANCE_RECOMMENDATIONS.group}"
    return (
        f"you may not patch {REBALANCE_RECOMMENDATIONS.plural} (kubectl auth can-i patch {name}); the "
        "ClusterRole numazones-edit (manifests/roles) grants it, and so do edit and admin if they are "
        "bound for the whole cluster"
    )


async def check(client: Client, plans: Sequence[PendingPlan], decision: PlanDecision) -> None:
    """See that something would come of a decision about each of the plans.

    Raises:
        Undecidable: nothing would, or the user may not decide.
    """
    if plans and (missing := await missing_right(client)):
        raise Undecidable(missing)
    for plan in plans:
        if found := await _problem(client, plan, decision):
            raise Undecidable(f"{plan.name} cannot be {decision.field}: {found}")


async def _problem(client: Client, plan: PendingPlan, decision: PlanDecision) -> str:
    """Return why nothing would come of a decision; empty if something does."""
    mode = await _mode(client, plan) if decision is PlanDecision.APPROVE else None
    return objection(plan, decision, mode)


def objection(plan: PendingPlan, decision: PlanDecision, mode: str | None) -> str:
    """Return why nothing would come of a decision; empty if something does.

    ``mode``: of the plan's policy; None if that is gone.
    """
    if decision is PlanDecision.REJECT:
        return rejection_problem(plan.status)
    return approval_problem(plan.spec, plan.status, mode, now=datetime.now(UTC))


async def _mode(client: Client, plan: PendingPlan) -> str | None:
    """The mode of the plan's policy; of one that may not be read, the operator will say what is wrong."""
    try:
        policy = await client.get(REBALANCE_POLICIES, plan.spec.policy)
    except NotFound:
        return None
    except Forbidden:
        return Mode.APPROVE
    return str((policy.get("spec") or {}).get("mode") or Mode.RECOMMEND)


def is_decided(plan: PendingPlan, decision: PlanDecision) -> bool:
    """Return whether the plan is already decided that way, and the decision still counts."""
    if decision is PlanDecision.APPROVE:
        return plan.active and plan.spec.approved and not plan.spec.rejected
    return plan.phase == PlanPhase.REJECTED or (plan.active and plan.spec.rejected)


async def decide(client: Client, plan: PendingPlan, decision: PlanDecision) -> None:
    """Write a decision into the very recommendation that was looked at.

    Raises:
        Undecidable: the user may not, or it is gone, or the decision was not kept.
    """
    patch = {"metadata": {"uid": plan.uid}, "spec": {decision.field: True}}
    try:
        body = await client.patch(REBALANCE_RECOMMENDATIONS, plan.name, patch)
    except (NotFound, Conflict) as error:
        raise Undecidable(
            f"{plan.name} was deleted because the operator made other plans; list them with kubectl get "
            "rebalancerecommendations"
        ) from error
    except Forbidden as error:
        raise Undecidable(_forbidden()) from error
    if not (body.get("spec") or {}).get(decision.field):
        raise Undecidable(
            "the cluster's definition of RebalanceRecommendation is older than this program and drops the "
            f"field spec.{decision.field}: kubectl apply -k crds"
        )


def what_follows(plan: PendingPlan, decision: PlanDecision) -> str:
    """Say what comes of a decision."""
    if decision is PlanDecision.APPROVE:
        return "it is checked again, then executed one eviction at a time"
    return (
        "no pod is evicted for it"
        if plan.phase != PlanPhase.EXECUTING
        else "no further pod is evicted for it"
    )


def already(plan: PendingPlan, decision: PlanDecision) -> str:
    """Say of a plan about which that is decided how far it is."""
    said = f" ({plan.status.message})" if plan.status.message else ""
    return f"{plan.name} is {decision.field} already: {plan.phase}{said}"


def question(plans: Sequence[PendingPlan], decision: PlanDecision) -> str:
    """Return what is asked before something is decided."""
    if decision is PlanDecision.REJECT:
        return f"Reject {pluralize(len(plans), 'plan')}?"
    return f"Evict {pluralize(sum(len(plan.spec.moves) for plan in plans), 'pod')}?"
