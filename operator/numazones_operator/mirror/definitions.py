"""Custom resources that the API server serves, from one watch of its CustomResourceDefinitions.

Clusters may do without some kinds that are mirrored here, and get them later. To ask for each of them again
and again would be several requests a minute, each answered with 404; so whoever was answered so waits here.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.cluster.cluster import is_true
from numazones_client import Resource
from numazones_client.table import Table

_OFTEN = 60.0
"""Seconds to wait where the definitions are not known, as they may not be read."""
_RARELY = 600.0
"""Seconds to wait where they are: what no definition tells of comes with an aggregated API, or an upgrade."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A CustomResourceDefinition: little of what may be a megabyte."""

    name: str
    """Plural and group, as RBAC names the resource."""
    versions: frozenset[str]
    """Versions that are served; none before it is established."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Definition":
        """Read a CustomResourceDefinition."""
        established = is_true(body.get("status") or {}, "Established")
        versions = (one["name"] for one in body["spec"]["versions"] if one.get("served") and established)
        return cls(body["metadata"]["name"], frozenset(versions))


class Definitions:
    """The definitions as last read, and who waits for one."""

    def __init__(self, *, known: Callable[[], bool]) -> None:
        """``known``: whether the table is up to date."""
        self.table: Table[Definition] = Table(lambda item: item.name, self._changed)
        self._known = known
        self._waiting: dict[asyncio.Future[None], Resource] = {}

    async def appearance(self, resource: Resource) -> None:
        """Wait until it is worth asking again for a resource that the API server did not serve just now."""
        if _serves(self.table.get(resource.full_name), resource):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = resource
        try:
            async with asyncio.timeout((_RARELY if self._known() else _OFTEN) * (1 + random.random())):
                await waiter
        except TimeoutError:
            return
        finally:
            del self._waiting[waiter]

    def _changed(self, _old: Definition | None, new: Definition | None) -> None:
        for waiter, resource in self._waiting.items():
            named = new is not None and new.name == resource.full_name
            if named and _serves(new, resource) and not waiter.done():
                waiter.set_result(None)


def _serves(definition: Definition | None, resource: Resource) -> bool:
    return definition is not None and resource.version in definition.versions
