"""The body of a request, and the options of a write in its query."""

import contextlib
from typing import Any

import orjson
import yaml

from numazones_apiserver import errors, patches, protobuf
from numazones_apiserver.errors import StatusError
from numazones_apiserver.objects import Validation
from numazones_apiserver.requests import HTTPRequest, RequestInfo, flag, number
from numazones_apiserver.responses import JSON
from numazones_apiserver.users import user_of
from numazones_apiserver.writes import DeleteOptions, WriteOptions

YAML = "application/yaml"
PATCHES = (patches.JSON, patches.MERGE, patches.STRATEGIC, patches.APPLY)


def read_body(request: HTTPRequest, *, patch: bool = False) -> Any:
    """The request's body as an object; None when there is none. Raises StatusError 400 or 415."""
    raw = request.body
    if not raw:
        return None
    media = request.content_type
    if media == protobuf.MEDIA_TYPE and not patch:
        return protobuf.decode(raw)
    if media in (YAML, patches.APPLY):
        if raw.startswith(b"{"):  # programs send JSON, which is YAML too but is read much faster by itself
            with contextlib.suppress(orjson.JSONDecodeError):
                return orjson.loads(raw)
        try:
            return yaml.load(raw, Loader=_YAMLLoader)  # noqa: S506 - a safe loader
        except yaml.YAMLError as error:
            raise errors.bad_request(f"error decoding YAML: {error}") from error
    if media not in (JSON, "application/octet-stream", "text/plain") and not (patch and media in PATCHES):
        accepted = list(PATCHES) if patch else [JSON, YAML]
        raise errors.unsupported_media_type(accepted)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"couldn't decode the request's body as JSON: {error}") from error


class _YAMLLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads YAML as if it were JSON: times stay text."""


_YAMLLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def invalid_patch_option(field: str, message: str, *, forbidden: bool = False) -> StatusError:
    """422: the options of a patch make no sense."""
    reason = "FieldValueForbidden" if forbidden else "FieldValueRequired"
    return errors.invalid("meta.k8s.io", "PatchOptions", "", [errors.FieldError(reason, field, message)])


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


def _dry_run(values: list[str], options: str) -> bool:
    wrong = [value for value in values if value not in ("All", "")]
    if wrong:
        error = errors.unsupported("dryRun", wrong, ("All",))
        raise errors.invalid("meta.k8s.io", options, "", [error])
    return "All" in values


def write_options(request: HTTPRequest, info: RequestInfo) -> WriteOptions:
    """Return the write options in the query; raises StatusError 422."""
    query = request.query
    manager = (
        query.get("fieldManager")
        or request.headers.get("User-Agent", "unknown").partition("/")[0]
        or "unknown"
    )
    mode = query.get("fieldValidation") or "Warn"
    options = _OPTIONS.get(info.verb, "CreateOptions")
    if mode not in ("Ignore", "Warn", "Strict"):
        error = errors.unsupported("fieldValidation", mode, ("", "Ignore", "Strict", "Warn"))
        raise errors.invalid("meta.k8s.io", options, "", [error])
    return WriteOptions(
        manager=manager,
        subresource=info.subresource,
        dry_run=_dry_run(query.getall("dryRun", []), options),
        force=flag(query, "force"),
        validation=Validation(mode),
        user=user_of(request),
    )


def delete_options(request: HTTPRequest, body: Any) -> DeleteOptions:
    """Return the delete options in the body and query; raises StatusError 400 or 422."""
    options = body if isinstance(body, dict) else {}
    query = request.query
    preconditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy", "")
    if options.get("orphanDependents") is not None:
        propagation = "Orphan" if options["orphanDependents"] else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        error = errors.unsupported("propagationPolicy", propagation, ("Background", "Foreground", "Orphan"))
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [error])
    grace = options.get("gracePeriodSeconds")
    return DeleteOptions(
        grace=int(grace) if grace is not None else number(query, "gracePeriodSeconds"),
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=_dry_run([*(options.get("dryRun") or ()), *query.getall("dryRun", [])], "DeleteOptions"),
        user=user_of(request),
    )
