"""What a run of the tests leaves on the disk: the folders of those that failed, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MODULE = """
import pytest

@pytest.fixture
def broken(tmp_path):
    (tmp_path / "broken").touch()
    raise RuntimeError

def test_that_passes(tmp_path):
    (tmp_path / "passed").touch()

def test_that_is_skipped(tmp_path):
    (tmp_path / "skipped").touch()
    pytest.skip("for a reason")

def test_that_fails(tmp_path):
    (tmp_path / "failed").touch()
    raise RuntimeError

def test_that_cannot_begin(broken):
    pass

def test_of_what_several_share(tmp_path_factory):
    (tmp_path_factory.mktemp("shared") / "shared").touch()
"""


def kept(directory: Path, *arguments: str) -> set[str]:
    """The files that a run of the module leaves, with the settings of this project."""
    module = directory / "test_module.py"
    module.write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--rootdir={ROOT}",
    ]
    root = directory / "root"
    root.mkdir()
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", *arguments, module],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "passed" in done.stdout, done.stdout + done.stderr
    return {path.name for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")}


def test_a_run_that_passes_leaves_nothing(tmp_path: Path) -> None:
    assert kept(tmp_path, "-k", "passes or skipped or share") == set()


def test_a_run_that_fails_leaves_the_folders_of_failed_tests_and_those_that_tests_share(
    tmp_path: Path,
) -> None:
    assert kept(tmp_path) == {"failed", "broken", "shared"}
