"""Landlock: a process and its children give up, for good, the right to read, write and execute files.

The kernel's interface (landlock(7), kernel 5.13 and newer), by system call: the C library has no functions
for it. A rule is of a directory and holds for everything beneath it; a rule of a file would be of its inode,
and end when the file is replaced by renaming.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from numazones.errors import NumazonesError

# The numbers are the same on every architecture that has these calls.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Version of the interface → rights to files that it has added: all of 5.13, REFER, TRUNCATE, IOCTL_DEV."""

_REASONS = {
    errno.ENOSYS: "this kernel does not support Landlock (Linux 5.13 and newer do)",
    errno.EOPNOTSUPP: "Landlock is not enabled in this kernel (boot parameter lsm=)",
    errno.EPERM: "the container's seccomp profile blocks Landlock",
}


class LandlockUnavailable(NumazonesError):
    """The kernel does not let this process restrict itself; the message says why. Nothing has changed."""


def version() -> int:
    """Return the version of the kernel's interface; raises ``LandlockUnavailable``."""
    return _call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)


def restrict(readable: Iterable[Path]) -> None:
    """Let this thread, and all that it starts, read beneath these directories, and use no other files.

    Files that are open stay so; names and attributes of files, and sockets, are not restricted. Directories
    that do not exist are left out.

    Raises:
        LandlockUnavailable: the kernel, or a seccomp profile, does not allow it.
    """
    known = version()
    rights = sum(bits for since, bits in _RIGHTS.items() if since <= known)
    attributes = ctypes.create_string_buffer(struct.pack("=Q", rights), 8)
    ruleset = _call(_CREATE_RULESET, attributes, 8, 0)
    try:
        for directory in readable:
            _allow(ruleset, directory)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise _unavailable()
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, directory: Path) -> None:
    try:
        beneath = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", _READ_FILE | _READ_DIR, beneath), 12)
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(beneath)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    syscall = _libc().syscall
    syscall.restype = ctypes.c_long
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise _unavailable()
    return result


def _unavailable() -> LandlockUnavailable:
    number = ctypes.get_errno()
    return LandlockUnavailable(_REASONS.get(number, f"Landlock: {os.strerror(number)}"))
