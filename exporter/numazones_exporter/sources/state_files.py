"""The kubelet's state files: what its CPU, memory and device managers have written down.

They are replaced by rename, so a file is whole whenever it is read; a wrong checksum means that something
else wrote it. Formats and checksums are in ``numazones.kubelet.checkpoints``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from numazones.kubelet import checkpoints
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_MANAGER_STATE,
    NOT_FOUND,
)
from numazones_exporter.sources.paths import cure_of_denial
from numazones_node.problems import SourceError

_State = TypeVar("_State")


class StateFileReader:
    """Reads the state files of one kubelet directory; content that did not change is not parsed again."""

    def __init__(self, kubelet_dir: Path, read: ReadFile = read_file) -> None:
        """``kubelet_dir``: the kubelet's root directory, or a recording of it; ``read`` reads its files."""
        self._kubelet_dir = kubelet_dir
        self._cpu_manager = _File(checkpoints.parse_cpu_manager_state, read)
        self._memory_manager = _File(checkpoints.parse_memory_manager_state, read)
        self._devices = _File(checkpoints.parse_device_manager_state, read)

    def cpu_manager(self) -> checkpoints.CPUManagerCheckpoint:
        """Read cpu_manager_state; raises ``SourceError``."""
        return self._cpu_manager.read(self._kubelet_dir / CPU_MANAGER_STATE)

    def memory_manager(self) -> checkpoints.MemoryManagerCheckpoint:
        """Read memory_manager_state; raises ``SourceError``."""
        return self._memory_manager.read(self._kubelet_dir / MEMORY_MANAGER_STATE)

    def devices(self) -> checkpoints.DeviceManagerCheckpoint:
        """Read kubelet_internal_checkpoint; raises ``SourceError``.

        It lives in ``device-plugins/`` on a node; recordings often keep it beside the other two.
        """
        try:
            return self._devices.read(self._kubelet_dir / "device-plugins" / DEVICE_CHECKPOINT)
        except SourceError as error:
            if error.reason != NOT_FOUND:
                raise
            try:
                return self._devices.read(self._kubelet_dir / DEVICE_CHECKPOINT)
            except SourceError as other:
                raise (error if other.reason == NOT_FOUND else other) from None


class _File(Generic[_State]):
    """A state file and what it last said."""

    def __init__(self, parse: Callable[[bytes], _State], read: ReadFile) -> None:
        self._parse = parse
        self._read = read
        self._last: tuple[bytes, _State] | None = None

    def read(self, path: Path) -> _State:
        try:
            if path.is_fifo():
                raise SourceError(
                    "Unreadable", f"{path} is a pipe, not a regular file of the kubelet; remove it"
                )
            content = self._read(path)
            if self._last is None or self._last[0] != content:
                self._last = (content, self._parse(content))
        except FileNotFoundError as error:
            raise SourceError(
                NOT_FOUND, f"{path} does not exist, although a kubelet creates it when it starts"
            ) from error
        except OSError as error:
            cure = f"; {cure_of_denial()}" if isinstance(error, PermissionError) else ""
            raise SourceError("Unreadable", f"{path} cannot be read: {error.strerror}{cure}") from error
        except checkpoints.InvalidCheckpoint as error:
            # The error names the file; the directory is what it cannot know.
            raise SourceError(type(error).__name__, f"{path.parent}/{error}") from error
        return self._last[1]
