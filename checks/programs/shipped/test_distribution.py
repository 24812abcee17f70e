"""Wheel and sdist, built here and installed into clean environments, without the internet.

The environments hold the wheel and, as links, those packages of this environment that an extra needs and no
other: so a program that imports what its extra does not bring, or another program's modules, fails.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Collection, Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from checks.programs.shipped import demo_story
from tests.places import ROOT
from tools.locked import DISTRIBUTIONS, extras_of, needed, project, siblings

SAMPLE = ROOT / "tests" / "data" / "recordings" / "one-node"
PACKAGES = {
    "numazones": {
        "numazones",
        "numazones_client",
        "numazones_program",
        "numazones_page",
        "numazones_node",
        "numazones_exporter",
        "numazones_operator",
        "kubectl_numazones",
    },
    "numazones-models": {"numazones_koordinator", "numazones_topology_aware"},
    "numazones-lab": {"numazones_simulator", "numazones_simulated_models", "numazones_apiserver"},
}
"""Distribution → the packages in its wheel."""
EVERY_PACKAGE = set().union(*PACKAGES.values())
PROGRAMS = {
    "exporter": "numazones_exporter",
    "operator": "numazones_operator",
    "kubectl": "kubectl_numazones",
    "simulator": "numazones_simulator",
}
"""Extra → the package of its program."""
BACKEND = {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"}
"""What builds a wheel."""
SHARED = EVERY_PACKAGE - set(PROGRAMS.values()) - PACKAGES["numazones-lab"]
Wheels = dict[str, Path]
"""Distribution → its wheel."""

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*sorted(sys.modules))
"""

