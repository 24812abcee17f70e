"""The screen of ``live``: its text, its keys, and waiting for what it shows."""

import asyncio
import re
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from kubectl_numazones.live.app import Live
from kubectl_numazones.reading.cluster import read
from kubectl_numazones.reading.source import Source
from tests.places import DATA

DUMP = DATA / "kubectl/dump.json"
PATIENCE = 6.0
"""Processor seconds of this process, which runs the view and its cluster; a busy machine takes longer."""


def shown(app: Live) -> str:
    """The text of the screen, line by line, as a screenshot has it."""
    pieces = re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>(.*?)</text>', app.export_screenshot())
    lines: dict[float, list[str]] = {}
    for height, text in pieces:
        lines.setdefault(float(height), []).append(unescape(text).replace("\xa0", " "))
    return "\n".join(" ".join(lines[height]) for height in sorted(lines))


def view(path: Path = DUMP) -> Live:
    source = Source(files=(path,))
    return Live(source, read(source))


async def press(pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
    await pilot.pause()


async def until(pilot: Any, pattern: str) -> None:
    """Wait for something on the screen: columns and clusters take their time."""
    await _until(pilot, lambda screen: re.search(pattern, screen) is not None, f"no {pattern!r} in")


async def until_gone(pilot: Any, text: str) -> None:
    """Wait until something is on the screen no more."""
    await _until(pilot, lambda screen: text not in screen, f"still {text!r} in")


async def _until(pilot: Any, holds: Callable[[str], bool], otherwise: str) -> None:
    end = time.process_time() + PATIENCE
    while True:
        await pilot.pause()
        screen = shown(pilot.app)
        if holds(screen):
            return
        if time.process_time() > end:
            raise AssertionError(f"{otherwise}\n{screen}")
        await asyncio.sleep(0.02)
