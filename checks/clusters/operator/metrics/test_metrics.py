"""The metrics: documented, complete, of the leader alone where they are about the cluster."""

import re
from pathlib import Path

from checks.clusters.operator.closed_loop import closed_loop, metrics
from numazones_client.resources import PODS
from numazones_simulator import node_kinds
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.waiting import eventually

REFERENCE = ROOT / "docs" / "reference" / "metrics.md"


def metric_names(series: dict[str, float]) -> set[str]:
    """Names of metrics, the parts of a histogram under one name."""
    names = {name.partition("{")[0] for name in series}
    histograms = {name.removesuffix("_bucket") for name in names if name.endswith("_bucket")}
    return {
        next((base for base in histograms if name.startswith(base)), name)
        for name in names
        if not name.endswith("_created")
    }


async def test_every_metric_is_documented_and_every_documented_one_exists(tmp_path: Path) -> None:
    documented = set(re.findall(r"^\| `([a-z_0-9]+)` \|", REFERENCE.read_text(), re.MULTILINE))
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(5))
        operator = await loop.start_operator(admission_gate=True)
        loop.start_scheduler()
        for number, cpu in enumerate((3, 14, 2, 200)):
            await loop.client.create(PODS, pod_body(f"p{number}", cpu=cpu), namespace="default")
        seen: set[str] = set()

        async def complete() -> bool:
            nonlocal seen
            seen = {name for name in metric_names(await metrics(operator)) if "rebalance" not in name}
            # Counters that count only what does not happen here have no series yet.
            idle = {
                "numazones_owner_rejections_total",
                "numazones_operator_object_errors_total",
                "numazones_operator_watch_restarts_total",
                "numazones_extender_rejected_nodes_total",
            }
            return documented - idle <= seen

        await eventually(complete)
        assert seen - documented == set(), "undocumented"


async def test_a_replica_that_stands_by_shows_nothing_about_the_cluster(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(1))
        leader = await loop.start_operator()

        async def leads() -> bool:
            return (await metrics(leader))["numazones_operator_leader"] == 1

        await eventually(leads)
        follower = await loop.start_operator(leads=False, identity="follower")
        names = metric_names(await metrics(follower))
        assert "numazones_nodes" not in names
        assert "cpu_manager_numa_allocation_spread" not in names
        assert "numazones_operator_queue_depth" in names
        await loop.create_pod("a", cpu=8)
        await loop.bind("a", "node-1")
        outcome = 'numazones_prediction_outcomes_total{actual="Admitted",predicted="Admissible"}'

        async def is_counted() -> bool:
            return (await metrics(leader)).get(outcome) == 1

        await eventually(is_counted)
        await eventually(lambda: not follower.pipeline.verifier._expectations)
        assert outcome not in await metrics(follower)
        assert "numazones_nodes" in metric_names(await metrics(leader))


async def test_the_spread_follows_the_pods(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        operator = await loop.start_operator()
        await loop.create_pod("a", cpu=8)
        await loop.bind("a", "node")

        async def is_packed() -> bool:
            series = await metrics(operator)
            return [
                series.get(f'cpu_manager_numa_allocation_spread{{node="node",numa_node="{numa}"}}')
                for numa in (0, 1)
            ] == [8, 0]

        await eventually(is_packed)
