"""Lets pods come and go on a running cluster: new ones as fast as the cluster takes them, old ones at random.

A pod counts as settled when a kubelet has decided on it, the scheduler has said that no node has room, or it
waits at the gate because no node would admit it.
Only settled pods are deleted, so that each one's fate is known before it goes. One that waits may still get
its room: then that is its fate.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numazones.cluster.cluster import create_error
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.prediction.forecast import INADMISSIBLE
from numazones_client import Client, NotFound
from numazones_client.resources import ADMISSION_PREDICTIONS, PODS
from numazones_simulator.background import background
from numazones_simulator.mirror import Body, mirror

UNSCHEDULABLE = "Unschedulable"
RUNNING = "Running"


@dataclass(slots=True)
class PodFates:
    """Counts of the pods by their fate."""

    counts: Counter[str] = field(default_factory=Counter)
    """Running, the kubelet's reason of a rejection, or Unschedulable for those that still wait → pods."""

    @property
    def total(self) -> int:
        """Return how many pods have been decided on."""
        return self.counts.total()

    @property
    def bound(self) -> int:
        """Return how many pods a kubelet has decided on."""
        return self.total - self.counts[UNSCHEDULABLE]

    @property
    def rejected(self) -> int:
        """Return how many pods a kubelet, or its runtime, rejected."""
        return self.bound - self.counts[RUNNING]

    def __str__(self) -> str:
        return ", ".join(f"{count} {fate}" for fate, count in self.counts.most_common() if count)


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
        self._pods = mirror(client, PODS, self._take_pod)
        self._predictions = mirror(client, ADMISSION_PREDICTIONS, self._take_prediction)
        self._new = pods
        self._crowd = crowd
        self._in_flight = in_flight
        self._draw = random.Random(seed)
        # Pods are named NAMESPACE/NAME.
        self._waiting: set[str] = set()
        self._settled: list[str] = []
        self._known: dict[str, str] = {}
        """Settled pod → its fate."""
        self._gated: set[str] = set()
        self._inadmissible: set[str] = set()
        """Pods that no node would admit, says the operator."""
        self._moved = asyncio.Event()
        self._progress: Callable[[int], None] = lambda _: None
        self.fates = PodFates()

    async def run(self, count: int, *, progress: Callable[[int], None] = lambda _: None) -> PodFates:
        """Create a number of pods; return when all have been decided on.

        ``progress`` gets the number of settled pods as it grows.
        """
        self._progress = progress
        async with background(self._pods.reflector.run(), self._predictions.reflector.run()):
            for _ in range(count):
                await self._create(next(self._new))
            await self._until_fewer_wait_than(1)
        return self.fates

    async def _until_fewer_wait_than(self, number: int) -> None:
        while len(self._waiting) >= number:
            self._moved.clear()
            await self._moved.wait()

    async def _create(self, pod: dict[str, Any]) -> None:
        await self._until_fewer_wait_than(self._in_flight)
        self._waiting.add(_key(pod))
        await self._client.create(PODS, pod, namespace=pod["metadata"]["namespace"])
        if len(self._settled) > self._crowd:
            namespace, name = self._settled.pop(self._draw.randrange(len(self._settled))).split("/")
            try:
                await self._client.delete(PODS, name, namespace=namespace)
            except NotFound:
                return  # somebody else deleted it

    def _take_pod(self, before: Body | None, after: Body | None) -> None:
        body = after or before
        if body is None:
            return
        key = _key(body)
        if after is None:
            self._gated.discard(key)
            self._inadmissible.discard(key)
            self._waiting.discard(key)
            self._moved.set()
            return
        if after["spec"].get("schedulingGates"):
            self._gated.add(key)
        else:
            self._gated.discard(key)
        self._settle(key, fate_of(after) or self._fate_at_the_gate(key))

    def _take_prediction(self, before: Body | None, after: Body | None) -> None:
        body = after or before
        if body is None:
            return
        key = _key(body)
        if after is not None and (after.get("status") or {}).get("verdict") == INADMISSIBLE:
            self._inadmissible.add(key)
        else:
            self._inadmissible.discard(key)
        self._settle(key, self._fate_at_the_gate(key))

    def _fate_at_the_gate(self, key: str) -> str:
        """A pod at the gate that no node would admit stays there until something changes.

        Pod and prediction are watched side by side: either may be seen first.
        """
        return UNSCHEDULABLE if key in self._gated and key in self._inadmissible else ""

    def _settle(self, key: str, fate: str) -> None:
        if not fate:
            return
        if key in self._waiting:
            self._waiting.discard(key)
            self._moved.set()
            self._known[key] = fate
            self.fates.counts[fate] += 1
            self._settled.append(key)
            self._progress(self.fates.total)
        elif self._known.get(key) == UNSCHEDULABLE != fate:
            # It got its room after all: what the kubelet made of it counts.
            self._known[key] = fate
            self.fates.counts[UNSCHEDULABLE] -= 1
            self.fates.counts[fate] += 1


def _key(body: Body) -> str:
    """Name a pod, or the pod of a prediction."""
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def fate_of(pod: Body) -> str:
    """Return what became of a pod: Running, a reason, Unschedulable; empty while that is open."""
    status = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Failed":
        return str(status.get("reason") or phase)
    if create_error(status):
        return CREATE_CONTAINER_ERROR
    if phase != "Pending":
        return RUNNING
    unscheduled = not pod["spec"].get("nodeName") and any(
        condition.get("reason") == UNSCHEDULABLE for condition in status.get("conditions") or ()
    )
    return UNSCHEDULABLE if unscheduled else ""
