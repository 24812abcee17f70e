"""Parts of sentences for people: numbers with their nouns, enumerations, texts cut to a length.

One place, so that no message says "1 pods".
"""

from collections.abc import Iterable, Sequence


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
