"""The page on reliability: each row names its tests, or says that there is none."""

import re

import pytest

from tests.places import ROOT

NAMED = re.compile(r"`(?:tests|checks)/[\w/]+\.py::test_\w+`")


def rows() -> list[str]:
    lines = [
        line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")
    ]
    return [line for line in lines if not line.startswith("| Fault |")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip())
def test_each_row_names_its_tests_or_says_not_tested(row: str) -> None:
    assert NAMED.search(row) or "not tested" in row
