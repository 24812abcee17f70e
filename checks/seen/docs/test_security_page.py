"""The security page says of each attacker what stops them, and which test shows it."""

import re

from tests.places import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_attacker_has_a_test_beside_what_stops_them() -> None:
    section = PAGE.partition("## Who could do what")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`[\w/]+\.py`|the same", row.split("|")[4]), row
