"""Finds recordings of real nodes, and lays each out as the directories that a node has.

A recording is a directory with ``sys.tar.gz`` (``sys/``, ``proc/``), the kubelet's configuration, its state
files and its podresources answers; the directory above holds ``pods.json`` of the cluster. On a node, the
device manager's checkpoint lies in ``device-plugins/``, so it is put there.
"""

import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numazones.errors import NumazonesError

ENVIRONMENT = "NUMAZONES_SHARED"
"""Names the directory that ``recordings/`` is in."""

_ARCHIVE = "sys.tar.gz"
_STATE_FILES = ("cpu_manager_state", "memory_manager_state")
_DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"
_REPOSITORY = Path(__file__).resolve().parents[2]
_SAMPLE = Path(__file__).resolve().parent / "sample"
"""The project's own sample; a link in a checkout."""


class BadRecording(NumazonesError):
    """A recording cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded node, as it lies on disk."""

    name: str
    directory: Path

    @property
    def node(self) -> Mapping[str, Any]:
        """The recorded Node object; a minimal one where none was recorded."""
        path = self.directory / "node.json"
        if path.exists():
            return _json(path)
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}

    @property
    def pods(self) -> list[Mapping[str, Any]]:
        """The pods that were bound to the node."""
        path = self.directory.parent / "pods.json"
        items = _json(path).get("items", []) if path.exists() else []
        return [pod for pod in items if (pod.get("spec") or {}).get("nodeName") == self.name]

    @property
    def kubelet_configuration(self) -> Path:
        """Return the kubelet's response to /configz, else the file it was started with."""
        path = self.directory / "configz.json"
        return path if path.exists() else self.directory / "kubelet-config.yaml"


@dataclass(frozen=True, slots=True)
class NodeDirectories:
    """Paths where the exporter finds a node's files."""

    sysfs: Path
    procfs: Path
    kubelet: Path

    @classmethod
    def below(cls, directory: Path) -> "NodeDirectories":
        """Return those of a node that has one directory for everything."""
        return cls(directory / "sys", directory / "proc", directory / "kubelet")


def find(directory: Path | None = None) -> list[Recording]:
    """Recorded nodes by name: those of a directory, else the shared ones, else the project's own sample.

    Raises:
        BadRecording: there is none.
    """
    if directory is not None:
        candidates = [directory]
    else:
        shared = os.environ.get(ENVIRONMENT)
        candidates = [
            Path(shared) / "recordings" if shared else _REPOSITORY.parent / "shared" / "recordings",
            _SAMPLE,
        ]
    for candidate in candidates:
        found = _in(candidate)
        if found:
            return found
    places = " and ".join(map(str, candidates))
    raise BadRecording(f"no recorded nodes in {places}: no directory there has a {_ARCHIVE}")


def lay_out(recording: Recording, directory: Path) -> NodeDirectories:
    """Unpack a recording as a node's directories.

    Raises:
        BadRecording: the archive or a file is missing or damaged.
    """
    kubelet = directory / "kubelet"
    plugins = kubelet / "device-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(recording.directory / _ARCHIVE) as archive:
            archive.extractall(directory, filter="data")
        for name in _STATE_FILES:
            if (recording.directory / name).exists():
                shutil.copyfile(recording.directory / name, kubelet / name)
        if (recording.directory / _DEVICE_CHECKPOINT).exists():
            shutil.copyfile(recording.directory / _DEVICE_CHECKPOINT, plugins / _DEVICE_CHECKPOINT)
    except (OSError, tarfile.TarError) as error:
        raise BadRecording(f"{recording.directory}: {error}") from error
    return NodeDirectories(directory / "sys", directory / "proc", kubelet)


def _in(directory: Path) -> list[Recording]:
    """Recorded nodes in a directory, or one level below (a recorded cluster)."""
    archives = sorted({*directory.glob(f"*/{_ARCHIVE}"), *directory.glob(f"*/*/{_ARCHIVE}")})
    return [Recording(path.parent.name, path.parent) for path in archives if path.parent.name != "mid"]


def _json(path: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRecording(f"{path}: {error}") from error
    return content
