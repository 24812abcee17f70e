"""The plugin for krew: an archive that runs without this environment, a manifest that krew takes."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution, version
from pathlib import Path
from typing import Any

import pytest
import yaml

from numazones.placement.models import ENTRY_POINTS
from scripts.krew import build

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "tests" / "data" / "kubectl" / "dump.json"
RELEASE = "https://releases.example/v0"
HOMEPAGE = "https://numazones.example"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
BASE = sys._base_executable  # type: ignore[attr-defined]  # what the virtual environment was made from


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Manifest and archive of a release."""
    manifest, archive = build.write(tmp_path_factory.mktemp("krew"), f"{RELEASE}/", HOMEPAGE)
    assert manifest.name == "numazones.yaml"  # krew wants the plugin's name
    return yaml.safe_load(manifest.read_text()), archive


@pytest.fixture(scope="module")
def installed(made: tuple[dict[str, Any], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as krew leaves it: what was unpacked in store, in bin a link to what the manifest names."""
    manifest, archive = made
    folder = tmp_path_factory.mktemp("installed")
    with tarfile.open(archive) as content:
        content.extractall(folder / "store", filter="data")
    (folder / "bin").mkdir()
    (platform,) = manifest["spec"]["platforms"]
    (folder / "bin" / "kubectl-numazones").symlink_to(Path("../store", platform["bin"]))
    yield folder
    shutil.rmtree(folder)  # thousands of files


def run(command: list[str], *path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run with nothing of this environment but folders on the path."""
    clean = {"PATH": os.pathsep.join(map(str, path)), "HOME": "/nonexistent", **environment}
    program = shutil.which(command[0], path=clean["PATH"])
    assert program, command
    return subprocess.run([program, *command[1:]], env=clean, capture_output=True, text=True, check=False)


def interpreter(folder: Path, name: str, text: str = "") -> Path:
    """A folder whose program of that name is Python, or a script."""
    folder.mkdir()
    if text:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    else:
        (folder / name).symlink_to(BASE)
    return folder


def test_kubectl_runs_what_was_unpacked_without_this_environment(installed: Path, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on the path: scripts/test-tools .cache brings it")
    path = (
        installed / "bin",
        Path(kubectl).parent,
        interpreter(tmp_path / "python", "python3"),
        Path("/usr/bin"),
    )
    said = run(["kubectl", "numazones", "version"], *path)
    assert said.stdout.startswith(f"numazones {version('numazones')} (kubelet "), said.stderr
    said = run(["kubectl", "numazones", "who", "worker-1", "-f", str(DUMP)], *path)
    assert "team/cache-1" in said.stdout, said.stderr


def test_placement_models_are_found_by_what_was_unpacked(installed: Path, tmp_path: Path) -> None:
    dump = json.loads(DUMP.read_text())
    for item in dump["items"]:
        if item["kind"] == "Node":
            item["metadata"]["labels"] = {"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}
    (tmp_path / "marked.json").write_text(json.dumps(dump))
    path = (installed / "bin", interpreter(tmp_path / "python", "python3"), Path("/usr/bin"))
    said = run(["kubectl-numazones", "top", "-f", str(tmp_path / "marked.json")], *path)
    assert "worker-1: unknown: koord-scheduler and the kubelet's managers both" in said.stdout, said.stderr
    metadata = installed / "store" / PYTHON / f"numazones-{version('numazones')}.dist-info"
    (named,) = PathDistribution(metadata).entry_points.select(group=ENTRY_POINTS, name="topology-aware")
    assert named.value.startswith("numazones_topology_aware.")


def test_worker_processes_find_the_packages_too(installed: Path, tmp_path: Path) -> None:
    sweep = ["kubectl-numazones", "whatif", "--set", "topologyManagerScope=pod", "--runs=2", "--workers=2"]
    sweep += ["--machine", "sockets=1,numa=2,cores=4,memory=8Gi", "--pods", "2xcpu=2,memory=1Gi"]
    said = run(sweep, installed / "bin", interpreter(tmp_path / "python", "python3"), Path("/usr/bin"))
    assert said.returncode == 0, said.stderr
    assert "admitted" in said.stdout


def test_its_packages_come_before_others(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('not ours')")
    path = (installed / "bin", interpreter(tmp_path / "python", "python3"), Path("/usr/bin"))
    said = run(["kubectl-numazones", "version"], *path, PYTHONPATH=str(tmp_path))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.fixture
def for_another_python(tmp_path: Path) -> Path:
    """The launcher of an archive for a Python that this is not."""
    (tmp_path / "python3.99").mkdir()
    launcher = ROOT / "scripts" / "krew" / "kubectl-numazones.py"
    return Path(shutil.copy(launcher, tmp_path / "kubectl-numazones"))


def test_another_python3_hands_over_to_the_one_that_the_archive_is_for(
    for_another_python: Path, tmp_path: Path
) -> None:
    there = interpreter(tmp_path / "there", "python3.99", 'echo "took over: $*"')
    here = interpreter(tmp_path / "here", "python3")
    said = run([str(for_another_python), "fit", "cpu=2"], there, here, Path("/usr/bin"))
    assert said.stdout == f"took over: {for_another_python} fit cpu=2\n", said.stderr


def test_without_the_python_it_is_for_it_names_that_and_the_cure(
    for_another_python: Path, tmp_path: Path
) -> None:
    here = interpreter(tmp_path / "here", "python3")
    said = run([str(for_another_python), "version"], here, Path("/usr/bin"))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == (
        f"error: this kubectl-numazones is for python3.99, which is not on the path (python3 is {PYTHON});"
        " install that, or numazones with its extra kubectl by pipx\n"
    )


def test_the_manifest_is_what_krew_takes(made: tuple[dict[str, Any], Path]) -> None:
    manifest, archive = made
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]) == ("Plugin", {"name": "numazones"})
    spec = manifest["spec"]
    assert spec["version"] == f"v{version('numazones')}"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["homepage"] == HOMEPAGE
    assert 0 < len(spec["shortDescription"]) <= 50
    assert spec["description"].strip()
    assert f"Needs Python {PYTHON.removeprefix('python')} " in spec["caveats"]
    (platform,) = spec["platforms"]
    system, architecture = build.target()
    assert platform == {
        "selector": {"matchLabels": {"os": system, "arch": architecture}},
        "uri": f"{RELEASE}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-numazones",
        "files": [{"from": "*", "to": "."}],
    }


def test_the_archive_has_files_that_krew_unpacks_with_licences(made: tuple[dict[str, Any], Path]) -> None:
    with tarfile.open(made[1]) as content:
        members = content.getmembers()
    # krew refuses links, and names that look as if they led out.
    assert all(member.isreg() and ".." not in member.name and member.name[0] != "/" for member in members)
    tops = {member.name.partition("/")[0] for member in members}
    assert tops == {"kubectl-numazones", PYTHON, "LICENSE", "NOTICE"}
    assert [member.name for member in members if member.mode & 0o111] == ["kubectl-numazones"]
    packages = {member.name.split("/")[1] for member in members if "/" in member.name}
    assert {"kubectl_numazones", "textual", "kubernetes"} <= packages
    assert not {"kopf", "matplotlib", "pytest", "distributed"} & packages


def test_equal_sources_give_equal_archives(made: tuple[dict[str, Any], Path]) -> None:
    again = build.archive()
    assert hashlib.sha256(again).digest() == hashlib.sha256(made[1].read_bytes()).digest()
