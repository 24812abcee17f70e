"""Fixtures that several folders of the operator's tests share."""

import shutil

import pytest

from tests.places import ROOT

LOCAL = ROOT / ".cache" / "tools" / "bin" / "kubectl"


@pytest.fixture
def kubectl() -> str:
    program = shutil.which("kubectl") or (str(LOCAL) if LOCAL.exists() else "")
    if not program:
        pytest.skip("kubectl is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    return program
