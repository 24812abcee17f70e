"""The pipeline part by part: state, forecasts, publisher, and the order in which a change passes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.api.zones import zones_from_node
from numazones.cluster import ClusterNode, ClusterPod
from numazones_client import Forbidden, NamespaceTerminating, NotFound, Unreachable
from numazones_client.errors import Request
from numazones_operator.events import EventPoster
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.options import Options
from numazones_operator.pipeline import Pipeline
from numazones_operator.predictions.admission_predictions import PublishedPrediction
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.node_spec import node_object

from .closed_loop import eventually, pod_body

STARTED = [{"name": "main"}]
REQUEST = Request("patch", "admissionpredictions.numazones.io a")


class Server:
    """Stands in for the client: keeps what is written, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.version = 0
        self.accepts = asyncio.Event()
        self.accepts.set()

    def _stamped(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    async def create(self, resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(("create", resource.plural))
        await self.accepts.wait()
        if resource.plural == "admissionpredictions":
            self.objects[body["metadata"]["name"]] = self._stamped(body)
        return self._stamped(body)

    async def apply(self, resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(("apply", resource.plural))
        if self.failures:
            raise self.failures.pop(0)
        name = body["metadata"]["name"]
        self.objects[name] = self._stamped({**self.objects[name], "status": body["status"]})
        return self.objects[name]

    async def delete(self, resource: Any, name: str, **_: Any) -> None:
        self.calls.append(("delete", resource.plural))
        self.objects.pop(name, None)

    def verdict(self, name: str) -> str:
        return str((self.objects.get(name, {}).get("status") or {}).get("verdict", ""))

    def applied(self) -> int:
        return self.calls.count(("apply", "admissionpredictions"))


class Setting:
    """A pipeline on one node, fed by hand."""

    def __init__(self, server: Server | None = None) -> None:
        self.now = 1000.0
        self.server = server or Server()
        self.leads = True
        self.metrics = Metrics(CollectorRegistry())
        self.events = EventPoster(
            self.server,  # type: ignore[arg-type]
            identity="test",
            rate=5.0,
            metrics=self.metrics,
            clock=lambda: self.now,
        )
        self.pipeline = Pipeline(
            self.server,  # type: ignore[arg-type]
            Options(debounce=0.0, write_rate=1e6),
            events=self.events,
            metrics=self.metrics,
            counts=lambda: self.leads,
            clock=lambda: self.now,
            wall=lambda: self.now,
        )
        self.state = self.pipeline.state
        spec = node_kinds.single_numa_node("node", "10.0.0.1")
        self.state.nodes.put(ClusterNode.from_api(node_object(spec, now="2026-01-31T08:00:00Z")))
        self.state.heartbeats.put(Heartbeat("node", "2026-01-31T08:00:00Z", 0.0))
        self.state.heartbeats.put(Heartbeat("node", "again", 1e6))
        for zone in zones_from_node(spec.empty_node(), node_name="node", pods={}):
            self.state.zones.put(ZoneReport.from_api(zone.to_api()))
        self.pipeline.synced = True

    def pod(self, name: str, *, cpu: int = 4, node: str = "", uid: str = "", **status: Any) -> ClusterPod:
        body = pod_body(name, cpu=cpu, nodeName=node)
        body["metadata"]["uid"] = uid or f"uid-{name}"
        pod = ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})
        self.state.pods.put(pod)
        return pod

    async def renew(self) -> None:
        await self.pipeline.renew()

    def outcomes(self) -> dict[tuple[str, str], float]:
        samples = next(iter(self.metrics.outcomes.collect())).samples
        return {
            (one.labels["predicted"], one.labels["actual"]): one.value
            for one in samples
            if one.name.endswith("_total")
        }


@pytest.fixture
def setting() -> Setting:
    return Setting()


# State


def test_a_binding_is_predicted_before_the_node_counts_the_pod_and_after_it_counts_earlier_ones(
    setting: Setting,
) -> None:
    # Each zone has 30 CPUs for pods: the third pod of 20 finds no zone.
    for name in "abc":
        setting.pod(name, cpu=20)
        setting.pod(name, cpu=20, node="node")
    setting.pod("a", cpu=20, node="node", phase="Running", containerStatuses=STARTED)
    setting.pod("b", cpu=20, node="node", phase="Running", containerStatuses=STARTED)
    setting.pod("c", cpu=20, node="node", phase="Failed", reason="TopologyAffinityError")
    assert setting.outcomes() == {
        ("Admissible", "Admitted"): 2,
        ("Inadmissible", "TopologyAffinityError"): 1,
    }


def test_what_the_model_rejected_leaves_room_for_the_next(setting: Setting) -> None:
    for name, cpu in (("a", 20), ("b", 20), ("too-big", 20), ("fits", 8)):
        setting.pod(name, cpu=cpu)
        setting.pod(name, cpu=cpu, node="node")
    setting.pod("fits", cpu=8, node="node", phase="Running", containerStatuses=STARTED)
    assert setting.outcomes() == {("Admissible", "Admitted"): 1}


def test_bindings_that_nobody_saw_happen_are_not_predicted(setting: Setting) -> None:
    setting.pipeline.synced = False
    setting.pod("a", node="node")
    setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
    assert setting.outcomes() == {}


def test_pods_wait_until_they_are_bound_or_gone_and_gates_are_kept_whatever_is_asked_for(
    setting: Setting,
) -> None:
    waiting = setting.pod("a")
    assert set(setting.state.pending) == {"uid-a"}
    setting.pod("a", node="node")
    assert not setting.state.pending
    setting.state.pods.remove(waiting)
    body = pod_body("gated", schedulingGates=[{"name": "any"}])
    body["spec"]["containers"][0]["resources"] = {}
    body["metadata"]["uid"] = "gated"
    gated = ClusterPod.from_api(body)
    setting.state.pods.put(gated)
    assert (set(setting.state.pending), set(setting.state.gated)) == (set(), {"gated"})
    setting.state.pods.remove(gated)
    assert not setting.state.gated


# Forecasts


async def test_pods_of_one_kind_share_a_forecast_and_only_news_is_told(setting: Setting) -> None:
    for name in "abc":
        setting.pod(name)
    told = [pod.name async for pod, _, _ in setting.pipeline.forecasts.renew()]
    assert set(told) == {"a", "b", "c"}
    assert len(setting.pipeline.forecasts._kinds) == 1
    setting.pod("d", cpu=40)
    told = [pod.name async for pod, _, _ in setting.pipeline.forecasts.renew()]
    assert set(told) == {"d"}
    assert setting.pipeline.forecasts.verdicts() == {"Admissible": 3, "Inadmissible": 1, "Unknown": 0}
    assert setting.pipeline.forecasts.blocked_by() == {("Kubelet", "TopologyAffinityError"): 1}


async def test_a_node_that_fills_changes_the_forecasts_that_hang_on_it(setting: Setting) -> None:
    setting.pod("waits", cpu=20)
    await setting.renew()
    for name in "ab":
        setting.pod(name, cpu=20, node="node")
    changes = [(pod.name, made.verdict) async for pod, made, _ in setting.pipeline.forecasts.renew()]
    assert ("waits", "Inadmissible") in changes
    assert setting.pipeline.forecasts.backlog == 0


# Publisher


@asynccontextmanager
async def writing(setting: Setting) -> AsyncIterator[None]:
    """The setting's publisher writes."""
    task = asyncio.create_task(setting.pipeline.publisher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def published(setting: Setting, name: str, verdict: str) -> None:
    await eventually(lambda: setting.server.verdict(name) == verdict, what=f"{name} is {verdict}")
    await eventually(lambda: not setting.pipeline.publisher.depth)


async def standing_by(setting: Setting) -> Setting:
    """A replica that stands by and, as the one that writes, has foreseen what becomes of the pod a."""
    follower = Setting(setting.server)
    follower.leads = False
    for replica in (setting, follower):
        replica.pod("a")
        await replica.renew()
    await published(setting, "a", "Admissible")
    return follower


async def test_nothing_is_written_while_standing_by_and_everything_on_taking_over(setting: Setting) -> None:
    for name in "ab":
        setting.pod(name)
    await setting.renew()
    assert setting.server.calls == []
    async with writing(setting):
        await published(setting, "a", "Admissible")
        await published(setting, "b", "Admissible")
    before = list(setting.server.calls)
    setting.pod("c")
    await setting.renew()
    assert setting.server.calls == before
    # What is known to be written is not written again.
    async with writing(setting):
        await published(setting, "c", "Admissible")
        assert setting.server.applied() == 3


async def test_a_replica_that_takes_over_leaves_the_outcomes_that_another_has_told(setting: Setting) -> None:
    async with writing(setting):
        follower = await standing_by(setting)
        for replica in (setting, follower):
            replica.pod("a", node="node")
            replica.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        await eventually(lambda: "outcome" in setting.server.objects["a"]["status"])
    told = setting.server.objects["a"]
    assert told["status"]["outcome"]["accuracy"] == "Right"
    follower.pipeline.publisher.published.put(PublishedPrediction.from_api(told))
    follower.leads = True
    async with writing(follower):
        follower.pod("b")
        await follower.renew()
        await published(follower, "b", "Admissible")
        # Nor does a watch that tells of it again change anything.
        follower.pipeline.publisher.published.put(
            replace(PublishedPrediction.from_api(told), version=1000, digest="other")
        )
        follower.pod("c")
        await follower.renew()
        await published(follower, "c", "Admissible")
        assert setting.server.objects["a"] == told


async def test_an_outcome_is_told_although_its_prediction_is_only_being_written(setting: Setting) -> None:
    setting.server.accepts.clear()
    async with writing(setting):
        setting.pod("a", cpu=40)
        await setting.renew()
        await eventually(lambda: ("create", "admissionpredictions") in setting.server.calls)
        setting.pod("a", node="node")
        setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        setting.server.accepts.set()
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert setting.server.objects["a"]["status"]["outcome"]["actual"] == "Admitted"
        assert ("create", "events") not in setting.server.calls  # nobody is told that it cannot run


async def test_of_a_pod_that_runs_before_its_prediction_is_written_nothing_is_written(
    setting: Setting,
) -> None:
    setting.server.accepts.clear()
    async with writing(setting):
        busy = [f"other-{number}" for number in range(16)]  # as many as there are writers
        for name in busy:
            setting.pod(name)
        await setting.renew()
        await eventually(lambda: len(setting.server.calls) == len(busy))
        setting.pod("a")
        await setting.renew()
        setting.pod("a", node="node")
        setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        setting.server.accepts.set()
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert set(setting.server.objects) == set(busy)


async def test_a_replica_that_takes_over_tells_the_outcomes_that_another_did_not(setting: Setting) -> None:
    async with writing(setting):
        follower = await standing_by(setting)
    follower.pipeline.publisher.published.put(PublishedPrediction.from_api(setting.server.objects["a"]))
    follower.pod("a", node="node")
    follower.pod("a", node="node", phase="Running", containerStatuses=STARTED)
    follower.leads = True
    async with writing(follower):
        await eventually(lambda: "outcome" in setting.server.objects["a"]["status"])


async def test_a_pod_of_the_same_name_gets_an_object_of_its_own(setting: Setting) -> None:
    async with writing(setting):
        first = setting.pod("a", uid="first")
        await setting.renew()
        await published(setting, "a", "Admissible")
        setting.state.pods.remove(first)
        setting.pod("a", cpu=40, uid="second")
        await setting.renew()
        await published(setting, "a", "Inadmissible")
        assert setting.server.objects["a"]["spec"]["podUID"] == "second"


@pytest.mark.parametrize(
    ("failure", "written", "warnings"),
    [
        (Unreachable(REQUEST, "away", sent=False), True, 0),
        (NotFound(REQUEST, "deleted by somebody"), True, 0),
        (Forbidden(REQUEST, "no right"), False, 1),
        (NamespaceTerminating(REQUEST, "going"), False, 0),
    ],
)
async def test_a_write_that_fails_is_tried_again_unless_that_is_hopeless(
    setting: Setting, caplog: pytest.LogCaptureFixture, failure: Exception, *, written: bool, warnings: int
) -> None:
    setting.server.failures = [failure]
    async with writing(setting):
        setting.pod("a")
        await setting.renew()
        await eventually(lambda: not setting.server.failures)
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert setting.server.verdict("a") == ("Admissible" if written else "")
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == warnings


async def test_a_pod_that_is_gone_is_not_written_about(setting: Setting) -> None:
    gone = setting.pod("a")
    await setting.renew()
    setting.state.pods.remove(gone)
    async with writing(setting):
        setting.pod("b")
        await setting.renew()
        await published(setting, "b", "Admissible")
        assert "a" not in setting.server.objects
