"""Archives of files that others packed: a node's sysfs and procfs.

Read by the header, not with ``tarfile``: in Python 3.11 that follows links out of the folder, makes gigabytes
of zeros of sparse members, and takes hours for extended headers that are made for it. Here an archive is
unpacked in memory up to a bound, one pass reads it, and only regular files and links within it come out.
Format: POSIX.1-2001 pax and its predecessors, as GNU tar and Python write them.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kubectl_numazones.reading.bad_dump import BadDump
from numazones.apimachinery.documents import UnreadableDocument, gunzip

MOST_PACKED = 8 << 20
"""Bytes of an archive. The whole sysfs of a machine with 256 CPUs has 150 kB."""
_MOST_UNPACKED = 64 << 20
MOST_MEMBERS = 100_000
_MOST_OF_A_FILE = 16 << 20
_MOST_OF_HEADERS = 8 << 20
_BLOCK = 512
_PAX, _PAX_OF_ALL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"
_FILE, _LINK, _DIRECTORY = b"0", b"2", b"5"
_FILES = (_FILE, b"\0", b"7")
_LENGTH_OF_A_NUMBER = 20


class BadArchive(Exception):
    """An archive is damaged or too large, or holds what no recording has."""


class Member(NamedTuple):
    """A file, directory or link of an archive."""

    path: PurePosixPath
    kind: bytes
    content: bytes
    link: str

    @property
    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        return self.kind == _DIRECTORY


def members(packed: bytes) -> Iterator[Member]:
    """Yield the files, directories and symbolic links of an archive.

    Raises:
        BadArchive: it is damaged or too large, or has a name outside of it.
    """
    try:
        content = gunzip(packed, _MOST_UNPACKED)
    except UnreadableDocument as error:
        raise BadArchive(str(error)) from error
    extended: dict[str, str] = {}
    headers = 0
    for count, (head, body) in enumerate(_entries(content)):
        if count == MOST_MEMBERS:
            raise BadArchive(f"it has more than {MOST_MEMBERS:,} members")
        kind = head[156:157]
        if kind == _PAX:
            headers += len(body)
            if headers > _MOST_OF_HEADERS:
                raise BadArchive(f"it has more than {_MOST_OF_HEADERS >> 20} MiB of extended headers")
            extended |= _pax(body)
        elif kind in {_LONG_NAME, _LONG_LINK}:
            extended["path" if kind == _LONG_NAME else "linkpath"] = _text(body)
        elif kind != _PAX_OF_ALL:
            if kind in {*_FILES, _LINK, _DIRECTORY}:
                yield _member(head, body, extended)
            extended = {}


def _entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the header and content of each member."""
    at = 0
    while len(head := content[at : at + _BLOCK]) == _BLOCK and any(head):
        try:
            size, checksum = (int(_text(head[part]) or "0", 8) for part in (slice(124, 136), slice(148, 156)))
        except ValueError as error:
            raise BadArchive("a header is damaged, or describes a file larger than 8 GiB") from error
        if checksum != sum(head) - sum(head[148:156]) + 8 * ord(" "):
            raise BadArchive("a header is damaged")
        at += _BLOCK
        if not 0 <= size <= len(content) - at:
            raise BadArchive("it is truncated")
        if size > _MOST_OF_A_FILE:
            raise BadArchive(f"{_text(head[:100])!r:.80} is larger than {_MOST_OF_A_FILE >> 20} MiB")
        yield head, content[at : at + size]
        at += -(-size // _BLOCK) * _BLOCK
    if not at:
        raise BadArchive("it is truncated or not an archive")


def _member(head: bytes, body: bytes, extended: dict[str, str]) -> Member:
    name = _text(head[:100])
    if head[257:263] == b"ustar\0" and (prefix := _text(head[345:500])):
        name = f"{prefix}/{name}"
    path = PurePosixPath(extended.get("path", name))
    if path.is_absolute() or ".." in path.parts:
        raise BadArchive(f"it names {str(path)!r:.80}, which is outside the archive")
    if any(key.startswith("GNU.sparse") for key in extended):
        raise BadArchive(f"{str(path)!r:.80} is a sparse file")
    kind = _FILE if head[156:157] in _FILES else head[156:157]
    return Member(path, kind, body, extended.get("linkpath", _text(head[157:257])))


def _pax(body: bytes) -> dict[str, str]:
    """Return the records ``LENGTH KEY=VALUE`` of an extended header."""
    found, at = {}, 0
    while at < len(body):
        number, _, _ = body[at : at + _LENGTH_OF_A_NUMBER].partition(b" ")
        length = int(number) if number.isdigit() else 0
        if not len(number) + 2 < length <= len(body) - at:
            raise BadArchive("an extended header is damaged")
        key, _, value = body[at + len(number) + 1 : at + length - 1].partition(b"=")
        found[_text(key)] = _text(value)
        at += length
    return found


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape").strip(" ")


def unpack(found: list[Member], directory: Path) -> None:
    """Write members into an empty directory; links are made last, and those that lead out of it refused.

    Raises:
        BadArchive: a link leads out of the directory, or two members exclude each other.
        OSError: a name is too long for the file system.
    """
    links = [member for member in found if member.kind == _LINK]
    try:
        for member in found:
            place = directory / member.path
            (place if member.is_directory else place.parent).mkdir(parents=True, exist_ok=True)
            if member.kind == _FILE:
                place.write_bytes(member.content)
        for member in links:
            (directory / member.path).symlink_to(member.link)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, ValueError) as error:
        raise BadArchive(f"{str(member.path)!r:.80} cannot be created: {type(error).__name__}") from error
    root = directory.resolve()
    for member in links:
        try:
            inside = (directory / member.path).resolve().is_relative_to(root)
        except (OSError, RuntimeError):  # a loop of links
            inside = False
        if not inside:
            raise BadArchive(f"the link {str(member.path)!r:.80} points outside the archive")


def read_archive(path: Path, packed: bytes) -> Iterator[Member]:
    """Yield the members of the archive in a file.

    Raises:
        BadDump: as ``members``, naming the file.
    """
    try:
        yield from members(packed)
    except BadArchive as error:
        raise BadDump(f"{path}: {error}") from error
