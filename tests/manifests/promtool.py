"""The rules that Prometheus loads, and promtool, which evaluates them over series."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.manifests.kustomizations import MANIFESTS
from tests.places import ROOT
from tests.yaml_files import document

RULES = document(MANIFESTS / "prometheus" / "prometheusrule.yaml")["spec"]["groups"]
RUNBOOKS = ROOT / "docs" / "runbooks" / "index.md"
LOCAL = ROOT / ".cache" / "tools" / "bin" / "promtool"
Series = dict[str, str]
"""Series → its values, one a minute, as promtool writes them: ``0+1x60`` begins at 0 and grows by 1."""


def promtool(*arguments: str | Path) -> None:
    found = shutil.which("promtool") or (str(LOCAL) if LOCAL.exists() else "")
    if not found:
        pytest.skip("promtool is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(folder: Path, tests: list[tuple[Series, dict[str, Any]]]) -> None:
    """Let promtool evaluate the rules over series, and compare with what is expected then."""
    # JSON is YAML too, and written far faster.
    (folder / "rules.yaml").write_text(json.dumps({"groups": RULES}))
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "5m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                **expected,
            }
            for series, expected in tests
        ],
    }
    (folder / "test.yaml").write_text(json.dumps(content))
    promtool("test", "rules", folder / "test.yaml")
