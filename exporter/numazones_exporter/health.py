"""Health of the exporter, as /healthz and /readyz report it.

The kubelet restarts an exporter whose ``/healthz`` fails, so it must fail exactly when a restart
could help: when reading the node or publishing it has failed for ``PATIENCE`` intervals. What is not there
to be read, such as the socket of a kubelet that does not run, is no failure of that kind. One failed
cycle is retried, not punished. ``/readyz`` succeeds after the first complete publish. Ages are taken
from a monotonic clock: a wall clock that jumps does not make it unhealthy.
"""

import time
from collections.abc import Callable

PATIENCE = 3
"""Intervals without success after which a step counts as failed for good."""

SCAN = "reading the node"
PUBLISH = "publishing the NUMAZones"


class Health:
    """Remembers when each step last succeeded and why it failed since."""

    def __init__(self, interval: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Count every step as just done; ``interval`` in seconds."""
        self._clock = clock
        self._patience = PATIENCE * interval
        self._last_success = dict.fromkeys((SCAN, PUBLISH), clock())
        self._errors: dict[str, str] = {}
        self._published = False

    def record_success(self, step: str) -> None:
        """Record a success of ``SCAN`` or ``PUBLISH``."""
        self._last_success[step] = self._clock()
        self._errors.pop(step, None)
        self._published = self._published or step == PUBLISH

    def record_failure(self, step: str, error: str) -> None:
        """Record why a step failed; its last success keeps its age."""
        self._errors[step] = error

    def problems(self) -> list[str]:
        """Return a sentence per step that has not succeeded for ``PATIENCE`` intervals; none: healthy."""
        now = self._clock()
        return [
            f"{step} has not succeeded for {now - last:.0f} s (limit {self._patience:.0f} s): "
            f"{self._errors.get(step, 'no attempt has finished; it is hanging or never started')}"
            for step, last in self._last_success.items()
            if now - last > self._patience
        ]

    def readiness_problems(self) -> list[str]:
        """Return why the exporter is not ready: all zones must have been published once."""
        return [] if self._published else ["the NUMAZones have not been published yet"]
