"""Durations as people write them; files, environment and flags are tested through the programs."""

import pytest

from numazones_program.settings import InvalidSetting, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("2h", 7200),
        ("1.5s", 1.5),
        ("100us", 0.0001),
        ("7", 7),
        (7, 7),
        (0.25, 0.25),
    ],
)
def test_durations_are_read_and_written(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "s", "1x", "1s2", "inf", "nan", 0])
def test_what_is_no_duration_is_rejected(text: str | float) -> None:
    with pytest.raises(InvalidSetting):
        parse_duration(text)
