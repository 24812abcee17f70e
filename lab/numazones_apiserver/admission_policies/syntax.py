"""Expressions of admission policies, put into the terms that the CEL library knows.

Kubernetes gives CEL objects made of any fields (``Object.spec{replicas: 3}``, ``JSONPatch{op: "add", …}``),
which no checker knows. Here a text becomes another one in which objects are maps that carry the name of their
type. Nothing is evaluated or judged: what is not understood is left as it is, and the checker says what is
wrong with it. Grammar: the CEL language definition (cel-spec).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TYPE_KEY = "\1type"
"""The key under which a map that was written as an object carries the name of its type."""

_TYPES = ("Object", "JSONPatch")
_TYPE_LITERAL = '"\\u0001type"'
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}
                               |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<quoted>`[^`\n]*`)
      | (?P<number>0[xX][0-9a-fA-F]+[uU]?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[uU]?)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_RAW = re.compile(r"[bB]?[rR][bB]?(\"{3}.*?\"{3}|'{3}.*?'{3}|\"[^\"\n]*\"|'[^'\n]*')", re.DOTALL)
_OPENING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Translation:
    """The text for the library, and where each of its characters comes from."""

    text: str
    origins: tuple[int, ...]
    """For every character the offset in the original text."""
    types: frozenset[str]
    """The first names of the types whose objects are made: ``Object``, ``JSONPatch``."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class _Edit:
    """Text to put in place of a part of the original; at one place, lower ranks come first."""

    start: int
    rank: int
    end: int
    text: str


def translation(expression: str, *, objects: bool) -> Translation:
    """An expression in the checker's terms.

    Args:
        expression: what the policy says.
        objects: whether objects may be made, as in mutations.
    """
    reader = _Reader(expression)
    edits = list(reader.optional_entries())
    made: set[str] = set()
    if objects:
        for name, edit in reader.objects():
            made.add(name)
            edits.append(edit)
    text, origins = _edited(expression, edits)
    return Translation(text, origins, frozenset(made) - {""})


def _edited(expression: str, edits: Sequence[_Edit]) -> tuple[str, tuple[int, ...]]:
    pieces: list[str] = []
    origins: list[int] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.rank)):
        pieces += [expression[at : edit.start], edit.text]
        origins += [*range(at, edit.start), *([edit.start] * len(edit.text))]
        at = max(at, edit.end)
    pieces.append(expression[at:])
    origins += range(at, len(expression) + 1)
    return "".join(pieces), tuple(origins)


def _tokens(expression: str) -> Iterator[_Token]:
    at = 0
    while at < len(expression):
        found = _RAW.match(expression, at)
        if found is not None:
            token = _Token("string", found[0], at)
        else:
            match = _TOKEN.match(expression, at)
            assert match is not None  # noqa: S101 - the last alternative takes any character
            token = _Token(match.lastgroup or "", match[0], at)
        at = token.end
        if token.kind != "space":
            yield token


class _Reader:
    """The tokens of an expression, and which brackets belong together."""

    def __init__(self, expression: str) -> None:
        self.tokens = list(_tokens(expression))
        self.closing: dict[int, int] = {}
        open_at: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.kind != "other":
                continue
            if token.text in _OPENING:
                open_at.append(at)
            elif open_at and token.text == _OPENING[self.tokens[open_at[-1]].text]:
                self.closing[open_at.pop()] = at

    def _text(self, at: int) -> str:
        """The text of a token that is no string; "" outside the expression."""
        if not 0 <= at < len(self.tokens) or self.tokens[at].kind == "string":
            return ""
        return self.tokens[at].text

    def _is_root(self, at: int) -> bool:
        """Return whether a name stands alone, rather than being a field of something."""
        return self._text(at - 1) not in (".", "?") or (
            self._text(at - 1) == "?" and self._text(at - 2) != "."
        )

    # --- objects ------------------------------------------------------------------------------

    def objects(self) -> Iterator[tuple[str, _Edit]]:
        """``Object.spec{a: 1}`` becomes ``{TYPE_KEY: "Object.spec", "a": 1}``; with the root of each type."""
        for at, token in enumerate(self.tokens):
            if token.kind != "name" or token.text not in _TYPES or not self._is_root(at):
                continue
            brace = at + 1
            names = [token.text]
            while self._text(brace) == "." and self._text(brace + 1):
                names.append(self._text(brace + 1).strip("`"))
                brace += 2
            if self._text(brace) != "{" or brace not in self.closing:
                continue
            separator = "" if self.closing[brace] == brace + 1 else ", "
            opening = f'{{{_TYPE_LITERAL}: "{".".join(names)}"{separator}'
            yield token.text, _Edit(token.start, 1, self.tokens[brace].end, opening)
            yield from (("", edit) for edit in self._field_names(brace))

    def optional_entries(self) -> Iterator[_Edit]:
        """``{?"a": b[?"c"]}`` says that the value is optional, which the library's checker does not see."""
        for brace, end in self.closing.items():
            at = brace + 1 if self._text(brace) == "{" else end
            while at < end:
                following = self._next_argument(at, end)
                value = range(at, min(following - 1, end))
                colon = next((one for one in value if self._text(one) == ":"), None)
                if self._text(at) == "?" and colon is not None and self._has_optional_index(value):
                    start, stop = self.tokens[colon + 1].start, self.tokens[value[-1]].end
                    yield _Edit(start, -2, start, "(")
                    yield _Edit(stop, 2, stop, ").or(optional.none())")
                at = following

    def _has_optional_index(self, tokens: range) -> bool:
        return any(self._text(at) == "[" and self._text(at + 1) == "?" for at in tokens)

    def _field_names(self, brace: int) -> Iterator[_Edit]:
        """The names of the fields of an object become texts, as the keys of maps are."""
        at = brace + 1
        while at < self.closing[brace]:
            name = at + 1 if self._text(at) == "?" else at
            token = self.tokens[name]
            if token.kind in ("name", "quoted") and self._text(name + 1) == ":":
                key = token.text.strip("`").replace("\\", "\\\\").replace('"', '\\"')
                yield _Edit(token.start, 1, token.end, f'"{key}"')
            at = self._next_argument(name, self.closing[brace])

    def _next_argument(self, at: int, end: int) -> int:
        """Return the start of what follows the next comma of the same list; past ``end`` if there is none."""
        while at < end:
            if self._text(at) == ",":
                return at + 1
            at = self.closing.get(at, at) + 1
        return end + 1


def original_place(expression: str, found: Translation, line: int, column: int) -> tuple[int, int]:
    """Line and column, both from 1, in the original text, from those in the translated one."""
    lines = found.text.split("\n")
    offset = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
    origin = found.origins[min(max(offset, 0), len(found.origins) - 1)]
    before = expression[:origin]
    return before.count("\n") + 1, origin - (before.rfind("\n") + 1) + 1
