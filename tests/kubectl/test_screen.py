"""Tables on a terminal: what names hold is shown, whatever it looks like."""

import pytest
from rich.console import Console
from rich.text import Text

from kubectl_numazones.printing import screen

NAMES = ("team/[bold]x[/bold]", "[/]", "[red]", "a[0]", r"\[b]")


@pytest.mark.parametrize("name", NAMES)
def test_brackets_in_cells_are_no_markup_on_a_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(force_terminal=True, width=100, color_system=None, highlight=False)
    monkeypatch.setattr(screen, "console", lambda: terminal)
    screen.print_table(("NAME", "BAR"), [(name, screen.bar(0.5)), (Text(name), "")], right=("BAR",))
    assert [line.split("   ")[0].strip() for line in capsys.readouterr().out.splitlines()][1:] == [name, name]
