"""Answers in the form that the client asked for: objects, tables, or metadata alone."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from multidict import CIMultiDict

from numazones_apiserver import tables
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind
from numazones_apiserver.requests import HTTPRequest
from numazones_apiserver.watches import Rendering

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """An answer before it is written anywhere."""

    body: bytes = b""
    status: int = 200
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    stream: AsyncGenerator[bytes] | None = None
    """What comes instead of the body as long as a watch lasts."""


def text(message: str, status: int = 200) -> HTTPResponse:
    """An answer in plain words."""
    return HTTPResponse(message.encode(), status, CIMultiDict({"Content-Type": "text/plain; charset=utf-8"}))


def json_answer(
    document: Object | bytes | Mapping[str, Any], code: int = 200, headers: Mapping[str, str] | None = None
) -> HTTPResponse:
    """An answer with a JSON document, which may be encoded already."""
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    return HTTPResponse(body, code, CIMultiDict({"Content-Type": JSON, **(headers or {})}))


def form_of(request: HTTPRequest) -> str:
    """Return the form in the Accept header: "Table", "Partial" for metadata only, or "" for whole objects."""
    for part in request.headers.get("Accept", "").split(","):
        media, *parameters = (one.strip() for one in part.split(";"))
        wanted = dict(one.partition("=")[::2] for one in parameters)
        if (
            wanted.get("as") in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
            and media == JSON
        ):
            if wanted.get("v") == "v1" and wanted.get("g") == "meta.k8s.io":
                return "Table" if wanted["as"] == "Table" else "Partial"
        elif media in (JSON, "application/*", "*/*", "application/yaml", "") and "as" not in wanted:
            return ""
    if request.headers.get("Accept"):
        message = f"406: Not Acceptable\n\nAvailable representations: {JSON}, {JSON};stream=watch"
        raise StatusError(406, "NotAcceptable", message, details={})
    return ""


def rendering(request: HTTPRequest, kind: Kind) -> Rendering | None:
    """Return how a watch renders objects; None: as they are. A table's first event defines its columns."""
    form = form_of(request)
    if form == "Partial":
        return tables.partial_metadata
    if form == "":
        return None
    include = request.query.get("includeObject", "Metadata")
    told = False

    def row(obj: Object) -> Object:
        nonlocal told
        heads, told = not told, True
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        if len(obj) == 3:  # noqa: PLR2004 - a bookmark: kind, apiVersion, metadata
            return tables.table(kind.columns, (), metadata, heads=heads)
        return tables.table(kind.columns, (obj,), metadata, include=include, heads=heads)

    return row


def respond(request: HTTPRequest, kind: Kind, obj: Object, code: int, warnings: list[str]) -> HTTPResponse:
    """One object in the form that the client asked for, with warnings as headers."""
    headers = [("Content-Type", JSON)]
    headers += [("Warning", f'299 - "{_escape(text)}"') for text in warnings]
    form = form_of(request)
    if obj.get("kind") == kind.kind and form:
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        include = request.query.get("includeObject", "Metadata")
        obj = (
            tables.table(kind.columns, (obj,), metadata, include=include)
            if form == "Table"
            else tables.partial_metadata(obj)
        )
    return HTTPResponse(orjson.dumps(obj), code, CIMultiDict(headers))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
