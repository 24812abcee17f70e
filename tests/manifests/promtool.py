"""The rules that Prometheus loads, and promtool, which evaluates them over series."""

import json
import re
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
Expected = dict[str, list[dict[str, Any]]]
"""Kind of question → the questions, with what promtool should answer."""
Test = tuple[Series, Expected]
_EXPRESSIONS = {
    rule.get("record") or rule["alert"]: rule["expr"] for group in RULES for rule in group["rules"]
}
_WORD = re.compile(r"[\w:]+")


def promtool(*arguments: str | Path) -> None:
    found = shutil.which("promtool") or (str(LOCAL) if LOCAL.exists() else "")
    if not found:
        pytest.skip("promtool is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(folder: Path, tests: list[Test], *, every: str = "5m") -> None:
    """Let promtool evaluate the rules over series, and compare with what is expected then."""
    # JSON is YAML too, and written far faster.
    (folder / "rules.yaml").write_text(json.dumps({"groups": RULES}))
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": every,
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                **expected,
            }
            for series, expected in _packed(tests)
        ],
    }
    (folder / "test.yaml").write_text(json.dumps(content))
    promtool("test", "rules", folder / "test.yaml")


def _packed(tests: list[Test]) -> list[Test]:
    """Put tests that have no metric in common into one: promtool makes a database for each."""
    known = {_WORD.findall(name)[0] for series, _ in tests for name in series}
    packs: list[tuple[set[str], Series, Expected]] = []
    for series, expected in tests:
        metrics = known & _words(" ".join([*series, json.dumps(expected)]))
        pack = next((pack for pack in packs if not pack[0] & metrics), None)
        if pack is None:
            packs.append(pack := (set(), {}, {}))
        taken, together, expectations = pack
        taken.update(metrics)
        together.update(series)
        for kind, questions in expected.items():
            expectations.setdefault(kind, []).extend(questions)
    return [(series, expected) for _, series, expected in packs]


def _words(text: str) -> set[str]:
    """Return the words of a text, and those of the rules that it names."""
    found: set[str] = set()
    left = _WORD.findall(text)
    while left:
        word = left.pop()
        if word not in found:
            found.add(word)
            left += _WORD.findall(_EXPRESSIONS.get(word, ""))
    return found
