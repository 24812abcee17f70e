"""The cluster's objects, kept current by watches, for whoever wants to see all of them at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from kubectl_numazones.live.events import OPERATOR
from kubectl_numazones.reading.files import Object
from kubectl_numazones.reading.kinds import KINDS, NeededKind
from numazones_client import JSON, Client, Reflector, Table, by_name
from numazones_client.reflector import NOT_LISTED
from numazones_client.resources import EVENTS

_SETTLE = 0.5
"""Seconds that further changes are waited for: a rollout is many events and one picture."""


class ClusterMirror:
    """Mirrors every kind that commands read."""

    def __init__(self, client: Client) -> None:
        """Prepare to mirror; ``run`` does it."""
        self._client = client
        self._changed = asyncio.Event()
        self._events: Table[dict[str, Any]] = Table(_key)
        self._event_reflector: Reflector[dict[str, Any]] | None = None
        self._tables: dict[str, Table[dict[str, Any]]] = {}
        self._reflectors: dict[NeededKind, Reflector[dict[str, Any]]] = {}
        for kind in KINDS:
            table = Table(_key, lambda _before, _after: self._changed.set())
            self._tables[kind.kind] = table
            self._reflectors[kind] = Reflector(
                client, kind.resource, decoder=JSON, table=table, optional=not kind.needed
            )

    @property
    def events(self) -> list[Object]:
        """The events that the operator writes; none before ``follow_events`` has read them."""
        return list(self._events)

    @property
    def events_known(self) -> bool:
        """Return whether the operator's events have been listed."""
        return self._event_reflector is not None and self._event_reflector.synced.is_set()

    @property
    def events_problem(self) -> str:
        """Return why the events may be out of date; empty if they are current, or just being listed."""
        reflector = self._event_reflector
        return "" if reflector is None or reflector.problem == NOT_LISTED else reflector.problem

    async def follow_events(self, changed: Callable[[], None]) -> None:
        """Mirror the events that the operator writes until cancelled; ``changed`` is told of each."""
        self._events = Table(_key, lambda _before, _after: changed())
        self._event_reflector = Reflector(
            self._client, EVENTS, decoder=JSON, table=self._events, field_selector=f"source={OPERATOR}"
        )
        await self._event_reflector.run()

    @property
    def problem(self) -> str:
        """Return why the view may be out of date; empty if it is current, or just being read."""
        needed = (reflector.problem for kind, reflector in self._reflectors.items() if kind.needed)
        return next((problem for problem in needed if problem not in ("", NOT_LISTED)), "")

    @property
    def forbidden(self) -> tuple[NeededKind, ...]:
        """The kinds that must not be read, and that answers are possible without."""
        return tuple(
            kind for kind, reflector in self._reflectors.items() if reflector.forbidden and not kind.needed
        )

    async def run(self) -> None:
        """Mirror until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run())

    async def states(self) -> AsyncIterator[list[Object]]:
        """Yield all objects, once everything needed is known and then after changes."""
        for kind, reflector in self._reflectors.items():
            if kind.needed:
                await reflector.synced.wait()
        while True:
            self._changed.clear()
            yield [{**item, "kind": kind} for kind, table in self._tables.items() for item in table]
            await self._changed.wait()
            await asyncio.sleep(_SETTLE)


def _key(item: dict[str, Any]) -> str:
    return by_name(item["metadata"])
