"""Recordings of the demo: parts in turn on a terminal of 80 columns, and nothing to trip over."""

import re

import pytest

from numazones_simulator.animation import animated

PAGES = [["", "First <title>", "a & b"], [], ["Second", "", "word " * 40]]


def shown(svg: str) -> list[str]:
    """The lines of text, in order, without the window's name."""
    lines = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return [re.sub(r"<[^>]+>", "", line) for line in lines if line != "make demo"]


def turns(svg: str) -> list[tuple[float, float]]:
    """From when until when each part is seen, in percent."""
    found = re.findall(r"@keyframes p\d+ \{.*?([\d.]+)% \{ visibility: visible; \} ([\d.]+)%", svg)
    return [(float(begin), float(end)) for begin, end in found]


def test_a_part_comes_below_the_one_before_and_both_stay() -> None:
    svg = animated(PAGES)
    assert re.findall(r'<g class="(p\d) last">', svg) == ["p0", "p1"]
    (first, until), (second, end) = turns(svg)
    assert (first, until, end) == (0, 100, 100)
    assert 0 < second < 100


def test_what_does_not_fit_begins_a_new_screen() -> None:
    svg = animated([["One", *["line"] * 20], ["Two", *["line"] * 20]])
    assert re.findall(r'<g class="(p\d[^"]*)">', svg) == ["p0", "p1 last"]
    (_, until), (second, end) = turns(svg)
    assert (until, end) == (second, 100)


def test_page_longer_than_a_screen_continues_after_a_blank_line() -> None:
    svg = animated([["Long", *["first"] * 18, "", *["second"] * 18]])
    groups = re.findall(r"<g class[^>]*>(.*?)</g>", svg, re.DOTALL)
    assert [set(shown(group)) for group in groups] == [{"Long", "first"}, {"second"}]
    assert svg.count('class="title"') == 1


def test_nothing_is_wider_than_the_terminal_or_below_its_edge() -> None:
    svg = animated([["Title", "word " * 40, "NODE  WHY", *["node-1   " + "why " * 40] * 9]])
    assert max(map(len, shown(svg))) <= 80
    height = int(re.findall(r'viewBox="0 0 \d+ (\d+)"', svg)[0])
    assert max(map(int, re.findall(r'<text [^>]*y="(\d+)"', svg))) < height - 10


@pytest.mark.parametrize(
    ("line", "indent"),
    [
        ("plain words " * 10, 4),
        ("  - an item of a list " * 6, 4),
        ("node-1   Inadmissible   " + "because " * 12, 24),
    ],
)
def test_what_is_broken_off_stands_below_what_it_belongs_to(line: str, indent: int) -> None:
    (_, _, second, *_) = shown(animated([["Title", line]]))
    assert len(second) - len(second.lstrip()) == indent


def test_text_stays_text() -> None:
    svg = animated(PAGES)
    assert shown(svg)[:3] == ["First &lt;title&gt;", "a &amp; b", "Second"]
    assert " ".join(" ".join(shown(svg)[3:]).split()) == ("word " * 40).strip()
    assert "<script" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_commands_headings_and_verdicts_are_told_apart() -> None:
    svg = animated([["kubectl get pods", "NAME   PODS", "a      Failed <none>"]])
    assert '<tspan class="quiet">$ </tspan>kubectl get pods' in svg
    assert 'class="heading"' in svg
    assert '<tspan class="bad">Failed</tspan> <tspan class="quiet">&lt;none&gt;</tspan>' in svg
