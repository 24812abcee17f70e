"""kopf, in a thread and an event loop of its own, for as long as this replica leads.

That is what kopf's documentation advises for an operator that is embedded. In its own thread kopf leaves the
process's signals alone, and every task of its loop is kopf's, so that it can be ended wholly. Handlers reach
what lives on the main loop through ``handlers.Memo.on_main_loop``.

``kopf.operator`` ends with patience: told to stop, or failing, it waits 5 s for the tasks of its tasks, whose
connections it has closed already, and which then complain. A leader has to cease at once, and a kopf that
failed has to start anew at once, so its tasks are spawned and ended here. A run fails when a watch is
answered with 410, or a list is rejected for long; it is begun anew from a fresh list, and predictions go on
meanwhile. It is begun anew, too, when a definition of ours is installed: kopf asks once what the API server
serves and only then begins to follow definitions, so one that comes in between would never be served.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Any

import kopf

from numazones_client import APIError
from numazones_client.reflector import Backoff
from numazones_operator import handlers
from numazones_operator.rebalance.intent import WRITTEN

_GOOD_RUN = 60.0
"""Seconds after which a run that failed was good until then."""
_MAX_ENDING = 5.0
"""Seconds for tasks to end that were cancelled, before they are left."""
_CLOSING = "startup/cleanup activities"
"""kopf's task that closes its connections. A request that finds them closed is an error to kopf."""

_log = logging.getLogger(__name__)


async def run_kopf(memo: handlers.Memo) -> None:
    """Let kopf's handlers follow what people write, until cancelled; ``memo`` is what they need."""
    # Warns at every start that signals are not handled, which is what is wanted.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    for name in ("kopf._cogs.clients.watching", "kopf._core.reactor.observation"):
        logging.getLogger(name).addFilter(_is_no_try_to_connect)
    clock = asyncio.get_running_loop().time
    backoff = Backoff()
    while True:
        started = clock()
        try:
            await _run_once(memo)
        except Exception as error:  # noqa: BLE001 - whatever ends kopf, predictions go on
            if clock() - started > _GOOD_RUN:
                backoff.reset()
            delay = backoff.delay()
            _log.warning("kopf stopped: %s; restarting it in %.1f s", str(error) or repr(error), delay)
            await asyncio.sleep(delay)


def _is_no_try_to_connect(record: logging.LogRecord) -> bool:
    """Return whether kopf logs something other than its attempts to connect, which are logged elsewhere.

    What the API server answers, such as 403, begins with API in kopf's names of errors.
    """
    message = record.getMessage()
    return "; will retry: " not in message or "-> API" in message


async def _run_once(memo: handlers.Memo) -> None:
    """List everything, then run kopf in a thread until it fails, a definition comes, or until cancelled."""
    served = await memo.intent.read()
    loop = asyncio.new_event_loop()
    operator = loop.create_task(_operate(memo), name="kopf")
    thread = asyncio.create_task(asyncio.to_thread(_run_loop, loop, operator), name="kopf's thread")
    installation = asyncio.create_task(_installation(memo, served), name="definitions")
    try:
        await asyncio.wait((thread, installation), return_when=asyncio.FIRST_COMPLETED)
    finally:
        installation.cancel()
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended by itself
            loop.call_soon_threadsafe(operator.cancel)
        await asyncio.wait((thread, installation))
        memo.intent.followed.clear()
    thread.result()


async def _installation(memo: handlers.Memo, served: frozenset[str]) -> None:
    """Wait until the API server serves a kind that people write and that it did not serve when kopf began.

    Where it serves all of them, kopf itself follows what becomes of them.
    """
    missing = [kind for kind in WRITTEN if kind.full_name not in served]
    backoff = Backoff()
    while missing:
        waits = [asyncio.ensure_future(memo.appearance(kind)) for kind in missing]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        try:
            now = await memo.intent.confirm()
        except APIError as error:
            _log.debug("could not check which kinds the API server serves: %s", error)
            now = served
        if now - served:
            _log.info("the API server now serves %s; restarting kopf", ", ".join(sorted(now - served)))
            return
        await asyncio.sleep(backoff.delay())
    await asyncio.Event().wait()


def _run_loop(loop: asyncio.AbstractEventLoop, operator: asyncio.Task[None]) -> None:
    # Not asyncio.Runner: it closes generators that kopf has abandoned, and that cannot be closed.
    try:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(operator)
    finally:
        loop.close()


async def _operate(memo: handlers.Memo) -> None:
    """Run kopf's operator on a loop of its own until one of its tasks fails, or until cancelled."""
    identity: Any = memo.identity  # kopf has a name of its own for this kind of str, and keeps it private
    tasks: Collection[asyncio.Task[Any]] = ()
    try:
        tasks = await kopf.spawn_tasks(
            settings=kopf.OperatorSettings(),
            # Left to itself, kopf asks for the user's name, and a container's user has none.
            identity=identity,
            standalone=True,
            clusterwide=True,
            memo=memo,
        )
        memo.main_loop.call_soon_threadsafe(memo.intent.followed.set)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Each of them ends the tasks that it has started; what is cancelled twice may never end.
        await _end(_without_closing(tasks))
        await _end(_without_closing(asyncio.all_tasks() - {asyncio.current_task()}))
        await _end(asyncio.all_tasks() - {asyncio.current_task()})
        for session in memo.sessions:
            await session.close()
        memo.sessions.clear()
    for task in done:
        task.result()


def _without_closing(tasks: Collection[asyncio.Task[Any] | None]) -> set[asyncio.Task[Any]]:
    return {task for task in tasks if task is not None and task.get_name() != _CLOSING}


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for them as long as patience lasts."""
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=_MAX_ENDING)
        for task in left:
            _log.warning("kopf's task %s did not stop when it was cancelled", task.get_name())
