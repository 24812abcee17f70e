"""The screen of ``live``: its text, its keys, and waiting for what it shows."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from kubectl_numazones.live.app import Live
from kubectl_numazones.reading.cluster import read
from kubectl_numazones.reading.source import Source
from tests.operator.closed_loop import eventually
from tests.places import DATA

DUMP = DATA / "kubectl/dump.json"


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

    async def seen() -> bool:
        await pilot.pause()
        return re.search(pattern, shown(pilot.app)) is not None

    await eventually(seen, what=f"the screen shows {pattern}")


async def until_gone(pilot: Any, text: str) -> None:
    """Wait until something is on the screen no more."""

    async def gone() -> bool:
        await pilot.pause()
        return text not in shown(pilot.app)

    await eventually(gone, what=f"the screen does not show {text}")
