"""Tests of how often an idle leader writes its Lease, and when it must."""

import asyncio
from typing import Any

import pytest

from numazones_client.errors import NotFound, Request, ServerError
from numazones_operator.leadership import Leadership, Term
from numazones_operator.options import OperatorOptions

pytestmark = pytest.mark.looptime

MINUTE = 60.0
OPTIONS = OperatorOptions()
TERM = Term(
    OPTIONS.leader_elect_lease_duration,
    OPTIONS.leader_elect_renew_deadline,
    OPTIONS.leader_elect_retry_period,
)


class OneLease:
    """Stands in for the client: keeps one Lease, and notes when it was written."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.written: list[float] = []
        self.fails: Exception | None = None

    async def get(self, _resource: Any, _name: str, **_: Any) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound(Request("get", "leases"), "not found")
        return self.lease

    async def create(self, _resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.written.append(asyncio.get_running_loop().time())
        if self.fails is not None:
            raise self.fails
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        return self.lease

    replace = create


def candidate(server: OneLease) -> Leadership:
    async def lead() -> None:
        await asyncio.Event().wait()

    return Leadership(
        server,  # type: ignore[arg-type]
        name="leader",
        namespace="operators",
        identity="one",
        term=TERM,
        lead=lead,
        clock=asyncio.get_running_loop().time,
    )


async def campaign(leader: Leadership, seconds: float) -> None:
    task = asyncio.create_task(leader.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait((task,))


async def test_at_rest_a_leader_renews_twenty_times_a_minute() -> None:
    server = OneLease()
    await campaign(candidate(server), MINUTE - 0.1)
    assert len([moment for moment in server.written if moment < MINUTE - 0.1]) == 20


async def test_a_leader_survives_an_outage_of_more_than_four_seconds() -> None:
    """It begins at the worst moment: just before a renewal is due."""
    server = OneLease()
    leader = candidate(server)
    task = asyncio.create_task(leader.run())
    await asyncio.sleep(TERM.renewal_period - 0.01)
    server.fails = ServerError(Request("update", "leases"), "etcdserver: leader changed", code=500)
    await asyncio.sleep(4.2)
    assert leader.leading
    server.fails = None
    await asyncio.sleep(TERM.retry_period * 1.2)
    assert (leader.leading, leader.certain) == (True, True)
    task.cancel()
    await asyncio.wait((task,))


async def test_irreversible_actions_stop_a_third_of_the_lease_early() -> None:
    server = OneLease()
    leader = candidate(server)
    task = asyncio.create_task(leader.run())
    await asyncio.sleep(0.1)
    server.fails = ServerError(Request("update", "leases"), "etcdserver: leader changed", code=500)
    await asyncio.sleep(TERM.lease_duration * 2 / 3 - 0.2)
    assert (leader.leading, leader.certain) == (True, True)
    await asyncio.sleep(0.2)
    assert (leader.leading, leader.certain) == (True, False)
    task.cancel()
    await asyncio.wait((task,))


async def test_a_missing_namespace_is_logged_once_with_its_cure(caplog: pytest.LogCaptureFixture) -> None:
    server = OneLease()
    server.fails = NotFound(Request("create", "leases operators/leader"), 'namespaces "operators" not found')
    await campaign(candidate(server), MINUTE)
    assert len(server.written) > 20
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said == (
        "could not read or write the leader election Lease: create leases operators/leader: "
        'namespaces "operators" not found; create the namespace, or set --namespace to one that exists'
    )
