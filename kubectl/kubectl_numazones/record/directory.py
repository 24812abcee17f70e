"""Writes a recorded node as a directory, whole or not at all."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.recorded_files import (
    CONFIGURATION,
    HISTORY,
    NODE,
    OBJECTS,
    PLUGINS,
    TREE,
    ZONES,
)
from kubectl_numazones.reading.recording import HELD, REJECTED, SNAPSHOT
from kubectl_numazones.record.recorded_node import Body, NodeRecording
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.rejection import STATUS_PREFIX
from numazones_program.recordings import archive_of


def refuse_existing(directory: Path) -> None:
    """Refuse to write where something is.

    Raises:
        BadDump: there is.
    """
    if directory.exists() or directory.is_symlink():
        raise BadDump(f"{directory} already exists; use another directory, or remove it")


def write(found: NodeRecording, directory: Path) -> None:
    """Write a recording; on whatever goes wrong, and on Ctrl-C, nothing is left.

    Raises:
        BadDump: the directory exists, or cannot be written.
    """
    refuse_existing(directory)
    scratch: Path | None = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        _fill(scratch, found)
        scratch.rename(directory)
    except OSError as error:
        raise BadDump(f"{directory}: {error.strerror or error}") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _fill(directory: Path, found: NodeRecording) -> None:
    objects = [found.node, *found.zones, *found.pods, *found.events]
    _json(directory / OBJECTS, _list(objects))
    lines = "".join(f"{json.dumps(line)}\n" for line in _operations(found))
    (directory / HISTORY).write_text(lines, encoding="utf-8")
    place = directory / found.name
    place.mkdir()
    (place / TREE).write_bytes(archive_of(found.tree))
    if found.configuration is not None:
        text = yaml.safe_dump(dict(found.configuration), sort_keys=True)
        (place / CONFIGURATION).write_text(text, encoding="utf-8")
    _json(place / NODE, found.node)
    _json(place / PLUGINS, found.devices)
    _json(place / ZONES, _list(found.zones))
    _json(place / "podresources.json", found.podresources)
    _json(place / "problems.json", found.problems)
    for name, content in found.state.items():
        (place / name).write_bytes(content)


def _list(items: Any) -> Body:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def _json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _operations(found: NodeRecording) -> Iterator[Body]:
    """The recording begins with what is there: who holds something, and who was rejected before."""
    told = {(pod["namespace"], pod["name"]): pod["containers"] for pod in found.podresources or ()}
    yield {"op": SNAPSHOT, "node": found.name}
    for body in sorted(found.pods, key=lambda pod: str(pod["status"].get("startTime") or "")):
        pod, status = ClusterPod.from_api(body), body["status"]
        line = {
            "node": found.name,
            "uid": pod.kubelet_uid,
            "pod": {name: body[name] for name in ("apiVersion", "kind", "metadata", "spec")},
            "outcome": {name: status.get(name) for name in ("phase", "reason", "message")},
        }
        if str(status.get("message") or "").startswith(STATUS_PREFIX):
            yield {"op": REJECTED, **line}
        elif not pod.terminal and (pod.namespace, pod.name) in told:
            containers = told[pod.namespace, pod.name]
            yield {"op": HELD, **line, "observed": {"podresources_list": containers}}
