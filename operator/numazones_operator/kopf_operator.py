"""kopf, for as long as this replica leads.

kopf's handlers are started with leadership and ended with it (``leadership``). Its operator is spawned here,
and ended with all tasks that it has begotten (``offspring``), rather than run by ``kopf.operator``, which
would take two liberties with an event loop that it shares: on its way out it cancels every younger task,
connections of the mirror among them, and it keeps the process's signals to itself. A run that fails, as
kopf's does when a watch is answered with 410 or a list rejected for long, is begun anew from a fresh list:
predictions go on meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from numazones_client.reflector import Backoff
from numazones_operator import handlers
from numazones_operator.offspring import offspring

_LONG = 60.0
"""Seconds after which a run that failed was good until then."""

_log = logging.getLogger(__name__)


async def run_kopf(memo: handlers.Memo, *, spawned: Callable[[], None] = lambda: None) -> None:
    """Let kopf's handlers follow what people write, until cancelled.

    Args:
        memo: what handlers need.
        spawned: called when kopf has started, to take the process's signals back.
    """
    clock = asyncio.get_running_loop().time
    backoff = Backoff()
    while True:
        started = clock()
        try:
            await _follow(memo, spawned)
        except Exception as error:  # noqa: BLE001 - whatever ends kopf, predictions go on
            if clock() - started > _LONG:
                backoff.reset()
            delay = backoff.delay()
            _log.warning("kopf ended: %s; it starts anew in %.1f s", str(error) or repr(error), delay)
            await asyncio.sleep(delay)


async def _follow(memo: handlers.Memo, spawned: Callable[[], None]) -> None:
    """List everything, then run kopf's operator until one of its tasks fails, or until cancelled."""
    await memo.intent.read()
    identity: Any = memo.identity  # kopf has a name of its own for this kind of str, and keeps it private
    async with offspring(last=_closes_connections):
        tasks = await kopf.spawn_tasks(
            settings=kopf.OperatorSettings(),
            # Left to itself, kopf asks for the user's name, and a container's user has none.
            identity=identity,
            standalone=True,
            clusterwide=True,
            memo=memo,
        )
        spawned()
        memo.intent.followed.set()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            memo.intent.followed.clear()
    for task in done:
        task.result()


def _closes_connections(task: asyncio.Task[Any]) -> bool:
    """Whether it is the one of kopf's tasks that closes its connections when kopf's other tasks have ended.

    It doesn't know of the tasks that those have begotten. A request of theirs that finds the connections
    closed is an error to kopf, and would be tried again.
    """
    return task.get_name() == "startup/cleanup activities"
