"""The compiled wheel is built here, and what the library's own tests say holds for it."""

import json
import os
import shlex
import shutil
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.shipped.test_distribution import ROOT, build, run

COMPILER = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
HEADERS = Path(sysconfig.get_path("include"), "Python.h")
FILES = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__file__ for name in sys.argv[1:]}))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two minutes of work, on whatever is left of the machine
@pytest.mark.skipif(
    shutil.which(COMPILER) is None or not HEADERS.exists(),
    reason=f"compiling needs a C compiler ({COMPILER}) and Python's headers ({HEADERS}); both are not there",
)
def test_the_compiled_library_passes_the_tests_of_the_pure_one(tmp_path: Path) -> None:
    wheel = build(ROOT, "wheel", tmp_path / "wheel", HATCH_BUILD_HOOK_ENABLE_CUSTOM="true")
    assert not wheel.name.endswith("-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "library")

    def in_library(*command: str | Path) -> str:
        """Run Python with the compiled library before the environment's own, wherever it is run."""
        return run(
            sys.executable,
            *command,
            PYTHONPATH=str(tmp_path / "library"),
            PYTHONSAFEPATH="1",
            NUMAZONES_SHARED=os.environ.get("NUMAZONES_SHARED", str(ROOT.parent / "shared")),
        )

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    found = json.loads(in_library("-c", FILES, *modules))
    assert [name for name in modules if Path(found[name]).suffix == ".py"] == []
    assert all(Path(file).is_relative_to(tmp_path / "library") for file in found.values())

    tests = ROOT / "tests" / "numazones"
    read_by_pydantic = tests / "whatif" / "test_miss.py"
    suites = [tests / "kubelet", tests / "conformance", read_by_pydantic, *sorted(tests.glob("test_*.py"))]
    in_library("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *suites)
