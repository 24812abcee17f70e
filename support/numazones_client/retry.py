"""Decide when to retry a request, and how long to wait before.

API servers ask for patience with 429 and ``Retry-After`` (API priority and fairness); connections
break while one of them restarts. Waiting grows exponentially and carries jitter so that a thousand
exporters don't return in step.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of attempts and the waiting between them, in seconds."""

    attempts: int = 5
    """How often a request is sent at most; 1 means never again."""
    initial: float = 0.25
    factor: float = 2.0
    maximum: float = 15.0
    jitter: float = 0.5
    """Share of each delay that is drawn at random."""
    patience: float = 60.0
    """The longest ``Retry-After`` that is waited for; a longer one is reported to the caller."""

    def delay(self, attempt: int, *, retry_after: float | None, draw: float) -> float | None:
        """Return the seconds to wait after a failed attempt, None to give up.

        ``attempt`` counts from 1; ``draw``: a random number in [0, 1).
        """
        if attempt >= self.attempts:
            return None
        if retry_after is not None and retry_after > self.patience:
            return None
        backoff = min(self.initial * self.factor ** (attempt - 1), self.maximum)
        spread = backoff * (1 - self.jitter * draw)
        return max(spread, retry_after or 0.0)


NO_RETRY = RetryPolicy(attempts=1)
