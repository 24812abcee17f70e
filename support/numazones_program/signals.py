"""The signals on which a program shuts down, leaving neither processes nor files behind."""

import asyncio
import signal


def ending_signals() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM and SIGHUP, without those that are ignored, as ``nohup`` does with SIGHUP."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that each of these signals sets from now on."""
    event = asyncio.Event()
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event
