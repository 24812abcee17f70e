"""Keeps what runs in a simulated cluster informed: every object once, then every change.

List, watch from there, and after a break list again (the API concepts' "efficient detection of changes").
Objects that vanished during a break are reported as deleted, so that who listens need not know of it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from numazones_client import APIError, Client, Resource

_PAUSE = 0.5
_Objects = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to an object; ``object`` is its last known state when it was deleted."""

    object: dict[str, Any]
    deleted: bool = False

    @property
    def uid(self) -> str:
        """metadata.uid of the object."""
        return str(self.object["metadata"]["uid"])


async def changes(
    client: Client, resource: Resource, *, field_selector: str = ""
) -> AsyncIterator[list[Change]]:
    """Yield the current objects as one batch, then each change; never ends.

    Args:
        client: how to reach the server.
        resource: what to watch, in all namespaces.
        field_selector: narrows it down.
    """
    known: _Objects = {}
    while True:
        try:
            items, version = await _listed(client, resource, field_selector)
            yield _differences(known, items)
            known = items
            while True:
                async for event in client.watch(
                    resource, resource_version=version, field_selector=field_selector
                ):
                    version = event.resource_version
                    if event.object is None:
                        continue
                    change = Change(event.object, deleted=event.type == "DELETED")
                    if change.deleted:
                        known.pop(change.uid, None)
                    else:
                        known[change.uid] = change.object
                    yield [change]
        except APIError:
            await asyncio.sleep(_PAUSE)


async def _listed(client: Client, resource: Resource, field_selector: str) -> tuple[_Objects, str]:
    """Objects by uid, and the version from which to watch."""
    items: _Objects = {}
    version = ""
    async for page in client.pages(resource, field_selector=field_selector):
        items |= {item["metadata"]["uid"]: item for item in page.items}
        version = page.resource_version
    return items, version


def _differences(known: _Objects, current: _Objects) -> list[Change]:
    vanished = [Change(item, deleted=True) for uid, item in known.items() if uid not in current]
    changed = [
        Change(item)
        for uid, item in current.items()
        if uid not in known or _version(known[uid]) != _version(item)
    ]
    return vanished + changed


def _version(item: dict[str, Any]) -> str:
    return str(item["metadata"].get("resourceVersion", ""))
