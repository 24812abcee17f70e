"""Durations in the form of Go and of the Kubernetes API (metav1.Duration): ``90s``, ``1h30m``, ``500ms``.

Rules: ``time.ParseDuration`` of the Go standard library, without a sign, to the microsecond. Ages for people:
``HumanDuration`` of apimachinery (Kubernetes 1.36).
"""

import re
from datetime import timedelta

from numazones.errors import NumazonesError

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(f"(?:{_PART.pattern})+")
_MICROSECONDS = {
    "ns": 0.001, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6,
}  # fmt: skip

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
# Ages: up to which, in which unit, and with which smaller unit after it.
_STEPS = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


class InvalidDuration(NumazonesError):
    """A text is not a duration; the message quotes it."""


def parse(text: str) -> timedelta:
    """Read a duration.

    Raises:
        InvalidDuration: the text is not in Go's form, or longer than some 2.7 million years.
    """
    if text == "0":
        return timedelta()
    if _WHOLE.fullmatch(text) is None:
        raise InvalidDuration(f"{text!r:.50} is not a duration; use a value such as 90s, 50m or 1h30m")
    try:
        return timedelta(
            microseconds=sum(float(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(text))
        )
    except OverflowError as error:
        raise InvalidDuration(f"{text!r:.50} is longer than any duration can be") from error


def format(length: timedelta) -> str:  # noqa: A001 - reads duration.format(…)
    """Write a duration so that ``parse`` reads it again: ``60s``, ``500ms``, ``90s``."""
    micros = length // timedelta(microseconds=1)
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{micros}us"


def human_duration(seconds: float) -> str:
    """Write an age as kubectl does: with two units while the first is small (90s, 5m30s, 3h2m)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    for limit, (unit, name), smaller in _STEPS:
        if whole < limit:
            text = f"{max(whole, 0) // unit}{name}"
            rest = whole % unit // smaller[0] if smaller is not None else 0
            return f"{text}{rest}{smaller[1]}" if smaller is not None and rest else text
    return f"{whole // _YEAR}y"
