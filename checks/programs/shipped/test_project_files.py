"""Tests that people, hooks and CI run the same commands, and that the version is in one place."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import yaml

from tests.places import ROOT

VERSIONED = (
    "pyproject.toml",
    "models/pyproject.toml",
    "lab/pyproject.toml",
    "manifests/chart/Chart.yaml",
    "manifests/exporter/kustomization.yaml",
    "manifests/operator/kustomization.yaml",
)


def test_commits_are_linted_and_ci_runs_test_and_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (hook,) = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert (hook["entry"], hook["language"], hook["pass_filenames"]) == ("make lint", "system", False)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-2:] == ["make test", "exec make check"]
    asked = subprocess.run(
        ["make", "--dry-run", "--always-make", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for checker in ("ruff check", "ruff format --check", "mypy", "lint-imports", "pytest"):
        assert f".venv/bin/{checker}" in asked


def test_one_command_sets_the_version_everywhere(tmp_path: Path) -> None:
    for name in ("Makefile", *VERSIONED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["make", "version", "VERSION=9.8.7"], cwd=tmp_path, capture_output=True, check=True)
    old = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in VERSIONED:
        before, after = (ROOT / name).read_text().splitlines(), (tmp_path / name).read_text().splitlines()
        changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
        assert changed, name
        assert all(other == one.replace(old, "9.8.7") for one, other in changed), name
    without = subprocess.run(["make", "version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "make version VERSION=X.Y.Z" in without.stderr


def test_the_licence_is_apache_2_and_goes_with_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
