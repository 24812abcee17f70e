"""Asking a cluster, in a program that is not otherwise asynchronous."""

import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


def run_until_complete(coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine to its end.

    Python's own handler of Ctrl-C cancels in the midst of whatever the loop does just then; where that is
    about to give a future its result, a traceback is printed. Here the loop itself takes the signal.

    Raises:
        KeyboardInterrupt: Ctrl-C; the coroutine was cancelled.
    """
    import asyncio  # noqa: PLC0415 - dumps need no event loop

    interrupts: list[None] = []

    async def ask() -> _Answer:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker

        def interrupt() -> None:
            interrupts.append(None)
            task.cancel()

        with suppress(NotImplementedError, RuntimeError):  # Windows; a thread that signals do not reach
            loop.add_signal_handler(signal.SIGINT, interrupt)
        return await coroutine

    try:
        return asyncio.run(ask())
    except asyncio.CancelledError:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
