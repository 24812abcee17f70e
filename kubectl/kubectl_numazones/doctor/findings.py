"""Findings of checks: what is wrong with which objects, how bad it is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from numazones.errors import NumazonesError


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something works less well than it looks, or answers may be wrong."""
    HINT = "hint"
    """Something could be better."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong or could be better."""

    ANSWER: ClassVar = ("severity", "check", "subjects", "message", "cure")
    severity: Annotated[Severity, "error, warning or hint."]
    subjects: Annotated[tuple[str, ...], "Subjects of the finding, such as nodes, NUMAZones or pods."]
    message: Annotated[str, "What is wrong."]
    cure: Annotated[str, "What to do."]
    check: Annotated[str, "Check that found it."] = ""


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
