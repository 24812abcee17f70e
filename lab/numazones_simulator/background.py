"""Runs coroutines beside a piece of work: when one of them fails, the work ends with its error."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines while the context is open, and cancel them at its end.

    Raises:
        Exception: what the work or one of the coroutines raised; the first, if several did.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:
        raise _first(failures) from failures


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
