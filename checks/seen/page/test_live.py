"""The operator's live page in a real browser."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from checks.clusters.operator.closed_loop import closed_loop
from checks.seen.page.browser import CHROMIUM, MISSING, PATIENCE
from numazones_client.resources import PODS
from numazones_simulator import node_kinds

expect.set_options(timeout=PATIENCE)


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE)
        yield browser
        await browser.close()


async def test_the_page_follows_the_cluster_and_asks_nobody_else(tmp_path: Path, chromium: Browser) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("strict", "10.0.0.1")])
        operator = await loop.start_operator(page_address="127.0.0.1:0")
        origin = f"http://127.0.0.1:{operator.page_port}/"
        page = await chromium.new_page(reduced_motion="reduce")
        page.set_default_timeout(PATIENCE)
        requests, complaints = watched(page)
        await page.goto(origin)
        await expect(page.locator(".state")).to_have_text("live")
        await expect(page.locator("#zones .machine .held")).to_have_count(0)
        await page.locator("#zones h3 a").click()
        await loop.create_pod("first", cpu=24)
        await loop.bind("first", "strict")
        await expect(page.locator(".machine .held")).to_have_count(24)
        await loop.create_pod("big", cpu=31)
        await expect(page.locator("nav .count")).to_have_text("1")
        await page.locator("[data-key=back]").click()
        await expect(page.locator(".word")).to_have_text("1 pod is stuck")
        card = page.locator("#waiting article")
        await expect(card).to_contain_text("fits nowhere")
        summary = card.locator("summary").first
        await summary.focus()
        await summary.press("Enter")
        await loop.client.delete(PODS, "first", namespace="default")
        # What people opened and where they were stays, though the card is drawn anew.
        await expect(page.locator("#zones .machine .held")).to_have_count(0)
        await expect(card.locator("details").first).to_have_attribute("open", "")
        await loop.client.delete(PODS, "big", namespace="default")
        await expect(page.locator(".word")).to_have_text("No pod is stuck")
        assert complaints == []
        assert {url for url in requests if not url.startswith("data:")} == {
            origin,
            *(f"{origin}{name}" for name in ("page.js", "page.css", "events")),
        }


async def test_a_page_whose_operator_goes_says_so(tmp_path: Path, chromium: Browser) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("strict", "10.0.0.1")])
        operator = await loop.start_operator(page_address="127.0.0.1:0")
        page = await chromium.new_page()
        page.set_default_timeout(PATIENCE)
        await page.goto(f"http://127.0.0.1:{operator.page_port}/")
        await expect(page.locator(".state")).to_have_text("live")
        operator.stop()
        await expect(page.locator(".state")).to_have_text("connection lost, trying again")
        await expect(page.locator(".zonecard")).to_have_count(2)


def watched(page: Page) -> tuple[list[str], list[str]]:
    """Record the page's requests and the errors of its scripts as they happen."""
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return requests, complaints
