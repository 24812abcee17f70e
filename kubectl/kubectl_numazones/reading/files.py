"""Objects in files: what ``kubectl get … -o json|yaml`` prints, lists, single objects, YAML streams.

A directory stands for files in it (see ``folders``), a recorded history for the cluster at its end. Of an
object that is there several times the last one counts. Lists in JSON can be 500 MB: of these one object
is read at a time, so that a reader who keeps little of each needs little memory, and time, beyond those
of the file.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import orjson

from kubectl_numazones.printing import screen
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.file_content import read_file
from kubectl_numazones.reading.folders import files_of
from kubectl_numazones.reading.recorded_files import is_history
from numazones.api.meta import API_VERSION, GROUP
from numazones.apimachinery.documents import (
    DUMP,
    OBJECT,
    YAML_DUMP,
    UnreadableDocument,
    check_json,
    check_lists,
    has_more,
    read_all_yaml,
    read_json,
    too_many_items,
)
from numazones.wording import first_of, pluralize

Object = Mapping[str, Any]
_Taken = TypeVar("_Taken")

_POD = "Pod"
_MOST_OBJECTS = 200_000
"""In a list; a cluster of the size that Kubernetes supports has 150,000 pods."""
_FEW_COMMAS = 4_000_000
"""A list of so many items takes 300 MB until they are counted; in longer texts they are counted first."""
# kubectl writes these two first. Where they are, nothing else of an object needs to be read to know its kind.
_HEAD = re.compile(rb'\{\s*"apiVersion":\s*"([^"\\]*)",\s*"kind":\s*"([^"\\]*)"')


class _Twice(Exception):
    """An object is there again."""


class _List(msgspec.Struct):
    """A list, its objects left as they are in the file."""

    kind: str
    items: list[msgspec.Raw]


_LISTS = msgspec.json.Decoder(_List)


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of a cluster or of files, read as they are asked for."""

    pods: Callable[[], Iterable[Object]]
    others: Callable[[], Iterable[Object]]
    read: frozenset[str] = frozenset()
    """Kinds that were read completely, even if there are no such objects."""

    @classmethod
    def of(cls, items: Sequence[Object], read: frozenset[str] = frozenset()) -> Self:
        """Take objects that have been read."""
        return cls(
            lambda: (item for item in items if item["kind"] == _POD),
            lambda: (item for item in items if item["kind"] != _POD),
            read,
        )


class _Entry(NamedTuple):
    """An object of a file."""

    version: str
    kind: str
    path: Path
    content: Object | memoryview
    """The object, or the part of the file that it is to be read from."""

    def read(self) -> Object:
        """Return the object.

        Raises:
            BadDump: it cannot be read.
        """
        if not isinstance(self.content, memoryview):
            return self.content
        found: Object = _json(self.path, self.content)
        return found


def with_objects_of(paths: Iterable[Path], take: Callable[[Objects], _Taken]) -> _Taken:
    """Return what ``take`` makes of the objects of files, each there once; warn of what may make it wrong.

    Where an object is there again, ``take`` is called anew.

    Raises:
        BadDump: a file cannot be read.
    """
    entries = _entries(paths)
    _warn_of_versions(entries)
    pods = [entry for entry in entries if entry.kind == _POD]
    others = [entry for entry in entries if entry.kind != _POD]
    try:
        return take(Objects(lambda: _until_repeated(pods), lambda: _until_repeated(others)))
    except _Twice:
        return take(Objects.of(_each_once([entry.read() for entry in entries])))


def distinct_objects(paths: Iterable[Path]) -> list[Object]:
    """Return the objects of files, each once; warn of what may make answers wrong.

    Raises:
        BadDump: a file cannot be read.
    """
    entries = _entries(paths)
    _warn_of_versions(entries)
    return _each_once([entry.read() for entry in entries])


def objects_of_files(paths: Iterable[Path]) -> list[Object]:
    """Return all objects that files and directories hold.

    Raises:
        BadDump: a file cannot be read.
    """
    return [entry.read() for entry in _entries(paths)]


def has_pod_list(paths: Iterable[Path]) -> bool:
    """Return whether pods were read although there are none: a PodList is there, or a recording.

    Raises:
        BadDump: a file cannot be read.
    """
    return any(is_history(path) or any(map(_has_pod_list, files_of(path))) for path in paths)


def _has_pod_list(path: Path) -> bool:
    content = _bytes(path)
    found = _list_in(path, content)
    if found is not None:
        return found.kind == f"{_POD}List"
    return any(
        isinstance(document, Mapping) and document.get("kind") == f"{_POD}List"
        for document in _documents(path, content)
    )


def _until_repeated(entries: Iterable[_Entry]) -> Iterator[Object]:
    """Yield objects until one is there again.

    Raises:
        _Twice: one is.
    """
    there = set()
    for entry in entries:
        item = entry.read()
        metadata = item.get("metadata")
        if isinstance(metadata, Mapping) and (name := metadata.get("name")):
            # Not the group: kinds of two groups that share a name are told apart by ``_each_once``.
            key = (entry.kind, metadata.get("namespace") or "", name)
            if key in there:
                raise _Twice
            there.add(key)
        yield item


def _each_once(items: Sequence[Object]) -> list[Object]:
    """Drop what is there again (files of one directory often overlap); warn of objects that differ."""
    last: dict[tuple[str, str, str, str], Object] = {}
    differ = []
    for item in items:
        metadata = item.get("metadata")
        if not isinstance(metadata, Mapping) or not metadata.get("name"):
            last["", "", "", str(id(item))] = item
            continue
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        group = str(item.get("apiVersion", "")).rpartition("/")[0]
        before = last.setdefault((group, str(item["kind"]), namespace, name), item)
        if before is not item:
            last[group, str(item["kind"]), namespace, name] = item
            if before != item:
                differ.append(f"{item['kind']} {namespace}{'/' * bool(namespace)}{name}")
    if differ:
        screen.warn(f"{first_of(differ)} appears several times with different contents; the last one is used")
    return list(last.values())


