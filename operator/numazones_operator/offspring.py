"""Ends what a piece of code has started: its tasks, and the tasks that those have started.

asyncio doesn't know who started a task. But each task inherits the context variables of the one that makes
it, so a variable that is set around the piece of code is seen by the loop's task factory wherever a
descendant is made. Needed for kopf, which leaves watchers behind when one of them fails, and would otherwise
end all tasks of a loop, whoever's they are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

Task = asyncio.Task[Any]
Parents = WeakKeyDictionary[Task, Task | None]
"""Task → who started it."""

_MOST_PATIENCE = 5.0
"""Seconds for tasks to end that were cancelled, before they are left."""

_parents: ContextVar[Parents | None] = ContextVar("parents", default=None)

_log = logging.getLogger(__name__)


@asynccontextmanager
async def offspring(*, last: Callable[[Task], bool] = lambda _: False) -> AsyncIterator[None]:
    """Cancel at the end of the block every task that it has begotten, and wait until they are gone.

    A task is cancelled when whoever started it has ended: until then it is somebody's to end. Those that
    are to be the last are cancelled when all others are gone.
    """
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_enlisted)
    parents: Parents = WeakKeyDictionary()
    token = _parents.set(parents)
    try:
        yield
    finally:
        _parents.reset(token)
        await _end(parents, spared=last)
        await _end(parents)
        for task in _alive(parents):
            _log.warning("task %s does not end", task.get_name())


async def _end(parents: Parents, *, spared: Callable[[Task], bool] = lambda _: False) -> None:
    """Cancel all that are not spared, and wait for them as long as patience lasts."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _MOST_PATIENCE
    cancelled: set[Task] = set()
    while (alive := [task for task in _alive(parents) if not spared(task)]) and loop.time() < end:
        for task in alive:
            parent = parents[task]
            if task not in cancelled and (parent is None or parent.done() or parent not in parents):
                cancelled.add(task)
                task.cancel()
        await asyncio.wait(alive, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)


def _alive(parents: Parents) -> list[Task]:
    return [task for task in parents if not task.done()]


def _enlisted(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Task:
    """Make a task, as the loop would, and put it among its progenitor's offspring."""
    task: Task = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    parents = _parents.get() if context is None else context.get(_parents)
    if parents is not None:
        parents[task] = asyncio.current_task(loop)
    return task
