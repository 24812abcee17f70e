"""The page's documents of a pipeline that is fed by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from numazones.cluster.usage import Usage
from numazones.errors import NumazonesError
from numazones_operator.options import OperatorOptions
from numazones_operator.page.updater import PageUpdater
from numazones_operator.page.usage import PageUsage
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from tests.operator.one_node_pipeline import OneNodePipeline


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
