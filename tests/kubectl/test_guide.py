"""The cluster that docs/guides/kubectl.md asks about: its dump, and what a plan does there."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from numazones.placement import models
from numazones.placement.model import TOPOLOGY_KIND
from tests.kubectl.best_effort_cluster import best_effort_cluster
from tests.kubectl.guide_cluster import guide_cluster
from tests.places import DATA, ROOT

Run = Callable[..., Result]

GUIDE = ROOT / "docs/guides/kubectl.md"
DATA = DATA / "kubectl"
DUMP = DATA / "dump.json"


@pytest.mark.parametrize(
    ("name", "items"), [("dump.json", guide_cluster()), ("best-effort.json", best_effort_cluster())]
)
def test_a_dump_is_the_guides_cluster(name: str, items: list[dict[str, Any]]) -> None:
    assert json.loads((DATA / name).read_text()) == {"apiVersion": "v1", "kind": "List", "items": items}


def test_the_guides_dump_names_all_kinds_that_placement_models_read() -> None:
    kinds = (TOPOLOGY_KIND, *(one.kind for one in models.object_kinds()))
    assert ",".join(map(models.resource_name, kinds)) in GUIDE.read_text().replace("\\\n", "")


def test_a_plan_for_a_waiting_pod_reaches_its_goal(run: Run) -> None:
    result = run("plan", "-f", DUMP, "-o", "json")
    (found,) = json.loads(result.output)["items"]
    assert (found["movable"], found["plans"][0]["cpus"]) == (2, "3")
    assert (found["goal"], found["before"], found["after"], found["evictions"]) == (
        "pod team/trainer-2",
        0,
        1,
        1,
    )
    assert found["reason"] == "after this plan, there is nothing to do: the goal is reached"
    assert result.return_value == 0


def test_one_of_a_thing_is_singular(run: Run) -> None:
    assert "does not fit now; fits after 1 eviction\n" in run("plan", "-f", DUMP).output
    why = run("why", "rs/trainer", "-n", "team", "-f", DUMP).output
    assert (
        "1 pod of ReplicaSet trainer has been rejected since 2026-11-20T10:00:00Z (1 TopologyAffinityError)"
        in why
    )


def test_a_pod_that_runs_has_nothing_to_be_explained(run: Run) -> None:
    result = run("why", "cache-1", "-n", "team", "-f", DUMP)
    assert result.output == "team/cache-1: runs on worker-1, aligned\n"
    assert result.return_value == 0
