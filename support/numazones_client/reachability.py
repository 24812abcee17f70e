"""Says once that the API server cannot be reached, and once that it can be again, whoever notices it.

A program has a dozen watches and more; each of them breaks when the server goes, and a warning from each of
them, with each try, would bury what else the log says.
"""

import logging
import math
import time
from collections.abc import Callable

from numazones_client.errors import Unreachable

_log = logging.getLogger(__name__)


class Reachability:
    """Reachability of one API server at the last attempt."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` in seconds."""
        self._clock = clock
        self._lost_at: float | None = None
        self.answered = -math.inf
        """When the last request that was answered was made, by the clock."""

    def lost(self, error: Unreachable) -> None:
        """Take note that a request was not answered; only the first one is told of."""
        if self._lost_at is None:
            self._lost_at = self._clock()
            _log.warning("the API server does not respond; requests are retried until it does: %s", error)

    def found(self, asked: float) -> None:
        """Take note that the server has answered what it was asked at a moment of the clock.

        What was asked before it was lost says nothing of whether it is there again: a server that ends
        answers on some connections when it has cut others.
        """
        self.answered = max(self.answered, asked)
        if self._lost_at is not None and asked >= self._lost_at:
            _log.warning("the API server responds again, after %.1f s", self._clock() - self._lost_at)
            self._lost_at = None