SHOW_MODELS = """
from numazones.placement import models
print(*(f"{name} {model.mark.__module__}" for name, model in models.models().items()), sep="\\n")
"""
SHOW_SIMULATIONS = """
from numazones_simulator import placement_models
print(*placement_models.simulations())
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


def build_wheels(root: Path, folder: Path) -> Wheels:
    sources = {name: root / place.relative_to(ROOT) for name, place in DISTRIBUTIONS.items()}
    return {name: build(source, "wheel", folder / name) for name, source in sources.items()}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return build_wheels(ROOT, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


class Environment:
    """A clean environment with some wheels and what some extras need."""

    def __init__(
        self, folder: Path, wheels: Collection[Path], *extras: str | None, building: bool = False
    ) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        (site,) = folder.glob("lib/python3*/site-packages")
        names = needed([*filter(None, extras)])
        for name in sorted(names | BACKEND if building else names):
            _link(name, site)
        if wheels:
            self.install(*wheels, cwd=folder)

    def install(self, *what: str | Path, cwd: Path) -> None:
        options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
        run(sys.executable, "-m", "pip", "--python", self.bin / "python", "install", *options, *what, cwd=cwd)

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
    request: pytest.FixtureRequest, wheels: Wheels, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str | None, Environment]]:
    """The library alone; a program with the placement models, as images and plugin have it; the lab."""
    folder = tmp_path_factory.mktemp("env")
    wanted = ["numazones"]
    if request.param is not None:
        wanted.append("numazones-models")
    if request.param == "simulator":
        wanted.append("numazones-lab")
    yield request.param, Environment(folder / "env", [wheels[name] for name in wanted], request.param)
    shutil.rmtree(folder)  # thousands of files


@pytest.mark.parametrize("distribution", PACKAGES)
def test_a_wheel_holds_its_packages_and_nothing_else(wheels: Wheels, distribution: str) -> None:
    about = f"{distribution.replace('-', '_')}-{version('numazones')}.dist-info"
    with zipfile.ZipFile(wheels[distribution]) as content:
        names = content.namelist()
        metadata = content.read(f"{about}/METADATA").decode()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*PACKAGES[distribution], about}
    for package in PACKAGES[distribution]:
        assert f"{package}/py.typed" in names
        assert f"{package}/__init__.py" in names
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    for extra, package in PROGRAMS.items():
        assert (f"Provides-Extra: {extra}\n" in metadata) == (package in PACKAGES[distribution])
    assert "License-Expression: Apache-2.0\n" in metadata


def test_equal_sources_give_equal_wheels(wheels: Wheels, tmp_path: Path) -> None:
    again = build_wheels(ROOT, tmp_path)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in wheels.items()
    }


def test_the_wheels_of_the_sdist_are_the_wheels(wheels: Wheels, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        assert not [name for name in names if "/tests/" in name or "/.cache/" in name]
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build_wheels(source, tmp_path / "wheels")
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(again[name]) as theirs:
            assert {item.filename: item.CRC for item in ours.infolist()} == {
                item.filename: item.CRC for item in theirs.infolist()
            }


def test_distributions_share_a_version_and_need_each_other_alone() -> None:
    """Everything else that a program needs is in its extra: ``tools.locked`` relies on it."""
    same = version("numazones")
    for name in DISTRIBUTIONS:
        declared = project(name)
        assert declared["version"] == same
        if name != "numazones":
            assert declared["dependencies"] == [f"{other}=={same}" for other in sorted(siblings(name))]


def upgraded_lines() -> dict[str, str]:
    """Extra of version 0.2 → what the upgrade guide says to install from a checkout instead."""
    guide = (ROOT / "docs" / "guides" / "upgrade.md").read_text()
    section = guide.partition("### Installed from a checkout\n")[2].partition("\n## ")[0]
    return dict(
        re.findall(r"^\| `pip install '\.\[(\w+)\]'` \| `pip install (.*)` \|$", section, re.MULTILINE)
    )


@pytest.mark.parametrize("extra", [*PROGRAMS, "apiserver"])
def test_the_upgrade_guide_installs_what_version_0_2_did(extra: str, tmp_path: Path) -> None:
    line = shlex.split(upgraded_lines()[extra])
    (holder,) = [name for name in DISTRIBUTIONS if extra in extras_of(name)]
    folder = DISTRIBUTIONS[holder].relative_to(ROOT).as_posix()
    assert f"./{folder}[{extra}]".replace("./.", ".") in line
    installed = Environment(tmp_path / "environment", (), extra, building=True)
    installed.install(*line, "--no-build-isolation", cwd=ROOT)
    found = installed.python("-c", SHOW_MODELS, cwd=tmp_path)
    assert [line.split()[0] for line in found.splitlines()] == ["koordinator", "topology-aware"]
    package = PROGRAMS.get(extra, "numazones_apiserver")
    installed.python("-c", f"import {package}", cwd=tmp_path)


def test_modules_import_with_their_extra_and_without_other_programs(
    environment: tuple[str | None, Environment], tmp_path: Path
) -> None:
    extra, installed = environment
    mine = {"numazones"} if extra is None else {"numazones", PROGRAMS[extra]}
    imported = set(installed.python("-W", "error", "-c", IMPORT_ALL, *sorted(mine), cwd=tmp_path).split())
    ours = {name for name in imported if name.partition(".")[0] in EVERY_PACKAGE}
    assert mine <= ours
    allowed = mine | (SHARED if extra else set())
    if extra == "simulator":
        allowed |= PACKAGES["numazones-lab"]  # it stands in for the API server and the models' agents too
    assert {name.partition(".")[0] for name in ours} <= allowed
    if extra in (None, "exporter"):
        assert not {"kopf", "kubernetes", "kubernetes_validate", "rich"} & imported


def test_placement_models_load_with_any_program_but_stay_optional(
    environment: tuple[str | None, Environment], tmp_path: Path
) -> None:
    extra, installed = environment
    found = [line.split() for line in installed.python("-c", SHOW_MODELS, cwd=tmp_path).splitlines()]
    if extra is None:
        assert not any(found)
        return
    assert found == [
        ["koordinator", "numazones_koordinator.model"],
        ["topology-aware", "numazones_topology_aware.model"],
    ]
    if extra == "simulator":
        simulated = installed.python("-c", SHOW_SIMULATIONS, cwd=tmp_path).split()
        assert simulated == [name for name, _ in found]


def test_embedded_api_server_needs_only_its_extra(wheels: Wheels, tmp_path: Path) -> None:
    needed_wheels = (wheels["numazones"], wheels["numazones-lab"])
    installed = Environment(tmp_path / "environment", needed_wheels, "apiserver")
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


def test_demo_runs_to_its_end_without_a_checkout(wheels: Wheels, tmp_path: Path) -> None:
    """From pods that come and go to the plan that makes room, by the programs of the wheels alone."""
    installed = Environment(tmp_path / "environment", wheels.values(), *PROGRAMS)
    simulator, film = installed.bin / "numazones-simulator", tmp_path / "demo.svg"
    said = run(simulator, "demo", "--auto", "--record", film, cwd=tmp_path, HOME=str(tmp_path))
    demo_story.check(said, film)
    recorded = run(
        simulator, "demo", "--recorded", "--no-serve", cwd=tmp_path, NUMAZONES_SHARED=str(tmp_path)
    )
    assert "rig-b-numa-0   restricted   24" in recorded
