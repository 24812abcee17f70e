"""Progress of the simulator's commands: a progress line on a terminal, plain lines elsewhere."""

import shutil
import sys
import textwrap
from typing import TextIO

import click

_INDENT = 4
"""Blanks by which the further parts of a broken line are set in."""
_CLEAR = "\r\x1b[2K"


def broken(line: str, columns: int) -> list[str]:
    """Break a line at words, so that its parts fit so many columns."""
    if len(click.unstyle(line)) <= columns:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + _INDENT)
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=indent,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Screen:
    """Writes results to one stream and progress to another.

    By default these are the standard output and the standard error.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._line_open = False
        self._doing = ""
        self.pages: list[list[str]] = [[]]
        """Everything that was said, a page for each title."""

    @property
    def is_terminal(self) -> bool:
        """Return whether a person is looking at the results."""
        return self._out.isatty()

    @property
    def columns(self) -> int | None:
        """Return the width of the person's terminal; None if there is none."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def progress(self, text: str, amount: str = "") -> None:
        """Say what is being done now, and how much of it.

        On a terminal the next message takes its place. Elsewhere a text is written once.
        """
        if self._err.isatty():
            click.echo(f"{_CLEAR}… {text}{amount and f': {amount}'}", file=self._err, nl=False)
            self._line_open = True
        elif text != self._doing:
            click.echo(f"… {text}", file=self._err)
        self._doing = text

    def say(self, text: str = "") -> None:
        """Write a line of the result; on a terminal, longer ones are broken at words."""
        if self._line_open:
            click.echo(_CLEAR, file=self._err, nl=False)
            self._line_open = False
        self.pages[-1] += click.unstyle(text).splitlines() or [""]
        columns = self.columns
        if columns is not None:
            text = "\n".join(part for line in text.splitlines() for part in broken(line, columns))
        click.echo(text, file=self._out)

    def title(self, text: str) -> None:
        """Write a heading, with a blank line before it."""
        self.say()
        self.pages.append([])
        self.say(click.style(text, bold=True) if self.is_terminal else text)
