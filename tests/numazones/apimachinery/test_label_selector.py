"""Selectors as people type them after ``kubectl -l``."""

from typing import Any

import pytest

from numazones.apimachinery.label_selector import InvalidSelector, LabelSelector

LABELS = {"app": "web", "zone": "a", "example.com/gpu": "", "cores": "16"}


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
        ("cores>8", True),
        ("cores>16", False),
        ("cores<32", True),
        ("zone>0", False),
        ("absent<9", False),
        ("example.com/gpu in (,x)", True),
        ("zone in ()", False),
    ],
)
def test_a_selector_selects_as_kubectl_does(text: str, matches: bool) -> None:  # noqa: FBT001 - of the table
    assert LabelSelector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a===b", "!a=b", "a in b", "=a", "a b", "!a in (b)", "a>b", "a>", "a,,b", "a in (b", "-a=b"]
)
def test_what_is_no_selector_is_quoted(text: str) -> None:
    with pytest.raises(InvalidSelector) as error:
        LabelSelector.parse(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, ""),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchLabels": {"b": "2"},
                "matchExpressions": [
                    {"key": "d", "operator": "DoesNotExist"},
                    {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
                    {"key": "a", "operator": "Exists"},
                ],
            },
            "a,b=2,c notin (x,y),!d",
        ),
    ],
)
def test_a_selector_is_written_as_kubectl_takes_it(selector: dict[str, Any], text: str) -> None:
    read = LabelSelector.from_api(selector)
    assert str(read) == text
    for labels in (LABELS, {"b": "2", "a": ""}, {"a": "1", "b": "2"}, {"b": "2", "a": "", "c": "x"}):
        assert LabelSelector.parse(text).matches(labels) is read.matches(labels)


def test_a_comparison_is_written_as_it_is_read() -> None:
    assert str(LabelSelector.parse("cores > 8, zone<3")) == "cores>8,zone<3"
