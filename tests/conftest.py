"""What all tests share: where the reference material lies."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Deadlines per example fail on a busy machine and say nothing about the law under test.
settings.register_profile("numazones", deadline=None, print_blob=True)
settings.load_profile("numazones")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of vectors and recordings beside the project (NUMAZONES_SHARED); skips where absent."""
    folder = Path(os.environ.get("NUMAZONES_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(
            f"no reference material in {folder}; set NUMAZONES_SHARED (the project's own sample is tested)"
        )
    return folder
