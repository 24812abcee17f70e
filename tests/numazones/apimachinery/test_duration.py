"""Durations in Go's form."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery import duration
from numazones.apimachinery.duration import InvalidDuration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("1s500ms", 1.5),
        (".5s", 0.5), ("1.s", 1), ("250us", 0.00025), ("250µs", 0.00025), ("1000ns", 0.000001),
    ],
)  # fmt: skip
def test_what_go_reads_is_read(text: str, seconds: float) -> None:
    assert duration.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "1", "s", "-1s", "1 s", "1d", "1s2", "1e3s", ".s", "inf", "99999999999999h"]
)
def test_other_texts_are_rejected_and_quoted(text: str) -> None:
    with pytest.raises(InvalidDuration, match=f"'{text}'"):
        duration.parse(text)


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=4000)))
def test_what_is_written_is_read_again(length: timedelta) -> None:
    assert duration.parse(duration.format(length)) == length


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(minutes=5), "300s"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(microseconds=7), "7us"),
    ],
)
def test_the_largest_unit_without_a_fraction_is_written(length: timedelta, text: str) -> None:
    assert duration.format(length) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (2 * 86400, "2d"),
        (3 * 86400 + 3600, "3d1h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert duration.human_duration(seconds) == text
