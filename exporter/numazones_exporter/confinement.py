"""At its start the exporter gives up the right to read what it does not read.

It runs as root and sees the kubelet's directory, so whoever takes it over, by a defect in what parses
answers and requests, could read the kubelet's key. Afterwards this process reads Python, ``/etc``, ``/proc``,
the hardware's description and its own token, writes and starts nothing, and has the few files of the kubelet
that it reads opened by another process (``file_opener``).
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from numazones.errors import NumazonesError
from numazones_exporter import landlock
from numazones_exporter.file_opener import FileOpener, ReadFile, read_file
from numazones_exporter.options import LANDLOCK_OFF, LANDLOCK_REQUIRED, Options
from numazones_exporter.sources.paths import file_of, kubelet_files

_SYSTEM = tuple(map(Path, ("/usr", "/lib", "/lib64", "/etc", "/proc")))
"""Beside Python's own: libraries, settings of name resolution, figures of the process; in a container none
of it is the node's."""


class NotConfined(NumazonesError):
    """The exporter was told to run confined, and cannot."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Confinement of this process by the kernel while it reads the kubelet's files."""

    opener: FileOpener | None = None
    """Opens the kubelet's files, where the kernel denies this process all that it does not need."""
    why_not: str = ""
    """Why the kernel does not although it was asked to; empty otherwise."""

    @property
    def enforced(self) -> bool:
        """Return whether the kernel denies everything that is not needed."""
        return self.opener is not None

    @property
    def read(self) -> ReadFile:
        """Return the function that reads the kubelet's files."""
        return read_file if self.opener is None else self.opener.read

    def close(self) -> None:
        """Let the process that opens files end."""
        if self.opener is not None:
            self.opener.close()


UNCONFINED = Confinement()


def start_opener(options: Options) -> FileOpener | None:
    """Start the process that opens files, where one is wanted and will be needed.

    To be called first of all: what this process has loaded by then, the other one keeps in memory, too.
    """
    if options.landlock == LANDLOCK_OFF or _why_unavailable():
        return None
    return _opener(options)


def enter(options: Options, opener: FileOpener | None) -> Confinement:
    """Confine this process for good, as the settings say.

    To be called before it has threads, and when all is loaded that looks for libraries: no program can be
    started afterwards.

    Raises:
        NotConfined: the settings require what is not possible here.
    """
    if options.landlock == LANDLOCK_OFF:
        return UNCONFINED
    try:
        landlock.version()
        opener = opener or _opener(options)
        readable = tuple(_readable(options))
        _refuse_to_leave_open(options.kubelet_dir, readable)
        landlock.restrict(readable)
    except (landlock.LandlockUnavailable, NotConfined) as error:
        if opener is not None:
            opener.close()
        if options.landlock == LANDLOCK_REQUIRED:
            raise NotConfined(f"--landlock={LANDLOCK_REQUIRED}: {error}") from error
        return Confinement(why_not=str(error))
    return Confinement(opener)


def _opener(options: Options) -> FileOpener:
    return FileOpener(_opened(options), lambda: landlock.restrict(_opened_beneath(options)))


def _why_unavailable() -> str:
    try:
        landlock.version()
    except landlock.LandlockUnavailable as error:
        return str(error)
    return ""


def _readable(options: Options) -> Iterator[Path]:
    """Directories that this process reads."""
    from numazones_client.config import SERVICE_ACCOUNT  # noqa: PLC0415 - start_opener does without it

    yield from _SYSTEM
    yield from (Path(name) for name in (sys.prefix, sys.base_prefix, *sys.path) if name)
    yield from (options.sysfs, options.procfs, SERVICE_ACCOUNT)
    if options.cgroups is not None:
        yield options.cgroups
    if (recording := file_of(options.podresources, "replay")) is not None:
        yield recording


def _opened(options: Options) -> Iterator[Path]:
    """Files that the other process opens."""
    yield from kubelet_files(options)
    for source in (options.kubelet_config, options.pods):
        if (path := file_of(source)) is not None:
            yield path


def _opened_beneath(options: Options) -> set[Path]:
    return {options.kubelet_dir, *(path.parent for path in _opened(options))}


def _refuse_to_leave_open(kubelet_dir: Path, readable: tuple[Path, ...]) -> None:
    """Raise ``NotConfined`` where the kubelet's directory is below one that must stay readable."""
    inner = Path(os.path.realpath(kubelet_dir))
    for directory in readable:
        if inner.is_relative_to(os.path.realpath(directory)):
            raise NotConfined(
                f"--kubelet-dir {kubelet_dir} is inside {directory}, which must stay readable; "
                "use a directory outside it"
            )
