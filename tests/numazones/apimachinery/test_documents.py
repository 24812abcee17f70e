"""Tests that foreign input is measured before it is read, and that ordinary documents are read."""

import gzip
import json
import re

import pytest

from numazones.apimachinery.documents import (
    ANNOTATION,
    DUMP,
    JSON_ANNOTATION,
    OBJECT,
    Bounds,
    UnreadableDocument,
    check_lists,
    gunzip,
    has_more,
    read_all_yaml,
    read_json,
    read_yaml,
)


def merges(levels: int, width: int = 9) -> str:
    lines = [
        f"g{level}: &g{level} {{<<: [{','.join([f'*g{level - 1}'] * width)}]}}\n"
        for level in range(1, levels + 1)
    ]
    return "g0: &g0 {k: v}\n" + "".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (merges(9), "more than 3,000 values"),
        (merges(9).replace("<<: ", "x: "), "more than 3,000 values"),
        ("[" * 3000, "more than 32 levels deep"),
        ("- " * 3000, "more than 32 levels deep"),
        ("{a: " * 3000, "more than 32 levels deep"),
        ("&a [*a]", "contains itself"),
        ("&a {<<: *a}", "contains itself"),
        ("9" * 3000, "more than 64 digits"),
        ("-0x" + "f" * 3000, "more than 64 digits"),
        ("1:" + "59:" * 1000 + "1", "more than 64 digits"),
        ("!!int '" + "59:" * 1000 + "1'", "more than 64 digits"),
        ("a: " + "1" * 70, "more than 64 digits"),
        ("[" + "x," * 4000 + "]", "more than 3,000 values"),
        ("# " + "x" * ANNOTATION.size, "longer than 65,536 bytes"),
        ("é" * (ANNOTATION.size // 2 + 1), "longer than 65,536 bytes"),
        ("".join(f"%TAG !a{number}! b\n" for number in range(17)) + "--- 1", "directives"),
        ("a: b\n---\na: c", "several documents"),
        ("!!float maybe", "maybe"),
        ("!!int ''", ""),
        ("!!timestamp x", ""),
        ("a: [", "expected"),
    ],
)
def test_yaml_beyond_a_bound_is_refused(text: str, said: str) -> None:
    with pytest.raises(UnreadableDocument) as refused:
        read_yaml(text, ANNOTATION)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b\n c: d", "mapping values are not allowed in this context at line 2, column 3"),
        (b"a: [1", "while parsing a flow sequence at line 1, column 4, did not find expected ',' or ']' at"),
        (b"a: \x00", "unacceptable character #x0000: control characters are not allowed at position 3"),
    ],
)
def test_broken_yaml_is_placed_by_line_and_column(text: str | bytes, said: str) -> None:
    with pytest.raises(UnreadableDocument, match=re.escape(said)):
        read_yaml(text, ANNOTATION)


def test_an_ordinary_annotation_of_16_kib_is_read() -> None:
    rules = [
        {
            "scope": {"key": "pod/name", "operator": "In", "values": [f"a{number}", f"b{number}"]},
            "match": {"key": "labels/app", "operator": "Exists"},
            "weight": number,
        }
        for number in range(110)
    ]
    text = json.dumps({"memory": rules}, indent=1)
    assert len(text) > 16 << 10
    assert read_yaml(text, ANNOTATION, unique_keys=True) == {"memory": rules}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:45", "12:30:45"),
        ("1:30.5", "1:30.5"),
        ("2026-01-01", "2026-01-01"),
        ("[y, N, on, False, yet]", [True, False, True, False, "yet"]),
        ("[0x1F, 0b11, 017, 1_000, -0, 0]", [31, 3, 15, 1000, 0, 0]),
        ("[1.5, .5, -1.e+3, .inf]", [1.5, 0.5, -1000.0, float("inf")]),
        ("1: a", {"1": "a"}),
        ("[&one x, *one]", ["x", "x"]),
        ("a: &a {b: 1}\nc: {<<: *a, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("'" + "1" * 100 + "'", "1" * 100),
        ("1" * 70 + " apples", "1" * 70 + " apples"),
        ("", None),
    ],
)
def test_yaml_is_read_as_kubernetes_reads_it(text: str, value: object) -> None:
    assert read_yaml(text, ANNOTATION) == value


def test_aliases_count_as_what_they_repeat() -> None:
    text = "a: &a [1, 2]\nb: [{}]"
    bounds = Bounds(size=1000, values=20)  # the mapping, two keys, two lists, two numbers: 7, and 3 an alias
    assert read_yaml(text.format(", ".join(["*a"] * 4)), bounds)["b"] == [[1, 2]] * 4
    with pytest.raises(UnreadableDocument):
        read_yaml(text.format(", ".join(["*a"] * 5)), bounds)


