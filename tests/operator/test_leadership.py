"""Leader election: one leads, another takes over from a silent one, a cut-off leader steps down by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from numazones_client.resources import LEASES
from numazones_operator.leadership import Leadership, Term
from tests.operator.closed_loop import Loop, closed_loop, eventually

NAMESPACE = "numazones-system"
TERM = Term(lease_duration=10.0, renew_deadline=6.0, retry_period=0.02)


class Candidate(Leadership):
    """One that notes when it begins and ceases to lead, and whose clock the test sets."""

    def __init__(self, loop: Loop, identity: str, notes: list[tuple[str, bool]] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.now = 0.0
        self.attempts = 0
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

    async def _try(self, renewed: float) -> bool | None:
        held = await super()._try(renewed)
        self.attempts += 1
        self.at_answer()
        return held

    def at_answer(self) -> None:
        """What happens while the answer to a try is under way."""

    async def _note(self) -> None:
        self.notes.append((self._identity, True))
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append((self._identity, False))


@asynccontextmanager
async def campaigning(candidate: Candidate) -> AsyncIterator[None]:
    """The candidate tries to lead, and leads, until the end of the block."""
    task = asyncio.create_task(candidate.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_of_two_candidates_one_leads_and_hands_over_when_it_ends(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop, AsyncExitStack() as until_the_end:
        changes: list[tuple[str, bool]] = []
        first, second = Candidate(loop, "first", changes), Candidate(loop, "second", changes)
        async with campaigning(first):
            await eventually(lambda: first.leading)
            await until_the_end.enter_async_context(campaigning(second))
            await second.tries()
            assert not second.leading
        # Given back, not run out: no time has passed.
        await eventually(lambda: changes == [("first", True), ("first", False), ("second", True)])
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "second"


async def test_a_leader_that_cannot_renew_steps_down_before_others_may_take_over(tmp_path: Path) -> None:
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


async def test_a_leader_counts_its_time_from_the_asking_as_others_may_from_the_write(tmp_path: Path) -> None:
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
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": "leader", "namespace": NAMESPACE},
            # Its clock is far ahead; only what the others see change counts.
            "spec": {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 15,
                "renewTime": "2099-01-01T00:00:00.000000Z",
                "leaseTransitions": 4,
            },
        }
        await loop.client.create(LEASES, body, namespace=NAMESPACE)
        heir = Candidate(loop, "heir")
        async with campaigning(heir):
            await heir.tries()
            heir.now = 14.9
            await heir.tries()
            assert not heir.leading
            heir.now = 15.0
            await eventually(lambda: heir.leading)
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["leaseTransitions"] == 5
