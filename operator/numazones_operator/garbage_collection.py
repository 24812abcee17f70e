"""Python's garbage collector, kept from walking through the mirror again and again.

A full collection looks at every object that may be part of a circle, and the event loop waits. What the
mirror holds has no circles and goes by its count of references, so whatever has outlived a full collection is
set aside (``gc.freeze``). Of circles that lived then, such as connections, some end later and stay: an hour's
worth at most, as the next full collection after that looks at everything once more.
"""

import gc
import time
from collections.abc import Callable
from types import TracebackType

EVERYTHING_AFTER = 3600.0
"""Seconds."""
_FULL = 2
"""The oldest generation."""


class GarbageCollection:
    """Sets aside what outlives full collections, while it is entered."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at_everything = clock()

    def __enter__(self) -> None:
        gc.callbacks.append(self._hear)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._hear)
        gc.unfreeze()

    def _hear(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif self._clock() - self._looked_at_everything >= EVERYTHING_AFTER:
            self._looked_at_everything = self._clock()
            gc.unfreeze()
