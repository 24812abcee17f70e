"""Leader election: one leads, another takes over from a silent one, a cut-off leader steps down by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client.resources import LEASES
from numazones_operator.leadership import Leadership, Term
from tests.waiting import eventually

NAMESPACE = "numazones-system"
TERM = Term(lease_duration=10.0, renew_deadline=6.0, retry_period=0.02)


class Candidate(Leadership):
    """One that notes when it begins and ceases to lead, and whose clock the test sets."""

    def __init__(self, loop: Loop, identity: str, notes: list[tuple[str, bool]] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.now = 0.0
        self.attempts = 0
        self.looked = 0
        super().__init__(
            loop.client,
            name="leader",
            namespace=NAMESPACE,
            identity=identity,
            term=TERM,
            lead=self._note,
            clock=lambda: self.now,
        )

    async def tries(self, more: int = 3) -> None:
        """Wait until it has tried some more times to get or to renew the Lease."""
        enough = self.attempts + more
        await eventually(lambda: self.attempts >= enough)

    async def looks(self, more: int = 3) -> None:
        """Wait until it has looked some more times whether the Lease that it watches is over."""
        enough = self.looked + more
        await eventually(lambda: self.looked >= enough)

    def _is_over(self, spec: dict[str, Any]) -> bool:
        self.looked += 1
        return super()._is_over(spec)

    async def _try(self) -> bool | None:
        held = await super()._try()
        self.attempts += 1
        self.at_answer()
        return held

    def at_answer(self) -> None:
        """Run what happens while the answer to a try is under way."""

    async def _note(self) -> None:
        self.notes.append((self.identity, True))
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append((self.identity, False))


@asynccontextmanager
async def campaigning(candidate: Candidate) -> AsyncIterator[None]:
    """The candidate tries to lead, and leads, until the end of the block."""
    task = asyncio.create_task(candidate.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_one_of_two_candidates_leads_and_hands_over(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop, AsyncExitStack() as until_the_end:
        changes: list[tuple[str, bool]] = []
        first, second = Candidate(loop, "first", changes), Candidate(loop, "second", changes)
        async with campaigning(first):
            await eventually(lambda: first.leading)
            await until_the_end.enter_async_context(campaigning(second))
            await second.tries(1)
            await first.tries()
            assert (second.attempts, second.leading) == (1, False)  # since then it only watches
        # Given back, not run out: no time has passed.
        await eventually(lambda: changes == [("first", True), ("first", False), ("second", True)])
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "second"


async def test_leader_that_cannot_renew_steps_down_before_others_lead(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        leader = Candidate(loop, "cut-off")
        async with campaigning(leader):
            await eventually(lambda: leader.leading)
            fault = loop.server.faults.reset(resource="leases", count=None)
            leader.now = TERM.renew_deadline - 0.1
            await leader.tries()
            assert leader.leading
            leader.now = TERM.lease_duration - 0.1
            await eventually(lambda: not leader.leading)
            loop.server.faults.remove(fault)
            await eventually(lambda: leader.leading)


async def test_stopped_leader_is_uncertain_until_it_renews(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:

        class Stopped(Candidate):
            """One whose tasks run after a long stop, before it has tried to renew."""

            def at_answer(self) -> None:
                if self.attempts == 2:
                    said.append((self.leading, self.certain))
                    self.now = TERM.renew_deadline
                    said.append((self.leading, self.certain))

        said: list[tuple[bool, bool]] = []
        leader = Stopped(loop, "stopped")
        async with campaigning(leader):
            await eventually(lambda: said)
        assert said == [(True, True), (True, False)]


async def test_a_leader_without_a_lease_is_always_certain(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        alone = Candidate(loop, "alone")
        task = asyncio.create_task(alone.lead_alone())
        await eventually(lambda: alone.leading)
        alone.now = 10 * TERM.lease_duration
        assert alone.certain
        task.cancel()
        await asyncio.wait((task,))
        assert not alone.certain


async def test_leader_counts_its_lease_from_the_request(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:

        class Slow(Candidate):
            """One whose first answer comes just within the deadline, and none after it."""

            def at_answer(self) -> None:
                if self.attempts == 1:
                    self.now = TERM.renew_deadline - 0.1
                    loop.server.faults.reset(resource="leases", count=None)

        leader = Slow(loop, "slow")
        async with campaigning(leader):
            await leader.tries()
            assert leader.leading
            leader.now = TERM.lease_duration - 0.1
            await eventually(lambda: not leader.leading)


async def test_a_holder_that_went_silent_is_replaced_after_its_time(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.client.create(LEASES, held_by("dead"), namespace=NAMESPACE)
        heir = Candidate(loop, "heir")
        async with campaigning(heir):
            await heir.tries(1)
            heir.now = 14.9
            await heir.looks()
            assert not heir.leading
            heir.now = 15.0
            await eventually(lambda: heir.leading)
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["leaseTransitions"] == 5


async def test_standby_takes_over_a_deleted_lease(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.client.create(LEASES, held_by("dead"), namespace=NAMESPACE)
        heir = Candidate(loop, "heir")
        async with campaigning(heir):
            await heir.tries(1)
            await heir.looks()
            await loop.client.delete(LEASES, "leader", namespace=NAMESPACE)
            await eventually(lambda: heir.leading)


async def test_a_watch_that_is_cut_says_nothing_of_the_holder(tmp_path: Path) -> None:
    """Time passes for the candidate, and the watch tells it nothing: so it looks before it takes over."""
    async with closed_loop(tmp_path) as loop:
        await loop.client.create(LEASES, held_by("alive"), namespace=NAMESPACE)
        heir = Candidate(loop, "heir")
        async with campaigning(heir):
            await heir.tries(1)
            loop.server.faults.server_error(verb="watch", resource="leases", count=None)
            loop.server.faults.drop_watches("leases")
            heir.now = 14.9
            renewed = {"spec": {"renewTime": "2099-01-01T00:00:14.000000Z"}}
            await loop.client.patch(LEASES, "leader", renewed, namespace=NAMESPACE)
            await heir.tries()
            heir.now = 15.0
            await heir.tries()
            assert not heir.leading
            heir.now = 30.0
            await eventually(lambda: heir.leading)


async def test_lease_is_polled_without_watch_right_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.client.create(LEASES, held_by("alive"), namespace=NAMESPACE)
        forbidden = StatusError(403, "Forbidden", "the operator cannot watch resource leases")
        loop.server.faults.add(Fault(verb="watch", resource="leases", count=None, error=forbidden))
        heir = Candidate(loop, "heir")
        async with campaigning(heir):
            await heir.tries()
        (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert said.startswith(
            "cannot watch the leader election Lease, so it is read every 0.02 s instead: watch leases"
        )


async def test_leader_rereads_and_renews_a_lease_that_others_wrote(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        leader = Candidate(loop, "leader")
        async with campaigning(leader):
            await leader.tries()
            labels = {"metadata": {"labels": {"seen": "yes"}}}
            await loop.client.patch(LEASES, "leader", labels, namespace=NAMESPACE)
            await leader.tries()
            assert leader.leading
            await loop.client.patch(
                LEASES, "leader", {"spec": {"holderIdentity": "usurper"}}, namespace=NAMESPACE
            )
            await eventually(lambda: not leader.leading)


def held_by(identity: str) -> dict[str, Any]:
    """A Lease whose holder's clock is far ahead; only what the others see change counts."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": 15,
            "renewTime": "2099-01-01T00:00:00.000000Z",
            "leaseTransitions": 4,
        },
    }
