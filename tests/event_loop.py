"""The clock of the event loop, by which timeouts come and sleepers wake."""

import asyncio


def pass_time(seconds: float) -> None:
    """Set the clock of the running event loop forward: what is due by then happens, and no sooner."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
