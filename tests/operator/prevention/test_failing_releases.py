"""Pods whose release fails keep no others waiting."""

import asyncio
from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE
from numazones_client import APIError, Forbidden, Invalid, ServerError, TooManyRequests, Unreachable
from numazones_client.errors import Request
from numazones_client.reachability import Reachability
from numazones_operator.prevention.admission_gates import AdmissionGates
from tests.operator.prevention.extender.cluster import Cluster, Server
from tests.operator.prevention.offline_gates import offline_gates

pytestmark = pytest.mark.looptime

PATCH = Request("patch", "pods default/poison", "pods")
GOOD = {"z-good-1", "z-good-2", "z-good-3"}
REFUSALS = {
    "too large": ServerError(PATCH, "etcdserver: request is too large", code=500),
    "denied": Forbidden(PATCH, "denied by somebodys-rule", code=403),
    "invalid": Invalid(PATCH, "no room for changes", code=422),
    "cut": Unreachable(PATCH, "connection reset by peer", sent=True),
}


class PoisonedServer(Server):
    """Fails for some pods, or for all, and counts the tries."""

    def __init__(self, failure: APIError | None) -> None:
        super().__init__()
        self.failure = failure
        """None: it does not answer at all."""
        self.strikes = "poison"
        self.tries: dict[str, int] = {}
        self.reachability = Reachability(clock=lambda: 0.0)
        self.reachability.answered = 1e12  # others are answered all the time

    async def patch(self, _resource: Any, name: str, patch: Any, **_: Any) -> None:
        self.tries[name] = self.tries.get(name, 0) + 1
        if self.strikes and name.startswith(self.strikes):
            if self.failure is None:
                await asyncio.sleep(3600)
            else:
                raise self.failure
        self.patches.append((name, patch))

    def released(self) -> set[str]:
        return {name for name, _ in self.patches}


async def gated(server: PoisonedServer, *, poisoned: int) -> tuple[Cluster, AdmissionGates]:
    """A cluster with room for all of its gated pods, of which the first ones cannot be released."""
    cluster = Cluster(*"abcdefghijkl")  # room is held for one pod on four nodes
    cluster.server = server
    for name in (*(f"poison-{number:02}" for number in range(poisoned)), *sorted(GOOD)):
        cluster.pod(name, cpu=1, schedulingGates=[{"name": GATE}])
    await cluster.offline.renew()
    gates = offline_gates(cluster)
    gates.clock = asyncio.get_running_loop().time
    return cluster, gates


async def run_for(gates: AdmissionGates, seconds: float) -> None:
    task = asyncio.create_task(gates.run())
    await asyncio.sleep(seconds)
    assert not task.done()
    task.cancel()
    await asyncio.wait((task,))


@pytest.mark.parametrize("failure", [*REFUSALS.values(), None], ids=[*REFUSALS, "no answer"])
async def test_failing_releases_delay_no_other_pod(failure: APIError | None) -> None:
    server = PoisonedServer(failure)
    _, gates = await gated(server, poisoned=45)
    await run_for(gates, 3.0)
    assert server.released() == GOOD


@pytest.mark.parametrize("failure", [REFUSALS["too large"], None], ids=["refused", "no answer"])
async def test_a_failing_release_is_tried_later_and_later(failure: APIError | None) -> None:
    server = PoisonedServer(failure)
    cluster, gates = await gated(server, poisoned=9)
    cluster.held.clock = gates.clock
    await run_for(gates, 600.0)
    assert 3 <= max(server.tries.values()) <= 30
    server.strikes = ""
    await run_for(gates, 120.0)
    assert len(server.released()) == 9 + len(GOOD)


async def test_each_failing_pod_gets_one_event_with_the_reason() -> None:
    cluster, gates = await gated(PoisonedServer(REFUSALS["denied"]), poisoned=3)
    await run_for(gates, 60.0)
    queue = cluster.offline.events._queue
    events = [queue.get_nowait() for _ in range(queue.qsize())]
    told = sorted((one["involvedObject"]["name"], one["reason"]) for one in events)
    assert told == [(f"poison-{number:02}", "AdmissionGateNotServed") for number in range(3)]
    assert all("denied by somebodys-rule" in one["message"] for one in events)


@pytest.mark.parametrize(
    ("failure", "answered"),
    [
        (Unreachable(PATCH, "connection refused", sent=False), 1e12),
        (TooManyRequests(PATCH, "too many requests", code=429), 1e12),
        (ServerError(PATCH, "no leader", code=503), 1e12),
        (Unreachable(PATCH, "timed out", sent=True), -1.0),
    ],
    ids=["refused", "429", "503", "nobody is answered"],
)
async def test_an_api_server_that_is_away_ends_the_round(failure: APIError, answered: float) -> None:
    server = PoisonedServer(failure)
    server.strikes, server.reachability.answered = "p", answered
    _, gates = await gated(server, poisoned=45)
    with pytest.raises(type(failure)):
        await gates.release()
    assert len(server.tries) < 45
    server.strikes = ""
    await run_for(gates, 3.0)
    assert server.released() > GOOD


async def test_room_of_a_rejected_pod_is_immediately_free() -> None:
    server = PoisonedServer(REFUSALS["too large"])
    cluster, gates = await gated(server, poisoned=1)
    await run_for(gates, 3.0)
    assert {pod.name for pods in cluster.held.by_node().values() for pod in pods} == GOOD
