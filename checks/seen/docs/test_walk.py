"""Walks are taken as their pages tell them: on a simulated cluster, with the commands that stand there.

What a controller still has to do when a command asks is waited for: the command is repeated until it prints
what the page shows, unless it changes something.
"""

import doctest
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checks.seen.docs.test_examples import EXIT, FOLDED, notes
from tests.places import ROOT
from tools.site import FENCE, commands

PAGES = ("walk", "alignment", "dra")
PATIENCE = 120.0
ASKS = re.compile(r"^kubectl (get|numazones) ")
"""Commands that may be asked again."""


def read(page: str) -> str:
    return (ROOT / "docs" / "guides" / f"{page}.md").read_text()


@pytest.fixture
def terminal(page: str) -> Iterator[dict[str, str]]:
    """The variables of the second terminal, while the cluster of the page runs in the first."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH (tools/test-tools .cache)")
    (told,) = re.findall(r"^\$ \.venv/bin/(numazones-simulator cluster .*)$", read(page), re.MULTILINE)
    program, *arguments = told.split()
    command = [str(Path(sys.executable).with_name(program)), *arguments, "--serve"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        shown = ""
        while "Ctrl-C" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        assert "Live page on http://127.0.0.1:" in shown
        variables = dict(re.findall(r"^  export (\w+)=(\S+)$", shown, re.MULTILINE))
        path = variables["PATH"].replace("$PATH", environment["PATH"])
        yield {**environment, **variables, "PATH": path}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def test_every_walk_is_taken() -> None:
    told = {path.stem for path in (ROOT / "docs").rglob("*.md") if "<!-- test: in a walk" in path.read_text()}
    assert told == set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_walk_leads_where_the_page_says(page: str, terminal: dict[str, str]) -> None:
    blocks = [match for match in FENCE.finditer(read(page)) if "in a walk" in notes(match)]
    steps = [
        (*step, (0, 1) if EXIT in notes(block) else (0,))
        for block in blocks
        for step in commands(block["body"])
    ]
    assert len(steps) > 5
    for command, expected, codes in steps:
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                env=terminal,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if (
                doctest.OutputChecker().check_output(expected, done.stdout, FOLDED)
                and done.returncode in codes
            ):
                break
            if not ASKS.match(command) or time.monotonic() > deadline:
                pytest.fail(f"$ {command}\nshown:\n{expected}\nprinted:\n{done.stdout}{done.stderr}")
