"""Tells when a zone that was published is gone, because somebody deleted it, its Node or its definition.

Each zone has a watch of its own, with the field selector ``metadata.name``: an API server hands an event to
the watches of that name alone. A selector by label would have it look at every change of every zone for every
exporter, which costs it the square of the number of nodes.
"""

import asyncio
from collections.abc import Collection

from numazones_client import Client, Decoder, Reflector, Table
from numazones_client.resources import NUMAZONES
from numazones_exporter.triggers import ZONES, Wakeups


class WatchedZones:
    """Wakes the exporter when a published zone is gone; a zone is watched from its publishing until then."""

    def __init__(self, client: Client, wakeups: Wakeups) -> None:
        """Watch nothing yet."""
        self._client = client
        self._wakeups = wakeups
        self._names: Collection[str] = ()
        self._published = asyncio.Event()

    def follow(self, names: Collection[str]) -> None:
        """Watch these zones, which have been published, and no others."""
        self._names = names
        self._published.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        watches: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._published.wait()
                self._published.clear()
                for name in watches.keys() - self._names:
                    watches.pop(name).cancel()
                for name in self._names:
                    if name not in watches or watches[name].done():
                        # What keeps one zone from being watched keeps all; one of them says so.
                        quiet = any(not watch.done() for watch in watches.values())
                        watches[name] = tasks.create_task(self._watch(name, quiet=quiet))

    async def _watch(self, name: str, *, quiet: bool) -> None:
        """Watch one zone until it is gone, or the API server knows no zones at all; then wake."""
        gone = asyncio.Event()

        def changed(_before: str | None, after: str | None) -> None:
            if after is None:
                gone.set()

        zones: Table[str] = Table(str, changed)
        zones.put(name)  # so that a list without it tells that it is gone
        mirror = Reflector(
            self._client,
            NUMAZONES,
            decoder=Decoder(lambda zone: str(zone["metadata"]["name"])),
            table=zones,
            field_selector=f"metadata.name={name}",
            optional=True,
            quiet=quiet,
        )
        async with asyncio.TaskGroup() as tasks:
            mirroring = tasks.create_task(mirror.run())
            await gone.wait()
            mirroring.cancel()
        self._wakeups.wake(ZONES)
