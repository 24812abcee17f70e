"""Times at which the page's documents are updated, and how much of the event loop that takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.usage import NUMAUse, Usage
from numazones.errors import NumazonesError
from numazones.prediction.held_room import ArrivalPath
from numazones_operator.options import OperatorOptions
from numazones_operator.page.updater import PageUpdater
from numazones_operator.page.usage import PageUsage
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from tests.operator.closed_loop import pod_body
from tests.operator.one_node_pipeline import OneNodePipeline
from tests.operator.page.changes import changes


class Updates:
    """The documents of a pipeline that is fed by hand."""

    def __init__(self) -> None:
        self.setting = OneNodePipeline()
        self.moment = 0.0
        """Seconds that have passed for the room that is held."""
        self.held = HeldRoom(
            self.setting.state, clock=lambda: self.moment, wall=lambda: 1_700_000_000.0 + self.moment
        )
        self.now = 0.0
        self.look = 0.0
        """Seconds that pass from one look at the clock to the next."""
        self.slices: list[tuple[float, float]] = []
        """Seconds of work, and of rest after it."""
        self._rested = 0.0
        self.used: Usage | NumazonesError = Usage()
        """Answer of the exporters."""
        self.reads = asyncio.Event()
        """Set while they answer."""
        self.reads.set()
        self.usage = PageUsage(lambda: self._read, clock=lambda: self.moment)
        self.updater = PageUpdater(
            self.setting.pipeline,
            Inputs(Intent(self.setting.server)),  # type: ignore[arg-type]
            self.held,
            usage=self.usage,
            options=OperatorOptions(),
            metrics=self.setting.metrics,
            identity="test",
            clock=self._clock,
            sleep=self._sleep,
        )
        self.documents = self.updater.documents

    async def _read(self) -> Usage:
        await self.reads.wait()
        if isinstance(self.used, NumazonesError):
            raise self.used
        return self.used

    def _clock(self) -> float:
        self.now += self.look
        return self.now

    async def _sleep(self, seconds: float) -> None:
        self.slices.append((self.now - self._rested, seconds))
        self._rested = self.now
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.updater.viewer():
            task = asyncio.create_task(self.updater.run())
            try:
                yield
            finally:
                task.cancel()

    async def round(self) -> None:
        """Wait until a round has begun and ended."""
        await self.rounds(2)

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.documents.wait_for_change(self.documents.version)


async def test_the_updater_rests_longer_than_it_works() -> None:
    updates = Updates()
    updates.look = 0.0021
    async with updates.running():
        await updates.round()
    assert len(updates.slices) > 3
    assert all(rest > work for work, rest in updates.slices)


async def test_document_of_an_unused_machine_is_removed() -> None:
    updates = Updates()
    state = updates.setting.state
    async with updates.running():
        await updates.round()
        shown = changes(updates.documents)
        machine = f"machine/{shown['node/node']['machine']}"
        assert shown[machine]["sockets"]
        seen = updates.documents.version
        for node in list(state.nodes):
            state.nodes.remove(node)
        await updates.round()
        assert changes(updates.documents, seen) == {"node/node": None, "use/node": None, machine: None}


async def test_held_room_is_shown_until_it_ends() -> None:
    updates = Updates()
    pod = ClusterPod.from_api(pod_body("coming", cpu=2))
    async with updates.running():
        await updates.round()
        updates.held.hold(pod, ["node"], ArrivalPath.ASSUMED, seconds=60)
        await updates.round()
        key = "held/default/coming"
        shown = changes(updates.documents)[key]
        assert (shown["way"], shown["until"]) == ("being bound by a scheduler", "2023-11-14T22:14:20Z")
        assert shown["places"] == [["node", [0]]]
        seen = updates.documents.version
        updates.moment += 60
        await updates.round()
        assert changes(updates.documents, seen) == {key: None}


async def test_use_is_read_once_a_period() -> None:
    updates = Updates()
    updates.used = Usage({("node", 0): NUMAUse({"exclusive": 0.5, "shared": 0.123}, 5 << 20)})
    async with updates.running():
        await updates.rounds(3)
        seen = updates.documents.version
        shown = changes(updates.documents)["use/node"]
        assert shown["zones"] == [
            {"id": 0, "used": None, "shared": 0.12, "reserved": None, "memory": 5 << 20}
        ]
        updates.used = Usage({}, (), {"node": "no answer"})
        await updates.rounds(3)
        assert changes(updates.documents, seen) == {}
        updates.moment += 60
        await updates.rounds(3)
        assert changes(updates.documents, seen) == {"use/node": {"zones": [], "unknown": "no answer"}}


async def test_use_that_cannot_be_read_is_unknown() -> None:
    updates = Updates()
    updates.used = Usage({("node", 0): NUMAUse({}, 5 << 20)})
    async with updates.running():
        await updates.rounds(3)
        seen = updates.documents.version
        updates.used = NumazonesError("Prometheus does not answer")
        updates.moment += 60
        await updates.rounds(3)
        found = changes(updates.documents, seen)
        assert found["cluster/"]["note"].endswith("use unknown: Prometheus does not answer")
        assert found["use/node"] is None


async def test_page_is_updated_while_use_is_being_read() -> None:
    updates = Updates()
    updates.reads.clear()
    async with updates.running():
        await updates.rounds(3)
        assert changes(updates.documents)["node/node"]["ready"]
