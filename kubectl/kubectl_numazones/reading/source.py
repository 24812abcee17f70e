"""Source that a command reads: files, or a live cluster, all of whose objects are listed here."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numazones_client
from kubectl_numazones.printing import screen
from kubectl_numazones.reading.files import Object, Objects
from kubectl_numazones.reading.kinds import KINDS, NeededKind
from numazones.api.meta import NODE_LABEL
from numazones.errors import NumazonesError
from numazones_client import Forbidden, NotFound

_SIZE_OF_PAGE = 500
_ZONE = "NUMAZone"
_LOOKS, _PAUSE = 5, 0.5
"""So often, after so many seconds each, are zones listed again that were being written."""
_MAX_SELECTED = 50
"""Of more nodes than these all zones are listed again."""


@dataclass(frozen=True, slots=True)
class Source:
    """Place to read from."""

    files: tuple[Path, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = ""
    """The namespace that names without one are looked for in; empty: the context's, or ``default``."""
    user: str = ""
    """Whom to act as; empty: oneself."""
    groups: tuple[str, ...] = ()
    """Groups to act as a member of."""


async def connect(source: Source) -> "numazones_client.Client":
    """Return a client of the source's cluster.

    Raises:
        NumazonesError: no API server is configured.
    """
    config = await numazones_client.load(source.kubeconfig, context=source.context)
    if source.user:
        config = replace(config, user=source.user, groups=source.groups)
    return numazones_client.Client(config, user_agent="kubectl-numazones")


async def listed(source: Source) -> tuple[Objects, str]:
    """List all objects, zones that are just being written once more; with the namespace in use."""
    import asyncio  # noqa: PLC0415 - dumps need no event loop

    left_out: set[str] = set()

    def leave_out(kind: NeededKind, error: NumazonesError) -> None:
        if kind.needed:
            raise error
        left_out.add(kind.kind)
        if not (kind.foreign and isinstance(error, NotFound)):
            screen.warn(f"{kind.kind} objects were left out: {error}")

    async with await connect(source) as client:
        items = [item async for item in list_objects(client, KINDS, leave_out)]
        for _ in range(_LOOKS):
            nodes = _nodes_being_written(items)
            if not nodes:
                break
            await asyncio.sleep(_PAUSE)
            selector = f"{NODE_LABEL} in ({','.join(sorted(nodes))})" if len(nodes) <= _MAX_SELECTED else ""
            zones = [kind._replace(selector=selector) for kind in KINDS if kind.kind == _ZONE]
            again = [zone async for zone in list_objects(client, zones, leave_out) if _node_of(zone) in nodes]
            items = [item for item in items if item["kind"] != _ZONE or _node_of(item) not in nodes] + again
        read = frozenset(kind.kind for kind in KINDS) - left_out
        return Objects.of(items, read), client.config.namespace


def _nodes_being_written(items: Iterable[Object]) -> set[str]:
    """Nodes of which some zones were written already, and others not yet."""
    moments: dict[str, set[str]] = {}
    for item in items:
        if item["kind"] == _ZONE:
            moment = (item.get("status") or {}).get("snapshot")
            moments.setdefault(_node_of(item), set()).add(str(moment))
    return {node for node, found in moments.items() if len(found) > 1}


def _node_of(zone: Object) -> str:
    return str((zone.get("spec") or {}).get("nodeName"))


async def list_objects(
    client: "numazones_client.Client",
    kinds: Iterable[NeededKind],
    leave_out: Callable[[NeededKind, NumazonesError], None],
) -> AsyncIterator[Object]:
    """Yield all objects of some kinds; told of a kind that is not there or must not be read, go on."""
    for kind in kinds:
        try:
            pages = client.pages(kind.resource, label_selector=kind.selector, limit=_SIZE_OF_PAGE)
            async for page in pages:
                for item in page.items:
                    yield {**item, "kind": kind.kind}
        except (NotFound, Forbidden) as error:
            leave_out(kind, error)
