"""Nonsense, contradictions and crowds: nothing crashes, the queue drains, the answers end right."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.api.zones import zones_from_node
from numazones.cluster import ClusterNode, ClusterPod
from numazones.kubelet.node import Node
from numazones.prediction import Prediction
from numazones_client import Unreadable
from numazones_client.resources import NODES, NUMAZONES
from numazones_operator.events import EventPoster
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror import decoding
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.options import Options
from numazones_operator.pipeline import Pipeline
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.node_spec import node_object

from .closed_loop import closed_loop, eventually, pod_body

SETTLE = 10.0


class Clock:
    """A time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Writes:
    """Stands in for the client: takes every write, with a version, like a server that is there."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.verbs: Counter[str] = Counter()
        self._version = 0

    async def create(self, _resource: Any, body: dict[str, Any], **_options: Any) -> dict[str, Any]:
        self.verbs["create"] += 1
        if body["kind"] != "Event":
            self.objects[body["metadata"]["name"]] = body
        return self._stamped(body)

    async def apply(self, _resource: Any, body: dict[str, Any], **_options: Any) -> dict[str, Any]:
        self.verbs["apply"] += 1
        self.objects[body["metadata"]["name"]] |= {"status": body["status"]}
        return self._stamped(self.objects[body["metadata"]["name"]])

    def _stamped(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}


class Setting:
    """A pipeline fed by hand, and what it publishes."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = Metrics(CollectorRegistry())
        self.writes = Writes()
        self.events = EventPoster(
            self.writes,  # type: ignore[arg-type]
            identity="test",
            rate=5.0,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.pipeline = Pipeline(
            self.writes,  # type: ignore[arg-type]
            Options(settle=SETTLE, debounce=0.0, candidates=3, write_rate=1e6),
            events=self.events,
            metrics=self.metrics,
            clock=self.clock,
            wall=self.clock,
        )
        self.state = self.pipeline.state
        self.published: dict[str, Prediction] = {}

    def add_node(self, name: str = "node", node: Node | None = None) -> list[dict[str, Any]]:
        """A node with zones and a Lease; returns the zones as they were published."""
        spec = node_kinds.single_numa_node(name, "10.0.0.1")
        self.state.nodes.put(ClusterNode.from_api(node_object(spec, now="2026-01-31T08:00:00Z")))
        self.state.heartbeats.put(Heartbeat(name, "2026-01-31T08:00:00Z", 0.0))
        self.beat(name)
        return self.publish(name, spec.empty_node() if node is None else node)

    def beat(self, name: str = "node") -> None:
        self.state.heartbeats.put(Heartbeat(name, f"at {self.clock.now}", 60.0))

    def publish(self, name: str, node: Node) -> list[dict[str, Any]]:
        bodies = [zone.to_api() for zone in zones_from_node(node, node_name=name, pods={})]
        for body in bodies:
            self.state.zones.put(ZoneReport.from_api(body))
        return bodies

    def put_pod(self, name: str, **spec: Any) -> None:
        body = pod_body(name, **spec)
        body["metadata"]["uid"] = f"uid-{name}"
        self.state.pods.put(ClusterPod.from_api(body))

    def outcomes(self) -> dict[tuple[str, str], float]:
        """(predicted, actual) → how many pods that got a node."""
        return {
            (sample.labels["predicted"], sample.labels["actual"]): sample.value
            for metric in self.metrics.outcomes.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }

    async def verdict(self, name: str = "pod") -> str:
        await self.renew()
        return self.published[name].verdict

    async def renew(self) -> None:
        async for pod, prediction, _ in self.pipeline.forecasts.renew():
            self.published[pod.name] = prediction


@pytest.fixture
def setting() -> Setting:
    return Setting()


async def test_zones_that_contradict_each_other_make_the_node_stale_if_that_lasts(setting: Setting) -> None:
    first, second = setting.add_node()
    setting.put_pod("pod", cpu=4)
    assert await setting.verdict() == "Admissible"
    first["status"]["snapshot"] = "another"
    setting.state.zones.put(ZoneReport.from_api(first))
    assert await setting.verdict() == "Admissible"  # as while zones are being written one by one
    setting.clock.now += SETTLE + 1
    setting.state.expire()
    assert await setting.verdict() == "Unknown"
    (reason,) = setting.published["pod"].reasons
    assert reason.reason == "ZonesDisagree"
    assert "from 2 snapshots" in reason.message
    second["status"]["snapshot"] = "another"
    setting.state.zones.put(ZoneReport.from_api(second))
    assert await setting.verdict() == "Admissible"


async def test_a_node_with_a_zone_missing_gives_no_answer(setting: Setting) -> None:
    first, _ = setting.add_node()
    setting.put_pod("pod", cpu=4)
    setting.state.zones.remove(ZoneReport.from_api(first))
    setting.clock.now += SETTLE + 1
    setting.state.expire()
    assert await setting.verdict() == "Unknown"
    assert "1 of 2 zones published, from 1 snapshot;" in setting.published["pod"].reasons[0].message


async def test_a_lease_that_is_not_renewed_makes_the_node_stale(setting: Setting) -> None:
    setting.add_node()
    setting.put_pod("pod", cpu=4)
    setting.clock.now += 61
    setting.state.expire()
    assert await setting.verdict() == "Unknown"
    assert setting.published["pod"].reasons[0].reason == "LeaseExpired"
    setting.beat()
    assert await setting.verdict() == "Admissible"


async def test_a_node_deleted_while_predicting_is_not_answered_for(setting: Setting) -> None:
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
    assert setting.published["pod"].evaluated == 1


async def test_a_pod_with_a_malformed_quantity_is_unknown_and_harms_no_other(setting: Setting) -> None:
    setting.add_node()
    setting.put_pod("good", cpu=4)
    setting.put_pod("bad", cpu="four")
    assert await setting.verdict("good") == "Admissible"
    assert await setting.verdict("bad") == "Unknown"
    assert "four" in setting.published["bad"].sentence
    setting.put_pod("bad", cpu=4)
    assert await setting.verdict("bad") == "Admissible"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topologyManagerPolicy", "galaxy-brain"),
        ("cpuManagerPolicy", "psychic"),
        ("memoryManagerPolicy", "Elephant"),
        ("topologyManagerScope", "universe"),
        ("cpuManagerPolicyOptions", {"from-the-future": "true"}),
        ("version", "v0.9.0"),
    ],
)
async def test_what_a_newer_kubelet_does_that_we_do_not_know_is_unknown_and_says_so(
    setting: Setting, field: str, value: Any
) -> None:
    for body in setting.add_node():
        body["status"]["kubelet"][field] = value
        body["status"]["snapshot"] = "newer"
        setting.state.zones.put(ZoneReport.from_api(body))
    setting.put_pod("pod", cpu=4)
    assert await setting.verdict() == "Unknown"
    (reason,) = setting.published["pod"].reasons
    assert reason.reason == "ZonesUnreadable"
    assert (value if isinstance(value, str) else "from-the-future") in reason.message
    # Listed again, the zones say the same.
    for zone in list(setting.state.zones):
        setting.state.zones.put(replace(zone, body={}))
    assert await setting.verdict() == "Unknown"
    assert setting.published["pod"].reasons == (reason,)


def test_one_object_that_cannot_be_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_ten_thousand_pods_created_at_once_are_all_told_and_each_once(setting: Setting) -> None:
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


async def test_a_node_and_its_zones_deleted_on_the_server_are_forgotten(tmp_path: Path) -> None:
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
