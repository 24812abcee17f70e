"""Result of a stage of the scheduling cycle: the framework's status, or no verdict."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from numazones.errors import NumazonesError


class Code(StrEnum):
    """Status codes of the scheduler framework, as far as these plugins use them."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Waiting may help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Nothing that happens to other pods helps."""


@dataclass(frozen=True, slots=True)
class Status:
    """A code and its reasons, sorted (upstream lists them in random order)."""

    code: Code
    reasons: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Return whether the stage let the pod pass."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons in one line, as the scheduler's event has them."""
        return ", ".join(self.reasons)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


class Rejected(Exception):
    """A stage rejects the pod; caught by ``admission``."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def unschedulable(*reasons: str) -> Rejected:
    """A rejection that waiting may cure."""
    return Rejected(status(Code.UNSCHEDULABLE, reasons))


def unresolvable(*reasons: str) -> Rejected:
    """A rejection for good."""
    return Rejected(status(Code.UNRESOLVABLE, reasons))


def status(code: Code, reasons: Iterable[str]) -> Status:
    """A status with its reasons in order."""
    return Status(code, tuple(sorted(reasons)))


class SchedulerCrash(NumazonesError):
    """koord-scheduler would crash on this pod or node; the message says where."""


class InvalidNode(NumazonesError):
    """A Kubernetes object describes no node that koord-scheduler could get; the message names the field."""


class InvalidConfiguration(NumazonesError):
    """koord-scheduler would not start with these plugin arguments; the message names the field."""
