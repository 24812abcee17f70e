"""Problems of a policy that a person wrote: the field, its value, and the values it may have."""

from typing import Any

import pytest

from numazones.api.meta import InvalidResource
from numazones.api.rebalance import RebalancePolicy

OPERATOR = {"matchExpressions": [{"key": "a", "operator": "Is"}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mode": "Sometimes"}, 'spec.mode: "Sometimes" is not one of Recommend, Approve, Auto'),
        ({"mod": "Auto"}, "spec.mod: unknown field; did you mean mode?"),
        ({"schedule": {"x": 1}}, "spec.schedule.x: unknown field; the fields are interval and suspend"),
        ({"schedule": {"interval": "2x"}}, 'spec.schedule.interval: "2x" is not a duration, such as 90s, 5m'),
        ({"goals": []}, "spec.goals: must be an object with fields, not []"),
        ({"goals": {"pendingPods": "often"}}, 'spec.goals.pendingPods: must be true or false, not "often"'),
        ({"goals": {"pendingPods": "yes"}}, 'spec.goals.pendingPods: must be true or false, not "yes"'),
        ({"goals": {"pendingPods": 1}}, "spec.goals.pendingPods: must be true or false, not 1"),
        ({"minGain": "1"}, 'spec.minGain: must be a whole number, not "1"'),
        ({"limits": {"maxNoOfPodsToEvictTotal": True}}, "must be a whole number, not true"),
        ({"goals": {"shapes": {}}}, "spec.goals.shapes: must be a list, not {}"),
        ({"goals": {"shapes": [{"name": "a"}]}}, "spec.goals.shapes[0].resources is missing"),
        ({"goals": {"shapes": [{"name": "", "resources": {}}]}}, "goals.shapes[0].name: must not be empty"),
        ({"goals": {"shapes": [{"name": "a", "resources": {}}]}}, "shapes[0].resources: must not be empty"),
        (
            {"goals": {"shapes": [{"name": "a", "resources": {"cpu": "3X"}}]}},
            'spec.goals.shapes[0].resources.cpu: "3X" is not a quantity, such as 16',
        ),
        (
            {"limits": {"maxNoOfPodsToEvictTotal": -1}},
            "spec.limits.maxNoOfPodsToEvictTotal: must be at least 0, not -1",
        ),
        ({"limits": {"maxNoOfPodsToEvictTotal": "a"}}, 'must be a whole number, not "a"'),
        (
            {"protections": {"labelSelector": OPERATOR}},
            'spec.protections.labelSelector.matchExpressions[0].operator: "Is" is not one of In, NotIn, Ex',
        ),
    ],
)
def test_bad_field_of_a_policy_is_named_with_its_values(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidResource) as raised:
        RebalancePolicy.from_api({"metadata": {"name": "p"}, "spec": spec}, strict=True)
    assert str(raised.value).startswith("RebalancePolicy p: spec")
    assert message in str(raised.value)


def test_bad_status_of_a_condition_is_named_with_its_values() -> None:
    status = {"conditions": [{"type": "Ready", "status": "Maybe"}]}
    with pytest.raises(InvalidResource, match='status: "Maybe" is not one of True, False or Unknown'):
        RebalancePolicy.from_api({"metadata": {"name": "p"}, "spec": {}, "status": status})


def test_names_of_a_newer_writer_are_read() -> None:
    policy = RebalancePolicy.from_api({"metadata": {"name": "p"}, "spec": {"mode": "Later", "new": 1}})
    assert policy.spec.mode == "Later"


def test_policy_of_another_version_is_refused() -> None:
    body = {"apiVersion": "numazones.io/v1", "metadata": {"name": "p"}, "spec": {}}
    with pytest.raises(InvalidResource) as raised:
        RebalancePolicy.from_api(body, strict=True)
    said = 'RebalancePolicy p: apiVersion is "numazones.io/v1"; use numazones.io/v1alpha1'
    assert str(raised.value) == said


def test_quantities_of_a_policy_may_be_numbers_or_texts() -> None:
    shapes = [{"name": "a", "resources": {"cpu": 2, "memory": "1Gi"}, "count": 1}]
    limits = {"maxNoOfPodsToEvictTotal": None, "evictSingleReplicas": False}
    spec = {"goals": {"shapes": shapes}, "limits": limits}
    read = RebalancePolicy.from_api({"metadata": {"name": "p"}, "spec": spec}, strict=True)
    assert read.spec.goals.shapes[0].resources == {"cpu": "2", "memory": "1Gi"}
