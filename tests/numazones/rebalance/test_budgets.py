"""PodDisruptionBudgets over a whole plan: what the API server would say to each eviction in turn."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones.errors import ObjectFault
from numazones.rebalance.budgets import Budget, BudgetHeadroom


def pod(name: str = "web-1", *, app: str = "web", ready: bool = True, **fields: Any) -> ClusterPod:
    fields = {"phase": "Running", "node": "n1", **fields}
    return ClusterPod(namespace="shop", name=name, uid=name, labels={"app": app}, ready=ready, **fields)


def budget(name: str = "web", *, allowed: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": name, "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **changes.pop("spec", {})},
        "status": {
            "observedGeneration": 2,
            "disruptionsAllowed": allowed,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            **changes,
        },
    }


def headroom_of(*bodies: dict[str, Any]) -> BudgetHeadroom:
    return BudgetHeadroom.of(map(Budget.from_api, bodies))


AT_LIMIT = "blocked by PodDisruptionBudget shop/web: needs 2 healthy pods, has 2"
USED_UP = "blocked by PodDisruptionBudget shop/web: the plan already uses the 1 eviction that it allows"
SEVERAL = (
    "more than one PodDisruptionBudget selects the pod, so the API server rejects its eviction: "
    "shop/web, shop/all"
)
OTHER = {"selector": {"matchLabels": {"app": "other"}}}

ONE_EVICTION = [
    ("no budget", [], pod(), ""),
    ("a budget with room", [budget()], pod(), ""),
    ("a budget at its limit", [budget(allowed=0, currentHealthy=2)], pod(), AT_LIMIT),
    ("a budget of other pods", [budget(allowed=0, spec=OTHER)], pod(), ""),
    ("a budget without selector", [budget(allowed=0, spec={"selector": None})], pod(), ""),
    (
        "a budget with an empty selector",
        [budget(allowed=0, currentHealthy=2, spec={"selector": {}})],
        pod(),
        AT_LIMIT,
    ),
    ("several budgets, all with room", [budget(), budget("all", spec={"selector": {}})], pod(), SEVERAL),
    (
        "several budgets, one of them for others",
        [budget(), budget("other", allowed=0, spec=OTHER)],
        pod(),
        "",
    ),
    (
        "a budget in another namespace",
        [{"metadata": {"namespace": "bank", "name": "b"}, "spec": {"selector": {}}}],
        pod(),
        "",
    ),
    (
        "a budget that the disruption controller has not seen",
        [{"metadata": {"namespace": "shop", "name": "web", "generation": 1}, "spec": {"selector": {}}}],
        pod(),
        "PodDisruptionBudget shop/web is still being processed by the disruption controller",
    ),
    (
        "a budget without status",
        [{"metadata": {"namespace": "shop", "name": "web"}, "spec": {"selector": {}}}],
        pod(),
        "blocked by PodDisruptionBudget shop/web: needs 0 healthy pods, has 0",
    ),
    (
        "a status older than the spec",
        [budget(observedGeneration=1)],
        pod(),
        "PodDisruptionBudget shop/web is still being processed by the disruption controller",
    ),
    (
        "a negative number",
        [budget(allowed=-1)],
        pod(),
        "PodDisruptionBudget shop/web has a negative number of allowed disruptions",
    ),
    (
        "too many unconfirmed evictions",
        [budget(disruptedPods={f"p{index}": "" for index in range(2001)})],
        pod(),
        "PodDisruptionBudget shop/web has too many evictions that have not been confirmed yet",
    ),
    (
        "as many unconfirmed evictions as are allowed",
        [budget(disruptedPods={f"p{index}": "" for index in range(2000)})],
        pod(),
        "",
    ),
    (
        "an unhealthy pod of an application that wants one",
        [budget(allowed=0, currentHealthy=1, desiredHealthy=1)],
        pod(ready=False),
        "",
    ),
    ("an unhealthy pod of a healthy application", [budget(allowed=0)], pod(ready=False), ""),
    (
        "an unhealthy pod of an application at its limit",
        [budget(allowed=0, currentHealthy=2)],
        pod(ready=False),
        "",
    ),
    (
        "an unhealthy pod of an unhealthy application",
        [budget(allowed=0, currentHealthy=1)],
        pod(ready=False),
        "blocked by PodDisruptionBudget shop/web: needs 2 healthy pods, has 1",
    ),
    (
        "an unhealthy pod under a budget that wants none",
        [budget(allowed=0, currentHealthy=0, desiredHealthy=0)],
        pod(ready=False),
        "blocked by PodDisruptionBudget shop/web: needs 0 healthy pods, has 0",
    ),
    (
        "an unhealthy pod under AlwaysAllow",
        [budget(allowed=0, currentHealthy=1, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"})],
        pod(ready=False),
        "",
    ),
    (
        "a healthy pod under AlwaysAllow",
        [budget(allowed=0, currentHealthy=2, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"})],
        pod(),
        AT_LIMIT,
    ),
    ("a pod that has not started", [budget(allowed=0)], pod(phase="Pending"), ""),
    ("a pod that has failed", [budget(allowed=0)], pod(phase="Failed"), ""),
    ("a pod that is going", [budget(allowed=0)], pod(deleting=True), ""),
]


@pytest.mark.parametrize(
    ("budgets", "subject", "message"), [row[1:] for row in ONE_EVICTION], ids=[row[0] for row in ONE_EVICTION]
)
def test_what_the_api_server_says_to_one_eviction(
    budgets: list[dict[str, Any]], subject: ClusterPod, message: str
) -> None:
    assert headroom_of(*budgets).rejection(subject) == message


def test_a_budget_selects_pods_of_its_own_namespace_only() -> None:
    ours = Budget.from_api(budget())
    assert ours.selects(pod())
    assert not ours.selects(replace(pod(), namespace="bank"))


def test_budget_and_pod_of_a_manifest_without_namespaces_match() -> None:
    ours = Budget.from_api({"metadata": {"name": "web"}, "spec": {"selector": {}}})
    assert ours.selects(replace(pod(), namespace=""))
    assert not ours.selects(pod())


def raises(*_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("method", ["selects", "ignores"])
@pytest.mark.parametrize("decide", [BudgetHeadroom.rejection, BudgetHeadroom.after])
def test_budget_that_raises_is_named(
    decide: Callable[[BudgetHeadroom, ClusterPod], Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headroom = headroom_of(budget())
    monkeypatch.setattr(Budget, method, raises)
    with pytest.raises(ObjectFault, match="PodDisruptionBudget shop/web: ZeroDivisionError"):
        decide(headroom, pod())


def test_budget_without_policy_gets_the_api_servers_default() -> None:
    assert Budget.from_api(budget()).unhealthy_pod_eviction_policy == "IfHealthyBudget"


def test_planned_evictions_count_as_unconfirmed_too() -> None:
    headroom = headroom_of(budget(allowed=2, disruptedPods={f"p{index}": "" for index in range(2000)}))
    assert headroom.after(pod("a")).rejection(pod("b")) == (
        "PodDisruptionBudget shop/web has too many evictions that have not been confirmed yet"
    )


def test_second_eviction_of_a_plan_meets_a_budget_of_one() -> None:
    headroom = headroom_of(budget())
    assert headroom.rejection(pod("a")) == ""
    assert headroom.after(pod("a")).rejection(pod("b")) == USED_UP
    assert headroom.rejection(pod("b")) == ""


def test_evictions_that_do_not_count_use_nothing_up() -> None:
    headroom = headroom_of(budget())
    for spared in (pod("a", ready=False), pod("b", phase="Pending"), pod("c", app="other")):
        headroom = headroom.after(spared)
    assert headroom.rejection(pod("d")) == ""


def test_budgets_are_used_up_one_by_one() -> None:
    headroom = headroom_of(budget(), budget("other", allowed=2, spec=OTHER))
    headroom = headroom.after(pod("a")).after(pod("b", app="other"))
    assert headroom.rejection(pod("c", app="other")) == ""
    assert headroom.after(pod("c", app="other")).rejection(pod("d", app="other")) == (
        "blocked by PodDisruptionBudget shop/other: the plan already uses the 2 evictions that it allows"
    )
