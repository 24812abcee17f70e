"""Lets pods come and go on a running cluster: new ones as fast as the cluster takes them, old ones at random.

A pod counts as settled when a kubelet has decided on it, or the scheduler has said that no node has room.
Only settled pods are deleted, so that each one's fate is known before it goes.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numazones_client import Client, NotFound
from numazones_client.resources import PODS
from numazones_simulator.background import background
from numazones_simulator.watching import Change, changes

UNSCHEDULABLE = "Unschedulable"
RUNNING = "Running"


@dataclass(slots=True)
class Fates:
    """What became of the pods."""

    counts: Counter[str] = field(default_factory=Counter)
    """Running, the kubelet's reason of a rejection, or Unschedulable → pods."""

    @property
    def total(self) -> int:
        """How many pods have settled."""
        return self.counts.total()

    @property
    def bound(self) -> int:
        """How many pods a kubelet has decided on."""
        return self.total - self.counts[UNSCHEDULABLE]

    def __str__(self) -> str:
        return ", ".join(f"{count} {fate}" for fate, count in self.counts.most_common())


class Turnover:
    """Creates and deletes pods.

    Args:
        client: how to reach the API server.
        pods: what to create, in order.
        crowd: how many settled pods stay; beyond it, one goes for each that comes.
        in_flight: how many pods may be waiting for their fate at a time.
        seed: of the choice of pods that go.
    """

    def __init__(
        self,
        client: Client,
        pods: Iterator[dict[str, Any]],
        *,
        crowd: int,
        in_flight: int = 10,
        seed: int = 0,
    ) -> None:
        self._client = client
        self._new = pods
        self._crowd = crowd
        self._in_flight = in_flight
        self._draw = random.Random(seed)
        self._waiting: set[str] = set()
        self._settled: list[tuple[str, str]] = []
        self._moved = asyncio.Condition()
        self.fates = Fates()

    async def run(self, count: int, *, progress: Callable[[int], None] = lambda _: None) -> Fates:
        """Create a number of pods; return when all have settled.

        Args:
            count: how many.
            progress: told the number of settled pods as it grows.
        """
        async with background(self._follow(progress)):
            for _ in range(count):
                await self._create(next(self._new))
            async with self._moved:
                await self._moved.wait_for(lambda: not self._waiting)
        return self.fates

    async def _create(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        async with self._moved:
            await self._moved.wait_for(lambda: len(self._waiting) < self._in_flight)
            self._waiting.add(f"{metadata['namespace']}/{metadata['name']}")
        await self._client.create(PODS, pod, namespace=metadata["namespace"])
        if len(self._settled) > self._crowd:
            namespace, name = self._settled.pop(self._draw.randrange(len(self._settled)))
            try:
                await self._client.delete(PODS, name, namespace=namespace)
            except NotFound:
                return  # somebody else deleted it

    async def _follow(self, progress: Callable[[int], None]) -> None:
        async for batch in changes(self._client, PODS):
            async with self._moved:
                for change in batch:
                    self._see(change)
                self._moved.notify_all()
            progress(self.fates.total)

    def _see(self, change: Change) -> None:
        metadata = change.object["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        fate = fate_of(change.object)
        if key not in self._waiting or not (fate or change.deleted):
            return
        self._waiting.discard(key)
        if fate:
            self.fates.counts[fate] += 1
            self._settled.append((metadata["namespace"], metadata["name"]))


def fate_of(pod: dict[str, Any]) -> str:
    """What became of a pod: Running, a reason, Unschedulable; the empty text while that is open."""
    status = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Failed":
        return str(status.get("reason") or phase)
    if phase != "Pending":
        return RUNNING
    unscheduled = not pod["spec"].get("nodeName") and any(
        condition.get("reason") == UNSCHEDULABLE for condition in status.get("conditions") or ()
    )
    return UNSCHEDULABLE if unscheduled else ""
