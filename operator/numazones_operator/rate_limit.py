"""Rate limit: a token bucket, the way client-go limits its requests.

What is dropped beyond the rate, as events are, takes its token without waiting, where nothing can be awaited;
a limiter that can only be awaited does not serve there.
"""

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """Lets ``rate`` actions per second through, and ``burst`` at once after a quiet time."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock()

    def take(self) -> bool:
        """Take a token if there is one."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def wait(self) -> None:
        """Take a token, waiting for it if need be; those who wait are served in turn."""
        self._fill()
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