def _warn_of_versions(entries: Iterable[_Entry]) -> None:
    """Say which objects of ours were written for another version, as what they mean may have changed."""
    others = Counter(
        entry[:2]
        for entry in entries
        if entry.version != API_VERSION and entry.version.startswith(f"{GROUP}/")
    )
    for (version, kind), count in others.items():
        screen.warn(
            f"{version} ({pluralize(count, kind)}) is read as {API_VERSION}; if an answer looks wrong, "
            f"use the numazones release for {version}"
        )


def _entries(paths: Iterable[Path]) -> list[_Entry]:
    """Find the objects of files.

    Raises:
        BadDump: a file cannot be read, or holds something else.
    """
    return [entry for path in paths for entry in _entries_at(path)]


def _entries_at(path: Path) -> Iterator[_Entry]:
    if is_history(path):
        from kubectl_numazones.reading.recorded_cluster import objects_at_end  # noqa: PLC0415 - few read one

        for item in objects_at_end(path):
            yield from _of_document(path, item)
    else:
        for file in files_of(path):
            yield from _entries_of(file)


def _entries_of(path: Path) -> Iterator[_Entry]:
    content = _bytes(path)
    found = _list_in(path, content)
    if found is not None:
        kind = found.kind.removesuffix("List")
        yield from _of_parts(path, kind, map(memoryview, found.items))
        return
    for document in _documents(path, content):
        yield from _of_document(path, document)


def _list_in(path: Path, content: bytes) -> _List | None:
    """Return the list that a file in JSON holds, its objects unread; None for anything else."""
    if _is_yaml(path, content):
        return None
    try:
        found = _LISTS.decode(content)
    except msgspec.DecodeError:
        return None  # what is wrong with it is said where it is read as a document
    if len(found.items) > _MOST_OBJECTS:
        raise _too_long(path, too_many_items(_MOST_OBJECTS))
    return found if found.kind.endswith("List") else None


def _of_parts(path: Path, kind: str, parts: Iterable[memoryview]) -> Iterator[_Entry]:
    """Yield the objects of a list; most begin like the one before, which is seen at once."""
    start, version, name = b"", "", kind
    for content in parts:
        if not start or content[: len(start)].tobytes() != start:
            head = _HEAD.match(content)
            if head is None:
                yield _of_list(path, kind, _json(path, content))
                continue
            start, version, name = head[0], *(str(part, "utf-8", "replace") for part in head.groups())
        yield _Entry(version, name, path, content)


def _of_document(path: Path, document: Any) -> Iterator[_Entry]:
    """Yield the objects of one document; ``null`` is none."""
    if document is None:
        return
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise BadDump(
            f"{path} contains something that is not a Kubernetes object; write dumps with kubectl get -o json"
        )
    if document["kind"] == "Status":
        raise BadDump(
            f"{path} contains no objects, only an error from the API server: {document.get('message')}"
        )
    if not document["kind"].endswith("List"):
        yield _Entry(str(document.get("apiVersion")), document["kind"], path, document)
        return
    items = document.get("items") or []
    if not isinstance(items, list):
        raise BadDump(f"{path}: the items of its {document['kind']} are not objects")
    for item in items:
        yield _of_list(path, document["kind"].removesuffix("List"), item)


def _of_list(path: Path, kind: str, item: Any) -> _Entry:
    if not isinstance(item, Mapping):
        raise BadDump(f"{path}: the items of its {kind}List are not objects")
    if "kind" not in item:  # left out in a typed list (PodList)
        item = {**item, "kind": kind}
    return _Entry(str(item.get("apiVersion")), str(item["kind"]), path, item)


def documents(path: Path) -> Iterator[Any]:
    """Yield the documents of a JSON or YAML file.

    Raises:
        BadDump: it cannot be read, or is neither.
    """
    return _documents(path, _bytes(path), cure="correct it")


def _documents(path: Path, content: bytes, *, cure: str = "dump it again, with -o json") -> Iterator[Any]:
    if not _is_yaml(path, content):
        yield _json(path, content)
        return
    try:
        yield from read_all_yaml(content, YAML_DUMP)
    except UnreadableDocument as error:
        raise BadDump(f"{path} is truncated or not valid YAML ({error}); {cure}") from error


def _bytes(path: Path) -> bytes:
    content = read_file(path, DUMP.size)
    if not _is_yaml(path, content) and has_more(content, b",", _FEW_COMMAS):
        try:
            check_lists(content, DUMP, _MOST_OBJECTS)
        except UnreadableDocument as error:
            raise _too_long(path, error) from error
    return content


def _too_long(path: Path, error: Exception) -> BadDump:
    return BadDump(f"{path}: {error}; dump less, such as one namespace")


def _is_yaml(path: Path, content: bytes) -> bool:
    return path.suffix in {".yaml", ".yml"} and not content.lstrip().startswith(b"{")


def _json(path: Path, content: bytes | memoryview) -> Any:
    """Read JSON; what orjson rejects is not always wrong (PowerShell's ``>`` writes UTF-16)."""
    try:
        if len(content) > OBJECT.size:
            raise BadDump(
                f"{path} contains an object of more than {OBJECT.size >> 20} MiB; no cluster stores "
                "objects that large"
            )
        content = bytes(content)
        check_json(content, OBJECT)
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            return read_json(content, OBJECT)
    except UnreadableDocument as error:
        raise BadDump(f"{path} is truncated or not JSON ({error}); dump it again") from error
