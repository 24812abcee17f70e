"""Events that trigger an early reading of the node: state files, sockets, pods, vanished zones.

The kubelet replaces its state files by renaming a temporary file over them (its checkpoint stores
do the same), so the directories are watched, not the files: a watch on a file would follow the old
inode, which nobody writes any more. Device plugins register with a socket in ``device-plugins``, and the
kubelet records what they say in ``kubelet_internal_checkpoint`` there; a restarted kubelet creates
``pod-resources/kubelet.sock`` anew. Events come in bursts (one admission writes up to three files),
so a burst becomes one wake-up after a short silence.
"""

import asyncio
import errno
import logging
from collections.abc import Iterable
from pathlib import Path

from asyncinotify import Event, Inotify, Mask

INTERVAL = "interval"
STATE_FILES = "state-files"
DEVICE_PLUGINS = "device-plugins"
KUBELET = "kubelet"
PODS = "pods"
TERMINATING_PODS = "departures"
ZONES = "zones"

QUIET_SECONDS = 0.1
"""Silence that ends a burst of events."""
MAX_BURST_SECONDS = 0.4
"""A burst is cut after this time, so that a busy node is still read often enough."""

_STATE_FILE_NAMES = frozenset({"cpu_manager_state", "memory_manager_state"})
_MASK = Mask.CREATE | Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.DELETE | Mask.ONLYDIR

_log = logging.getLogger(__name__)


class Wakeups:
    """Collects reasons to read the node again and joins those that come together."""

    def __init__(self, *, quiet: float = QUIET_SECONDS, max_burst: float = MAX_BURST_SECONDS) -> None:
        """Seconds of silence that end a burst, and the longest time a burst may delay the wake-up."""
        self._quiet = quiet
        self._max_burst = max_burst
        self._reasons: set[str] = set()
        self._event = asyncio.Event()

    def wake(self, reason: str) -> None:
        """Ask for the node to be read again soon."""
        self._reasons.add(reason)
        self._event.set()

    async def wait(self, seconds: float, *, otherwise: str = INTERVAL) -> frozenset[str]:
        """Wait for a reason, at most ``seconds``; ``otherwise`` is the reason if the time runs out."""
        if not await self._woken_within(seconds):
            return frozenset({otherwise})
        loop = asyncio.get_running_loop()
        end = loop.time() + self._max_burst
        while (left := end - loop.time()) > 0:
            self._event.clear()
            if not await self._woken_within(min(self._quiet, left)):
                break
        self._event.clear()
        reasons = frozenset(self._reasons)
        self._reasons.clear()
        return reasons

    async def _woken_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class KubeletFilesWatch:
    """Wakes when the kubelet's state files, its device plugins or its socket change.

    Directories that are missing (no kubelet yet, or its directory was replaced) are looked for again
    every ``retry`` seconds; until then the interval alone keeps the zones fresh.
    """

    def __init__(self, kubelet_dir: Path, wakeups: Wakeups, *, retry: float = 10.0) -> None:
        """Watch below ``kubelet_dir`` (usually /var/lib/kubelet)."""
        self._directories = {
            kubelet_dir: STATE_FILES,
            kubelet_dir / "device-plugins": DEVICE_PLUGINS,
            kubelet_dir / "pod-resources": KUBELET,
        }
        self._wakeups = wakeups
        self._retry = retry
        self._missing: set[Path] = set(self._directories)
        self.established = asyncio.Event()
        """Set once the directories that exist are watched."""

    async def run(self) -> None:
        """Watch until cancelled; without inotify log that, and end."""
        try:
            inotify = Inotify()
        except OSError as error:
            _log.warning(
                "cannot watch the kubelet's files: %s; %s",
                error.strerror,
                "raise fs.inotify.max_user_instances on the node"
                if error.errno == errno.EMFILE
                else "changes are noticed at the next interval",
            )
            return
        with inotify:
            self._watch_missing(inotify, wake=False)
            self.established.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_for_missing(inotify))
                async for event in inotify:
                    self._handle(event)

    async def _look_for_missing(self, inotify: Inotify) -> None:
        while True:
            await asyncio.sleep(self._retry)
            self._watch_missing(inotify, wake=True)

    def _watch_missing(self, inotify: Inotify, *, wake: bool) -> None:
        for directory in sorted(self._missing):
            try:
                inotify.add_watch(directory, _MASK)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    _log.warning("cannot watch %s: raise fs.inotify.max_user_watches on the node", directory)
                continue
            self._missing.discard(directory)
            if wake:
                self._wakeups.wake(self._directories[directory])

    def _handle(self, event: Event) -> None:
        if event.mask & Mask.Q_OVERFLOW:
            self._wake(self._directories.values())
            return
        directory = event.watch.path if event.watch is not None else None
        reason = self._directories.get(directory) if directory is not None else None
        if directory is None or reason is None:
            return
        if event.mask & Mask.IGNORED:  # the directory is gone and the kernel dropped the watch
            self._missing.add(directory)
            self._wake([reason])
        elif _is_relevant(reason, str(event.name or "")):
            self._wake([reason])

    def _wake(self, reasons: Iterable[str]) -> None:
        for reason in reasons:
            self._wakeups.wake(reason)


def _is_relevant(reason: str, name: str) -> bool:
    """Temporary files, which the kubelet renames into place, and the kubelet's other files do not matter."""
    return not name.startswith(".") and (reason != STATE_FILES or name in _STATE_FILE_NAMES)
