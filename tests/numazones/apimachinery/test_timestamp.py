"""Moments in the form of the Kubernetes API."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery import timestamp
from numazones.apimachinery.timestamp import InvalidTimestamp

EIGHT = datetime(2026, 1, 31, 8, 0, 0, 250_000, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T08:00:00.250000Z",
        "2026-01-31T08:00:00.25+00:00",
        "2026-01-31T09:00:00.25+01:00",
        "2026-01-31T08:00:00.25",
    ],
)
def test_rfc_3339_is_read_and_without_an_offset_means_utc(text: str) -> None:
    assert timestamp.parse(text) == EIGHT
    assert timestamp.parse(text).tzinfo is not None


def test_times_have_whole_seconds_and_micro_times_fractions() -> None:
    here = EIGHT.astimezone(timezone(timedelta(hours=-5)))
    assert timestamp.format(here) == "2026-01-31T08:00:00Z"
    assert timestamp.format_micro(here) == "2026-01-31T08:00:00.250000Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "1769846400"])
def test_other_texts_are_rejected_and_quoted(text: str) -> None:
    with pytest.raises(InvalidTimestamp, match=f"'{text}' is not a time"):
        timestamp.parse(text)


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - the zone follows
def test_a_micro_time_is_read_again_to_the_microsecond(moment: datetime) -> None:
    assert timestamp.parse(timestamp.format_micro(moment)) == moment
