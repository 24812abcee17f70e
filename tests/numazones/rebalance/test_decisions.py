"""Decisions without effect: approvals and rejections in every state of a plan."""

from datetime import UTC, datetime

import pytest

from numazones.api.rebalance import RebalanceRecommendationSpec, RebalanceRecommendationStatus
from numazones.rebalance.decisions import approval_problem, rejection_problem

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def spec(**changes: object) -> RebalanceRecommendationSpec:
    return RebalanceRecommendationSpec.model_validate(
        {
            "policy": "room",
            "goal": "pod team/trainer",
            "moves": [],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 0, "cpus": "0"},
            "digest": "d",
            **changes,
        }
    )


def status(phase: str, message: str = "") -> RebalanceRecommendationStatus:
    return RebalanceRecommendationStatus(phase=phase, message=message)


@pytest.mark.parametrize(
    ("changes", "phase", "mode", "problem"),
    [
        ({}, "", "Approve", ""),
        ({}, "Proposed", "Approve", ""),
        ({"expires": "2026-11-21T00:00:00Z"}, "Proposed", "Approve", ""),
        ({"expires": "2026-11-19T00:00:00Z"}, "Proposed", "Approve", "it expired at 2026-11-19T00:00:00Z"),
        ({"rejected": True}, "Proposed", "Approve", "it was rejected"),
        ({}, "Approved", "Approve", "it is already Approved"),
        ({}, "Executing", "Approve", "it is already Executing"),
        ({}, "Expired", "Approve", "it is already Expired: so it is"),
        ({}, "Succeeded", "Auto", "it is already Succeeded: so it is"),
        ({}, "Proposed", "Auto", "policy room is in mode Auto, which needs no approval"),
        ({}, "Proposed", "Recommend", "set its spec.mode to Approve"),
        ({}, "Proposed", None, "policy room does not exist or is invalid"),
    ],
)
def test_why_nothing_comes_of_an_approval(
    changes: dict[str, object], phase: str, mode: str | None, problem: str
) -> None:
    said = approval_problem(spec(**changes), status(phase, "so it is"), mode, now=NOW)
    assert problem in said
    assert bool(said) is bool(problem)


@pytest.mark.parametrize(
    ("phase", "problem"),
    [
        ("", ""),
        ("Proposed", ""),
        ("Approved", ""),
        ("Executing", ""),
        ("Failed", "it is already Failed: so it is"),
        ("Rejected", "it is already Rejected: so it is"),
    ],
)
def test_why_nothing_comes_of_a_rejection(phase: str, problem: str) -> None:
    assert rejection_problem(status(phase, "so it is")) == problem
