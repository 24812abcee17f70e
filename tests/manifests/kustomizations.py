"""Reading kustomizations as kubectl would, without kubectl; and what kubectl makes of them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import yaml_files
from tests.places import ROOT

MANIFESTS = ROOT / "manifests"
COMPONENTS = sorted(f"components/{folder.name}" for folder in (MANIFESTS / "components").iterdir())


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object of the files a kustomization lists; other kustomizations are not followed."""
    for resource in yaml_files.document(folder / "kustomization.yaml").get("resources", ()):
        if (folder / resource).is_file():
            yield from yaml_files.documents(folder / resource)


def the(kind: str, folder: Path) -> dict[str, Any]:
    """The only object of a kind in a kustomization."""
    (found,) = [document for document in documents(folder) if document["kind"] == kind]
    return found


def variables(patch: Path) -> dict[str, str]:
    """The environment variables that a component's patch gives to the only container."""
    (container,) = yaml.safe_load(patch.read_text())["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}


def composition(folder: Path, components: Sequence[str], *, of: Sequence[str] = (".",)) -> Path:
    """A kustomization of one's own in ``folder``, as the guides advise: all of numazones, with components."""
    manifests = os.path.relpath(MANIFESTS, folder.resolve())
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/{part}" for part in of],
        "components": [f"{manifests}/{component}" for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder


def rendered(folder: Path) -> list[dict[str, Any]]:
    """The objects that ``kubectl apply -k`` would apply; skips where there is no kubectl."""
    return list(yaml.load_all(_kustomized(folder), yaml.CSafeLoader))


_MARK = re.compile(r"-zz(\d+)zz")
"""On every name of one of several compositions, its number."""


def rendered_together(
    folder: Path, choices: Sequence[Sequence[str]], *, of: Sequence[str]
) -> list[list[dict[str, Any]]]:
    """The objects of several compositions, in their order, from one kubectl: it takes longest to start.

    So that compositions do not meet, their names end in a mark, which is taken off again.
    """
    objects = [item for part in of for item in documents(MANIFESTS / part)]
    namespaces = [item["metadata"]["name"] for item in objects if item["kind"] == "Namespace"]
    for number, components in enumerate(choices):
        mark = f"-zz{number}zz"
        (folder / str(number)).mkdir()
        file = composition(folder / str(number), components, of=of) / "kustomization.yaml"
        renamed = [
            {
                "target": {"kind": "Namespace", "name": name},
                "patch": json.dumps([{"op": "replace", "path": "/metadata/name", "value": f"{name}{mark}"}]),
                "options": {"allowNameChange": True},
            }
            for name in namespaces  # nameSuffix leaves them alone
        ]
        file.write_text(file.read_text() + yaml.safe_dump({"nameSuffix": mark, "patches": renamed}))
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [str(number) for number in range(len(choices))]})
    )
    found: list[list[dict[str, Any]]] = [[] for _ in choices]
    for text in _kustomized(folder).split("\n---\n"):
        (number,) = {int(number) for number in _MARK.findall(text)}
        found[number].append(yaml.load(_MARK.sub("", text), yaml.CSafeLoader))
    return found


def _kustomized(folder: Path) -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl, which renders kustomizations, is not on PATH")
    # So short a program needs no garbage collection, which would be a fifth of its work.
    environment = {**os.environ, "GOGC": "off"}
    done = subprocess.run(
        [program, "kustomize", folder], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


Facts = dict[tuple[str, ...], Any]
"""Where something stands → what stands there. Containers and variables go by name, whatever their order."""


_MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""List → what tells its items apart where patches are merged."""


def facts(objects: Iterable[dict[str, Any]]) -> Facts:
    """Return what some objects say, so that two sets of them can be compared."""
    found: Facts = {}
    for item in objects:
        path = (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        assert not any(other[:3] == path for other in found), f"{path} twice"
        found |= _facts(item, path)
    return found


def _facts(value: Any, path: tuple[str, ...]) -> Facts:
    key = _MERGED_BY.get(path[-1])
    if isinstance(value, list) and key is not None:
        value = {item[key]: item for item in value}
    if not isinstance(value, dict):
        return {path: value}
    return {
        place: fact for key, inner in value.items() for place, fact in _facts(inner, (*path, key)).items()
    }
