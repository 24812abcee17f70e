"""Mirror that the parts of a simulated cluster share: all objects of a resource, and each change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numazones_client import JSON, Client, Pace, Reflector, Resource, Table, by_uid

Body = dict[str, Any]
# Whoever admits or counts pods must see all that exist before deciding on the first.
_ALL_AT_ONCE = Pace(page_size=0)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Whole objects by uid; run ``reflector`` as a task."""

    objects: Table[Body]
    reflector: Reflector[Body]


def mirror(client: Client, resource: Resource, changed: Callable[[Body | None, Body | None], None]) -> Mirror:
    """Mirror a resource in all namespaces; ``changed`` is told (before, after) as a ``Table`` tells it."""
    objects: Table[Body] = Table(
        lambda body: by_uid(body["metadata"]),
        changed,
        outdated=lambda known, body: _version(body) <= _version(known),
    )
    return Mirror(objects, Reflector(client, resource, decoder=JSON, table=objects, pace=_ALL_AT_ONCE))


def _version(body: Body) -> int:
    """The resource version, which Kubernetes promises to grow (KEP-5504)."""
    return int(body["metadata"].get("resourceVersion") or 0)
