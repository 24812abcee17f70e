"""Values as documents: names, order, writers and what the reference page says of the fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

import pytest

from numazones.api.reasons import NodeCounts, Reason
from numazones.apimachinery.answer import DocumentField, Named, document, or_null, parts_of, title_of
from numazones.apimachinery.quantity import format_bytes


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    first: Annotated[int, "The first."]
    second: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole."""

    TITLE: ClassVar = "Everything"
    ANSWER: ClassVar = ("total_cpus", "size", "colour", "parts", "by_colour", "note", "source", "inner")
    colour: Annotated[Colour, "How it looks."] = Colour.RED
    size: Annotated[int, "In bytes.", format_bytes] = 2 << 30
    parts: Annotated[tuple[Pair, ...], "Pairs."] = (Pair(1, 2),)
    by_colour: Annotated[Mapping[Colour, int], "Colour → number."] = field(
        default_factory=lambda: {Colour.RED: 1}
    )
    note: Annotated[str, "Null where there is none.", or_null] = ""
    source: Annotated[str, "Where it is from.", Named("from")] = "here"
    inner: Annotated["Whole | None", "Another."] = None
    secret: int = 0

    @property
    def total_cpus(self) -> Annotated[int, "All of them."]:
        return 3


def test_a_value_is_written_part_by_part() -> None:
    inner = {
        "totalCPUs": 3, "size": "2Gi", "colour": "red", "parts": [{"first": 1}], "byColour": {"red": 1},
        "note": None, "from": "here", "inner": None,
    }  # fmt: skip
    written = document(Whole(inner=Whole()))
    assert written == inner | {"inner": inner}
    assert list(written) == list(inner)
    assert type(written["colour"]) is type(next(iter(written["byColour"]))) is str


def test_answer_parts_document_meaning_and_json_type() -> None:
    parts = {part.name: part for part in parts_of(Whole)}
    assert parts["size"] == DocumentField("size", "size", str, "In bytes.", format_bytes)
    assert parts["note"].kind == str | None
    assert parts["totalCPUs"].sentence == "All of them."
    assert (title_of(Whole), title_of(Pair)) == ("Everything", "Pair")


@pytest.mark.parametrize("plain", [1, True, 0.5, None, "text", [1, [2]], {"a": {"b": 1}}])
def test_plain_values_stay_as_they_are(plain: Any) -> None:
    assert document(plain) == plain
    assert parts_of(plain.__class__) == ()


def test_a_reason_says_in_words_what_it_can() -> None:
    reason = Reason("Insufficient cpu", count=2, message="too few")
    assert document(reason) == {
        "reason": "Insufficient cpu", "source": "", "nodes": 2, "example": "", "message": "too few",
        "sentence": "too few", "model": None,
    }  # fmt: skip
    assert document(NodeCounts(3, 2, 1, 4)) == {
        "evaluated": 3, "admissible": 2, "unknown": 1, "excluded": 4,
    }  # fmt: skip
