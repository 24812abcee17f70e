"""Targets of images and krew archives, and whose wheels run there."""

from typing import NamedTuple

from packaging.tags import mac_platforms

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


TARGETS = tuple(Target(*pair) for pair in _MACHINES)
