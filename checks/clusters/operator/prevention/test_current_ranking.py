"""Shapes that ``--placement shapes`` keeps room for: given shapes, or those that policies and pods name."""

from pathlib import Path
from typing import Any

from checks.clusters.operator.closed_loop import closed_loop
from numazones.api.rebalance import RebalancePolicy
from numazones.prediction.node_choice import NodeChoice
from numazones_client.resources import REBALANCE_POLICIES
from numazones_operator.options import OperatorOptions
from numazones_operator.prevention.current_ranking import CurrentRanking
from numazones_operator.rebalance.objects import PolicyObject
from numazones_simulator import node_kinds
from tests.operator.offline_pipeline import OfflinePipeline
from tests.waiting import eventually


def policy(*cpus: int) -> dict[str, Any]:
    shapes = [{"name": f"of-{cpu}", "resources": {"cpu": str(cpu)}} for cpu in cpus]
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": RebalancePolicy.RESOURCE.kind,
        "metadata": {"name": "keep-room"},
        "spec": {"goals": {"pendingPods": False, "shapes": shapes}},
    }


def ranking(offline: OfflinePipeline, policies: list[PolicyObject], **options: Any) -> CurrentRanking:
    made = OperatorOptions(**{"placement": "shapes", **options})
    return CurrentRanking(
        made.ranking, offline.state, lambda: policies, collects=made.collects_shapes, clock=offline.clock
    )


def named(asked: CurrentRanking) -> list[str]:
    return [str(shape) for shape in asked().shapes]


def test_current_shapes_of_policies_and_waiting_pods_count() -> None:
    offline, policies = OfflinePipeline(), [PolicyObject.from_api(policy(16))]
    asked = ranking(offline, policies)
    assert named(asked) == ["cpu=16"]
    offline.put_pod("waits", cpu=10)
    policies.clear()
    assert named(asked) == ["cpu=16"]  # collected a moment ago
    offline.clock.now += 1
    assert [shape.cpus for shape in asked().shapes] == [10]


def test_shapes_of_the_settings_apply_if_none_are_named() -> None:
    assert named(ranking(OfflinePipeline(), [])) == ["cpu=4", "cpu=8", "cpu=16"]


def test_given_shapes_count_alone_even_if_they_are_the_defaults() -> None:
    offline, policies = OfflinePipeline(), [PolicyObject.from_api(policy(16))]
    assert named(ranking(offline, policies, shapes=("cpu=2",))) == ["cpu=2"]
    given = ranking(offline, policies, origins={"shapes": "flag"})
    assert named(given) == ["cpu=4", "cpu=8", "cpu=16"]


def test_other_ways_of_placement_collect_nothing() -> None:
    asked = ranking(OfflinePipeline(), [PolicyObject.from_api(policy(16))], placement="pack")
    assert asked().choice is NodeChoice.PACK
    assert named(asked) == ["cpu=4", "cpu=8", "cpu=16"]


async def test_operator_and_extender_read_the_policies_of_the_cluster(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("a", "10.0.0.1")])
        await loop.client.create(REBALANCE_POLICIES, policy(12))
        leader = await loop.start_operator(placement="shapes")
        extender = await loop.start_operator(
            leads=False, lead=False, extender_address="127.0.0.1:0", placement="shapes"
        )
        for one in (leader, extender):

            async def reads_it(ranked: CurrentRanking = one.pipeline.ranking) -> bool:
                return named(ranked) == ["cpu=12"]

            await eventually(reads_it)
