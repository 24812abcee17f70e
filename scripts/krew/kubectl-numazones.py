#!/usr/bin/env python3
"""Starts ``kubectl numazones`` from an unpacked krew archive.

The packages lie beside it, in a folder named after the Python that they are compiled for.
"""

import os
import sys
from pathlib import Path

RUNNING = "python{}.{}".format(*sys.version_info[:2])
(PACKAGES,) = Path(__file__).resolve().parent.glob("python3.*")  # krew links to this file


def start() -> None:
    """Run the plugin in this process, by the Python that it is for."""
    sys.path.insert(0, str(PACKAGES))
    from kubectl_numazones.main import main  # noqa: PLC0415  (found only now)

    main()


def hand_over() -> None:
    """Run this file again by the Python that it is for, if that is on the path."""
    try:
        os.execvp(PACKAGES.name, [PACKAGES.name, *sys.argv])  # noqa: S606
    except OSError:
        print(
            f"error: this kubectl-numazones is for {PACKAGES.name}, which is not on the path (python3 is"
            f" {RUNNING}); install that, or numazones with its extra kubectl by pipx",
            file=sys.stderr,
        )
        sys.exit(2)  # 1 is an answer


if __name__ == "__main__":  # worker processes import this file
    if PACKAGES.name == RUNNING:
        start()
    else:
        hand_over()
