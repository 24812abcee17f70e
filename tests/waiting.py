"""Waits for what happens by itself, however slow the machine."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 300.0
"""Seconds that a busy machine may take for what takes an idle one a second."""


async def eventually(
    probe: Callable[[], Awaitable[Any] | Any], *, patience: float = PATIENCE, what: str = ""
) -> Any:
    """Wait until the probe gives something true, and return it."""
    end = time.monotonic() + patience
    while True:
        found = probe()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what or probe}")
        await asyncio.sleep(0.02)
