"""JSON and YAML that others wrote, read within bounds.

Annotations, dumps, manifests, kubelet configurations and policies come from people who may mean harm, and a
few bytes can ask for hours of work: aliases of aliases, merges of merges, thousands of brackets or digits. So
a text is measured before anything is made of it. Bounds count bytes, levels, values and digits, never time.
An alias and a merge count as much as what they repeat.

YAML is read as the library of Kubernetes' programs reads it (sigs.k8s.io/yaml): version 1.1, but dates and
numbers in base 60 are text, and single letters are booleans.
"""

import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NoReturn

from numazones.errors import NumazonesError


class UnreadableDocument(NumazonesError, ValueError):
    """A text is not JSON or YAML, or goes beyond a bound."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on how much of a text is read."""

    size: int
    """Bytes."""
    values: int
    """Scalars, lists and mappings; what an alias repeats counts again."""
    depth: int = 64
    """Levels of nesting. Objects of Kubernetes have some thirty."""
    digits: int = 64
    """Characters of a number."""


ANNOTATION = Bounds(size=64 << 10, values=3_000, depth=32)
"""One annotation. Kubernetes allows 256 KiB for all annotations of an object."""
JSON_ANNOTATION = Bounds(size=256 << 10, values=100_000, depth=32)
"""One annotation in JSON, which is read fifty times faster than YAML."""
CONFIGURATION = Bounds(size=1 << 20, values=50_000)
"""A configuration, a policy, a manifest: what people write by hand."""
OBJECT = Bounds(size=16 << 20, values=1_000_000)
"""One object of a dump. The API server takes up to 3 MiB."""
YAML_DUMP = Bounds(size=16 << 20, values=400_000)
"""A dump in YAML; larger ones are read as JSON."""

DUMP = Bounds(size=512 << 20, values=30_000_000)
"""A dump in JSON, read one object at a time; 5,000 nodes with 50,000 pods fit."""

_ALIKE = bytes.maketrans(b"{}", b"[]")
_BACKSLASHES = re.compile(rb"\\*")
_PART = 1 << 20
"""Bytes from which strings are removed at once; all of a long text would take five times its memory."""
_DIGITS_AS_ZERO = bytes(0x30 if chr(byte) in "0123456789." else 0x20 for byte in range(256))
_SAMPLES = 4
"""A long number is looked for in so many samples of its length, ten times as fast as in every byte."""
_INNERMOST = re.compile(rb"[\[{],*[\]}]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_ALL_BUT_STRUCTURE = _ALL_BUT_BRACKETS.replace(b",", b"")
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_YAML_NUMBER = re.compile(r"[-+.]?[0-9][-+.0-9a-zA-Z_:]*")
_SOURCE = re.compile(r'\s+in "<\w+ string>",')
_GZIP = b"\x1f\x8b"
_MOST_DIRECTIVES = 16
"""The reader in C compares each with all before it."""
_TAG = "tag:yaml.org,2002:"
_TEXT = f"{_TAG}str"
_TIMESTAMP, _BOOLEAN, _INTEGER, _FLOAT = (f"{_TAG}{kind}" for kind in ("timestamp", "bool", "int", "float"))
_PATTERNS = {
    _BOOLEAN: re.compile(r"(?i:y|n|yes|no|true|false|on|off)\Z"),
    _INTEGER: re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z"),
    _FLOAT: re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN))\Z"
    ),
}
"""How scalars without quotes look that are not text. (Numbers in base 60 are.)"""


def check_json(content: bytes, bounds: Bounds) -> None:
    """Measure a text in JSON and UTF-8 without reading it.

    Raises:
        UnreadableDocument: it goes beyond a bound.
    """
    _check_size(len(content), bounds)
    if _has_digits(content, bounds.digits) and _has_digits(
        b"".join(_outside_strings(content)), bounds.digits
    ):
        raise UnreadableDocument(f"it contains a number of more than {bounds.digits} digits")
    most = bounds.depth + 1
    without = content.replace(b"{", b"", most).replace(b"[", b"", most)  # twice as fast as count
    openings = len(content) - len(without)
    # Brackets and commas in strings are counted too: it is even less.
    if len(content) >= bounds.values and (
        openings > bounds.depth or openings + content.count(b",") >= bounds.values
    ):
        structure = _structure(content, _ALL_BUT_STRUCTURE)
        commas = structure.count(b",")
        if commas + (len(structure) - commas) // 2 >= bounds.values:
            raise _too_many(bounds)
    if openings > bounds.depth and _is_deeper(_structure(content, _ALL_BUT_BRACKETS), bounds.depth):
        raise _too_deep(bounds)


