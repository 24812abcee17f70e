"""Option values are read and quoted as Go does it."""

import pytest

from numazones import cpuset
from numazones.kubelet import go


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_what_go_reads_as_true_is_true(text: str) -> None:
    assert go.parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_what_go_reads_as_false_is_false(text: str) -> None:
    assert go.parse_bool(text) is False


@pytest.mark.parametrize("text", ["yes", "", "tRUE", " true", "on"])
def test_nothing_else_is_a_boolean(text: str) -> None:
    with pytest.raises(ValueError, match=r"strconv\.ParseBool: parsing"):
        go.parse_bool(text)


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("+9", 9), ("-1", -1), ("007", 7)])
def test_integers_are_read_as_go_reads_them(text: str, value: int) -> None:
    assert go.parse_int(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid syntax"),
        ("8.0", "invalid syntax"),
        ("1_000", "invalid syntax"),
        (" 8", "invalid syntax"),
        ("\u0663", "invalid syntax"),
        ("9223372036854775808", "value out of range"),
        ("-9223372036854775809", "value out of range"),
    ],
)
def test_nothing_else_is_an_integer(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        go.parse_int(text)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", '"a"'), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"'), ("a\nb", '"a\\nb"'), ("\x01", '"\\x01"'),
     ("é", '"é"'), ("\u200b", '"\\u200b"')],
)  # fmt: skip
def test_special_characters_are_escaped_in_quotes(text: str, quoted: str) -> None:
    assert go.quote(text) == quoted


@pytest.mark.parametrize(("text", "cpus"), [("", ""), ("0-3,8", "0-3,8"), ("2,1", "1-2"), ("+1", "1")])
def test_cpu_lists_are_read_as_the_kubelet_reads_them(text: str, cpus: str) -> None:
    assert cpuset.format(go.parse_cpu_list(text)) == cpus


@pytest.mark.parametrize("text", [" 1", "1,", "-1", "2-1", "1-2-3", "0-999999999999"])
def test_other_cpu_lists_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"strconv|invalid range|beyond"):
        go.parse_cpu_list(text)
