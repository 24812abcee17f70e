"""Shell patterns as Go's ``filepath.Match`` reads them: ``*`` and ``?`` do not cross a slash."""

import re
from functools import lru_cache


class InvalidPattern(ValueError):
    """A text is not a shell pattern."""


def valid(pattern: str) -> bool:
    """Whether a text is a pattern."""
    try:
        _compiled(pattern)
    except InvalidPattern:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern describes the whole of a text.

    Raises:
        InvalidPattern: the text is not a pattern.
    """
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            text, position = _character_class(pattern, position)
            parts.append(text)
        elif character == "\\":
            if position == len(pattern):
                raise InvalidPattern(pattern)
            parts.append(re.escape(pattern[position]))
            position += 1
        else:
            parts.append(re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _character_class(pattern: str, position: int) -> tuple[str, int]:
    """The expression for a class whose ``[`` was read, and where the pattern goes on."""
    negated = pattern[position : position + 1] == "^"
    position += negated
    ranges: list[str] = []
    while not (pattern[position : position + 1] == "]" and ranges):
        low, position = _class_character(pattern, position)
        high = low
        if pattern[position : position + 1] == "-":
            high, position = _class_character(pattern, position + 1)
        ranges.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
    kept = "".join(ranges)
    if negated:
        return (f"[^{kept}]" if kept else "."), position + 1
    return (f"[{kept}]" if kept else "(?!)"), position + 1


def _class_character(pattern: str, position: int) -> tuple[str, int]:
    character = pattern[position : position + 1]
    if character in {"", "-", "]"}:
        raise InvalidPattern(pattern)
    if character == "\\":
        position += 1
        character = pattern[position : position + 1]
        if not character:
            raise InvalidPattern(pattern)
    if position + 1 == len(pattern):  # a class must be closed
        raise InvalidPattern(pattern)
    return character, position + 1
