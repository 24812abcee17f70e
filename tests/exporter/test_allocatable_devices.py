"""Device plugins that die leave no trace in any file; time is simulated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from numazones.api.snapshot import KnownDevice
from numazones_exporter.allocatable_devices import PAUSE_SECONDS, AllocatableDevicesWatch
from numazones_exporter.triggers import DEVICE_PLUGINS, INTERVAL, Wakeups
from numazones_node.problems import SourceError

pytestmark = pytest.mark.looptime

NIC = KnownDevice("vendor.example/nic", "nic-0", 0b01)
HOUR = 3600.0


class Kubelet:
    """Offers what a test says; None: it does not answer."""

    def __init__(self) -> None:
        self.offer: tuple[KnownDevice, ...] | None = (NIC,)

    async def ask(self) -> tuple[KnownDevice, ...]:
        if self.offer is None:
            raise SourceError("CannotConnect", "kubelet.sock: is the kubelet running?")
        return self.offer


@asynccontextmanager
async def watched(kubelet: Kubelet) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups()
    task = asyncio.create_task(AllocatableDevicesWatch(kubelet.ask, wakeups).run())
    yield wakeups
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_unchanged_allocatable_devices_do_not_wake() -> None:
    async with watched(Kubelet()) as wakeups:
        assert await wakeups.wait(HOUR) == {INTERVAL}


@pytest.mark.parametrize("offer", [(), (KnownDevice("vendor.example/nic", "nic-0", 0b10),), (NIC, NIC)])
async def test_changed_allocatable_devices_wake_within_seconds(offer: tuple[KnownDevice, ...]) -> None:
    kubelet = Kubelet()
    async with watched(kubelet) as wakeups:
        await asyncio.sleep(1)
        kubelet.offer = offer
        assert await wakeups.wait(2 * PAUSE_SECONDS) == {DEVICE_PLUGINS}
        assert await wakeups.wait(HOUR) == {INTERVAL}


async def test_silent_kubelet_does_not_wake_but_a_change_meanwhile_does() -> None:
    kubelet = Kubelet()
    async with watched(kubelet) as wakeups:
        await asyncio.sleep(1)
        kubelet.offer = None
        assert await wakeups.wait(HOUR) == {INTERVAL}
        kubelet.offer = (NIC,)
        assert await wakeups.wait(HOUR) == {INTERVAL}
        kubelet.offer = None
        await asyncio.sleep(HOUR)
        kubelet.offer = ()
        assert await wakeups.wait(2 * PAUSE_SECONDS) == {DEVICE_PLUGINS}
