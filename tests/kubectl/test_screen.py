"""Tables on a terminal: what names hold is shown, whatever it looks like."""

import pytest
from rich.console import Console
from rich.text import Text

from kubectl_numazones.printing import screen
from numazones_program.columns import Column

NAMES = ("team/[bold]x[/bold]", "[/]", "[red]", "a[0]", r"\[b]")


@pytest.mark.parametrize("name", NAMES)
def test_brackets_in_cells_are_no_markup_on_a_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(force_terminal=True, width=100, color_system=None, highlight=False)
    monkeypatch.setattr(screen, "console", lambda: terminal)
    columns: tuple[Column[tuple[str | Text, str | Text]], ...] = (
        Column("NAME", lambda row: row[0]),
        Column("BAR", lambda row: row[1], right=True),
    )
    rows: list[tuple[str | Text, str | Text]] = [(name, screen.bar(0.5)), (Text(name), "")]
    screen.print_table(columns, rows)
    assert [line.split("   ")[0].strip() for line in capsys.readouterr().out.splitlines()][1:] == [name, name]


def test_bars_of_equal_shares_are_changed_apart() -> None:
    screen.bar(0.5).append(" 4 of 8")
    assert "8" not in screen.bar(0.5).plain
