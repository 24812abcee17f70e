"""Settings of a RebalancePolicy as planning takes them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from numazones.api.rebalance import RebalancePolicy
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import InvalidShape
from numazones.rebalance.custom_resources import goals_of, policy_of, tally_of, title
from numazones.rebalance.goals import Align, Vacate, pending_goals
from numazones.rebalance.policy import InvalidPolicy, ReplacementTarget
from numazones.rebalance.protections import InvalidProtections


def spec(**fields: Any) -> Any:
    return RebalancePolicy.from_api({"metadata": {"name": "p"}, "spec": fields}).spec


def test_settings_are_taken_over() -> None:
    policy = policy_of(
        spec(
            target="Same",
            minGain=3,
            cooldown="1h30m",
            limits={"maxNoOfPodsToEvictTotal": 7},
            protections={"minPodAge": "90s", "priorityThreshold": {"name": "gold"}},
        ),
        {"gold": 1000},
    )
    assert (policy.target, policy.min_gain, policy.max_evictions) == (ReplacementTarget.SAME, 3, 7)
    assert policy.cooldown == timedelta(minutes=90)
    assert policy.protections.min_pod_age == timedelta(seconds=90)
    assert policy.protections.priority_threshold == 1000


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"cooldown": "99999999999999h"}, InvalidPolicy, "cooldown: '99999999999999h' is longer"),
        ({"cooldown": "99999999h"}, InvalidPolicy, "cooldown: '99999999h' is longer than 87600h"),
        ({"expiry": "99999999h"}, InvalidPolicy, "expiry: '99999999h' is longer than"),
        ({"searchTime": "99999999h"}, InvalidPolicy, "searchTime: '99999999h' is longer than"),
        ({"schedule": {"interval": "99999999h"}}, InvalidPolicy, "schedule.interval: '99999999h' is"),
        ({"mode": "Autoo"}, InvalidPolicy, "mode 'Autoo' is unknown; use one of Recommend, Approve, Auto"),
        (
            {"target": "Elsewhere"},
            InvalidPolicy,
            "target 'Elsewhere' is unknown; use one of Other, Same, Any",
        ),
        ({"protections": {"minPodAge": "99999999999999h"}}, InvalidProtections, "minPodAge: '9+h' is longer"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    fields: dict[str, Any], error: type[NumazonesError], message: str
) -> None:
    with pytest.raises(error, match=message):
        policy_of(spec(**fields), {})


def test_goals_are_titled_by_what_they_want() -> None:
    shapes = [
        {"name": "large", "resources": {"cpu": 16, "memory": "32Gi"}, "count": 2},
        {"name": "small", "resources": {"cpu": "2"}},
    ]
    wanted = spec(
        goals={"shapes": shapes, "free": {"nodeName": "worker-1", "numaID": 1}, "align": True}
    ).goals
    titles = [title(goal) for goal in goals_of(wanted)]
    assert titles == ["shape large x2", "shape small", "free node worker-1, NUMA node 1", "align pods"]


def test_goal_keeps_its_key_when_count_or_amounts_change() -> None:
    def keys(count: int, cpu: str) -> list[str]:
        shape = {"name": "large", "resources": {"cpu": cpu}, "count": count}
        free = {"nodeName": "worker-1", "numaID": 1}
        return [goal.key for goal in goals_of(spec(goals={"shapes": [shape], "free": free}).goals)]

    assert keys(1, "16") == keys(2, "8") == ["shape/large", "free/worker-1/1"]
    assert Vacate("worker-1").key == "free/worker-1"


def test_a_shape_without_cpus_is_rejected_with_its_field() -> None:
    shapes = [{"name": "large", "resources": {"memory": "32Gi"}}]
    with pytest.raises(InvalidShape, match=r"^spec\.goals\.shapes\[0\]\.resources: .* no CPUs"):
        list(goals_of(spec(goals={"shapes": shapes}).goals))


def test_title_counts_remaining_obstacles_in_words() -> None:
    """Goals count such things below zero, which means nothing to people."""
    assert [tally_of(title(goal), -4) for goal in (Align(), Vacate("n1", 0))] == [
        "4 not aligned",
        "4 in the way",
    ]
    assert tally_of("shape large x3", 4) == "4"


def test_goals_of_pods_are_titled_by_the_first_of_them(build: Any) -> None:
    waiting = [replace(build.pod(name, 1), phase="Pending") for name in ("a", "b")]
    (goal,) = pending_goals(waiting)
    assert title(goal) == "pod default/a and 1 more"
    assert goal.key == "pods/default/a"
    (alone,) = pending_goals(waiting[:1])
    assert title(alone) == "pod default/a"
    assert title(Vacate("worker-1")) == "free node worker-1"
