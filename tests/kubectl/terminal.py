"""The plugin on a terminal of some width: what it shows there."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from tests import plugin

_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(columns: int, *arguments: object, lines: int = 40, typed: str = "") -> str:
    """Run the plugin on a terminal, where it must end without a traceback; return what it shows.

    ``typed``: what somebody types meanwhile; the terminal echoes it.
    """
    shown = sent_to_terminal(columns, *arguments, lines=lines, typed=typed)
    return _SEQUENCE.sub(b"", shown).decode().replace("\r\n", "\n")


def sent_to_terminal(columns: int, *arguments: object, lines: int = 40, typed: str = "") -> bytes:
    """Run the plugin as ``on_terminal`` does; return all that it sends, colours included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    process = plugin.started(
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if typed else subprocess.PIPE,
        env={**environment, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(ours)
    _, errors = process.communicate()
    assert b"Traceback" not in (errors or b"") + shown
    assert process.returncode in {0, 1, 2}
    return shown
