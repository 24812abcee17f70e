#!/usr/bin/env python3
"""Starts ``kubectl numazones`` from an unpacked krew archive.

The packages lie beside it: those for every Python in one folder, compiled ones in a folder for each Python.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent  # krew links to this file
RUNNING = "python{}.{}".format(*sys.version_info[:2])
KNOWN = sorted(
    (folder.name for folder in HERE.glob("python3.*")), key=lambda name: int(name.rpartition(".")[2])
)


def start() -> None:
    """Run the plugin in this process."""
    sys.path[:0] = [str(HERE / RUNNING), str(HERE / "packages")]
    from kubectl_numazones.main import main  # noqa: PLC0415  (found only now)

    main()


def hand_over() -> None:
    """Run this file again by the newest Python on the path that there are packages for."""
    for name in reversed(KNOWN):
        try:
            os.execvp(name, [name, *sys.argv])  # noqa: S606
        except OSError:
            continue
    print(
        f"error: kubectl-numazones needs one of {', '.join(KNOWN)} on the path (python3 is {RUNNING});"
        " install one, or numazones with its extra kubectl by pipx",
        file=sys.stderr,
    )
    sys.exit(2)  # 1 is an answer


if __name__ == "__main__":  # worker processes import this file
    if RUNNING in KNOWN:
        start()
    else:
        hand_over()
