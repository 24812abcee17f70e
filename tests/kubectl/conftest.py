"""The small cluster as a dump, and the plugin, run in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubectl_numazones.main import commands
from tests.kubectl.small_cluster import cluster, written


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return written(tmp_path / "dump.json", cluster())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run ``kubectl numazones`` with arguments; errors stay exceptions, as ``main`` gets them."""
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(commands, [str(item) for item in arguments], standalone_mode=False)

    return invoke
