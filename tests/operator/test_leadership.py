"""Leader election: one leads, another takes over from a silent one, a cut-off leader steps down by itself."""

import asyncio
from pathlib import Path

from numazones_client.resources import LEASES
from numazones_operator.leadership import Leadership, Term

from .closed_loop import Loop, closed_loop, eventually

NAMESPACE = "numazones-system"
TERM = Term(lease_duration=1.0, renew_deadline=0.6, retry_period=0.1)


class Candidate(Leadership):
    """One that notes when it begins and ceases to lead."""

    def __init__(self, loop: Loop, identity: str, notes: list[tuple[str, bool]] | None = None) -> None:
        self.notes = [] if notes is None else notes
        super().__init__(
            loop.client, name="leader", namespace=NAMESPACE, identity=identity, term=TERM, lead=self._note
        )

    async def _note(self) -> None:
        self.notes.append((self._identity, True))
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append((self._identity, False))


async def test_of_two_candidates_one_leads_and_hands_over_when_it_ends(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        changes: list[tuple[str, bool]] = []
        first, second = Candidate(loop, "first", changes), Candidate(loop, "second", changes)
        leading = asyncio.create_task(first.run())
        await eventually(lambda: first.leading)
        following = asyncio.create_task(second.run())
        await asyncio.sleep(1.5)
        assert not second.leading
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        await eventually(lambda: second.leading, patience=0.8)  # given back, not run out
        assert changes == [("first", True), ("first", False), ("second", True)]
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "second"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_leader_that_cannot_renew_steps_down_before_others_may_take_over(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        leader = Candidate(loop, "cut-off")
        task = asyncio.create_task(leader.run())
        await eventually(lambda: leader.leading)
        renewed = asyncio.get_running_loop().time()
        fault = loop.server.faults.reset(resource="leases", count=None)
        await eventually(lambda: not leader.leading, patience=5)
        stepped_down = asyncio.get_running_loop().time() - renewed
        assert stepped_down < 5
        loop.server.faults.remove(fault)
        await eventually(lambda: leader.leading)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_holder_that_went_silent_is_replaced_after_its_time(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": "leader", "namespace": NAMESPACE},
            # Its clock is far ahead; only what the others see change counts.
            "spec": {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 1,
                "renewTime": "2099-01-01T00:00:00.000000Z",
                "leaseTransitions": 4,
            },
        }
        await loop.client.create(LEASES, body, namespace=NAMESPACE)
        heir = Candidate(loop, "heir")
        task = asyncio.create_task(heir.run())
        await asyncio.sleep(0.5)
        assert not heir.leading
        await eventually(lambda: heir.leading, patience=5)
        lease = await loop.client.get(LEASES, "leader", namespace=NAMESPACE)
        assert lease["spec"]["leaseTransitions"] == 5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
