"""Objects that cannot be read say so themselves, and count as gone."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import Loop, closed_loop, metrics
from numazones.cluster.cluster import ClusterNode
from numazones.prediction.forecast import Forecast
from numazones_client import Unreadable
from numazones_client.resources import EVENTS, NODES
from numazones_operator.events import EventPoster
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror import decoding
from numazones_operator.notices.unreadable_objects import UnreadableObjects
from numazones_simulator import node_kinds
from tests.waiting import eventually


async def unreadable_events(loop: Loop) -> list[dict[str, Any]]:
    return [item for item in await loop.client.list(EVENTS) if item["reason"] == "Unreadable"]


async def test_unreadable_node_gets_an_event_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API servers of today let no such node pass; one of tomorrow may."""
    read = decoding.NODES._keep

    def picky(body: dict[str, Any]) -> Any:
        return read({**body, "status": {"allocatable": {"cpu": "many"}}} if odd(body) else body)

    def odd(body: dict[str, Any]) -> bool:
        return bool(body["metadata"].get("labels", {}).get("odd"))

    monkeypatch.setattr(decoding.NODES, "_keep", picky)
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "odd"}}
        await loop.client.create(NODES, body)
        await eventually(lambda: operator.pipeline.state.nodes.get("odd"))
        await loop.client.patch(NODES, "odd", {"metadata": {"labels": {"odd": "yes"}}})
        (event,) = await eventually(lambda: unreadable_events(loop), what="there is an event on the node")
        assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "odd", "uid": "odd"}
        assert event["message"].startswith("numazones cannot read this object and ignores it: ")
        assert "many" in event["message"]
        assert operator.pipeline.state.nodes.get("odd") is None


async def test_a_pod_that_raises_is_unknown_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = Forecast.renew

    def picky(forecast: Forecast, nodes: Iterable[ClusterNode]) -> bool:
        if forecast.kind.requests[0] == ("cpu", 3000):
            raise RuntimeError("three CPUs")
        return renew(forecast, nodes)

    monkeypatch.setattr(Forecast, "renew", picky)
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        for number, name in enumerate(("good", "after-a-restart")):
            operator = await loop.start_operator(leader_elect=False)
            if not number:
                await loop.create_pod("poison", cpu=3)
            await loop.create_pod(name, cpu=2)
            await eventually(partial(_has_verdict, loop, name, "Admissible"))
            await eventually(partial(_has_verdict, loop, "poison", "Unknown"))
            counted = await metrics(operator)
            series = 'numazones_operator_object_errors_total{error="RuntimeError",kind="Pod"}'
            assert counted[series] >= 1
            operator.stop()
        events = [item for item in await loop.client.list(EVENTS) if item["reason"] == "Undecided"]
        assert {item["involvedObject"]["name"] for item in events} == {"poison"}
        assert "RuntimeError: three CPUs" in events[0]["message"]


async def _has_verdict(loop: Loop, name: str, verdict: str) -> bool:
    return await loop.verdict(name) == verdict


async def test_each_problem_gets_one_event_from_the_replica_that_leads(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        events = EventPoster(loop.client, identity="test", rate=5.0, metrics=Metrics(CollectorRegistry()))
        loop.tasks.create_task(events.run())
        objects = UnreadableObjects(events)
        for problem in ("bad", "bad", "worse"):
            metadata = {"namespace": "default", "name": "rs", "uid": "u"}
            objects.take(Unreadable("u", metadata, problem, "ReplicaSet", "apps/v1"))
        assert not await unreadable_events(loop)  # it does not lead yet
        loop.tasks.create_task(objects.run())
        (event,) = await eventually(lambda: unreadable_events(loop))
        assert event["message"].endswith(": worse")
        objects.take(Unreadable("u", metadata, "worse", "ReplicaSet", "apps/v1"))
        objects.take(Unreadable("v", {**metadata, "name": "other"}, "bad", "ReplicaSet", "apps/v1"))
        await eventually(lambda: _are(loop, 2))


async def _are(loop: Loop, number: int) -> bool:
    return len(await unreadable_events(loop)) == number


async def test_events_beyond_the_rate_are_posted_later() -> None:
    class Poster:
        def __init__(self) -> None:
            self.rest = 2
            self.names: list[str] = []

        def post(self, about: dict[str, str], **_: Any) -> bool:
            if not self.rest:
                return False
            self.rest -= 1
            self.names.append(about["name"])
            return True

    poster = Poster()
    objects = UnreadableObjects(poster)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        objects.take(Unreadable(name, {"name": name, "uid": name}, "bad", "Node", "v1"))
    task = asyncio.create_task(objects.run())
    await eventually(lambda: poster.names == ["a", "b"])
    poster.rest = 2
    await eventually(lambda: poster.names == ["a", "b", "c"])
    task.cancel()


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("spec", "nodeName", ["n"]),
        ("spec", "numaID", {"a": 1}),
        ("status", "snapshot", {"a": 1}),
        ("status", "zones", "2"),
    ],
)
def test_zone_whose_key_has_another_type_is_unreadable(part: str, field: str, value: object) -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "n-numa-0"},
        "spec": {"nodeName": "n", "numaID": 0},
        "status": {"snapshot": "s", "zones": 1},
    }
    assert not isinstance(decoding.ZONES._one(body), Unreadable)
    body[part] = body[part] | {field: value}
    found = decoding.ZONES._one(body)
    assert isinstance(found, Unreadable)
    assert str(value) in found.problem
