"""The plugin for krew: an archive that runs without this environment, a manifest that krew takes."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution, distribution, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from numazones.placement.models import ENTRY_POINTS
from tests.places import ROOT
from tools import targets
from tools.archives import packed
from tools.krew import build
from tools.locked import needed

DUMP = ROOT / "tests" / "data" / "kubectl" / "dump.json"
RELEASE = "https://releases.example/v0"
HOMEPAGE = "https://numazones.example"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = f"python{VERSION}"
HERE = targets.Target(sys.platform, "amd64" if platform.machine() == "x86_64" else "arm64")
BASE = sys._base_executable  # type: ignore[attr-defined]  # what the virtual environment was made from


def repacked(package: str, folder: Path) -> None:
    """An installed package as the wheel that it was installed from."""
    found = distribution(package)
    tags = [
        line.removeprefix("Tag: ")
        for line in str(found.read_text("WHEEL")).splitlines()
        if line[:4] == "Tag:"
    ]
    name = canonicalize_name(package).replace("-", "_")
    wheel = folder / f"{name}-{found.version}-{tags[-1]}.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        for file in found.files or ():
            if not {"..", "__pycache__"} & set(file.parts):
                content.writestr(file.as_posix(), file.read_binary())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip would download for this Python and this machine, and one of an older lock."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in needed(["kubectl"]):
        repacked(package, folder)
    (folder / "rich-1.0-py3-none-any.whl").write_bytes(b"of another day")
    return folder


@pytest.fixture(scope="module")
def made(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Manifest and archive of a release for this machine."""
    folder = tmp_path_factory.mktemp("krew")
    manifest, (archive,) = build.write(
        folder, wheels, f"{RELEASE}/", HOMEPAGE, targets=[HERE], pythons=[VERSION]
    )
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
    clean = {"PATH": os.pathsep.join(map(str, path)), "HOME": "/dev/null", **environment}
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
        pytest.skip("there is no kubectl on the path: tools/test-tools .cache brings it")
    path = (
        installed / "bin",
        Path(kubectl).parent,
        interpreter(tmp_path / "python", "python3"),
        Path("/usr/bin"),
    )
    said = run(["kubectl", "numazones", "version"], *path)
    assert said.stdout.startswith(f"numazones {version('numazones')} (kubelet "), said.stderr
    said = run(["kubectl", "numazones", "--help"], *path)
    assert said.stdout.startswith("Usage: kubectl numazones"), said.stderr
    said = run(["kubectl", "numazones", "why", "trainer-2", "-n", "team", "-f", str(DUMP)], *path)
    assert said.stdout.startswith("team/trainer-2: needs 5 exclusive CPUs"), said.stderr
    assert said.returncode == 1


def test_placement_models_are_found_by_what_was_unpacked(installed: Path, tmp_path: Path) -> None:
    dump = json.loads(DUMP.read_text())
    for item in dump["items"]:
        if item["kind"] == "Node":
            item["metadata"]["labels"] = {"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}
    (tmp_path / "marked.json").write_text(json.dumps(dump))
    path = (installed / "bin", interpreter(tmp_path / "python", "python3"), Path("/usr/bin"))
    said = run(["kubectl-numazones", "top", "-f", str(tmp_path / "marked.json")], *path)
    assert "worker-1: unknown: koord-scheduler and the kubelet's managers both" in said.stdout, said.stderr
    metadata = installed / "store" / "packages" / f"numazones_models-{version('numazones')}.dist-info"
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
def for_other_pythons(tmp_path: Path) -> Path:
    """The launcher of an archive for Pythons that this is not."""
    for name in ("python3.98", "python3.99", "packages"):
        (tmp_path / name).mkdir()
    launcher = ROOT / "tools" / "krew" / "kubectl-numazones.py"
    return Path(shutil.copy(launcher, tmp_path / "kubectl-numazones"))


@pytest.mark.parametrize("newest", ["python3.98", "python3.99"])
def test_unsuitable_python3_starts_the_newest_supported_one(
    for_other_pythons: Path, tmp_path: Path, newest: str
) -> None:
    there = interpreter(tmp_path / "there", newest, f'echo "{newest} took over: $*"')
    (there / "python3.98").write_text(f'#!/bin/sh\necho "{newest} took over: $*"\n')
    (there / "python3.98").chmod(0o755)
    here = interpreter(tmp_path / "here", "python3")
    said = run([str(for_other_pythons), "fit", "cpu=2"], there, here, Path("/usr/bin"))
    assert said.stdout == f"{newest} took over: {for_other_pythons} fit cpu=2\n", said.stderr


def test_missing_python_is_reported_with_supported_versions_and_cure(
    for_other_pythons: Path, tmp_path: Path
) -> None:
    here = interpreter(tmp_path / "here", "python3")
    said = run([str(for_other_pythons), "version"], here, Path("/usr/bin"))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == (
        f"error: kubectl-numazones needs one of python3.98, python3.99 on the path (python3 is {PYTHON});"
        " install one, or numazones with its extra kubectl by pipx\n"
    )


def test_requirements_of_other_pythons_are_those_of_their_markers() -> None:
    for target in targets.TARGETS:
        for python in targets.PYTHONS:
            assert {"pydantic-core", "click", "kubernetes"} <= needed(
                ["kubectl"], environment=target.markers(python)
            )


def test_the_manifest_has_every_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "contents", lambda target, *_: {"kubectl-numazones": str(target).encode()})
    manifest, archives = build.write(tmp_path, tmp_path, RELEASE, HOMEPAGE)
    spec = yaml.safe_load(manifest.read_text())["spec"]
    found = {
        tuple(one["selector"]["matchLabels"].values()): (one["uri"], one["sha256"])
        for one in spec["platforms"]
    }
    assert set(found) == {(os_, arch) for os_ in ("linux", "darwin") for arch in ("amd64", "arm64")}
    assert set(found.values()) == {
        (f"{RELEASE}/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest()) for path in archives
    }
    assert "Needs Python 3.11 to 3.14 " in spec["caveats"]


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
    (platform,) = spec["platforms"]
    target = HERE
    assert platform == {
        "selector": {"matchLabels": {"os": target.os, "arch": target.arch}},
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
    assert tops == {"kubectl-numazones", "packages", PYTHON, "LICENSE", "NOTICE"}
    assert [member.name for member in members if member.mode & 0o111] == ["kubectl-numazones"]
    packages = {member.name.split("/")[1] for member in members if "/" in member.name}
    assert {"kubectl_numazones", "textual", "kubernetes", f"rich-{version('rich')}.dist-info"} <= packages
    assert not {"kopf", "matplotlib", "pytest", "distributed"} & packages


def test_compiled_packages_are_in_their_pythons_folder(made: tuple[dict[str, Any], Path]) -> None:
    with tarfile.open(made[1]) as content:
        names = content.getnames()
    assert all(not name.endswith(".so") for name in names if name.startswith("packages/"))
    assert any(name.startswith(f"{PYTHON}/pydantic_core/") for name in names)
    assert any(name.startswith("packages/pydantic/") for name in names)


def test_equal_sources_give_equal_archives(made: tuple[dict[str, Any], Path], wheels: Path) -> None:
    again = packed(build.contents(HERE, wheels, [VERSION]), programs={"kubectl-numazones"})
    assert hashlib.sha256(again).digest() == hashlib.sha256(made[1].read_bytes()).digest()
