"""What images and the archives for krew are made for, and which wheels run there."""

import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Those that the project supports."""
_GLIBC = 28
"""The plugin runs on Linux with glibc 2.28 (RHEL 8, Debian 10) or newer."""
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_MACOS = (12, 0)
_MACHINES = {
    ("linux", "amd64"): "x86_64",
    ("linux", "arm64"): "aarch64",
    ("darwin", "amd64"): "x86_64",
    ("darwin", "arm64"): "arm64",
}


class MissingWheel(LookupError):
    """No wheel of a package runs on a target; the message names both."""


class Target(NamedTuple):
    """An operating system and an architecture, in krew's words."""

    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}-{self.arch}"

    @property
    def platforms(self) -> list[str]:
        """The platforms whose wheels run there, the newest first."""
        machine = _MACHINES[self]
        if self.os == "darwin":
            return list(mac_platforms(_MACOS, machine))
        found = []
        for minor in range(_GLIBC, 4, -1):
            found.append(f"manylinux_2_{minor}_{machine}")
            if minor in _OLD_NAMES:
                found.append(f"{_OLD_NAMES[minor]}_{machine}")
        return [*found, f"linux_{machine}"]

    def markers(self, python: str) -> dict[str, str]:
        """Return the variables of requirements' markers that differ between targets."""
        return {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": self.os,
            "platform_system": self.os.capitalize(),
            "platform_machine": _MACHINES[self],
        }

    def tags(self, python: str) -> Iterator[Tag]:
        """Yield the tags of wheels that a Python takes there, the best first."""
        version = tuple(map(int, python.split(".")))
        yield from cpython_tags(version, platforms=self.platforms)
        yield from compatible_tags(version, f"cp{''.join(python.split('.'))}", self.platforms)


TARGETS = tuple(Target(*pair) for pair in _MACHINES)


def here() -> Target:
    """Return the target that this runs on.

    Raises:
        LookupError: there is no archive for it.
    """
    machine = {"AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    for target, name in zip(TARGETS, _MACHINES.values(), strict=True):
        if (target.os, name) == (sys.platform, machine):
            return target
    raise LookupError(f"there is no krew archive for {sys.platform} on {machine}; use pipx")


def chosen(wheels: Iterable[Path], package: str, target: Target, python: str) -> Path:
    """Return the wheel of a package that a Python would take on a target.

    Raises:
        MissingWheel: none runs there.
    """
    ranks = {tag: rank for rank, tag in enumerate(target.tags(python))}
    best = []
    for wheel in wheels:
        name, _, _, tags = parse_wheel_filename(wheel.name)
        if name == canonicalize_name(package):
            best += [(ranks[tag], wheel) for tag in tags if tag in ranks]
    if not best:
        raise MissingWheel(f"there is no wheel of {package} for Python {python} on {target}")
    return min(best)[1]


def is_pure(wheel: Path) -> bool:
    """Whether a wheel is the same for every Python and platform."""
    _, _, _, tags = parse_wheel_filename(wheel.name)
    return all(tag.abi == "none" and tag.platform == "any" for tag in tags)
