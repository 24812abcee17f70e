"""A browser to open pages in: Debian's Chromium, without a window."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from checks.seen.page.browser import CHROMIUM, MISSING, PATIENCE, Open


# Playwright's event loop runs as long as it is open, and tests of other modules need their own: closed after
# each module. Tests have contexts of their own in it, as isolated from each other as browsers are.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open an address, in a context made with the further arguments; no script may complain until the end."""
    complaints: list[str] = []
    contexts = []

    def open_at(address: str, **settings: Any) -> Page:
        context = browser.new_context(**settings)
        context.set_default_timeout(PATIENCE)
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
