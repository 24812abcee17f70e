"""Searches for the annotation that takes most processor time of all that are let through.

``python -m checks.laws.fuzz.slowest``: texts mix pieces, each repeated; those that take longest are
changed further. It prints the worst found. Bounds count, so no test measures time; this shows what they buy.
"""

import argparse
import time
from random import Random
from typing import NamedTuple

from numazones.apimachinery.documents import (
    ANNOTATION,
    JSON_ANNOTATION,
    UnreadableDocument,
    read_json,
    read_yaml,
)

_PIECES = {
    "yaml": [
        *(
            "[],",
            "{},",
            "1,",
            "y,",
            "1.5e+3,",
            "{a: 1},",
            "? a,",
            "{<<: {}},",
            "{<<: *a},",
            "*a,",
            "!!int '7',",
        ),
        *("!!omap [],", "!!set {a},", "!!binary aGk=,", "&b x,", "'a''b',", '"\\x41\\u00e9",', "x y z ,"),
        *(
            "[[[[[[[[[[]]]]]]]]]],",
            "{? {a: b} : c},",
            "1_0_0,",
            "0x1F,",
            ".inf,",
            "#\n",
            "\n \n",
            "12:30:45,",
        ),
        *("-1.e-5,", "k%d: ,", "%d: ,", "~,", "&a%d [],"),
    ],
    "json": [
        "[],",
        "{},",
        "1,",
        "-1.5e-300,",
        '"",',
        '{"a":1},',
        '"\\u00e9",',
        "true,",
        "[[[[[]]]]],",
        '{"%d":1},',
    ],
}
_START = {"yaml": "[&a {k: v, l: w}, ", "json": "["}
_END = {"yaml": "]", "json": "0]"}


class Text(NamedTuple):
    """Pieces, and how often each is repeated."""

    parts: tuple[tuple[str, int], ...]

    def written(self, form: str) -> str:
        """Return the text."""
        made = [piece.replace("%d", str(n)) for piece, times in self.parts for n in range(times)]
        return _START[form] + "".join(made) + _END[form]

    def changed(self, form: str, draw: Random) -> "Text":
        """Return a text with one part more, fewer, or of another length."""
        parts = list(self.parts)
        match draw.randrange(4):
            case 0 if len(parts) > 1:
                parts.pop(draw.randrange(len(parts)))
            case 1:
                parts.append((draw.choice(_PIECES[form]), draw.randint(1, 4000)))
            case _:
                place = draw.randrange(len(parts))
                piece, times = parts[place]
                parts[place] = (piece, max(1, int(times * draw.choice((0.5, 0.9, 1.05, 1.2, 2)))))
        return Text(tuple(parts))


def cost(text: str, form: str) -> float:
    """Return the seconds of processor time that a text takes; 0 if it is not let through."""
    best = 1e9
    for _ in range(3):
        begun = time.process_time()
        try:
            if form == "yaml":
                read_yaml(text, ANNOTATION, unique_keys=True)
            else:
                read_json(text, JSON_ANNOTATION)
        except UnreadableDocument:
            return 0.0
        best = min(best, time.process_time() - begun)
    return best


def search(form: str, rounds: int, seed: int) -> tuple[float, Text]:
    """Return the cost of the slowest text found, and the text."""
    draw = Random(seed)
    found = [(cost((text := Text(((piece, 1000),))).written(form), form), text) for piece in _PIECES[form]]
    for _ in range(rounds):
        found = sorted(found, key=lambda entry: entry[0], reverse=True)[:12]
        changed = draw.choice(found)[1].changed(form, draw)
        found.append((cost(changed.written(form), form), changed))
    return max(found, key=lambda entry: entry[0])


def main() -> None:
    """Search both forms."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=500)
    options.add_argument("--seed", type=int, default=36)
    chosen = options.parse_args()
    for form in _PIECES:
        seconds, text = search(form, chosen.rounds, chosen.seed)
        size = len(text.written(form))
        print(f"{form}: {seconds * 1000:.1f} ms for {size} bytes: {text.parts}")  # noqa: T201 - for people


if __name__ == "__main__":
    main()
