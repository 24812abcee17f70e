"""The generated files: in step with the models, and named where they are not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

PROGRAM = ROOT / "tools" / "generate_crds.py"
REFERENCE = "docs/reference/resources.md"


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The generated files of this repository, to be spoilt."""
    shutil.copytree(ROOT / "crds", tmp_path / "crds")
    (tmp_path / REFERENCE).parent.mkdir(parents=True)
    shutil.copy(ROOT / REFERENCE, tmp_path / REFERENCE)
    return tmp_path


def test_the_files_are_in_step_with_the_models() -> None:
    run = generate("--check")
    assert (run.returncode, run.stderr) == (0, ""), "run make crds"


def test_nothing_but_generated_files_is_in_crds() -> None:
    plurals = ("admissionpredictions", "numazones", "rebalancepolicies", "rebalancerecommendations")
    expected = {"kustomization.yaml", *(f"{plural}.yaml" for plural in plurals)}
    assert {path.name for path in (ROOT / "crds").iterdir()} == expected


def test_a_check_names_what_differs_and_changes_nothing(copy: Path) -> None:
    (copy / "crds" / "numazones.yaml").write_text("kind: Other\n")
    (copy / "crds" / "kustomization.yaml").unlink()
    run = generate("--check", copy)
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        f"{copy}/crds/numazones.yaml differs from numazones/api; run make crds",
        f"{copy}/crds/kustomization.yaml differs from numazones/api; run make crds",
    ]
    assert (copy / "crds" / "numazones.yaml").read_text() == "kind: Other\n"


def test_generator_rewrites_differences_but_keeps_introductions(copy: Path) -> None:
    before = (copy / REFERENCE).read_text()
    (copy / REFERENCE).write_text(before[: before.index("\n## NUMAZone")])
    (copy / "crds" / "numazones.yaml").unlink()
    assert generate(copy).returncode == 0
    assert (copy / REFERENCE).read_text() == before
    assert (copy / "crds" / "numazones.yaml").read_text() == (ROOT / "crds" / "numazones.yaml").read_text()


def test_the_tables_name_fields_columns_and_defaults() -> None:
    tables = (ROOT / REFERENCE).read_text()
    assert "| `status.assignments[].memory[].numaIDs` | list of integers |" in tables
    assert "| `status.resources[].name` | string | cpu, memory, hugepages-&lt;size> or " in tables
    assert "| CORES (wide) | Largest request for CPUs on whole cores |" in tables
    assert "One of `Recommend`, `Approve`, `Auto`. Default `Recommend`. |" in tables
