"""Plans of ``live``: each once, with the NUMA nodes of its moves."""

from datetime import UTC, datetime
from typing import Any

from kubectl_numazones.live.board import plans_of
from kubectl_numazones.live.lines import plan_line
from kubectl_numazones.reading.cluster import read_cluster
from tests.kubectl.guide_cluster import guide_cluster

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def recommendation(phase: str) -> dict[str, Any]:
    pod = {"namespace": "team", "name": "trainer-2", "uid": "trainer-2"}
    spec = {"policy": "p", "goal": "pod team/trainer", "placements": [{"pod": pod, "node": "worker-1"}]}
    return {
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "made"},
        "spec": spec,
        "status": {"phase": phase},
    }


def test_pod_with_a_plan_in_force_gets_no_second_one() -> None:
    items = guide_cluster()
    for phase, own in (("Proposed", 0), ("Failed", 1)):
        found = plans_of(read_cluster([*items, recommendation(phase)], NOW))
        assert sum(1 for item in found if item.report is not None) == own


def test_a_first_move_names_its_numa_node() -> None:
    (item,) = plans_of(read_cluster(guide_cluster(), NOW))
    assert " → worker-" in str(plan_line(item).cells[-1])
    assert str(plan_line(item).cells[-1]).split()[-1].isdigit()
