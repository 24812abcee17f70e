"""The time as the Kubernetes API writes it."""

from datetime import UTC, datetime

from numazones.apimachinery import timestamp


def now() -> str:
    """The current time in whole seconds (metav1.Time)."""
    return timestamp.format(datetime.now(UTC))


def now_micro() -> str:
    """The current time in microseconds (metav1.MicroTime), as Leases have it."""
    return timestamp.format_micro(datetime.now(UTC))
