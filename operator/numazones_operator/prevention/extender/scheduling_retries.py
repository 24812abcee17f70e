"""Notices pods that a scheduler tries again and again within seconds.

That happens when something changes a pod, or a node, at every attempt (specs/scheduler-extender.md,
section 4: 610 attempts in 10 s); each stops the scheduler for all other pods. A status update or the end of
any bound pod has all that wait tried again as well: where pods come and go, that is ordinary.
"""

import time
from collections.abc import Callable

_WINDOW = 10.0
_ORDINARY = 20
"""Attempts within a window that are ordinary, beside one for each change of a bound pod."""
_MAX_PODS = 10_000


class SchedulingRetries:
    """Counts attempts by pod, in windows of ten seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[float, int, int]] = {}
        """UID → when its window began, how many changes there had been then, and attempts since."""

    def count(self, uid: str, *, changes: int) -> int:
        """Count an attempt; return how many of this window are beyond the ordinary.

        ``changes``: of bound pods, ever.
        """
        now = self._clock()
        begun, before, number = self._windows.get(uid, (now, changes, 0))
        if now - begun >= _WINDOW:
            begun, before, number = now, changes, 0
        if len(self._windows) >= _MAX_PODS:
            self._windows = {key: one for key, one in self._windows.items() if now - one[0] < _WINDOW}
        if len(self._windows) < _MAX_PODS or uid in self._windows:
            self._windows[uid] = (begun, before, number + 1)
        return max(0, number + 1 - _ORDINARY - (changes - before))