def _has_digits(content: bytes, most: int) -> bool:
    """Return whether a number may have more digits."""
    too_many = most + 1
    samples = content[:: too_many // _SAMPLES or 1].translate(_DIGITS_AS_ZERO)
    if b"0" * min(_SAMPLES, too_many) not in samples:
        return False
    return b"0" * too_many in content.translate(_DIGITS_AS_ZERO)


def _structure(content: bytes, without: bytes) -> bytes:
    """Return the brackets of a text in JSON, and its commas unless they are left out, too."""
    if len(content) <= _PART and b"\\" not in content:
        kept = content.translate(None, without).replace(b'""', b"")
        if b'"' not in kept:  # no string holds any, as in most objects; three times as fast
            return kept
    return b"".join(part.replace(b'"', b"") for part in _outside_strings(content, without))


def _outside_strings(content: bytes, without: bytes = b"") -> Iterator[bytes]:
    """Yield a text in JSON without what is in quotes, five times as fast as a regular expression.

    ``without``: other bytes to leave out; not quotes.
    """
    start = inside = 0
    while start < len(content):
        end = start + _PART
        if content[end - 1 : end] == b"\\":  # what it escapes belongs to the same part
            end = _BACKSLASHES.match(content, end).end() + 1  # type: ignore[union-attr]
        part = content[start:end]
        if b"\\" in part:
            part = part.replace(rb"\\", b"").replace(rb"\"", b"")
        pieces = part.translate(None, without).split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0
        start = end


def _is_deeper(brackets: bytes, most: int) -> bool:
    """Return whether brackets nest deeper; works level by level, ten times faster than one by one."""
    brackets = brackets.translate(_ALIKE)
    half = len(brackets) // 2
    opened, closed = brackets.count(b"[", 0, half), brackets.count(b"]", half)
    if opened <= most and closed <= most and brackets.count(b"[", half) + opened == half:
        return False  # what is open in the first half was opened there, in the second will be closed there
    for _ in range(most):
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            break
        brackets = left
    else:
        return bool(brackets)
    depth = 0
    for bracket in brackets:  # what nothing closes, or closes nothing, is an error of its own when it is read
        depth += 1 if bracket == ord("[") else -1
        if depth > most:
            return True
    return False


def has_more(content: bytes, byte: bytes, most: int) -> bool:
    """Return whether a byte appears more often in a long text; faster than ``bytes.count``."""
    for start in range(0, len(content), _PART):
        part = content[start : start + _PART]
        most -= len(part) - len(part.replace(byte, b""))
        if most < 0:
            return True
    return False


def check_lists(content: bytes, bounds: Bounds, most: int) -> None:
    """Measure a long text in JSON, whose objects are measured later, for the length of its lists.

    Raises:
        UnreadableDocument: a list is longer than ``most``, or the text goes beyond another bound.
    """
    _check_size(len(content), bounds)
    commas = content.count(b",")
    if commas < most:
        return
    if commas + content.count(b"[") + content.count(b"{") > bounds.values:
        raise _too_many(bounds)
    structure = _structure(content, _ALL_BUT_STRUCTURE)
    changes = 1
    for _ in range(bounds.depth):
        structure = structure.replace(b"[]", b"").replace(b"{}", b"")
        if b"," * most in structure:
            raise too_many_items(most)
        if not changes:
            return
        structure, changes = _INNERMOST.subn(b"", structure)
    raise _too_deep(bounds)


def read_json(text: str | bytes, bounds: Bounds) -> Any:
    """Return a document in JSON.

    Raises:
        UnreadableDocument: it is not JSON, or goes beyond a bound; its cause says where.
    """
    try:
        if isinstance(text, bytes):
            _check_size(len(text), bounds)
            text = text.decode(json.detect_encoding(text))
        check_json(text.encode(errors="replace"), bounds)
        document = json.loads(text, parse_constant=_refuse)
        if _HALF_A_PAIR.search(text):  # half a surrogate pair is JSON to Python, and no text
            json.dumps(document, ensure_ascii=False).encode()
    except UnreadableDocument:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableDocument(f"{error}") from error
    return document


def _refuse(constant: str) -> NoReturn:
    """Reject NaN and infinity, which Python's reader would take."""
    raise UnreadableDocument(f"{constant} is not a number in JSON")


def read_yaml(text: str | bytes, bounds: Bounds, *, unique_keys: bool = False) -> Any:
    """Return the only document of a text in YAML; an empty text is None.

    Raises:
        UnreadableDocument: it is not YAML, or goes beyond a bound; or keys must be unique, and one is not.
    """
    found = list(read_all_yaml(text, bounds, unique_keys=unique_keys))
    if len(found) > 1:
        raise UnreadableDocument("it contains several documents; expected only one")
    return found[0] if found else None


def read_all_yaml(text: str | bytes, bounds: Bounds, *, unique_keys: bool = False) -> Iterator[Any]:
    """Yield the documents of a text in YAML.

    Raises:
        UnreadableDocument: as ``read_yaml``.
    """
    import yaml  # noqa: PLC0415 - slow to import, and most texts are JSON

    content = text.encode(errors="replace") if isinstance(text, str) else text
    _check_size(len(content), bounds)
    if content.count(b"%TAG") > _MOST_DIRECTIVES:
        raise UnreadableDocument(f"it contains more than {_MOST_DIRECTIVES} %TAG directives")
    try:
        _Measure(bounds).check(yaml.parse(text, Loader=_loader(unique_keys=unique_keys)))
        yield from yaml.load_all(text, Loader=_loader(unique_keys=unique_keys))
    except UnreadableDocument:
        raise
    # The last five are the constructors' own, on tags that do not fit their text: ``!!bool maybe``.
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError) as error:
        said = _SOURCE.sub(" at", str(error))  # whoever read the text names its file
        raise UnreadableDocument(", ".join(map(str.strip, said.splitlines()))) from error


