"""Selectors as people type them after ``kubectl -l``."""

import pytest

from numazones.label_selector import InvalidSelector, LabelSelector

LABELS = {"app": "web", "zone": "a", "example.com/gpu": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,zone=a", True),
        ("app=web,zone=b", False),
        ("app!=db", True),
        ("tier!=db", True),  # as in kubectl: who has no such label has not that value
        ("zone in (a, b)", True),
        ("zone in (b,c),app=web", False),
        ("zone notin (b,c)", True),
        ("example.com/gpu", True),
        ("!example.com/gpu", False),
        ("!spot", True),
        ("spot", False),
        ("example.com/gpu=", True),
    ],
)
def test_a_selector_selects_as_kubectl_does(text: str, matches: bool) -> None:  # noqa: FBT001 - of the table
    assert LabelSelector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["a===b", "!a=b", "a in b", "=a", "a b", "!a in (b)", "a>1"])
def test_what_is_no_selector_is_quoted(text: str) -> None:
    with pytest.raises(InvalidSelector) as error:
        LabelSelector.parse(text)
    assert repr(text) in str(error.value)
