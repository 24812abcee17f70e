"""make venv and make demo, with a Python that only records what it is called for."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

PYTHON = r"""#!/bin/bash
echo "${0#"$PLACE/"} $*" >> "$PLACE/calls"
case "$*" in
  "-m pip --python $0 --version") [ -n "$HAS_PIP" ] ;;
  "-m pip --version") [ -e "${0%/*}/pip" ] ;;
  "-m venv "*) mkdir -p "${@: -1}/bin" && cp "$PLACE/python" "${@: -1}/bin/python"
    [[ $* == *--without-pip* ]] || touch "${@: -1}/bin/pip" ;;
  "-m pip --python "*) touch "${4%/*}/pip" ;;
  *" -r requirements.txt"*) [ -z "$INTERRUPTED" ] || { trap "exit 1" INT; kill -INT 0; } ;;
esac
"""


def make_venv(place: Path, **environment: str) -> tuple[int, list[str], list[str]]:
    """Run tools/make-venv; return its exit code, the lines it printed, and what it changed."""
    python = place / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    calls = place / "calls"
    calls.write_text("")
    done = subprocess.run(
        [str(ROOT / "tools" / "make-venv"), str(place / "venv")],
        env={"PATH": os.environ["PATH"], "PYTHON": str(python), "PLACE": str(place), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        start_new_session=True,
    )
    changes = [
        "packages" if " -r requirements.txt" in line else "pip" if "/dev/fd/" in line else "venv"
        for line in calls.read_text().splitlines()
        if line.startswith("python -m venv") or " -r " in line
    ]
    return done.returncode, done.stdout.splitlines(), changes


@pytest.mark.parametrize("environment", [{}, {"HAS_PIP": "1"}])
def test_environment_without_pip_is_made_again(tmp_path: Path, environment: dict[str, str]) -> None:
    code, printed, changes = make_venv(tmp_path, **environment)
    assert (code, changes) == (0, ["venv", "pip", "packages"]), printed
    # As an installation leaves it that ended while pip replaced itself.
    (tmp_path / "venv" / "bin" / "pip").unlink()
    code, printed, changes = make_venv(tmp_path, **environment)
    assert (code, changes) == (0, ["venv", "pip", "packages"]), printed


def test_interrupted_installation_continues_in_the_same_environment(tmp_path: Path) -> None:
    code, printed, _ = make_venv(tmp_path, INTERRUPTED="1")
    assert (code, printed[-1]) == (130, "Interrupted. Run the same command again: it continues.")
    code, printed, changes = make_venv(tmp_path)
    assert (code, changes) == (0, ["pip", "packages"]), printed
