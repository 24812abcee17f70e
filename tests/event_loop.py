"""The clock of the event loop, by which timeouts come and sleepers wake."""

import asyncio


def pass_time(seconds: float) -> None:
    """Let the running event loop's clock go on at once, so that what is due by then happens."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
