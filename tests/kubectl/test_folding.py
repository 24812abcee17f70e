"""Folding of text and tables: nothing is lost, nothing is wider than there is room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_numazones.printing.folding import GAP, NARROW_GAP, column_widths, folded

WORDS = st.lists(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1), min_size=1)


@given(words=WORDS, width=st.integers(8, 60), indent=st.sampled_from(["", "  "]))
def test_every_character_is_kept_in_lines_that_are_narrow_enough(
    words: list[str], width: int, indent: str
) -> None:
    lines = list(folded(" ".join(words), width, indent=indent))
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(words)
    assert all(line.startswith(indent) for line in lines[1:])


@given(words=WORDS)
def test_words_that_fit_stay_whole(words: list[str]) -> None:
    width = max(map(len, words))
    assert " ".join(folded(" ".join(words), width)).split() == words


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("needs 5 CPUs on worker-17", 12, ["needs 5 CPUs", "on worker-17"]),
        ("ip-10-0-131-42.eu-central-1.internal", 24, ["ip-10-0-131-42.eu-", "central-1.internal"]),
        ("2,4,26,28,30,32", 8, ["2,4,26,", "28,30,32"]),
        ("namespace/pod", 10, ["namespace/", "pod"]),
        ("x" * 9, 4, ["xxxx", "xxxx", "x"]),
        ("", 4, [""]),
    ],
)  # fmt: skip
def test_long_words_are_broken_where_names_and_lists_have_parts(
    text: str, width: int, lines: list[str]
) -> None:
    assert list(folded(text, width)) == lines


@pytest.mark.parametrize(
    ("natural", "room", "widths", "gap"),
    [
        ((4, 10), 20, [4, 10], GAP),
        ((4, 10), 16, [4, 10], NARROW_GAP),  # narrower gaps first
        ((10, 200), 80, [10, 68], NARROW_GAP),  # then the sentence
        ((60, 200), 80, [54, 24], NARROW_GAP),  # names only where that is not enough
        ((60, 50, 20), 80, [28, 28, 20], NARROW_GAP),  # the widest of them
    ],
)
def test_the_last_column_gives_way_first(
    natural: tuple[int, ...], room: int, widths: list[int], gap: int
) -> None:
    assert column_widths(natural, room) == (widths, gap)


@given(natural=st.lists(st.integers(1, 90), min_size=1, max_size=8), room=st.integers(60, 120))
def test_what_has_room_for_its_columns_fits(natural: list[int], room: int) -> None:
    widths, gap = column_widths(natural, room)
    assert sum(widths) + gap * (len(widths) - 1) <= room
    assert all(width <= wanted for width, wanted in zip(widths, natural, strict=True))


def test_a_bar_is_not_folded() -> None:
    assert column_widths((30, 10, 30), 40, fixed={1}) == ([13, 10, 13], NARROW_GAP)
