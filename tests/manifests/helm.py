"""Helm, as the tests of the chart run it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

LOCAL = ROOT / ".cache" / "tools" / "bin" / "helm"


def program() -> str:
    found = shutil.which("helm") or (str(LOCAL) if LOCAL.exists() else "")
    if not found:
        pytest.skip("helm is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    return found


def helm(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run helm with nothing of this user's: neither settings nor cluster."""
    return subprocess.run(
        [program(), *arguments],
        env={"HOME": str(home), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
