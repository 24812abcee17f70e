"""Debian's Chromium, without a window, and what axe-core says of a page in it."""

import shutil
from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "no chromium on PATH; apt-get install chromium (tools/test-tools does)"
PATIENCE = 120_000
"""Milliseconds that a busy machine may take for what takes an idle one a fraction of a second."""
expect.set_options(timeout=PATIENCE)

Open = Callable[..., Page]


def serious(page: Page) -> list[str]:
    """Return what axe-core finds on a page that keeps people out."""
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html']} {node['failureSummary']}"
        for item in found
        if item["impact"] in {"serious", "critical"}
        for node in item["nodes"]
    ]
