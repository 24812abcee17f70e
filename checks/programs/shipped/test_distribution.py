"""Wheel and sdist, built here and installed into clean environments, without the internet.

The environments hold the wheel and, as links, those packages of this environment that an extra needs and no
other: so a program that imports what its extra does not bring, or another program's modules, fails.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from checks.programs.shipped import demo_story
from tests.places import ROOT
from tools.locked import needed

SAMPLE = ROOT / "tests" / "data" / "recordings" / "one-node"
PACKAGES = {
    "numazones",
    "numazones_client",
    "numazones_program",
    "numazones_page",
    "numazones_node",
    "numazones_exporter",
    "numazones_operator",
    "kubectl_numazones",
    "numazones_simulator",
    "numazones_apiserver",
    "numazones_koordinator",
    "numazones_topology_aware",
}
PROGRAMS = {
    "exporter": "numazones_exporter",
    "operator": "numazones_operator",
    "kubectl": "kubectl_numazones",
    "simulator": "numazones_simulator",
}
"""Extra → the package of its program."""
SHARED = PACKAGES - set(PROGRAMS.values()) - {"numazones_apiserver"}

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(source: Path, target: str, folder: Path, **environment: str) -> Path:
    """Build with the installed backend: no isolation, so nothing is fetched."""
    stamp = {"SOURCE_DATE_EPOCH": "1767225600"}
    backend = (sys.executable, "-m", "hatchling", "build")
    run(*backend, "--target", target, "--directory", folder, cwd=source, **stamp, **environment)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


class Environment:
    """A clean environment with the wheel and what some extras need."""

    def __init__(self, folder: Path, wheel: Path, *extras: str | None) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        (site,) = folder.glob("lib/python3*/site-packages")
        for name in sorted(needed([*filter(None, extras)])):
            _link(name, site)
        options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
        run(sys.executable, "-m", "pip", "--python", self.bin / "python", "install", *options, wheel)

    def python(self, *arguments: str | Path, cwd: Path) -> str:
        # -I: the folder it is run in counts for nothing.
        return run(self.bin / "python", "-I", *arguments, cwd=cwd)


def _link(name: str, site: Path) -> None:
    """Make a package of this environment importable in another."""
    found = distribution(name)
    for file in found.files or ():
        top = file.parts[0]
        source = Path(str(found.locate_file(top)))
        if top not in ("..", "__pycache__") and source.exists() and not (site / top).exists():
            (site / top).symlink_to(source)


@pytest.fixture(scope="module", params=[None, *PROGRAMS], ids=lambda extra: extra or "library")
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str | None, Environment]]:
    folder = tmp_path_factory.mktemp("env")
    yield request.param, Environment(folder / "env", wheel, request.param)
    shutil.rmtree(folder)  # thousands of files


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = content.read(f"numazones-{version('numazones')}.dist-info/METADATA").decode()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*PACKAGES, f"numazones-{version('numazones')}.dist-info"}
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
        assert f"{package}/__init__.py" in names
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    for extra in PROGRAMS:
        assert f"Provides-Extra: {extra}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata


def test_equal_sources_give_equal_wheels(wheel: Path, tmp_path: Path) -> None:
    assert build(ROOT, "wheel", tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_of_the_sdist_is_the_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        assert not [name for name in names if "/tests/" in name and "/tests/data/recordings/" not in name]
        assert not [name for name in names if "/.cache/" in name]
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build(source, "wheel", tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(again) as theirs:
        assert {item.filename: item.CRC for item in ours.infolist()} == {
            item.filename: item.CRC for item in theirs.infolist()
        }


def test_everything_can_be_imported_with_its_extra_and_imports_no_other_program(
    environment: tuple[str | None, Environment], tmp_path: Path
) -> None:
    extra, installed = environment
    mine = {"numazones"} if extra is None else {"numazones", PROGRAMS[extra]}
    imported = set(installed.python("-W", "error", "-c", IMPORT_ALL, *sorted(mine), cwd=tmp_path).split())
    ours = {name for name in imported if name.partition(".")[0] in PACKAGES}
    assert mine <= ours
    allowed = mine | (SHARED if extra else set())
    if extra == "simulator":
        allowed |= {"numazones_apiserver"}  # it stands in for the API server too
    assert {name.partition(".")[0] for name in ours} <= allowed
    if extra in (None, "exporter"):
        assert not {"kopf", "kubernetes", "kubernetes_validate", "rich"} & imported


SHOW_MODELS = """
from numazones.placement import models
print(*(f"{name} {type(model).__module__}" for name, model in models.models().items()), sep="\\n")
"""
SHOW_SIMULATIONS = """
from numazones_simulator import placement_models
print(*placement_models.simulations())
"""


def test_placement_models_are_found_with_any_extra(
    environment: tuple[str | None, Environment], tmp_path: Path
) -> None:
    extra, installed = environment
    found = [line.split() for line in installed.python("-c", SHOW_MODELS, cwd=tmp_path).splitlines()]
    assert found == [
        ["koordinator", "numazones_koordinator.model"],
        ["topology-aware", "numazones_topology_aware.model"],
    ]
    if extra == "simulator":
        simulated = installed.python("-c", SHOW_SIMULATIONS, cwd=tmp_path).split()
        assert simulated == [name for name, _ in found]


def test_the_embedded_api_server_needs_its_extra_alone_and_no_program(wheel: Path, tmp_path: Path) -> None:
    installed = Environment(tmp_path / "environment", wheel, "apiserver")
    imported = installed.python("-W", "error", "-c", IMPORT_ALL, "numazones_apiserver", cwd=tmp_path).split()
    roots = {name.partition(".")[0] for name in imported}
    assert {name for name in roots if "numazones" in name} == {"numazones", "numazones_apiserver"}
    said = installed.python("-m", "numazones_apiserver", "--help", cwd=tmp_path)
    assert "Serve a Kubernetes API from memory" in said


def commands(folder: Path) -> Iterator[tuple[str, list[str], str]]:
    """(extra, command, what it prints) of each program."""
    recorded = SAMPLE / "rig-b"
    with tarfile.open(recorded / "sys.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    yield (
        "exporter",
        [
            *("numazones-exporter", "--once", "--node-name=rig-b"),
            *(f"--sysfs={folder}/sys", f"--procfs={folder}/proc", f"--kubelet-dir={recorded}"),
            *(f"--podresources=replay:{recorded}", f"--kubelet-config=file:{recorded}/configz.json"),
            f"--pods=file:{SAMPLE}/pods.json",
        ],
        "rig-b-numa-0   restricted   24    10     25.7Gi ",
    )
    yield (
        "operator",
        ["numazones-operator", "--admission-gate", "--dump-config"],
        "admissionGate: true  # flag",
    )
    yield "kubectl", ["kubectl-numazones", "--help"], "Usage: kubectl"
    yield (
        "simulator",
        [
            *("numazones-simulator", "cluster", "--nodes=1", "--no-operator", "--publishing=direct"),
            "--no-serve",
        ],
        "node-1-numa-0",
    )


def test_each_program_runs_with_its_extra_alone(
    environment: tuple[str | None, Environment], tmp_path: Path
) -> None:
    extra, installed = environment
    if extra is None:
        said = installed.python("-c", "import numazones; print(*numazones.__all__)", cwd=tmp_path)
        assert {"admit", "Machine", "Node", "Pod"} <= set(said.split())
        return
    ((command, expected),) = [item[1:] for item in commands(tmp_path) if item[0] == extra]
    how = "version" if extra == "kubectl" else "--version"
    assert version("numazones") in run(installed.bin / command[0], how, cwd=tmp_path)
    said = run(installed.bin / command[0], *command[1:], cwd=tmp_path)
    assert expected in said


def test_prevention_can_be_tried_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """The demo's second scheduler and the gate run what manifests say; a wheel carries those."""
    installed = Environment(tmp_path / "environment", wheel, "simulator", "operator")
    cluster = ("cluster", "--nodes=1", "--pods=3", "--publishing=direct", "--no-serve")
    for way in ("extender", "gate"):
        said = run(installed.bin / "numazones-simulator", *cluster, f"--prevention={way}", cwd=tmp_path)
        assert "3 pods in all, 0 rejected by kubelets" in said


def test_the_demo_needs_no_checkout_and_tells_its_story_to_the_end(wheel: Path, tmp_path: Path) -> None:
    """From pods that come and go to the plan that makes room, by the programs of the wheel alone."""
    installed = Environment(tmp_path / "environment", wheel, *PROGRAMS)
    simulator, film = installed.bin / "numazones-simulator", tmp_path / "demo.svg"
    said = run(simulator, "demo", "--auto", "--record", film, cwd=tmp_path, HOME=str(tmp_path))
    demo_story.check(said, film)
    recorded = run(
        simulator, "demo", "--recorded", "--no-serve", cwd=tmp_path, NUMAZONES_SHARED=str(tmp_path)
    )
    assert "rig-b-numa-0   restricted   24" in recorded
