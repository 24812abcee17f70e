"""Loaded by programs that ``endurance.py`` watches: on a signal they count what they hold.

On SIGUSR2 the process collects garbage and writes a line of JSON to a file that was opened at its start, as a
confined exporter can open none later: its objects by type, tasks that are not done, threads and, where Python
traces memory, the bytes in use and the lines of code whose use has grown most.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

LINES = 25
"""From how many lines of code memory is shown."""


class ProcessCounts:
    """Writes what this process holds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._first: Any = None

    def write(self, _number: int, _frame: FrameType | None) -> None:
        """Count, and write a line."""
        import json  # noqa: PLC0415 - at the start the program's own imports are to be the first

        os.write(self._descriptor, json.dumps(self._counts()).encode() + b"\n")

    def _counts(self) -> dict[str, Any]:
        import asyncio  # noqa: PLC0415
        import gc  # noqa: PLC0415
        import logging  # noqa: PLC0415
        import threading  # noqa: PLC0415
        import time  # noqa: PLC0415
        import tracemalloc  # noqa: PLC0415
        from collections import Counter  # noqa: PLC0415

        gc.unfreeze()  # what a program has set aside may be garbage by now
        gc.collect()
        gc.unfreeze()  # the operator has set the rest aside again, and it counts
        # A reference to a tuple that another thread is making breaks it: none may go on meanwhile.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(3600)
        time.sleep(0.02)  # a thread that waits already does so for the former interval
        objects = gc.get_objects()
        types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)
        tasks = [one for one in objects if isinstance(one, asyncio.Task) and not one.done()]
        counts: dict[str, Any] = {
            "objects": len(objects),
            "types": dict(types),
            "tasks": len(tasks),
            "work": dict(Counter(str(getattr(task.get_coro(), "__qualname__", "")) for task in tasks)),
            "log_handlers": sum(len(one.handlers) for one in objects if type(one) is logging.Logger),
            "threads": threading.active_count(),
        }
        del objects, tasks
        sys.setswitchinterval(interval)
        if tracemalloc.is_tracing():
            counts["traced_bytes"] = tracemalloc.get_traced_memory()[0]
            counts["grown"] = self._grown()
        return counts

    def _grown(self) -> list[list[Any]]:
        """(line, bytes, blocks) by which memory has grown most since the first count."""
        import tracemalloc  # noqa: PLC0415

        snapshot = tracemalloc.take_snapshot()
        snapshot = snapshot.filter_traces(
            [
                tracemalloc.Filter(inclusive=False, filename_pattern=name)
                for name in (tracemalloc.__file__, __file__)
            ]
        )
        if self._first is None:
            self._first = snapshot
            return []
        grown = [one for one in snapshot.compare_to(self._first, "lineno") if one.size_diff > 0]
        return [[str(one.traceback), one.size_diff, one.count_diff] for one in grown[:LINES]]


def _watch() -> None:
    directory = os.environ.get("NUMAZONES_COUNTS")
    if directory:
        path = f"{directory}/{os.getpid()}"
        counts = ProcessCounts(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        signal.signal(signal.SIGUSR2, counts.write)


_watch()
