"""The part of requirements.txt that some extras of the project need: what their images install.

The lock says which versions, with their hashes; which of them an extra needs is read from the distributions'
pyproject.toml and from the metadata of the installed packages, so that there is one lock and not one per
image. Run as a program, it prints what the lock is made from (``make lock``).
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from importlib.metadata import requires
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = {"numazones": ROOT, "numazones-models": ROOT / "models", "numazones-lab": ROOT / "lab"}
"""What the project is installed as, and the folders that these are built from. They share one version."""


def version() -> str:
    """The project's version."""
    return str(project()["version"])


def project(distribution: str = "numazones") -> dict[str, Any]:
    """The table ``project`` of a distribution's pyproject.toml."""
    text = (DISTRIBUTIONS[distribution] / "pyproject.toml").read_text()
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def extras_of(distribution: str) -> dict[str, list[str]]:
    """Extra of a distribution → what it lists."""
    found: dict[str, list[str]] = project(distribution).get("optional-dependencies", {})
    return found


def siblings(distribution: str) -> set[str]:
    """The project's other distributions that one needs."""
    return {Requirement(text).name for text in project(distribution)["dependencies"]} & DISTRIBUTIONS.keys()


def needed(
    extras: list[str], without: str | None = None, environment: Mapping[str, str] | None = None
) -> set[str]:
    """Names of all packages that the project with some extras needs, directly or not; its own aside.

    What another extra lists can be left out: what a program brings for laptops, images need not carry.
    ``environment``: variables of another Python's markers than this one's, such as ``python_version``.

    Raises:
        KeyError: there is no such extra.
        importlib.metadata.PackageNotFoundError: a package is not installed (run ``make venv``).
    """
    declared = {name: texts for one in DISTRIBUTIONS for name, texts in extras_of(one).items()}
    texts = [*project()["dependencies"]]  # the other distributions need this one alone
    for extra in extras:
        texts += declared[extra]
    left_out = declared[without] if without else []
    left = [Requirement(text) for text in texts if text not in left_out]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        wanted = left.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in requires(wanted.name) or ():
            further = Requirement(text)
            markers = [{**(environment or {}), "extra": extra} for extra in ("", *wanted.extras)]
            if further.marker is None or any(map(further.marker.evaluate, markers)):
                left.append(further)
    return {name for name, _ in seen}


def locked(names: AbstractSet[str]) -> str:
    """Entries of requirements.txt, hashes and all, for some packages.

    Raises:
        LookupError: the lock lacks one (run ``make lock``).
    """
    blocks = re.finditer(
        r"^(?P<name>\S+?)==(?:.*\\\n)*.*\n", (ROOT / "requirements.txt").read_text(), re.MULTILINE
    )
    found: dict[str, str] = {canonicalize_name(block["name"]): block[0] for block in blocks}
    missing = names - found.keys()
    if missing:
        raise LookupError(f"requirements.txt lacks {', '.join(sorted(missing))}; run make lock")
    return "".join(found[name] for name in sorted(names))


DEMO = ("exporter", "operator", "kubectl", "simulator")
"""Extras whose programs the demo runs."""
_BUILDING = frozenset({"hatchling", "editables", "pip"})
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def demo() -> str:
    """Return requirements-demo.txt: the entries of the lock that the demo needs, on any Python."""
    names = set(_BUILDING)
    for python in _PYTHONS:
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        names |= needed([*DEMO], environment=environment)
        for text in requires("hatchling") or ():
            names.add(canonicalize_name(Requirement(text).name))
    return locked({name for name in names if name in _locked_names()})


def _locked_names() -> set[str]:
    text = (ROOT / "requirements.txt").read_text()
    return {canonicalize_name(name) for name in re.findall(r"^(\S+?)==", text, re.MULTILINE)}


if __name__ == "__main__":
    if sys.argv[1:] == ["demo"]:
        print(demo(), end="")
        sys.exit()
    for one in DISTRIBUTIONS:
        for text in (*project(one)["dependencies"], *chain(*extras_of(one).values())):
            if Requirement(text).name not in DISTRIBUTIONS:
                print(text)
