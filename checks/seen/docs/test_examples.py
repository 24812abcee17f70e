"""Every example in README and docs does what the page says.

A fenced block `console` that shows commands (`$ …`) with what they print is run from the project's root, as
a newcomer would who has run `make venv` and no more: the project's programs are not on the path.
`...` stands for anything, white space is folded. A comment above the block says what else it is: a block `on
a cluster` runs against an embedded API server, `in a walk` in `test_walk.py`, `not run` nowhere, and commands
of `exit 1` may end with 1. Blocks `python` with prompts (`>>>`) are doctests, those of a page one session.
"""

import asyncio
import doctest
import os
import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from _pytest.mark.structures import ParameterSet
from PIL import Image

from kubectl_numazones import main as program
from numazones_apiserver import ApiServer
from tests.places import ROOT
from tools.site import FENCE, commands

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?P<path>[^)#\s:]*)(?:#(?P<heading>[^)\s]*))?\)")
EXIT = "exit 1"
FOLDED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def notes(match: re.Match[str]) -> set[str]:
    """Return what the comment above a block says."""
    return set((match["note"] or "").split(", ")) - {""}


def console_examples(*wanted: str) -> list[ParameterSet]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            said = notes(match)
            if match["language"] != "console" or said - {EXIT} != set(wanted):
                continue
            line = text.count("\n", 0, match.start()) + 1
            body = dedent(match["body"])
            found.append(pytest.param(body, EXIT in said, id=f"{page.relative_to(ROOT)}:{line}"))
    return found


def test_every_comment_for_the_tests_is_known() -> None:
    said = {note for page in PAGES for match in FENCE.finditer(page.read_text()) for note in notes(match)}
    comments = sum(len(re.findall(r"^ *<!-- test: ", page.read_text(), re.MULTILINE)) for page in PAGES)
    assert said <= {EXIT, "not run", "on a cluster", "in a walk"}
    assert comments == sum(bool(notes(match)) for page in PAGES for match in FENCE.finditer(page.read_text()))


@pytest.mark.parametrize(("body", "may_fail"), console_examples())
def test_a_console_example_prints_what_the_page_shows(body: str, *, may_fail: bool) -> None:
    run(body, may_fail=may_fail)


@pytest.mark.parametrize(("body", "may_fail"), console_examples("on a cluster"))
async def test_cluster_example_works_on_a_cluster(body: str, tmp_path: Path, *, may_fail: bool) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH (tools/test-tools .cache)")
    async with ApiServer() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        await asyncio.to_thread(run, body, may_fail=may_fail, KUBECONFIG=str(kubeconfig))


def run(body: str, *, may_fail: bool, **variables: str) -> None:
    """Run the commands of a block, and compare what they print with what the page shows."""
    programs = [folder for folder in os.environ["PATH"].split(":") if Path(folder) != ROOT / ".venv/bin"]
    environment = {**os.environ, **variables, "PATH": ":".join(programs)}
    shown = list(commands(body))
    assert shown, "a console block shows no command; begin the line with '$ '"
    for command, expected in shown:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode in ((0, 1) if may_fail else (0,)), f"$ {command}\n{done.stdout}{done.stderr}"
        if expected.strip():
            printed = done.stdout
            assert doctest.OutputChecker().check_output(expected, printed, FOLDED), (
                f"$ {command}\nshown:\n{expected}\nprinted:\n{printed}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_of_a_page_runs_as_one_session(page: Path) -> None:
    text, session = page.read_text(), {"__name__": "__main__"}
    report: list[str] = []
    for match in FENCE.finditer(text):
        if match["language"] == "python" and ">>>" in match["body"]:
            line = text.count("\n", 0, match.start()) + 1
            test = doctest.DocTestParser().get_doctest(match["body"], session, page.name, str(page), line)
            doctest.DocTestRunner(optionflags=FOLDED).run(test, out=report.append, clear_globs=False)
            session = test.globs
    assert not report, "".join(report)


def test_every_command_of_the_readme_is_run_by_the_tests() -> None:
    """Tests of `make demo` and `make deploy` themselves are in checks/clusters/simulator and tests/tools."""
    bodies = [match["body"] for match in FENCE.finditer(README.read_text()) if notes(match) == {"not run"}]
    made = [command for body in bodies for command, _ in commands(body) if command.startswith("make ")]
    assert made == ["make demo", "make deploy"]
    for name, last in (("demo", "exec .venv/bin/numazones-simulator demo"), ("deploy", "tools/deploy")):
        command = ["make", "--no-print-directory", "--dry-run", name]
        started = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert started.splitlines()[-1] == last
    command = ["make", "--no-print-directory", "--dry-run", "demo", "ARGS=--auto"]
    started = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert started.splitlines()[-1].endswith("numazones-simulator demo --auto")


def test_the_pictures_of_the_readme_move_and_load_fast() -> None:
    film = ROOT / "docs/assets/page-plan.webp"
    with Image.open(film) as picture:
        assert getattr(picture, "n_frames", 1) > 10
    assert "@keyframes" in (ROOT / "docs/assets/demo.svg").read_text()
    for path in (film, ROOT / "docs/assets/demo.svg"):
        assert str(path.relative_to(ROOT)) in README.read_text()
        assert path.stat().st_size < 300_000


def _headings(page: Path) -> set[str]:
    """The anchors that a page offers: headings in lower case, blanks as hyphens, without punctuation."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.finditer(page.read_text()):
        target = page.parent / link["path"] if link["path"] else page
        if not target.exists() or (link["heading"] and link["heading"] not in _headings(target)):
            broken.append(link[0])
    assert not broken


PICTURED = {"live"}
"""Commands of the plugin that fill a terminal; their pages show them as pictures."""
OF_A_CLUSTER = {"approve", "gate", "idle", "record", "reject"}
"""Commands that need a live cluster: the tests of the plugin run them."""


@pytest.mark.parametrize("name", sorted(set(program._COMMANDS) - PICTURED - OF_A_CLUSTER))
def test_every_command_of_the_plugin_is_shown_with_its_output(name: str) -> None:
    called = re.compile(rf"\bkubectl-numazones {name}\b")
    examples = [pair for block in console_examples() for pair in commands(str(block.values[0]))]
    assert any(called.search(command) and shown.strip() for command, shown in examples)
