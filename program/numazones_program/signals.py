"""Which signals end a program in order, leaving neither programs nor files behind."""

import asyncio
import signal


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C, a polite end, and the end of the terminal, unless ``nohup`` had that ignored."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that each of these signals sets from now on."""
    event = asyncio.Event()
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event
