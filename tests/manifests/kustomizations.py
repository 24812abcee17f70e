"""Reading kustomizations as kubectl would, without kubectl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object of the files a kustomization lists; other kustomizations are not followed."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for resource in kustomization["resources"]:
        if (folder / resource).is_file():
            yield from yaml.safe_load_all((folder / resource).read_text())


def the(kind: str, folder: Path) -> dict[str, Any]:
    """The only object of a kind in a kustomization."""
    (found,) = [document for document in documents(folder) if document["kind"] == kind]
    return found
