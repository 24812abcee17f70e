"""The pictures of ``live`` in the guide are what the program draws; written anew on request."""

import os
import re

import pytest

from tests.kubectl.live_screen import press, shown, until, view
from tests.places import ROOT

ASSETS = ROOT / "docs" / "assets"
REWRITE = "NUMAZONES_REWRITE_GOLDEN"
_FETCHED = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
"""Fonts would be fetched from another host; without them the reader's own are used."""


@pytest.mark.parametrize(
    ("picture", "size", "keys", "wait"),
    [
        ("live-zones", (144, 22), [], r"worker-2 +1 [\s\S]*socket 1"),
        ("live-stuck", (100, 28), ["2", "enter"], "What would help:"),
        ("live-plans", (100, 10), ["3"], r"not proposed +team/web-1 → worker-2"),
    ],
)
async def test_the_guides_pictures_of_live_are_real(
    picture: str, size: tuple[int, int], keys: list[str], wait: str
) -> None:
    app = view()
    async with app.run_test(size=size) as pilot:
        await until(pilot, r"worker-1 +0 ")
        await press(pilot, *keys)
        await until(pilot, wait)
        drawn = _FETCHED.sub("", app.export_screenshot(title="kubectl numazones live"))
        said = shown(app)
    path = ASSETS / f"{picture}.svg"
    if REWRITE in os.environ:
        path.write_text(drawn, encoding="utf-8")
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert _text(path.read_text(encoding="utf-8")) == _text(drawn), said


def _text(svg: str) -> list[tuple[str, str]]:
    """Return where each text stands; colours and ids may differ between releases of Textual."""
    return re.findall(r'<text [^>]*x="([\d.]+)"[^>]*>(.*?)</text>', svg)
