"""Requests that release pods: no pod's failure keeps others waiting.

The API server may refuse one pod's patch (an admission policy, a webhook, the size of the object) or never
answer it, and take every other. So each pod has a back-off of its own, a request that takes long leaves its
slot to others, and few of the pods that failed before are tried at the same time.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

AT_ONCE = 32
"""Requests under way at the same time, slow ones aside."""
SLOW_SECONDS = 1.0
"""Seconds after which a request is a slow one."""
MAX_SLOW = 16
"""Slow requests that leave their slots to others."""
MAX_REPEATED = 8
"""Pods that failed before and are tried at the same time."""
FIRST_DELAY = 1.0
MAX_DELAY = 60.0
"""Seconds between two tries of one pod, at most."""
PATIENCE = 5.0
"""Seconds that an answer is waited for at first; each failure doubles them."""
MAX_PATIENCE = 30.0


class ReleaseRequests:
    """Requests under way."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._slow: set[asyncio.Task[None]] = set()
        """Those that have no slot any more."""

    async def start(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a request, which must not raise, as soon as there is a slot."""
        try:
            await self._slots.acquire()
        except BaseException:
            request.close()
            raise
        task = asyncio.create_task(request)
        self._under_way.add(task)
        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._leave_slot, task)
        task.add_done_callback(partial(self._ended, timer))
        return task

    async def cancel(self) -> None:
        """Cancel all of them."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _leave_slot(self, task: asyncio.Task[None]) -> None:
        if len(self._slow) < MAX_SLOW:
            self._slow.add(task)
            self._slots.release()

    def _ended(self, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._under_way.discard(task)
        if task in self._slow:
            self._slow.discard(task)
        else:
            self._slots.release()


@dataclass(slots=True)
class _Failures:
    """How often a pod could not be released, and when it may be tried again."""

    number: int = 0
    until: float = 0.0


@dataclass(slots=True)
class FailedReleases:
    """Pods that could not be released, each with a back-off of its own; times are seconds of any clock."""

    draw: Callable[[], float] = random.random
    """Random numbers in [0, 1)."""
    _pods: dict[str, _Failures] = field(init=False, default_factory=dict)
    _trying: set[str] = field(init=False, default_factory=set)
    """Those of them that are being tried."""

    def may_try(self, uid: str, now: float) -> bool:
        """Whether a pod may be tried now."""
        known = self._pods.get(uid)
        return known is None or (now >= known.until and len(self._trying) < MAX_REPEATED)

    def begin(self, uid: str) -> float:
        """Note that a pod is being tried; return how many seconds to wait for the answer."""
        known = self._pods.get(uid)
        if known is None:
            return PATIENCE
        self._trying.add(uid)
        return float(min(PATIENCE * 2**known.number, MAX_PATIENCE))

    def end(self, uid: str, now: float, *, failed: bool) -> None:
        """Note how a try has ended; one that ``failed`` is repeated later and later."""
        self._trying.discard(uid)
        if failed:
            known = self._pods.setdefault(uid, _Failures())
            delay = min(FIRST_DELAY * 2**known.number, MAX_DELAY)
            known.number = min(known.number + 1, 16)
            known.until = now + delay * (0.5 + self.draw() / 2)

    def retain(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        for uid in self._pods.keys() - uids:
            del self._pods[uid]
