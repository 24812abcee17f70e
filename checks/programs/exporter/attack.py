"""Becomes an exporter that somebody has taken over: confined by its own main function, it runs their code.

    PATHS=... python attack.py FLAGS...

Prints as JSON which of PATHS, a line each, it could read by itself (``direct``) and from the
process that opens files (``opener``), and what else it managed to do (``other``).
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from numazones_exporter import daemon
from numazones_exporter.confinement import Confinement
from numazones_exporter.main import main
from numazones_exporter.options import Options


def readable(paths: Iterable[str], read: Callable[[Path], bytes]) -> list[str]:
    found = []
    for path in paths:
        try:
            read(Path(path))
        except OSError:
            continue
        found.append(path)
    return found


def write(path: Path) -> None:
    path.write_text("x")


def start_program() -> None:
    os.execve("/bin/true", ["true"], {})  # noqa: S606 - it must not come so far


def trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")


async def attack(options: Options, confinement: Confinement) -> None:
    paths = os.environ["PATHS"].splitlines()
    tries: dict[str, Callable[[], Any]] = {
        "list the kubelet's directory": lambda: list(options.kubelet_dir.iterdir()),
        "write into the kubelet's directory": lambda: write(options.kubelet_dir / "new"),
        "write elsewhere": lambda: write(Path("/dev/null")),
    }
    if (opener := confinement.opener) is not None:
        other = f"/proc/{opener.pid}"
        tries |= {
            "go through the opener's root": lambda: list(
                Path(f"{other}/root{options.kubelet_dir}").iterdir()
            ),
            "read the opener's memory": lambda: Path(f"{other}/mem").read_bytes(),
            "trace the opener": lambda: trace(opener.pid),
            "have the opener open a path with dots": lambda: opener.read(
                options.kubelet_dir / "device-plugins/../pki/kubelet.key"
            ),
            "start a program": start_program,
        }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    result = {
        "enforced": confinement.enforced,
        "direct": readable(paths, Path.read_bytes),
        "opener": readable(paths, confinement.read),
        "other": done,
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    daemon._run_until_signalled = attack
    sys.argv[0] = "numazones-exporter"
    main()
