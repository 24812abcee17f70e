"""Python's garbage collector, and when it would look in vain."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Make objects that all stay until the program ends: nobody looks for garbage among them, now or later.

    Looking takes a tenth of the time that modules take to be imported, and a third of that for a large dump.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
