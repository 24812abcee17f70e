"""Predictions that came out wrong, as the operator keeps them in a ConfigMap, or as files."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import NotThere
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.file_content import read_file
from kubectl_numazones.reading.files import objects_of_files
from kubectl_numazones.reading.source import Source, connect
from numazones.apimachinery.documents import OBJECT
from numazones.whatif.wrong_prediction import WrongPrediction, read
from numazones_client import NotFound
from numazones_client.resources import CONFIG_MAPS

_NAME = "numazones-operator-misses"
_NAMESPACE = "numazones-operator"


def find(name: str, source: Source) -> WrongPrediction:
    """Read a miss from a file of that name, else under that key in the operator's ConfigMap.

    Raises:
        BadDump: the file cannot be read, or the ConfigMap is damaged.
        NotThere: there is neither such a file nor such a key.
        numazones.whatif.wrong_prediction.InvalidRecord: it is none.
    """
    path = Path(name)
    if path.is_file():
        return read(read_file(path, OBJECT.size))
    namespace = source.namespace or _NAMESPACE
    kept = _in_files(source, namespace) if source.files else run_until_complete(_live(source, namespace))
    if name not in kept:
        known = ", ".join(sorted(kept)) or "none"
        raise NotThere(
            f"{name} is no file or directory, and no key of ConfigMap {namespace}/{_NAME} (there: {known})"
        )
    try:
        return read(base64.b64decode(str(kept[name]), validate=True))
    except binascii.Error as error:
        raise BadDump(f"ConfigMap {namespace}/{_NAME}, {name}: no base64: {error}") from error


def _in_files(source: Source, namespace: str) -> Mapping[str, Any]:
    for item in objects_of_files(source.files):
        metadata = item["metadata"]
        if item["kind"] == "ConfigMap" and (metadata.get("namespace"), metadata["name"]) == (
            namespace,
            _NAME,
        ):
            return item.get("binaryData") or {}
    raise NotThere(f"the dump holds no ConfigMap {namespace}/{_NAME}; add configmaps to kubectl get")


async def _live(source: Source, namespace: str) -> Mapping[str, Any]:
    async with await connect(source) as client:
        try:
            body = await client.get(CONFIG_MAPS, _NAME, namespace=namespace)
        except NotFound:
            return {}
    return body.get("binaryData") or {}
