"""Numbers agree with their nouns."""

import pytest

from numazones.wording import claimed_name, first_of, pluralize, some_of, visible


@pytest.mark.parametrize(("number", "said"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_one_is_singular_and_none_is_plural(number: int, said: str) -> None:
    assert pluralize(number, "pod") == said


def test_long_name_lists_end_with_the_number_left() -> None:
    assert some_of("ab", most=2) == "a, b"
    assert some_of("abcd", most=2) == "a, b and 2 more"
    assert first_of(["a"]) == "a"
    assert first_of(["a", "b", "c"]) == "a (and 2 more)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("worker-1 [bold] \N{GREEK SMALL LETTER ALPHA} \N{GRINNING FACE}", None),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\x00\x7f\x9b", r"a\x0db\x00\x7f\x9b"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}\N{LEFT-TO-RIGHT ISOLATE}", r"\u202e\u2066"),
        ("\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}\ud800", r"\u200b\u2028\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_its_code(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)


def test_line_ends_are_kept_only_in_multiline_text() -> None:
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("a\tb\nc", lines=False) == r"a\tb\nc"


def test_claimed_name_is_visible_and_no_longer_than_a_name() -> None:
    assert claimed_name("web-5d9") == "web-5d9"
    assert claimed_name("a\x1b[2J\nb") == r"a\x1b[2J\nb"
    assert claimed_name("\x1b" * 300) == (r"\x1b" * 64)[:253]
