"""The site: it builds without a warning, loads nothing from other hosts, and says what the programs say."""

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.places import ROOT

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Requests(HTMLParser):
    """Requests that a browser would make by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.urls += [value or "" for name, value in attrs if LOADED.get(tag) == name]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    expected = {page if page.name == "index" else page / "index" for page in pages}
    assert {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")} - {
        Path("404")
    } == expected


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        requests = _Requests()
        requests.feed(page.read_text())
        assert [url for url in requests.urls if "//" in url] == [], page.relative_to(site)


def test_examples_show_their_programs(site: Path) -> None:
    page = unescape(re.sub(r"<[^>]+>", "", (site / "examples" / "index.html").read_text()))
    programs = list((ROOT / "docs" / "examples").glob("*.py"))
    assert programs
    assert [program.name for program in programs if program.read_text().splitlines()[0] not in page] == []


def test_the_site_says_nothing_of_the_tests(site: Path) -> None:
    plumbing = ("test: not run", "test: exit", "test: in a", "test: on a", "|| true")
    texts = {page.relative_to(site): page.read_text() for page in site.rglob("*.html")}
    assert {(page, word) for page, text in texts.items() for word in plumbing if word in text} == set()


def test_copy_buttons_copy_commands_only(site: Path) -> None:
    page = (site / "guides" / "walk" / "index.html").read_text()
    copied = [unescape(text) for text in re.findall(r'data-copy="([^"]*)"', page)]
    assert len(copied) == page.count('<div data-copy="') > 4
    assert any(text.startswith("create() {") and "kubectl delete deployment batch" in text for text in copied)
    policy = next(text for text in copied if "RebalancePolicy" in text)
    assert policy.splitlines()[0] == "kubectl apply -f - <<'END'"
    assert "END\nkubectl get rebalancerecommendations\nkubectl numazones plan" in policy
    assert [text for text in copied if text.startswith("$") or "\n$ " in text or " created" in text] == []


def test_commands_rights_and_metrics_are_what_programs_and_manifests_say() -> None:
    command = [sys.executable, "-m", "tools.generate_reference", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, ""), "run make reference"


def test_no_help_shows_a_control_character() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert [character for character in page if not character.isprintable() and character != "\n"] == []
