"""Output of the simulator's commands: whole lines in a pipe, wrapped ones on a terminal."""

import io

import pytest

from numazones_simulator.screen import Screen, broken

LINE = (
    "  trainer-x2x05  node-1  Failed  TopologyAffinityError  Pod was rejected: Resources cannot be allocated"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [80, 60])
def test_a_terminal_gets_lines_that_fit_it(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    screen = Screen(out, io.StringIO())
    screen.say(LINE)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= columns for line in lines)
    assert " ".join(out.getvalue().split()) == " ".join(LINE.split())
    assert all(line.startswith(" " * 6) for line in lines[1:])
    assert screen.pages == [[LINE]]


def test_a_pipe_gets_whole_lines() -> None:
    out = io.StringIO()
    Screen(out, io.StringIO()).say(LINE)
    assert out.getvalue() == f"{LINE}\n"


def test_lines_that_fit_are_left_alone() -> None:
    table = "NAME          CPU   FREE"
    assert broken(table, 80) == [table]
    assert broken("", 80) == [""]


def test_progress_of_many_steps_is_one_line_at_a_time() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for err in (pipe, terminal):
        screen = Screen(io.StringIO(), err)
        for step in ("1 of 2 pods", "2 of 2 pods"):
            screen.progress("filling nodes", step)
        screen.progress("asking why")
    assert pipe.getvalue() == "… filling nodes\n… asking why\n"
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown == ["", "… filling nodes: 1 of 2 pods", "… filling nodes: 2 of 2 pods", "… asking why"]


def test_only_a_terminal_says_how_wide_a_table_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert Screen(Terminal()).columns == 80
    assert Screen(io.StringIO()).columns is None
