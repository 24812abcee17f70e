"""Rules that keep pods are explained wherever pods are counted by rule."""

import re

from numazones.rebalance.kept_pods import RULES, kept_pods
from tests.places import ROOT


def test_every_rule_of_the_reference_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "rebalance.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} >= RULES.keys()


def test_every_rule_of_the_code_is_explained() -> None:
    folder = ROOT / "numazones" / "rebalance"
    code = "".join((folder / name).read_text() for name in ("filter.py", "candidates.py"))
    assert set(re.findall(r'Objection\(\s*"(\w+)"', code)) - RULES.keys() == set()


def test_rules_with_the_most_pods_come_first() -> None:
    assert list(kept_pods({"MinPodAge": 1, "NodeState": 3})) == [
        "3 pods stay: the state of the node is not known for certain (rule NodeState)",
        "1 pod stays: younger than the policy's minPodAge (rule MinPodAge)",
    ]
