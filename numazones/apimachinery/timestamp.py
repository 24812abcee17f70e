"""Times as the Kubernetes API writes them: metav1.Time in whole seconds, metav1.MicroTime in microseconds.

Both are RFC 3339 in UTC (``2026-01-31T08:00:00Z``) and sort as text.
"""

from datetime import UTC, datetime

from numazones.errors import NumazonesError


class InvalidTimestamp(NumazonesError):
    """A text is not an RFC 3339 time; the message quotes it."""


def parse(text: str) -> datetime:
    """Read a metav1.Time or MicroTime; without an offset it is taken as UTC.

    Raises:
        InvalidTimestamp: the text is not in this form.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidTimestamp(
            f"{text!r:.50} is not a time; write RFC 3339 such as 2026-01-31T08:00:00Z"
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format(moment: datetime) -> str:  # noqa: A001 - reads timestamp.format(…)
    """Write a metav1.Time; ``moment`` knows its time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(moment: datetime) -> str:
    """Write a metav1.MicroTime, as Leases have it; ``moment`` knows its time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
