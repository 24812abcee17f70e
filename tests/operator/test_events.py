"""The operator posts its events in one place: within the rate, counted, about any object."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from numazones_client import Forbidden
from numazones_client.errors import Request
from numazones_operator.events import NORMAL, WARNING, EventPoster, event, object_reference
from numazones_operator.metrics.registry import Metrics
from tests.waiting import eventually

NODE = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}


class Poster:
    """An EventPoster whose clock is moved by hand."""

    def __init__(self, client: Any = None, *, rate: float = 1.0) -> None:
        self.now = 1000.0
        self.metrics = Metrics(CollectorRegistry())
        self.poster = EventPoster(
            client, identity="test", rate=rate, metrics=self.metrics, clock=lambda: self.now
        )

    def post(self, message: str = "m") -> bool:
        return self.poster.post(NODE, type=NORMAL, reason="R", message=message)

    def writes(self, result: str) -> float:
        return float(self.metrics.api_writes.labels("events", result)._value.get())


def test_events_beyond_the_rate_are_dropped_and_counted() -> None:
    poster = Poster(rate=1.0)
    assert [poster.post() for _ in range(12)] == [True] * 10 + [False] * 2
    assert poster.metrics.events_dropped._value.get() == 2
    poster.now += 1
    assert [poster.post(), poster.post()] == [True, False]


async def test_events_are_posted_in_order_and_rejected_ones_are_counted() -> None:
    class Server:
        def __init__(self) -> None:
            self.messages: list[str] = []

        async def create(self, _resource: Any, body: dict[str, Any], *, namespace: str) -> None:
            assert namespace == "default"
            if body["message"] == "second":
                raise Forbidden(Request("create", "events"), "no right", code=403)
            self.messages.append(body["message"])

    server = Server()
    poster = Poster(server)
    for message in ("first", "second", "third"):
        poster.post(message)
    task = asyncio.create_task(poster.poster.run())
    await eventually(lambda: server.messages == ["first", "third"])
    task.cancel()
    assert (poster.writes("ok"), poster.writes("403")) == (2, 1)


def test_event_on_cluster_scoped_object_goes_to_default_within_limits() -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n" * 253, "uid": "u", "labels": {}}}
    about = object_reference(body)
    assert about == {"apiVersion": "v1", "kind": "Node", "name": "n" * 253, "uid": "u"}
    found = event(about, type=WARNING, reason="R", message="m" * 2000, instance="i" * 200)
    assert found["metadata"]["namespace"] == "default"
    assert len(found["metadata"]["generateName"]) <= 253 - len("xxxxx")
    assert (len(found["message"]), len(found["reportingInstance"])) == (1024, 128)
