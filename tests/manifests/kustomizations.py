"""Reading kustomizations as kubectl would, without kubectl; and what kubectl makes of them."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
COMPONENTS = sorted(f"components/{folder.name}" for folder in (MANIFESTS / "components").iterdir())


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object of the files a kustomization lists; other kustomizations are not followed."""
    kustomization = yaml.load((folder / "kustomization.yaml").read_text(), Loader=yaml.CSafeLoader)
    for resource in kustomization.get("resources", ()):
        if (folder / resource).is_file():
            # Every worker of a test run reads these; written in C, the loader takes a tenth of the time.
            yield from yaml.load_all((folder / resource).read_text(), Loader=yaml.CSafeLoader)


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
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl, which renders kustomizations, is not on PATH")
    # So short a program needs no garbage collection, which would be a fifth of its work.
    environment = {**os.environ, "GOGC": "off"}
    done = subprocess.run(
        [program, "kustomize", folder], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


Facts = dict[tuple[str, ...], Any]
"""Where something stands → what stands there. Containers and variables go by name, whatever their order."""


_MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""List → what tells its items apart where patches are merged."""


def facts(objects: Iterable[dict[str, Any]]) -> Facts:
    """What some objects say, so that two lots of them can be compared."""
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
