"""Parts of sentences for people: numbers with their nouns, enumerations, texts cut to a length.

One place, so that no message says "1 pods".
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def pluralize(number: int, noun: str) -> str:
    """Return ``1 pod``, ``0 pods``, ``2 pods``; for nouns whose plural takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shorten(text: str, length: int) -> str:
    """Cut a text to some characters, at a word, and show that by an ellipsis."""
    if len(text) <= length:
        return text
    return text[: length - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def some_of(items: Iterable[str], *, most: int = 5) -> str:
    """Return ``a, b and 3 more``: the first items, and how many others there are."""
    found = list(items)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def first_of(items: Sequence[str]) -> str:
    """Return ``a (and 3 more)``: the first item, and how many others there are."""
    return f"{items[0]} (and {len(items) - 1} more)" if len(items) > 1 else items[0]


def enumeration(parts: Iterable[str]) -> str:
    """Return ``a``, ``a and b``, or ``a, b and c``; each item once."""
    listed = list(dict.fromkeys(parts))
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def did_you_mean(word: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``; did you mean a?`` for a misspelled word; empty where no known word is close enough.

    ``cutoff``: the least similarity, as ``difflib`` measures it.
    """
    near = get_close_matches(str(word), tuple(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


_LONGEST_NAME = 253
# Control characters of ASCII and ISO 8859, which begin commands to a terminal, and marks that turn text.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(text: str, *, lines: bool = True) -> str:
    """Return a text with every character that a terminal or a log would obey written as its code.

    What others wrote may clear the screen, hide what stands beside it or look like a line of our own.

    Args:
        text: from anywhere.
        lines: whether ends of lines and tabs are kept.

    >>> visible("a\\x1b[2Jb") == "a" + chr(92) + "x1b[2Jb"
    True
    """
    if text.isascii() and text.isprintable():  # nearly all, ten times as fast
        return text
    kept = "\n\t" if lines else ""
    return _INVISIBLE.sub(lambda match: match[0] if match[0] in kept else _code(match[0]), text)


def claimed_name(text: str) -> str:
    """Return a name that an object only claims, such as its owner's, visibly and no longer than names are.

    What an object refers to need not exist, so nobody has checked the name.
    """
    return visible(text[:_LONGEST_NAME], lines=False)[:_LONGEST_NAME]


def _code(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t"}.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"  # noqa: PLR2004
    )
