"""Nonsense, contradictions and crowds: nothing crashes, the queue drains, the answers end right."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import closed_loop
from numazones.cluster.cluster import ClusterPod
from numazones_client import Unreadable
from numazones_client.resources import NODES, NUMAZONES
from numazones_operator.mirror import decoding
from numazones_operator.mirror.decoding import ZoneReport
from numazones_simulator import node_kinds
from tests.operator.offline_pipeline import RUNNING, SETTLE, OfflinePipeline
from tests.operator.pods import pod_body
from tests.waiting import eventually


@pytest.fixture
def setting() -> OfflinePipeline:
    return OfflinePipeline()


async def test_lasting_contradiction_between_zones_makes_the_node_stale(
    setting: OfflinePipeline,
) -> None:
    first, second = setting.add_node()
    setting.put_pod("pod", cpu=4)
    assert await setting.verdict() == "Admissible"
    first["status"]["snapshot"] = "another"
    setting.state.zones.put(ZoneReport.from_api(first))
    assert await setting.verdict() == "Admissible"  # as while zones are being written one by one
    setting.let_pass(SETTLE + 1)
    assert await setting.verdict() == "Unknown"
    (reason,) = setting.published["pod"].reasons
    assert reason.reason == "ZonesDisagree"
    assert "from 2 snapshots" in reason.message
    second["status"]["snapshot"] = "another"
    setting.state.zones.put(ZoneReport.from_api(second))
    assert await setting.verdict() == "Admissible"


async def test_a_node_with_a_zone_missing_gives_no_answer(setting: OfflinePipeline) -> None:
    first, _ = setting.add_node()
    setting.put_pod("pod", cpu=4)
    setting.state.zones.remove(ZoneReport.from_api(first))
    setting.let_pass(SETTLE + 1)
    assert await setting.verdict() == "Unknown"
    assert "1 of 2 NUMAZones published, from 1 snapshot;" in setting.published["pod"].reasons[0].message


@pytest.mark.parametrize(
    ("cpu", "status", "verdict"),
    [
        (4, RUNNING, "Unknown"),
        (4, {"phase": "Pending"}, "Admissible"),  # the kubelet has not got to it yet
        ("500m", RUNNING, "Unknown"),  # memory is its own
        (60, RUNNING | {"phase": "Failed", "reason": "TopologyAffinityError"}, "Admissible"),
    ],
)
async def test_zones_that_lack_a_running_pod_become_stale_eventually(
    setting: OfflinePipeline, cpu: int | str, status: dict[str, Any], verdict: str
) -> None:
    """The exporter is gone, though its Lease still holds: what was played over its zones gets worse."""
    zones = setting.add_node()
    body = pod_body("bound", cpu=cpu, nodeName="node") | {"status": status}
    body["metadata"]["uid"] = "uid-bound"
    setting.state.pods.put(ClusterPod.from_api(body))
    setting.put_pod("pod", cpu=2)
    assert await setting.verdict() == "Admissible"
    setting.let_pass(SETTLE)
    setting.beat()
    assert await setting.verdict() == verdict
    if verdict == "Unknown":
        assert setting.published["pod"].reasons[0].reason == "ZonesBehind"
        assert "default/bound" in setting.published["pod"].reasons[0].message
    for zone in zones:  # published anew, and still without the pod
        zone["status"]["snapshot"] = "another"
        setting.state.zones.put(ZoneReport.from_api(zone))
    assert await setting.verdict() == verdict


async def test_a_lease_that_is_not_renewed_makes_the_node_stale(setting: OfflinePipeline) -> None:
    setting.add_node()
    setting.put_pod("pod", cpu=4)
    setting.let_pass(61)
    assert await setting.verdict() == "Unknown"
    assert setting.published["pod"].reasons[0].reason == "LeaseExpired"
    setting.beat()
    assert await setting.verdict() == "Admissible"


async def test_a_node_deleted_while_predicting_is_not_in_the_prediction(setting: OfflinePipeline) -> None:
    setting.add_node("a")
    setting.add_node("b")
    setting.put_pod("pod", cpu=4)
    renewing = asyncio.create_task(setting.renew())
    await asyncio.sleep(0)
    gone = setting.state.nodes.get("a")
    assert gone is not None
    setting.state.nodes.remove(gone)
    await renewing
    assert await setting.verdict() == "Admissible"
    assert [item.node for item in setting.published["pod"].candidates] == ["b"]
    assert setting.published["pod"].nodes.evaluated == 1


async def test_pod_with_malformed_quantity_is_unknown_and_harms_no_other(
    setting: OfflinePipeline,
) -> None:
    setting.add_node()
    setting.put_pod("good", cpu=4)
    setting.put_pod("bad", cpu="four")
    assert await setting.verdict("good") == "Admissible"
    assert await setting.verdict("bad") == "Unknown"
    assert "four" in setting.published["bad"].sentence
    setting.put_pod("bad", cpu=4)
    assert await setting.verdict("bad") == "Admissible"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("topologyManagerPolicy", "galaxy-brain", "ZonesUnreadable"),
        ("cpuManagerPolicy", "psychic", "ZonesUnreadable"),
        ("memoryManagerPolicy", "Elephant", "ZonesUnreadable"),
        ("topologyManagerScope", "universe", "ZonesUnreadable"),
        ("cpuManagerPolicyOptions", {"from-the-future": "true"}, "OptionUnknown"),
        ("version", "v0.9.0", "ZonesUnreadable"),
    ],
)
async def test_unknown_kubelet_settings_make_the_node_unknown(
    setting: OfflinePipeline, field: str, value: Any, code: str
) -> None:
    for body in setting.add_node():
        body["status"]["kubelet"][field] = value
        body["status"]["snapshot"] = "newer"
        setting.state.zones.put(ZoneReport.from_api(body))
    setting.put_pod("pod", cpu=4)
    assert await setting.verdict() == "Unknown"
    (reason,) = setting.published["pod"].reasons
    assert reason.reason == code
    assert (value if isinstance(value, str) else "from-the-future") in reason.message
    # Listed again, the zones say the same.
    for zone in list(setting.state.zones):
        setting.state.zones.put(replace(zone, body={}))
    assert await setting.verdict() == "Unknown"
    assert setting.published["pod"].reasons == (reason,)


def test_unreadable_object_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    bad: list[dict[str, Any]] = [{"metadata": {"name": "bad"}, "spec": None}, {"metadata": None}, {}]
    page = decoding.ZONES.page(
        b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "bad"}, "spec": null}, '
        b'{"metadata": {"name": "n-numa-0"}, "spec": {"nodeName": "n", "numaID": 0}}]}'
    )
    assert [item.name for item in page.items] == ["n-numa-0"]
    assert page.resource_version == "7"
    assert "bad cannot be read" in caplog.text
    for body in bad:
        assert isinstance(decoding.HEARTBEATS._one(body), Unreadable)
    odd = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "many"}}}
    assert isinstance(decoding.NODES._one(odd), Unreadable)


async def test_ten_thousand_simultaneous_pods_are_each_predicted_and_written_once(
    setting: OfflinePipeline,
) -> None:
    setting.add_node()
    writes, publisher = setting.writes, setting.pipeline.publisher
    running = asyncio.create_task(publisher.run())
    for number in range(10_000):
        setting.put_pod(f"pod-{number}", cpu=2 + number % 60)
    await setting.pipeline.renew()
    await eventually(lambda: not publisher.depth)
    assert writes.verbs == {"create": 10_000, "apply": 10_000}
    verdicts = Counter(body["status"]["verdict"] for body in writes.objects.values())
    fitting = sum(2 + number % 60 <= 30 for number in range(10_000))
    assert verdicts == {"Admissible": fitting, "Inadmissible": 10_000 - fitting}
    # Events are kept to their rate however many verdicts there are.
    assert setting.metrics.events_dropped._value.get() >= 10_000 - fitting - 100
    running.cancel()


async def test_node_and_its_zones_deleted_on_the_server_are_forgotten(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("short-lived", "10.0.0.1")])
        operator = await loop.start_operator()
        await loop.create_pod("a", cpu=4)

        async def verdict(wanted: str) -> bool:
            return await loop.verdict("a") == wanted

        await eventually(lambda: verdict("Admissible"))
        assert loop.fleet is not None
        loop.publishers["short-lived"].cancel()
        await loop.client.delete(NODES, "short-lived")

        async def without_zones() -> bool:
            return not await loop.client.list(NUMAZONES)

        await eventually(without_zones, what="the cluster has collected them, too")

        async def without_nodes() -> bool:
            status = (await loop.predictions())["a"]
            reasons = [one["reason"] for one in status.get("reasons", ())]
            return (status["verdict"], reasons) == ("Unknown", ["NoNodes"])

        await eventually(without_nodes)
        assert not operator.failed
