"""How a source says that it could not be read, or not in full."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from numazones.errors import NumazonesError
from numazones_exporter.observation import Problem

_Value = TypeVar("_Value")


class SourceError(NumazonesError):
    """A source gave nothing usable; ``reason`` is CamelCase, the message names the object and the cure."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason beside the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Value]):
    """What a source gave, and what it could not give."""

    value: _Value
    problems: tuple[Problem, ...] = ()
