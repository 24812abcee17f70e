"""From the API server's bytes to the few fields that are kept of each object.

A list of fifty thousand pods is read page by page, and of each pod only what some rule needs survives. One
object that cannot be read must not keep the others from being seen, so it is dropped here, with a warning
that names it.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from numazones.cluster import ClusterNode
from numazones.errors import NumazonesError
from numazones_client import Event, Page
from numazones_client.decoding import BOOKMARK, ERROR

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FieldDecoder(Generic[T]):
    """Decodes lists and events with a function that keeps the needed fields of one object."""

    def __init__(self, keep: Callable[[Mapping[str, Any]], T]) -> None:
        self._keep = keep

    def page(self, body: bytes) -> Page[T]:
        """Decode the body of a list."""
        document = json.loads(body)
        metadata = document.get("metadata") or {}
        kept = (self._one(item) for item in document.get("items") or ())
        return Page(
            [item for item in kept if item is not None],
            metadata.get("resourceVersion") or "",
            metadata.get("continue") or "",
        )

    def event(self, line: bytes) -> Event[T]:
        """Decode one line of a watch; an object that cannot be read comes as None, like a bookmark's."""
        document = json.loads(line)
        kind, body = document["type"], document["object"]
        if kind == ERROR:
            return Event(kind, None, "", body)
        version = (body.get("metadata") or {}).get("resourceVersion") or ""
        return Event(kind, None if kind == BOOKMARK else self._one(body), version)

    def _one(self, body: Mapping[str, Any]) -> T | None:
        try:
            return self._keep(body)
        except (NumazonesError, KeyError, TypeError, ValueError, AttributeError) as error:
            metadata = body.get("metadata")
            name = metadata.get("name") if isinstance(metadata, Mapping) else None
            _log.warning("%s %s is left out: %r", body.get("kind") or "object", name or "(unnamed)", error)
            return None


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """A NUMAZone as it was published, not yet judged."""

    name: str
    node: str
    numa_id: int
    snapshot: str
    zones: int
    """How many zones the node has."""
    body: Mapping[str, Any] | None
    """The whole object; None once the node's zones have been read together."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "ZoneReport":
        """Read a NUMAZone."""
        spec, status = body["spec"], body.get("status") or {}
        return cls(
            body["metadata"]["name"],
            spec["nodeName"],
            spec["numaID"],
            status.get("snapshot") or "",
            status.get("zones") or 0,
            body,
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The Lease of a node's exporter."""

    node: str
    renewed: str
    """``renewTime`` as written: any change of it is a sign of life."""
    duration: float
    """Seconds."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Heartbeat":
        """Read a Lease that carries the label of its node."""
        spec = body["spec"]
        return cls(
            body["metadata"]["labels"]["numazones.io/node"],
            spec.get("renewTime") or "",
            float(spec.get("leaseDurationSeconds") or 0),
        )


@dataclass(frozen=True, slots=True)
class TopologyReport:
    """A NodeResourceTopology as somebody published it."""

    node: str
    body: Mapping[str, Any]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "TopologyReport":
        """Read a NodeResourceTopology; it is named after its node."""
        return cls(body["metadata"]["name"], body)


@dataclass(frozen=True, slots=True)
class NamespaceLabels:
    """A namespace's labels."""

    name: str
    labels: Mapping[str, str]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "NamespaceLabels":
        """Read a Namespace."""
        return cls(body["metadata"]["name"], body["metadata"].get("labels") or {})


NODES = FieldDecoder(ClusterNode.from_api)
ZONES = FieldDecoder(ZoneReport.from_api)
HEARTBEATS = FieldDecoder(Heartbeat.from_api)
TOPOLOGIES = FieldDecoder(TopologyReport.from_api)
NAMESPACES = FieldDecoder(NamespaceLabels.from_api)