def test_documents_are_measured_together() -> None:
    bounds = Bounds(size=1000, values=3)
    assert list(read_all_yaml("a\n---\nb\n---\nc", bounds)) == ["a", "b", "c"]
    with pytest.raises(UnreadableDocument):
        list(read_all_yaml("a\n---\nb\n---\nc\n---\nd", bounds))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 3000, "more than 32 levels deep"),
        ("[" * 33 + "]" * 33, "more than 32 levels deep"),
        ('[{"a":' * 17 + "1" + "}]" * 17, "more than 32 levels deep"),
        ('["]",' * 100, "more than 32 levels deep"),
        ('{"a":' * 100, "more than 32 levels deep"),
        ("[" + "1," * 100_000 + "1]", "more than 100,000 values"),
        ("[" + "[]," * 60_000 + "[]]", "more than 100,000 values"),
        ("9" * 4000, "more than 64 digits"),
        ("[" + "9" * 65 + "]", "more than 64 digits"),
        ("0." + "1" * 5000, "more than 64 digits"),
        ('"' + "x" * JSON_ANNOTATION.size + '"', "longer than 262,144 bytes"),
        ("NaN", "NaN is not a number"),
        ('"\\ud800"', "surrogates"),
        ("[1", "Expecting"),
    ],
)
def test_json_beyond_a_bound_is_refused(text: str, said: str) -> None:
    for content in (text, text.encode(), text.encode("utf-16")):
        if len(content) > JSON_ANNOTATION.size:
            said = "longer than"
        with pytest.raises(UnreadableDocument) as refused:
            read_json(content, JSON_ANNOTATION)
        assert said in str(refused.value)


@pytest.mark.parametrize("before", range(17))
def test_numbers_beyond_the_bound_are_refused_anywhere_in_a_text(before: int) -> None:
    most = JSON_ANNOTATION.digits
    assert read_json(" " * before + "9" * most, JSON_ANNOTATION) == 10**most - 1
    with pytest.raises(UnreadableDocument, match="more than 64 digits"):
        read_json(" " * before + "9" * (most + 1), JSON_ANNOTATION)


@pytest.mark.parametrize(
    "value",
    [
        {"text": "[{" * 1000 + "1" * 1000 + "," * 50_000, "more": [1] * 60_000},
        {"escaped": '\\"[[' * 5000, "end\\": ["\\", '"']},
        [[[[1]]], {"a": {"b": [{}]}}],
        "\U0001f600",
        json.loads("[" * 32 + "]" * 32),
    ],
)
@pytest.mark.parametrize("part", [1, 2, 3, 1 << 20])
def test_brackets_and_digits_in_strings_do_not_count(
    value: object, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numazones.apimachinery.documents._PART", part)
    assert read_json(json.dumps(value), JSON_ANNOTATION) == value


@pytest.mark.parametrize("part", [1, 2, 3, 1 << 20])
def test_lists_of_a_long_text_are_measured(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numazones.apimachinery.documents._PART", part)
    item = '{"metadata":{"name":"a,b]\\\\","labels":[1,2],"x":"\\\\\\",[,"}}'
    for count, fits in ((1000, True), (1001, False)):
        content = ('{"items":[' + ",".join([item] * count) + "]}").encode()
        if fits:
            check_lists(content, DUMP, 1000)
        else:
            with pytest.raises(UnreadableDocument):
                check_lists(content, DUMP, 1000)


@pytest.mark.parametrize("part", [1, 2, 3, 1 << 20])
def test_a_byte_that_appears_too_often_is_noticed(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numazones.apimachinery.documents._PART", part)
    content = b",a,,b,c," * 5
    assert has_more(content, b",", content.count(b",") - 1)
    assert not has_more(content, b",", content.count(b","))


@pytest.mark.parametrize(
    ("text", "most", "said"),
    [
        ("[" + "1," * 9 + "1]", 10, None),
        ("[" + "1," * 9 + "1]", 9, "more than 9"),
        ("[1," * 30 + "1" + "]" * 30, 3, None),
        ("[1," * 33 + "1" + "]" * 33, 3, "more than 32 levels deep"),
        ("[" + "{}," * 1500 + "1]", 9, "more than 3,000 values"),
    ],
)
def test_lists_beyond_a_bound_are_refused(text: str, most: int, said: str | None) -> None:
    if said is None:
        check_lists(text.encode(), ANNOTATION, most)
    else:
        with pytest.raises(UnreadableDocument, match=said):
            check_lists(text.encode(), ANNOTATION, most)


def test_what_is_compressed_is_bounded_unpacked() -> None:
    packed = gzip.compress(bytes(OBJECT.size + 1))
    assert len(gunzip(packed, OBJECT.size + 1)) == OBJECT.size + 1
    with pytest.raises(UnreadableDocument):
        gunzip(packed, OBJECT.size)
    with pytest.raises(UnreadableDocument):
        gunzip(packed[:-20], OBJECT.size + 1)
    assert gunzip(b"{}", 10) == b"{}"
