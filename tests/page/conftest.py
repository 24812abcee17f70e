"""A browser to open pages in: Debian's Chromium, without a window."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "no chromium on PATH; apt-get install chromium (scripts/test-tools does)"

PATIENCE = 120_000
"""Milliseconds that a busy machine may take for what takes an idle one a fraction of a second."""
expect.set_options(timeout=PATIENCE)

Open = Callable[..., Page]


# Playwright's event loop runs as long as it is open, and other tests need their own: closed after each test.
@pytest.fixture
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open an address, in a context made with the further arguments; no script may complain until the end."""
    complaints: list[str] = []
    contexts = []

    def open_at(address: str, **settings: Any) -> Page:
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


def serious(page: Page) -> list[str]:
    """What axe-core finds on a page that keeps people out."""
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html']} {node['failureSummary']}"
        for item in found
        if item["impact"] in {"serious", "critical"}
        for node in item["nodes"]
    ]
