"""Tests that pages name exist: one lint for all of them."""

import re
from pathlib import Path

import pytest

from tests.places import ROOT

PAGES = sorted(
    path.relative_to(ROOT)
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if re.search(r"`(?:tests|checks)/|`test_\w+`", path.read_text())
)
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("tests", "checks")
    for path in (ROOT / folder).rglob("*.py")
}


def defined_in(text: str) -> set[str]:
    return set(re.findall(r"def (test_\w+)", text))


def test_there_are_pages_that_name_tests() -> None:
    assert len(PAGES) > 3


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_names_only_tests_that_exist(page: Path) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:tests|checks)/[\w/]+\.py)(?:::(test_\w+))?", text)
    assert [name for name, _ in named if name not in FILES] == []
    assert [test for name, test in named if test and test not in defined_in(FILES[name])] == []
    everywhere = {test for content in FILES.values() for test in defined_in(content)}
    assert set(re.findall(r"`(test_\w+)`", text)) - everywhere == set()


def test_every_pytest_command_of_contributing_selects_a_test() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    commands = re.findall(r"pytest (\S+\.py)(?: -k (\w+))?$", text, re.MULTILINE)
    assert any(word for _, word in commands)
    assert [
        (name, word)
        for name, word in commands
        if not any(word in test for test in defined_in(FILES[name])) and word not in name
    ] == []
