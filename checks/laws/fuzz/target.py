"""Targets of fuzzing: a parser with its law, and initial inputs."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

CORPUS = Path(__file__).parent / "corpus"
"""Folder per target: inputs that were found to matter, replayed by every test run."""

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A parser of what others write.

    The law is the same for all: any input gives a result, or an error of the parser's own; every other
    exception is a defect, as is input that takes for ever or fills the memory.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    """Inputs that are read without an error."""
    errors: tuple[type[Exception], ...] = ()
    """What the parser documents that it raises."""
    executions: int = 300
    """Mutations of seeds and kept inputs that the tests try."""

    def check(self, data: bytes) -> bool:
        """Read an input; return whether it gave a result. What the law forbids is raised."""
        try:
            self.read(data)
        except self.errors:
            return False
        return True

    def kept(self) -> list[Path]:
        """Return the files of inputs that were kept."""
        return sorted((CORPUS / self.name).glob("*"))


def finish(step: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        step.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("it waits for something")
