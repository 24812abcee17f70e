"""Problems of a source on a node that could not be read, or not in full."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from numazones.errors import NumazonesError

_Value = TypeVar("_Value")


class SourceError(NumazonesError):
    """A source gave nothing usable; ``reason`` is CamelCase, the message names the object and the cure."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason beside the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something that could not be read, or that contradicts another source."""

    source: str
    """What was read, such as ``sysfs``."""
    reason: str
    """CamelCase, as the reason of a condition."""
    message: str
    """Names the object and the cure."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Value]):
    """Value that a source gave, and what it could not give."""

    value: _Value
    problems: tuple[Problem, ...] = ()
