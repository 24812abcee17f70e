"""Changes inputs so that they stay documents: values of JSON are replaced, moved, repeated and dropped.

Bytes that are changed one by one hardly ever remain JSON, and a parser's rules are behind that of JSON. Text
that is JSON itself, as in annotations, is changed in the same way.
"""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

MutateBytes = Callable[[bytes, Random], bytes]

_BYTES_INSTEAD = 0.1
_INNER_JSON = 0.8
_TO_BYTES = 0.3
_MOST_CHANGES = 4
_INTERESTING: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 1.5, 1e308, -0.0, 10**18, 2**31, 2**63, 2**64, 10**40, float("nan")),
    *(
        "",
        " ",
        "0",
        "-1",
        "x",
        "\0",
        "\x1b[2J",
        "\ud800",
        "\u202e",
        "ÿ",
        "9" * 5000,
        "true",
        "null",
        "{}",
        "[]",
    ),
    *("0-3", "3-0", "0-99999999", "1Gi", "1e999999", "-5", "5%", "1m", "0x7", "१", "2026-01-31T08:00:00Z"),
    *("static", "none", "restricted", "Never", "Failed", "Succeeded", "Pending", "BestEffort", "Auto", "1h"),
    *([], [[]], [None], ["x"], {}, {"a": 1}, {"": ""}, [{}], {"x": None}),
)


def mutate(data: bytes, draw: Random, mutate_bytes: MutateBytes | None = None) -> bytes:
    """Return a changed input; ``mutate_bytes`` changes what is no JSON, and texts."""
    change = mutate_bytes or random_bytes
    try:
        lines = [json.loads(line) for line in data.splitlines()] if b"\n{" in data else [json.loads(data)]
    except (ValueError, RecursionError):
        return change(data, draw)
    if draw.random() < _BYTES_INSTEAD:
        return change(data, draw)
    try:
        for _ in range(draw.randint(1, _MOST_CHANGES)):
            _change_document(lines, draw, change)
        return "\n".join(map(json.dumps, lines)).encode()
    except (ValueError, RecursionError):
        return change(data, draw)


def random_bytes(data: bytes, draw: Random) -> bytes:
    """Change, drop, repeat or insert some bytes."""
    found = bytearray(data)
    for _ in range(draw.randint(1, _MOST_CHANGES)):
        at = draw.randrange(len(found) + 1)
        end = min(len(found), at + draw.choice((1, 1, 2, 8, 64)))
        match draw.randrange(5):
            case 0:
                found[at:end] = draw.randbytes(end - at)
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = found[at:end] * draw.choice((1, 2, 50))
            case 3:
                found[at:at] = draw.choice(
                    (b"{", b"[", b"]", b'"', b"\\", b"\0", b"-", b"9", b"\xff", b"\n", b": ")
                )
            case _:
                if at < len(found):
                    found[at] ^= 1 << draw.randrange(8)
    return bytes(found)


def _change_document(document: list[Any], draw: Random, change: MutateBytes) -> None:
    places = list(_places(document))
    if not places:
        document.append(draw.choice(_INTERESTING))
        return
    parent, key = draw.choice(places)
    old = parent[key]
    match draw.randrange(9):
        case 0:
            parent[key] = draw.choice(_INTERESTING)
        case 1:
            del parent[key]
        case 2:
            other, name = draw.choice(places)
            parent[key] = json.loads(json.dumps(other[name]))
        case 3 if isinstance(parent, list):
            parent.insert(key, json.loads(json.dumps(old)))
        case 3:
            parent[draw.choice([str(name) for _, name in places])] = old
        case 4 if isinstance(parent, dict):
            parent[str(_changed_scalar(key, draw, change))] = parent.pop(key)
        case _ if isinstance(old, dict | list):
            parent[key] = draw.choice(_INTERESTING) if draw.random() < _TO_BYTES else [old]
        case _:
            parent[key] = _changed_scalar(old, draw, change)


def _changed_scalar(value: Any, draw: Random, change: MutateBytes) -> Any:
    if isinstance(value, bool) or value is None:
        return draw.choice((True, False, None, "true", 0))
    if isinstance(value, int):
        near = value + draw.choice((-1, 1, 7, 64))
        return draw.choice(
            (near, -value, value << 1, value << 33, value // 2, str(value), float(value % 2**53))
        )
    if not isinstance(value, str):
        return draw.choice(_INTERESTING)
    if value[:1] in {"{", "["} and draw.random() < _INNER_JSON:
        return mutate(value.encode(errors="replace"), draw, change).decode(errors="replace")
    if draw.random() < _TO_BYTES:
        word = draw.choice([str(one) for one in _INTERESTING])
        at = draw.randrange(len(value) + 1)
        return draw.choice((word, value[:at] + word + value[at:], value.upper(), value * 2, value[:at]))
    return change(value.encode(errors="replace"), draw).decode(errors="replace")


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)
