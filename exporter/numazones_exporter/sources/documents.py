"""Kubernetes objects in files, as JSON or YAML."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import NOT_FOUND
from numazones_node.problems import SourceError

_MAX_DEPTH = 200
"""Levels of nesting; pods have some fifteen."""


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
            "InvalidDocument", f"{path} holds no Kubernetes object but {type(document).__name__}"
        )
    return document


def _parse(path: Path, text: str) -> Any:
    if text.lstrip().startswith("{"):  # JSON is YAML too, but reads fifty times faster as JSON
        try:
            document = json.loads(text)
            if "\\u" in text:  # half a surrogate pair is JSON to Python, and no text
                json.dumps(document, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise SourceError("InvalidDocument", f"{path} is not valid JSON: {error}") from error
        return document
    import yaml  # noqa: PLC0415 - most exporters read no YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:  # libyaml's loader would overflow the stack
                raise SourceError("InvalidDocument", f"{path} nests deeper than any Kubernetes object")
        return yaml.load(text, Loader=loader)  # noqa: S506 - both are safe
    except (yaml.YAMLError, ValueError) as error:  # ValueError: dates and numbers that cannot be
        raise SourceError("InvalidDocument", f"{path} is neither JSON nor YAML: {error}") from error
