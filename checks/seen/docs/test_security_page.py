"""The security page names tests that exist."""

import re

from tests.places import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    files = set(re.findall(r"`(?:tests/)?([a-z_/]+/test_\w+\.py)`", PAGE))
    assert len(files) > 10
    assert [name for name in sorted(files) if not (ROOT / "tests" / name).is_file()] == []
    functions = set(re.findall(r"`(test_\w+)`", PAGE))
    texts = "".join((ROOT / "tests" / name).read_text() for name in files)
    assert functions
    assert [name for name in functions if f"def {name}(" not in texts] == []


def test_every_attacker_has_a_test_beside_what_stops_them() -> None:
    section = PAGE.partition("## Who could do what")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`[\w/]+\.py`|the same", row.split("|")[4]), row
