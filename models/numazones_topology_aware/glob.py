"""Shell patterns as Go's ``filepath.Match`` reads them: ``*`` and ``?`` do not cross a slash."""

import re
from functools import lru_cache


class InvalidPattern(ValueError):
    """A text is not a shell pattern."""


def valid(pattern: str) -> bool:
    """Return whether a text is a pattern."""
    try:
        _compile(pattern)
    except InvalidPattern:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern describes the whole of a text.

    Raises:
        InvalidPattern: the text is not a pattern.
    """
    return _compile(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    """Return the pattern as an expression that takes linear time per star.

    What follows a star may match where it first can: only the last part has to try further.
    """
    first, *starred = _parts(pattern)
    inner = "".join(f"(?>[^/]*?{part})" for part in starred[:-1])
    last = f"[^/]*{starred[-1]}" if starred else ""
    return re.compile(f"{first}{inner}{last}", re.DOTALL)


def _parts(pattern: str) -> list[str]:
    """Expressions for what stands between the stars of a pattern."""
    parts = [""]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            parts.append("")
            continue
        if character == "[":
            text, position = _character_class(pattern, position)
        elif character == "?":
            text = "[^/]"
        elif character == "\\":
            if position == len(pattern):
                raise InvalidPattern(pattern)
            text = re.escape(pattern[position])
            position += 1
        else:
            text = re.escape(character)
        parts[-1] += text
    return parts


def _character_class(pattern: str, position: int) -> tuple[str, int]:
    """Return the expression for a class whose ``[`` was read, and where the pattern goes on."""
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
