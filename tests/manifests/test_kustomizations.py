"""What holds for every kustomization of the project."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from .kustomizations import MANIFESTS, ROOT, documents

FOLDERS = sorted(
    file.parent for file in [*MANIFESTS.rglob("kustomization.yaml"), ROOT / "crds/kustomization.yaml"]
)
# Kinds of this project and of the Prometheus operator; the API server of a test knows the former.
FOREIGN = {"CustomResourceDefinition", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_kustomization_lists_every_file_beside_it_and_no_missing_one(folder: Path) -> None:
    listed = set(yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"])
    assert {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"} <= listed
    for name in listed:
        assert (folder / name).exists(), name


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{folder.name}-{document['kind']}-{document['metadata']['name']}")
        for folder in FOLDERS
        for document in documents(folder)
        if document["kind"] not in FOREIGN
    ],
)
def test_every_object_is_valid_for_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.36", strict=True)
