"""Recordings of the demo: pages in turn, nothing that a viewer could trip over."""

import re

from numazones_simulator.animation import animated

PAGES = [["", "First <title>", "a & b"], [], ["Second", "", "word " * 40]]


def test_each_page_is_shown_once_in_turn() -> None:
    svg = animated(PAGES)
    assert re.findall(r'<g class="(p\d)">', svg) == ["p0", "p1"]
    shown = re.findall(r"@keyframes p\d \{.*?([\d.]+)% \{ visibility: visible; \} ([\d.]+)%", svg)
    assert [begin for begin, _ in shown] == ["0.00", shown[0][1]]
    assert shown[1][1] == "100.00"


def test_text_stays_text_and_long_lines_are_broken() -> None:
    svg = animated(PAGES)
    lines = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert lines[:3] == ["First &lt;title&gt;", "a &amp; b", "Second"]
    assert max(map(len, lines)) <= 132
    assert " ".join(" ".join(lines[3:]).split()) == ("word " * 40).strip()
    assert "<script" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
