"""Downloads the wheels that requirements.txt pins, for a Python and a machine that need not be these.

    python -m tools.wheels FOLDER --architecture arm64 --python 3.11 operator --without kubeconfig
    python -m tools.wheels FOLDER --architecture arm64 --python 3.11 --package pip

pip checks each by its hash, and leaves what the folder has already.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path

from tools.locked import ROOT, locked, needed
from tools.targets import PYTHONS, TARGETS, Target


def download(folder: Path, names: AbstractSet[str], target: Target, python: str) -> None:
    """Download the wheels of some packages.

    Raises:
        LookupError: the lock lacks one.
        subprocess.CalledProcessError: pip could not, and said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", "/dev/stdin"]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in target.platforms:
        command += ["--platform", platform]
    subprocess.run(command, check=True, text=True, input=locked(names))


def pinned(folder: Path) -> list[Path]:
    """Wheels of a folder that the lock pins. It may hold others, which an older lock had."""
    lock = (ROOT / "requirements.txt").read_text()
    return [
        path
        for path in sorted(folder.glob("*.whl"))
        if f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" in lock
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("extras", nargs="*", help="whose needs to download; none: the library's")
    parser.add_argument("--without", metavar="EXTRA", help="leave out what this one lists")
    parser.add_argument("--package", help="download this one alone")
    parser.add_argument("--architecture", required=True, choices=sorted({one.arch for one in TARGETS}))
    parser.add_argument("--python", required=True, choices=PYTHONS)
    options = parser.parse_args()
    target = Target("linux", options.architecture)
    names = {options.package}
    if options.package is None:
        names = needed(options.extras, options.without, target.markers(options.python))
    download(options.folder, names, target, options.python)
