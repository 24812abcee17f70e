"""Decisions that people may make about a RebalanceRecommendation, and why one would have no effect.

The operator answers approvals by these sentences, and the plugin says them beforehand.
"""

from datetime import datetime

from numazones.api.rebalance import (
    ENDED,
    Mode,
    PlanPhase,
    RebalanceRecommendationSpec,
    RebalanceRecommendationStatus,
)
from numazones.apimachinery import timestamp


def approval_problem(
    spec: RebalanceRecommendationSpec,
    status: RebalanceRecommendationStatus,
    mode: str | None,
    *,
    now: datetime | None = None,
) -> str:
    """Return why nothing comes of the approval of a plan; empty if it would be carried out next.

    Args:
        spec: the recommendation.
        status: how far it is.
        mode: of its policy; None where that is gone or cannot be followed.
        now: also say of a proposal that its time is up.
    """
    phase, name = status.phase or PlanPhase.PROPOSED, spec.policy
    problem = ""
    if mode is None:
        problem = f"policy {name} does not exist or is invalid, so nothing is executed"
    elif phase in ENDED:
        problem = _ended(status)
    elif spec.rejected:
        problem = "it was rejected"
    elif mode != Mode.APPROVE:
        cure = f"set its spec.mode to {Mode.APPROVE}"
        problem = f"policy {name} is in mode {mode}, which needs no approval; {cure}"
    elif phase != PlanPhase.PROPOSED:
        problem = f"it is already {phase}"
    elif now is not None and spec.expires and timestamp.parse(spec.expires) < now:
        problem = f"it expired at {spec.expires}; the operator proposes a new plan if one is still needed"
    return problem


def rejection_problem(status: RebalanceRecommendationStatus) -> str:
    """Return why nothing comes of the rejection of a plan; empty if it would end the plan."""
    return _ended(status) if status.phase in ENDED else ""


def _ended(status: RebalanceRecommendationStatus) -> str:
    """Say how a plan ended."""
    return f"it is already {status.phase}{f': {status.message}' if status.message else ''}"
