"""The operator on the embedded API server, through its real entry points: predictions, outcomes, events."""

import gc
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop, metrics
from numazones_client import Resource
from numazones_client.resources import ADMISSION_PREDICTIONS, EVENTS, PODS
from numazones_simulator import node_kinds
from tests.waiting import eventually


def two_nodes() -> list[Any]:
    """A node that insists on single NUMA nodes, and one that takes what it gets."""
    return [
        node_kinds.single_numa_node("strict", "10.0.0.1"),
        node_kinds.best_effort_full_cores("lenient", "10.0.0.2"),
    ]


async def status_of(loop: Loop, name: str, verdict: str) -> dict[str, Any]:
    async def published() -> dict[str, Any]:
        status = (await loop.predictions()).get(name, {})
        return status if status.get("verdict") == verdict else {}

    found: dict[str, Any] = await eventually(published, what=f"{name} is {verdict}")
    return found


async def test_pod_without_a_node_gets_a_prediction(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes())
        await loop.start_operator()
        pod = await loop.create_pod("small", cpu=4)
        status = await status_of(loop, "small", "Admissible")
        assert status["nodes"] == {"evaluated": 2, "admissible": 2, "stale": 0, "excluded": 0}
        assert [item["node"] for item in status["candidates"]] == ["lenient", "strict"]
        assert "2 of 2 nodes would admit it" in status["message"]
        await loop.create_pod("huge", cpu=40)
        rejected = await status_of(loop, "huge", "Admissible")
        assert rejected["nodes"] == {"evaluated": 2, "admissible": 1, "stale": 0, "excluded": 0}
        assert rejected["reasons"][0]["reason"] == "TopologyAffinityError"
        assert rejected["reasons"][0]["node"] == "strict"
        assert "needs 40 exclusive CPUs on one NUMA node" in rejected["reasons"][0]["sentence"]
        objects = await loop.client.list(ADMISSION_PREDICTIONS)
        owner = next(item for item in objects if item["metadata"]["name"] == "small")
        assert owner["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


async def test_predictions_follow_the_zones_and_the_outcome_is_recorded(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        operator = await loop.start_operator()
        for number in range(2):
            await loop.create_pod(f"filler-{number}", cpu=24)
            await loop.bind(f"filler-{number}", "strict")
        await loop.create_pod("big", cpu=10)
        await status_of(loop, "big", "Inadmissible")
        await loop.bind("big", "strict")

        async def outcome() -> dict[str, Any]:
            status: dict[str, Any] = (await loop.predictions())["big"]
            return status.get("outcome") or {}

        found = await eventually(outcome)
        assert found["predicted"] == "Inadmissible"
        assert found["actual"] == "Rejected"
        assert found["reason"] == "TopologyAffinityError"
        assert found["explanation"][-1].startswith("needs 10 exclusive CPUs on one NUMA node")
        assert found["advice"]

        async def explained() -> str:
            events = await loop.client.list(EVENTS, namespace="default")
            return next((one["message"] for one in events if one["reason"] == "RejectionExplained"), "")

        assert (await eventually(explained)).startswith("TopologyAffinityError: needs 10 exclusive CPUs")
        counted = await metrics(operator)
        hits = 'numazones_prediction_outcomes_total{actual="TopologyAffinityError",predicted="Inadmissible"}'
        assert counted[hits] == 1
        assert counted['numazones_prediction_outcomes_total{actual="Admitted",predicted="Admissible"}'] == 2
        await loop.client.delete(PODS, "filler-0", namespace="default")
        await loop.create_pod("next", cpu=10)
        await status_of(loop, "next", "Admissible")


async def test_pod_created_with_a_node_is_predicted_only_if_rejected(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        await loop.start_operator()
        for name, cpu in (("runs", 24), ("too-big", 40)):
            await loop.create_pod(name, cpu=cpu, nodeName="strict")

        async def outcome() -> dict[str, Any]:
            return dict((await loop.predictions()).get("too-big", {}).get("outcome") or {})

        found = await eventually(outcome)
        assert (found["actual"], found["reason"]) == ("Rejected", "TopologyAffinityError")
        assert found["explanation"][-1].startswith("needs 40 exclusive CPUs on one NUMA node")

        async def admitted() -> bool:
            pods = await loop.client.list(PODS, namespace="default")
            return any(
                pod["metadata"]["name"] == "runs" and pod["status"]["phase"] == "Running" for pod in pods
            )

        await eventually(admitted)
        await loop.create_pod("later", cpu=4)
        await status_of(loop, "later", "Admissible")  # so all before it is dealt with
        assert sorted(await loop.predictions()) == ["later", "too-big"]


async def test_a_change_of_verdict_becomes_an_event_on_the_pod(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        await loop.start_operator(event_interval=0.001)
        await loop.create_pod("filler", cpu=24)
        await loop.bind("filler", "strict")
        await loop.create_pod("filler-2", cpu=24)
        await loop.bind("filler-2", "strict")
        await loop.create_pod("big", cpu=10)
        await status_of(loop, "big", "Inadmissible")
        await loop.client.delete(PODS, "filler", namespace="default")
        await status_of(loop, "big", "Admissible")

        async def reasons() -> list[str]:
            events = await loop.client.list(EVENTS, namespace="default")
            about = [item for item in events if item["involvedObject"]["name"] == "big"]
            found = [item["reason"] for item in sorted(about, key=lambda item: item["metadata"]["name"])]
            return found if len(found) == 2 else []

        assert set(await eventually(reasons)) == {"AdmissionImpossible", "AdmissionPossible"}


async def test_a_pods_prediction_goes_with_the_pod(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        await loop.start_operator()
        await loop.create_pod("brief")
        await status_of(loop, "brief", "Admissible")
        await loop.client.delete(PODS, "brief", namespace="default")
        await eventually(lambda: _gone(loop, "brief"))
        # A pod of the same name is another pod: it gets an object of its own.
        again = await loop.create_pod("brief", cpu=40)
        await status_of(loop, "brief", "Inadmissible")
        (found,) = await loop.client.list(ADMISSION_PREDICTIONS)
        assert found["spec"]["podUID"] == again["metadata"]["uid"]


async def _gone(loop: Loop, name: str) -> bool:
    return name not in await loop.predictions()


async def test_a_node_whose_exporter_is_silent_is_unknown(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        operator = await loop.start_operator()
        await loop.create_pod("a")
        await status_of(loop, "a", "Admissible")
        leases = Resource("coordination.k8s.io", "v1", "leases")
        loop.publishers["strict"].cancel()
        await loop.client.delete(leases, "numazones-exporter-strict", namespace="numazones-system")
        status = await status_of(loop, "a", "Unknown")
        assert status["nodes"] == {"evaluated": 1, "admissible": 0, "stale": 1, "excluded": 0}
        assert status["reasons"][0]["reason"] == "NoLease"
        assert (await metrics(operator))['numazones_stale_nodes{reason="NoLease"}'] == 1


async def test_pods_that_numa_placement_does_not_concern_get_no_prediction(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes()[:1])
        await loop.start_operator()
        burstable = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        await loop.create_pod("burstable", containers=[burstable])
        await loop.create_pod("guaranteed")
        await status_of(loop, "guaranteed", "Admissible")
        assert list(await loop.predictions()) == ["guaranteed"]


async def test_a_healthy_operator_answers_its_probes(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator()
        async with aiohttp.ClientSession() as session:
            for path in ("healthz", "readyz"):
                async with session.get(f"http://127.0.0.1:{operator.port}/{path}") as answer:
                    assert answer.status == 200, await answer.text()


async def test_listed_objects_are_frozen_from_garbage_collection(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(two_nodes())
        before = gc.get_freeze_count()
        operator = await loop.start_operator()
        await operator.ready.wait()
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


async def test_probes_of_an_operator_with_hanging_event_loop_fail(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator()
        for path in ("healthz", "readyz", "metrics"):
            with pytest.raises(TimeoutError):
                # This request is what blocks the loop.
                urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/{path}", timeout=0.2)  # noqa: ASYNC210


@pytest.mark.parametrize("kind", [node_kinds.single_numa_node, node_kinds.restricted_pods])
async def test_pods_bound_at_once_are_admitted_in_turn(tmp_path: Path, kind: Any) -> None:
    """Several pods are bound before any zone shows the first: each prediction counts those before it."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([kind("node", "10.0.0.1")])
        operator = await loop.start_operator()
        for number in range(12):
            await loop.create_pod(f"p{number}", cpu=9)
            await loop.bind(f"p{number}", "node")

        async def settled() -> dict[str, float]:
            counted = await metrics(operator)
            outcomes = {name: n for name, n in counted.items() if "prediction_outcomes_total" in name}
            return outcomes if sum(outcomes.values()) == 12 else {}

        for name in await eventually(settled):
            assert ('predicted="Admissible"' in name) == ('actual="Admitted"' in name), name


async def test_full_node_rejects_pods_that_its_managers_admit(
    tmp_path: Path,
) -> None:
    """No CPUs are left to request; the rejected pod then counts for nobody."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        operator = await loop.start_operator()
        burstable = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "45"}}}
        await loop.create_pod("filler", containers=[burstable])
        await loop.bind("filler", "node")
        for name, cpu in (("too-much", 20), ("fits", 8)):
            await loop.create_pod(name, cpu=cpu)
            await loop.bind(name, "node")

        async def settled() -> dict[str, float]:
            counted = await metrics(operator)
            outcomes = {name: n for name, n in counted.items() if "prediction_outcomes_total" in name}
            return outcomes if sum(outcomes.values()) == 2 else {}

        assert await eventually(settled) == {
            'numazones_prediction_outcomes_total{actual="OutOfcpu",predicted="Inadmissible"}': 1,
            'numazones_prediction_outcomes_total{actual="Admitted",predicted="Admissible"}': 1,
        }
