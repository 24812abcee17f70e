"""Owners whose waiting pods count, and pods that plans may evict for them."""

from typing import Any

import pytest

from numazones.api.rebalance import Goals, PendingPodSelector
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance.beneficiaries import Beneficiaries, InvalidBeneficiaries, highest_victim, outranks
from numazones.rebalance.goals import pending_goals
from tests.operator.pods import pod_body


def pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec: Any) -> ClusterPod:
    body = pod_body(name, **spec)
    body["metadata"]["labels"] = labels or {}
    return ClusterPod.from_api(body)


def selected(**selector: Any) -> Beneficiaries:
    return Beneficiaries.from_api(PendingPodSelector.model_validate(selector))


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({}, True),
        ({"priority": 0}, True),
        ({"priority": -1}, False),
        ({"schedulerName": "numazones"}, True),
        ({"schedulerName": "nobody"}, False),
    ],
)
def test_negative_priority_and_other_schedulers_do_not_count_by_default(
    spec: dict[str, Any], *, counts: bool
) -> None:
    assert (pod(**spec) in Beneficiaries.from_api(Goals().pending_pod_selector)) is counts


@pytest.mark.parametrize(
    ("selector", "counts"),
    [
        ({"minPriority": -1000}, True),
        ({"minPriority": 1}, False),
        ({"namespaces": {"include": ["default"]}}, True),
        ({"namespaces": {"include": ["bank"]}}, False),
        ({"namespaces": {"exclude": ["default"]}}, False),
        ({"labelSelector": {"matchLabels": {"tier": "critical"}}}, True),
        ({"labelSelector": {"matchLabels": {"tier": "batch"}}}, False),
        ({"schedulerNames": ["volcano"]}, False),
    ],
)
def test_a_policy_selects_namespaces_labels_priority_and_schedulers(
    selector: dict[str, Any], *, counts: bool
) -> None:
    assert (pod(labels={"tier": "critical"}) in selected(**selector)) is counts


def test_namespaces_are_included_or_excluded() -> None:
    with pytest.raises(InvalidBeneficiaries, match="only one of include and exclude"):
        selected(namespaces={"include": ["a"], "exclude": ["b"]})


def test_victims_do_not_outrank_the_least_important_beneficiary() -> None:
    important, lowest = pod("a", priority=5), pod("b", priority=-1000)
    assert highest_victim([important, lowest]) == -1000
    assert outranks(pod("c"), -1000)
    assert not outranks(pod("c", priority=5), 5)
    assert not outranks(important, highest_victim(()))
    goals = pending_goals([lowest, important])
    assert [[one.name for one in goal.wanted[0].pods] for goal in goals] == [["a"], ["b"]]
