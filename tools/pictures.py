"""Makes the pictures of the demo that README and docs show, from a demo that runs: ``make pictures``.

    docs/assets/demo.svg           what the terminal showed, as an animation
    docs/assets/page-plan.webp     the page playing the plan that makes room

The other pictures of the page and of `live` are made by their tests (CONTRIBUTING.md).

It needs Debian's chromium, and a few minutes. Nothing is drawn by hand: the demo asks whether to carry its
plan out, and while it waits for the answer a browser looks at its page.
"""

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
PATIENCE = 600.0
"""Seconds that each part of the demo may take."""
COLUMNS, LINES = 80, 40
ADDRESS, QUESTION = r"Live page on (http://\S+)", r"Run the plan\? \[Y/n\]"
FRAME = 50
"""Milliseconds between the frames of a movement."""
PAUSE, END = 1500, 3000
"""Milliseconds before each step of the plan, and at its end."""


class Terminal:
    """A command on a terminal of its own, and what it has printed."""

    def __init__(self, *command: str) -> None:
        ours, theirs = pty.openpty()
        size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **size}
        )
        os.close(theirs)
        self._terminal = ours
        self.printed = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return where a pattern stands in what is printed."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.printed):
                return found
            if not self._read():
                break
        self._process.kill()
        raise SystemExit(f"the demo did not print {pattern}:\n{self.printed[-2000:]}")

    def answer(self, text: str) -> None:
        """Type a line."""
        os.write(self._terminal, f"{text}\n".encode())

    def end(self) -> None:
        """Read until the command has ended, which must go well."""
        while self._read():
            pass
        if code := self._process.wait(PATIENCE):
            raise SystemExit(f"the demo ended with exit code {code}:\n{self.printed[-2000:]}")

    def _read(self) -> bool:
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # what a terminal says when its last writer has gone
            return False
        self.printed += data.decode(errors="replace")
        return bool(data)


def main() -> int:
    """Run the demo, look at its page, write the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no chromium on PATH: apt-get install chromium")
    simulator = Path(sys.executable).with_name("numazones-simulator")
    demo = Terminal(str(simulator), "demo", "--no-serve", f"--record={ASSETS / 'demo.svg'}")
    address = demo.wait_for(ADDRESS)[1]
    demo.wait_for(QUESTION)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": 1010, "height": 860})
        page.goto(address)
        card = page.locator("#plans .plan").first
        card.wait_for(timeout=PATIENCE * 1000)
        page.wait_for_timeout(1000)  # figures of the operator follow by the second
        save_film(film(page, card), ASSETS / "page-plan.webp")
        browser.close()
    demo.answer("y")
    demo.end()
    return 0


def film(page: Page, card: Locator) -> list[tuple[bytes, int]]:
    """Return the plan's steps: pictures, each with the milliseconds that it is seen."""
    slider = card.locator("input[type=range]")
    slider.evaluate("slider => { slider.value = 0; slider.dispatchEvent(new Event('input')); }")
    page.wait_for_timeout(1500)
    frames = [(card.screenshot(), PAUSE)]
    for step in range(1, int(slider.get_attribute("max") or 0) + 1):
        # Movements are stopped as they begin, and then seen moment by moment, however slow the machine is.
        length = slider.evaluate(
            """async (slider, step) => {
                 slider.value = step;
                 slider.dispatchEvent(new Event('input'));
                 await new Promise(requestAnimationFrame);
                 const moving = document.getAnimations();
                 moving.forEach((one) => one.pause());
                 return Math.max(0, ...moving.map((one) => one.effect.getComputedTiming().endTime));
               }""",
            step,
        )
        for moment in range(0, int(length), FRAME):
            page.evaluate(
                "moment => document.getAnimations().forEach((one) => { one.currentTime = moment; })", moment
            )
            frames.append((card.screenshot(animations="allow"), FRAME))
        page.evaluate("document.getAnimations().forEach((one) => one.finish())")
        frames.append((card.screenshot(), PAUSE))
    return [*frames[:-1], (frames[-1][0], END)]


def save_film(frames: list[tuple[bytes, int]], path: Path) -> None:
    """Write frames as an animated WebP, without loss."""
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data, _ in frames]
    size = pictures[0].size  # a card grows where its words need another line
    pictures = [picture.crop((0, 0, *size)) for picture in pictures]
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=[seen for _, seen in frames],
        loop=0,
        lossless=True,
        quality=100,
        method=6,
    )


if __name__ == "__main__":
    sys.exit(main())
