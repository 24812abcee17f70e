"""This node's pods, as far as they tell which of the kubelet's records still count.

State files keep pods that have ended for a while, and know them by uid only; the pods give names, phases
and QoS classes. They come from the API server or from a recorded PodList of the whole cluster.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import NodePod
from numazones_exporter.sources.documents import read_document
from numazones_node.problems import SourceError

_MIRROR = "kubernetes.io/config.mirror"
_STATIC_UID = "kubernetes.io/config.hash"


class PodsReader(Protocol):
    """Something that knows this node's pods."""

    async def read(self) -> tuple[NodePod, ...]:
        """Return the pods, by namespace and name; raises ``SourceError`` or an API error."""
        ...


class FilePodsReader:
    """Reads a recorded PodList; pods of other nodes are left out."""

    def __init__(self, path: Path, node_name: str, read: ReadFile = read_file) -> None:
        """``path`` of a PodList (or List) in JSON or YAML, and what reads it."""
        self._path = path
        self._read = read
        self._node_name = node_name

    async def read(self) -> tuple[NodePod, ...]:
        """Read the file.

        Raises:
            SourceError: the file is missing or is not a PodList.
        """
        items = read_document(self._path, self._read).get("items")
        if not isinstance(items, list):
            raise SourceError("InvalidDocument", f"{self._path} is not a PodList: it has no 'items' list")
        try:
            return pods_of(items, self._node_name)
        except (TypeError, AttributeError, KeyError) as error:
            raise SourceError("InvalidDocument", f"{self._path} is not a PodList: {error!r}") from error


def pods_of(items: Iterable[Mapping[str, Any]], node_name: str) -> tuple[NodePod, ...]:
    """Take what matters from the pods bound to a node."""
    pods = (pod_of(item) for item in items if (item.get("spec") or {}).get("nodeName") == node_name)
    return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))


def pod_of(item: Mapping[str, Any]) -> NodePod:
    """Take what matters from one pod; TypeError, KeyError, AttributeError: it is none."""
    metadata, status = item["metadata"], item.get("status") or {}
    annotations = metadata.get("annotations") or {}
    uid = metadata.get("uid") or ""
    static = _MIRROR in annotations
    if static:  # the kubelet records a static pod under its own uid, not its mirror's
        uid = annotations.get(_STATIC_UID) or annotations[_MIRROR]
    texts = (
        metadata.get("namespace") or "default",
        metadata["name"],
        uid,
        status.get("phase") or "",
        status.get("qosClass") or "",
    )
    created = metadata.get("creationTimestamp") or ""
    if not all(isinstance(text, str) for text in (*texts, created)):
        raise TypeError(f"namespace, name, uid, phase and QoS class must be strings, not {texts}")
    deleting = metadata.get("deletionTimestamp") is not None
    return NodePod(*texts, deleting=deleting, static=static, created=created)
