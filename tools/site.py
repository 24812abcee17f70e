"""Adapt pages that are written to be read in the repository as well to the site (a MkDocs hook).

A comment above a fence tells the tests what to do with it: ``<!-- test: not run -->``, ``on a cluster``,
``in a walk``; ``exit 1`` allows answers such as no. Readers see none of it. The copy button of a console
block copies the commands without prompts and without what they print. Links to files outside ``docs/`` lead
nowhere on the site, and become the names of the files.
"""

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import PurePosixPath
from typing import Any

NOTE = r"<!-- test: (?P<note>[^\n]*?) -->\n"
FENCE = re.compile(
    rf"^(?P<indent> *)(?:{NOTE} *)?```(?P<language>console|python)(?P<title>[^\n]*)\n(?P<body>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block with the comment above it."""

_NOTE_LINE = re.compile(rf"^ *{NOTE}", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)[^)\s]*\)")
_HIGHLIGHTED = re.compile(r'<div class="highlight">(?P<code><pre>.*?</pre>)</div>', re.DOTALL)
_PROMPT = '<span class="gp">$ </span>'


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Yield each command, with its continuation lines or its document up to END, and what it prints."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        last = next(index for index, line in enumerate(lines) if not line.rstrip("\n").endswith("\\"))
        if "<<'END'" in lines[last]:
            last = lines.index("END\n")
        yield "".join(lines[: last + 1]).strip(), "".join(lines[last + 1 :])


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Rewrite a page before it is rendered."""
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        parts: list[str] = []
        for part in (folder / match[2]).parts:
            if part == ".." and parts:
                parts.pop()
            else:
                parts.append(part)
        return match[0] if parts[:1] == ["docs"] else f"{match[1]} (`{'/'.join(parts)}`)"

    return _LINK.sub(link, _NOTE_LINE.sub("", markdown))


def on_page_content(html: str, **_others: Any) -> str:
    """Say what the copy buttons of console blocks copy (``data-copy`` of the theme)."""

    def with_commands(match: re.Match[str]) -> str:
        if _PROMPT not in match["code"]:
            return match[0]
        text = unescape(re.sub(r"<[^>]+>", "", match["code"]))
        copied = "\n".join(command for command, _ in commands(text))
        return match[0].replace("<div ", f'<div data-copy="{escape(copied)}" ', 1)

    return _HIGHLIGHTED.sub(with_commands, html)
