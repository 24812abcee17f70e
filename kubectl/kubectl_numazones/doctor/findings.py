"""What a check finds: what is wrong with which objects, how bad that is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum

from numazones.errors import NumazonesError


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something works less well than it looks, or answers may be wrong."""
    HINT = "hint"
    """Something could be better."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong."""

    severity: Severity
    subjects: tuple[str, ...]
    """The objects that it is wrong with."""
    message: str
    cure: str


class NotChecked(NumazonesError):
    """A check lacks what it would have to look at; the message says what."""


def error(subject: str, message: str, cure: str) -> Finding:
    """Return a finding of the worst kind about one object."""
    return Finding(Severity.ERROR, (subject,), message, cure)


def warning(subject: str, message: str, cure: str) -> Finding:
    """Return a warning about one object."""
    return Finding(Severity.WARNING, (subject,), message, cure)


def hint(subject: str, message: str, cure: str) -> Finding:
    """Return a hint about one object."""
    return Finding(Severity.HINT, (subject,), message, cure)
