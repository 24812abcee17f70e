"""A process that opens certain files, and nothing else, for one that may not.

The kubelet replaces its state files by renaming, in a directory that holds its key as well. Landlock knows no
names: whoever may read the new file may read the whole directory. So a second process keeps that right. It
knows the paths of the files, opens them when asked and hands over the open file (SCM_RIGHTS); it reads none
of them, and nothing that anybody else wrote.
"""

import errno
import gc
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeAlias

ReadFile: TypeAlias = Callable[[Path], bytes]
"""Return a file's content; raises OSError as ``Path.read_bytes`` does."""

_MESSAGE_BYTES = 4096
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""It goes when the process goes that it opens files for."""
_ERRNO = struct.Struct("=i")


def read_file(path: Path) -> bytes:
    """Read a file with the rights of this process."""
    return path.read_bytes()


class FileOpener:
    """Asks the other process for files."""

    def __init__(self, paths: Iterable[Path], restrict: Callable[[], None]) -> None:
        """Fork; the child calls ``restrict`` and then opens ``paths`` until this process ends.

        To be called before there are threads or an event loop.
        """
        allowed = frozenset(os.fsencode(path) for path in paths)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What ends this process goes to both at times; it must not end the child before that can ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        # A collection in either process would write to, and so copy, what both share.
        gc.freeze()
        self.pid = os.fork()
        """The other process."""
        if self.pid == 0:
            self._socket.close()
            _serve(theirs, allowed, restrict, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()

    def close(self) -> None:
        """Let the other process end, and wait for that."""
        self._socket.close()
        os.waitpid(self.pid, 0)
        gc.unfreeze()

    def read(self, path: Path) -> bytes:
        """Return a file's content.

        Raises:
            PermissionError: it is none of the files that are opened.
            OSError: it cannot be opened or read, or the other process has ended.
        """
        try:
            # Recordings are made in a thread of their own.
            with self._lock:
                self._socket.send(os.fsencode(path))
                answer, files, _, _ = socket.recv_fds(self._socket, _ERRNO.size, 1)
        except OSError:
            answer, files = b"", []
        if not answer:
            raise OSError(
                errno.EPIPE, "the helper process that opens it has exited; restart the exporter", str(path)
            )
        (failure,) = _ERRNO.unpack(answer)
        if failure:
            raise OSError(failure, os.strerror(failure), str(path))
        with os.fdopen(files[0], "rb") as file:
            return file.read()


def _serve(
    asked: socket.socket,
    allowed: frozenset[bytes],
    restrict: Callable[[], None],
    mask: set[int],
) -> NoReturn:
    """Open what is asked for until nobody is there to ask; never returns to the caller's code.

    ``mask``: the signals that are blocked once the others are ignored.
    """
    status = 1
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        restrict()
        while path := asked.recv(_MESSAGE_BYTES):
            _answer(asked, path, allowed)
        status = 0
    finally:
        os._exit(status)


def _answer(asked: socket.socket, path: bytes, allowed: frozenset[bytes]) -> None:
    file, failure = -1, errno.EACCES
    if path in allowed:
        try:
            # A pipe that nobody writes to would otherwise hold the process up.
            file, failure = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), 0
        except OSError as error:
            failure = error.errno or errno.EIO
    try:
        socket.send_fds(asked, [_ERRNO.pack(failure)], [] if failure else [file])
    finally:
        if file >= 0:
            os.close(file)