def gunzip(content: bytes, most: int) -> bytes:
    """Return what is compressed in ``content``; what is not compressed is returned as it is.

    Raises:
        UnreadableDocument: it is damaged, or unpacks to more than ``most`` bytes.
    """
    if not content.startswith(_GZIP):
        return content
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableDocument(f"it is truncated or damaged: {error}") from error
    if len(unpacked) > most:
        raise UnreadableDocument(f"it unpacks to more than {most >> 20} MiB")
    return unpacked


@dataclass(slots=True)
class _Measure:
    """Counts the events of texts in YAML."""

    bounds: Bounds
    open: list[tuple[str | None, int]] = field(default_factory=list)
    """(anchor, values before it) of each list and mapping that is not closed."""
    sizes: dict[str, int | None] = field(default_factory=dict)
    """Values below each anchor; None until it is closed."""
    values: int = 0

    def check(self, events: Iterable[Any]) -> None:
        import yaml  # noqa: PLC0415 - as above

        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = self.open.pop()
                if anchor:
                    self.sizes[anchor] = self.values - before
            elif isinstance(event, yaml.AliasEvent):
                self._count(self._repeated(event.anchor))
            elif isinstance(event, yaml.DocumentStartEvent):
                self.sizes.clear()

    def _begin(self, event: Any) -> None:
        if len(self.open) == self.bounds.depth:
            raise _too_deep(self.bounds)
        self.open.append((event.anchor, self.values))
        if event.anchor:
            self.sizes[event.anchor] = None
        self._count(1)

    def _scalar(self, event: Any) -> None:
        self._count(1)
        if event.anchor:
            self.sizes[event.anchor] = 1
        if len(event.value) <= self.bounds.digits:
            return
        plain = event.implicit[0] and _YAML_NUMBER.fullmatch(event.value)
        if plain or event.tag in {_INTEGER, _FLOAT}:
            raise UnreadableDocument(f"it contains a number of more than {self.bounds.digits} digits")

    def _repeated(self, anchor: str | None) -> int:
        size = self.sizes.get(anchor or "", 0)  # one that is not there is named when it is read
        if size is None:
            raise UnreadableDocument(f"the value of anchor {anchor!r:.40} contains itself")
        return size

    def _count(self, more: int) -> None:
        self.values += more
        if self.values > self.bounds.values:
            raise _too_many(self.bounds)


@cache
def _loader(*, unique_keys: bool) -> Any:
    """Return a class that loads YAML as Kubernetes does, in C where there is such a reader."""
    import yaml  # noqa: PLC0415 - as above

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # either
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, _PATTERNS.get(tag, pattern)) for tag, pattern in resolvers if tag != _TIMESTAMP]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def boolean(self, node: Any) -> bool:
            return str(self.construct_scalar(node)).lower() in {"y", "yes", "true", "on"}

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
            self.flatten_mapping(node)
            for key, _ in node.value:
                if key.tag in {_INTEGER, _FLOAT}:  # keys are text, and numbers could be chosen to collide
                    key.tag = _TEXT
            found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
            if unique_keys and len(found) < len(node.value):
                keys = Counter(self.construct_object(key, deep=True) for key, _ in node.value)
                raise UnreadableDocument(f"the key {keys.most_common(1)[0][0]!r:.80} appears twice")
            return found

    Loader.add_constructor(_BOOLEAN, Loader.boolean)
    return Loader


def _check_size(size: int, bounds: Bounds) -> None:
    if size > bounds.size:
        raise UnreadableDocument(f"it is longer than {bounds.size:,} bytes")


def too_many_items(most: int) -> UnreadableDocument:
    """Return the error about a list of more than ``most`` items."""
    return UnreadableDocument(f"it contains a list of more than {most:,} items")


def _too_many(bounds: Bounds) -> UnreadableDocument:
    return UnreadableDocument(f"it contains more than {bounds.values:,} values, including repeated ones")


def _too_deep(bounds: Bounds) -> UnreadableDocument:
    return UnreadableDocument(f"it is nested more than {bounds.depth} levels deep")
