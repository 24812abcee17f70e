"""Names, messages and annotations that would command a terminal, or run in a browser, are shown as text."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from checks.programs.kubectl.test_fuzzed_input import whole
from tests import plugin
from tests.kubectl.live_screen import press, shown, until, view
from tests.kubectl.small_cluster import written
from tests.kubectl.terminal import sent_to_terminal

NAME = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\x08<b>[bold]&\nfake line"
TEXT = f"{NAME}</script><script>alert(1)</script>"
COMMANDS: list[tuple[str, ...]] = [
    ("top",),
    ("why", "-A"),
    ("why", f"trainer-1{NAME}", "-n", "team"),
    ("who", f"worker-1{NAME}"),
    ("tree", f"worker-1{NAME}"),
    ("aligned", "-A"),
    ("doctor",),
    ("plan", "--effort", "50"),
    ("fit", "cpu=4,memory=1Gi"),
]
_OBEYED = re.compile("\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202e]|\r(?!\n)")
_NAMES = re.compile(r"(trainer-1|worker-[12]|web-1)(?![\w-])")
_TEXTS = frozenset({"message", "goal", "why"})


def hostile(value: Any) -> Any:
    """The same with the text behind names of nodes and pods, and in all that people read."""
    if isinstance(value, dict):
        return {
            key: one + TEXT if key in _TEXTS and isinstance(one, str) else hostile(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return list(map(hostile, value))
    return _NAMES.sub(lambda match: match[0] + NAME, value) if isinstance(value, str) else value


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return written(tmp_path / "dump.json", hostile(whole()))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_pipe_gets_no_command(command: tuple[str, ...], dump: Path) -> None:
    done = plugin.ended(*command, "-f", dump)
    said = done.stdout + done.stderr
    assert said.strip()
    assert "Traceback" not in said
    assert "\x1b" not in said
    assert _OBEYED.search(said) is None, said


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_terminal_gets_colours_and_no_other_command(command: tuple[str, ...], dump: Path) -> None:
    sent = sent_to_terminal(300, *command, "-f", dump).decode()
    assert sent.strip()
    assert _OBEYED.search(sent) is None, sent
    assert "\x1b[31m\u202e" not in sent


def test_documents_hold_what_was_written_and_command_nothing(dump: Path) -> None:
    for form in ("json", "yaml"):
        done = plugin.ended("top", "-o", form, "-f", dump)
        assert done.returncode == 0
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)
    done = plugin.ended("top", "-o", "json", "-f", dump)
    assert {item["node"] for item in json.loads(done.stdout)["items"]} >= {f"worker-1{NAME}"}


async def test_the_live_view_shows_it_as_text(dump: Path) -> None:
    app = view(dump)
    async with app.run_test(size=(300, 50)) as pilot:
        await until(pilot, "worker-1")
        assert "\\x1b[2J" in shown(app)
        for keys in (("enter",), ("escape", "2"), ("enter",), ("escape", "3")):
            await press(pilot, *keys)
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown(app))


def test_the_report_runs_no_script_of_others(dump: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    page = tmp_path / "report.html"
    assert run("report", "-f", dump, "-o", page).exception is None
    text = page.read_text()
    assert "worker-1" in text
    assert "<script>alert(1)" not in text
    assert "\x1b" not in text
