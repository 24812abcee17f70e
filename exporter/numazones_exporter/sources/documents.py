"""Kubernetes objects in files, as JSON or YAML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numazones.apimachinery.documents import CONFIGURATION, UnreadableDocument, read_json, read_yaml
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import NOT_FOUND
from numazones_node.problems import SourceError


def read_document(path: Path, read: ReadFile = read_file) -> Mapping[str, Any]:
    """Read the mapping in a JSON or YAML file.

    Raises:
        SourceError: the file cannot be read, is neither, or holds no mapping.
    """
    try:
        text = read(path).decode()
    except FileNotFoundError as error:
        raise SourceError(NOT_FOUND, f"{path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise SourceError("Unreadable", f"{path} cannot be read: {cause}") from error
    document = _parse(path, text)
    if not isinstance(document, Mapping):
        raise SourceError(
            "InvalidDocument", f"{path} contains {type(document).__name__}, not a Kubernetes object"
        )
    return document


def _parse(path: Path, text: str) -> Any:
    is_json = text.lstrip().startswith("{")  # JSON is YAML too, but reads fifty times faster as JSON
    try:
        return (read_json if is_json else read_yaml)(text, CONFIGURATION)
    except UnreadableDocument as error:
        form = "is not valid JSON" if is_json else "is neither JSON nor YAML"
        raise SourceError("InvalidDocument", f"{path} {form}: {error}") from error
