"""Downloads and installs wheels as requirements.txt pins them, for any Python and machine that is supported.

    python -m tools.wheels FOLDER --architecture arm64 --python 3.11 operator --without kubeconfig
    python -m tools.wheels FOLDER --architecture arm64 --python 3.11 --package pip

pip checks each by its hash, and leaves what the folder has already.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

from tools.locked import locked, needed
from tools.targets import PYTHONS, TARGETS, Target


def download(folder: Path, names: AbstractSet[str], target: Target, python: str) -> None:
    """Download the wheels of some packages.

    Raises:
        LookupError: the lock lacks one.
        subprocess.CalledProcessError: pip could not, and said why.
    """
    _pip("download", "--require-hashes", "--dest", folder, pins=locked(names), target=target, python=python)


def install(
    folder: Path,
    names: AbstractSet[str],
    target: Target,
    python: str,
    *,
    wheels: Path,
    further: Iterable[str],
) -> None:
    """Install packages from a folder of wheels that were downloaded, and further wheels.

    Raises:
        LookupError: the lock lacks one.
        subprocess.CalledProcessError: a wheel is not there; pip said which.
    """
    pins = re.sub(r" \\$|^ .*\n", "", locked(names), flags=re.MULTILINE)
    offline = ("--no-index", "--find-links", wheels, "--no-compile", "--target", folder)
    _pip("install", *offline, pins="\n".join((pins, *further, "")), target=target, python=python)


def _pip(command: str, *options: str | Path, pins: str, target: Target, python: str) -> None:
    """Let pip work for a Python and a machine that need not be these."""
    line = [sys.executable, "-m", "pip", command, *map(str, options), "--requirement", "/dev/stdin"]
    line += ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    line += ["--python-version", python, "--implementation", "cp"]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        line += ["--abi", abi]
    for platform in target.platforms:
        line += ["--platform", platform]
    subprocess.run(line, check=True, text=True, input=pins)


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
