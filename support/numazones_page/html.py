"""The page as HTML: one self-contained file, or the frame that the live page fills.

A pod's name may hold anything. In a report, data stand in a block of JSON in which no ``<`` is left, and the
content security policy admits nothing but the page's own script and style, by their digests. The live page
loads both from its own origin, and nothing else from anywhere.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

_SCRIPTS = (
    "elements.js",
    "model.js",
    "heatmap.js",
    "machine.js",
    "waiting.js",
    "held.js",
    "alignment.js",
    "plans.js",
    "page.js",
)
"""In the order in which they build on each other."""
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    + "".join(
        f"%3Crect x='{x}' y='{y}' width='6' height='6' rx='1.5' fill='%23{colour}'/%3E"
        for x, y, colour in ((1, 1, "0b6e99"), (9, 1, "7cc4f0"), (1, 9, "f2b134"), (9, 9, "0b6e99"))
    )
    + "%3C/svg%3E"
)
_ALWAYS = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"

LIVE_POLICY = f"{_ALWAYS}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
"""Content-Security-Policy of the live page."""


@cache
def script() -> str:
    """The page's JavaScript."""
    return '"use strict";\n(() => {\n' + "".join(map(_static, _SCRIPTS)) + "})();\n"


@cache
def style() -> str:
    """The page's style sheet."""
    return _static("page.css")


def report(documents: Mapping[str, Any], *, title: str) -> str:
    """Return a page that holds everything it shows and asks nobody for anything."""
    policy = f"{_ALWAYS}; script-src {_digest(script())}; style-src {_digest(style())}"
    # Neither ends the block nor begins a comment or an element in it.
    data = json.dumps(documents, separators=(",", ":")).replace("<", "\\u003c")
    return _page(
        title,
        head=f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style()}</style>',
        tail=f'<script type="application/json" id="documents">{data}</script>\n<script>{script()}</script>',
    )


def live(*, title: str) -> str:
    """Return a page that follows the stream of events beside it."""
    return _page(
        title,
        head='<link rel="stylesheet" href="page.css">',
        tail='<script src="page.js" data-events="events"></script>',
    )


def _page(title: str, *, head: str, tail: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{head}\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="{_ICON}">\n<title>{_escape(title)}</title>\n</head>\n<body>\n'
        "<noscript>This page needs JavaScript. It runs only its own scripts.</noscript>\n"
        f'<div id="page"></div>\n{tail}\n</body>\n</html>\n'
    )


def _escape(title: str) -> str:
    return escape(title).encode("utf-8", errors="replace").decode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _static(name: str) -> str:
    return files("numazones_page").joinpath("static", name).read_text(encoding="utf-8")
