"""The part of requirements.txt that some extras of the project need: what their images install.

The lock says which versions, with their hashes; which of them an extra needs is read from pyproject.toml and
from the metadata of the installed packages, so that there is one lock and not one per image.
"""

import re
import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def version() -> str:
    """The project's version."""
    return str(project()["version"])


def project() -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def needed(
    extras: list[str], without: str | None = None, environment: Mapping[str, str] | None = None
) -> set[str]:
    """Names of all packages that the project with some extras needs, directly or not.

    What another extra lists can be left out: what a program brings for laptops, images need not carry.
    ``environment``: variables of another Python's markers than this one's, such as ``python_version``.

    Raises:
        KeyError: there is no such extra.
        importlib.metadata.PackageNotFoundError: a package is not installed (run ``make venv``).
    """
    declared = project()
    texts = [*declared["dependencies"]]
    for extra in extras:
        texts += declared["optional-dependencies"][extra]
    left_out = declared["optional-dependencies"][without] if without else []
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
