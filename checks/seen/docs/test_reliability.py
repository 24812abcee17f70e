"""The page on reliability: each row names tests that exist, or says that there is none."""

import ast
import re
from functools import cache

import pytest

from tests.places import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    lines = [
        line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")
    ]
    return [line for line in lines if not line.startswith("| Fault |")]


@cache
def names_in(module: str) -> frozenset[str]:
    tree = ast.parse((ROOT / module).read_text())
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip())
def test_each_row_names_tests_that_exist_or_says_not_tested(row: str) -> None:
    named = NAMED.findall(row)
    assert named or "not tested" in row
    assert row.count("`tests/") == len(named)
    for module, name in named:
        assert name.startswith("test_"), name
        assert name in names_in(module), f"{module} has no {name}"
