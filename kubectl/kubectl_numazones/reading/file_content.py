"""The bytes of files that others wrote: so many and no more, whatever the path leads to."""

from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from numazones.apimachinery.documents import OBJECT, Bounds, UnreadableDocument, read_json, read_yaml


def read_file(path: Path, most: int, *, regular: bool = False) -> bytes:
    """Return what a file holds; ``regular``: not of a pipe or device, which may never end.

    Raises:
        BadDump: it cannot be read, or holds more bytes than ``most``.
    """
    try:
        if regular and path.exists() and not path.is_file():
            raise BadDump(f"{path} is not a regular file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise BadDump(f"{path}: {error.strerror or error}") from error
    if len(content) > most:
        raise BadDump(f"{path} is larger than {most >> 20} MiB")
    return content


def recorded_json(path: Path) -> Any:
    """Return the document in a file of a recording.

    Raises:
        BadDump: it is not there, is not JSON, or is too much.
    """
    try:
        return read_json(read_file(path, OBJECT.size, regular=True), OBJECT)
    except UnreadableDocument as error:
        raise BadDump(f"{path} cannot be read as JSON: {error}") from error


def recorded_yaml(path: Path, bounds: Bounds) -> Any:
    """Return the document in a file of a recording.

    Raises:
        BadDump: it is not there, is not YAML, or is too much.
    """
    try:
        return read_yaml(read_file(path, bounds.size, regular=True), bounds)
    except UnreadableDocument as error:
        raise BadDump(f"{path} cannot be read as YAML: {error}") from error
