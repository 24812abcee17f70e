"""The time as the Kubernetes API writes it."""

from datetime import UTC, datetime


def now() -> str:
    """The current time in whole seconds (metav1.Time)."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """The current time in microseconds (metav1.MicroTime), as Leases have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
