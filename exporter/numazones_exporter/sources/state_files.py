"""The kubelet's state files: what its CPU, memory and device managers have written down.

They are replaced by rename, so a file is whole whenever it is read; a wrong checksum means that something
else wrote it. Formats and checksums are ``numazones.kubelet.checkpoints``' part.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from numazones.kubelet import checkpoints
from numazones_exporter.observation import CPU_MANAGER_STATE, DEVICE_CHECKPOINT, MEMORY_MANAGER_STATE
from numazones_exporter.sources.problems import SourceError

_State = TypeVar("_State")


class StateFiles:
    """Reads the state files of one kubelet directory."""

    def __init__(self, kubelet_dir: Path) -> None:
        """``kubelet_dir``: the kubelet's root directory, or a recording of it."""
        self._kubelet_dir = kubelet_dir

    def cpu_manager(self) -> checkpoints.CPUManagerState:
        """Read cpu_manager_state; raises ``SourceError``."""
        return _read(self._kubelet_dir / CPU_MANAGER_STATE, checkpoints.parse_cpu_manager_state)

    def memory_manager(self) -> checkpoints.MemoryManagerState:
        """Read memory_manager_state; raises ``SourceError``."""
        return _read(self._kubelet_dir / MEMORY_MANAGER_STATE, checkpoints.parse_memory_manager_state)

    def devices(self) -> checkpoints.DeviceManagerState:
        """Read kubelet_internal_checkpoint; raises ``SourceError``.

        It lives in ``device-plugins/`` on a node; recordings often keep it beside the other two.
        """
        path = self._kubelet_dir / "device-plugins" / DEVICE_CHECKPOINT
        beside = self._kubelet_dir / DEVICE_CHECKPOINT
        if beside.exists() and not path.exists():
            path = beside
        return _read(path, checkpoints.parse_device_manager_state)


def _read(path: Path, parse: Callable[[bytes], _State]) -> _State:
    try:
        return parse(path.read_bytes())
    except FileNotFoundError as error:
        raise SourceError("NotFound", f"{path} does not exist") from error
    except OSError as error:
        cure = "; the exporter must run as root" if isinstance(error, PermissionError) else ""
        raise SourceError("Unreadable", f"{path} cannot be read: {error.strerror}{cure}") from error
    except checkpoints.InvalidCheckpoint as error:
        # The error names the file; the directory is what it cannot know.
        reason = type(error).__name__
        raise SourceError(reason, f"{path.parent}/{error}") from error
