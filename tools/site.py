"""Adapt pages that are written to be read in the repository as well to the site (a MkDocs hook).

Fences say whether the tests run them (```` ```console (not run) ````); a reader of the site need not know.
Links to files outside `docs/` lead nowhere on the site, and become the names of the files.
"""

import re
from pathlib import PurePosixPath
from typing import Any

_NOTE = re.compile(r"^(\s*```\w+) \([^)\n]*\)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)[^)\s]*\)")


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

    return _LINK.sub(link, _NOTE.sub(r"\1", markdown))
