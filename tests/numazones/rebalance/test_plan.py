"""Planning from objects as kubectl prints them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from numazones import NumazonesError, Plan, admit, build, explain, plan

DATA = Path(__file__).parents[2] / "data/rebalance"
CLUSTER = json.loads((DATA / "dump.json").read_text())
POLICY = yaml.safe_load((DATA / "policy.yaml").read_text())
TEXT = "shape large x1: 0 now, 1 after 1 eviction\n  default/web: worker-1 1 -> worker-2 0"


@pytest.mark.parametrize("cluster", [CLUSTER, CLUSTER["items"], iter(CLUSTER["items"])])
def test_list_and_items_give_the_same_plan(cluster: Any) -> None:
    made = plan(cluster, POLICY)
    assert isinstance(made, Plan)
    assert str(made) == TEXT
    assert [(move.pod.name, move.node, move.target_zones) for move in made.moves] == [
        ("web", "worker-2", (0,))
    ]


@pytest.mark.parametrize("cluster", [{}, {"items": None}, "text", 3, [None]])
def test_what_is_not_a_list_of_objects_is_refused(cluster: Any) -> None:
    with pytest.raises(NumazonesError, match="pass what kubectl get nodes,pods,numazones -A -o json prints"):
        plan(cluster, POLICY)


def test_invalid_policy_is_refused_by_its_field() -> None:
    with pytest.raises(NumazonesError, match="mode"):
        plan(CLUSTER, POLICY | {"spec": {"mode": "Sometimes"}})


def test_goal_without_a_plan_says_why() -> None:
    shape = {"name": "huge", "count": 1, "resources": {"cpu": "4000"}}
    made = plan(CLUSTER, POLICY | {"spec": {"goals": {"pendingPods": False, "shapes": [shape]}}})
    assert made.moves == ()
    assert made.goals[0].reason in str(made)


def test_text_of_an_explanation_is_its_lines() -> None:
    node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    found = explain(admit(node, build.pod(cpu=9, memory="1Gi")))
    assert str(found).splitlines() == list(found.lines())
