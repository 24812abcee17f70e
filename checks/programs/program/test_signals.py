"""Ctrl-C, a polite end and a closed terminal end a program in order; nohup keeps it."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from numazones_program.signals import ending_signals, stop_event

PROGRAM = """
import asyncio
from numazones_program.signals import stop_event
async def main():
    event = stop_event()
    print("ready", flush=True)
    await event.wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_ends_a_program_in_order(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 0


async def test_a_signal_sets_the_event_of_the_running_loop() -> None:
    event = stop_event()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            await event.wait()
    finally:
        for number in ending_signals():
            asyncio.get_running_loop().remove_signal_handler(number)


def test_what_nohup_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)
