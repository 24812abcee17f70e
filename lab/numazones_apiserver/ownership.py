"""Field ownership: ``metadata.managedFields``, kept on every write, and server-side apply.

KEP-555. An apply merges the configuration into the live object, takes away what its manager
applied before and does not any more (unless another manager owns it), and conflicts where it
would change what another manager owns; any other write takes ownership of what it changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from numazones_apiserver import errors, fieldsets
from numazones_apiserver.errors import Object
from numazones_apiserver.fieldsets import FieldSet
from numazones_apiserver.schema import Schema

# Fields that nobody owns: identity, and what the server alone writes.
_UNOWNED: FieldSet = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ]
)
_BEFORE_FIRST_APPLY = "before-first-apply"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writer of a field and its operation; each has one entry in managedFields."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The fields of one writer, and when they last changed."""

    fields: FieldSet
    time: str


Ownership = dict[Writer, OwnedFields]


def read(managed_fields: Iterable[Mapping[str, Any]] | None) -> Ownership:
    """The ownership that an object's managedFields record."""
    ownership: Ownership = {}
    for entry in managed_fields or ():
        writer = Writer(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        fields = fieldsets.from_fields_v1(entry.get("fieldsV1") or {})
        ownership[writer] = OwnedFields(fields, entry.get("time", ""))
    return ownership


def write(ownership: Ownership) -> list[Object]:
    """The managedFields entries: applied ones first, then by age and name, as the real server orders them."""
    entries = []
    order = sorted(
        ownership.items(),
        key=lambda item: (
            item[0].operation != "Apply",
            item[1].time,
            item[0].manager,
            item[0].api_version,
            item[0].subresource,
        ),
    )
    for writer, owned in order:
        entry: Object = {
            "manager": writer.manager,
            "operation": writer.operation,
            "apiVersion": writer.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": fieldsets.to_fields_v1(owned.fields),
        }
        if owned.time:
            entry["time"] = owned.time
        if writer.subresource:
            entry["subresource"] = writer.subresource
        entries.append(entry)
    return entries


def _ownable_fields(fields: Iterable[fieldsets.Path], reset: FieldSet) -> FieldSet:
    return fieldsets.without_subtrees(frozenset(fields) - _UNOWNED, reset)


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """Inputs that decide how a write changes ownership: schema, time, and the fields it cannot set."""

    schema: Schema
    now: str
    reset: FieldSet = fieldsets.EMPTY


def is_reset(managed_fields: Any) -> bool:
    """Return whether an object asks to drop all ownership: a single empty entry."""
    return isinstance(managed_fields, list) and len(managed_fields) == 1 and not managed_fields[0]


def update(
    live: Object | None, new: Object, writer: Writer, ownership: Ownership, change: OwnershipChange
) -> Ownership:
    """The ownership after a create, update or patch: the writer owns what it changed."""
    after, comparison = _settle(live or {}, new, writer, ownership, change)
    taken = _ownable_fields(comparison.modified | comparison.added, change.reset)
    if taken:
        before = after.get(writer)
        after[writer] = OwnedFields(taken | before.fields if before is not None else taken, change.now)
    return _limit_updaters(after)


def apply(
    live: Object,
    config: Object,
    writer: Writer,
    ownership: Ownership,
    change: OwnershipChange,
    *,
    force: bool,
) -> tuple[Object, Ownership]:
    """The object and the ownership after an apply; raises StatusError 409 on conflicts."""
    before = dict(ownership)
    if not before and live.get("metadata", {}).get("uid"):
        first = Writer(_BEFORE_FIRST_APPLY, "Update", writer.api_version)
        before[first] = OwnedFields(
            _ownable_fields(fieldsets.fields_of(live, change.schema), fieldsets.EMPTY), change.now
        )
    last = before.get(writer)
    fields = _ownable_fields(fieldsets.fields_of(config, change.schema), change.reset)
    merged = fieldsets.merge(live, config, change.schema)
    claimed = {**before, writer: OwnedFields(fields, last.time if last is not None else "")}
    if last is not None and not last.fields <= fields:
        merged = _take_away(merged, last.fields, claimed, change.schema)
    after, _ = _settle(live, merged, writer, claimed, change, force=force)
    if merged != live:
        after[writer] = OwnedFields(fields, change.now)
    return _refresh_last_applied(merged, config, writer), after


def _last_applied_config(obj: Object) -> Any:
    """Return the annotation that ``kubectl apply`` wrote when it last applied from the client's side."""
    annotations = obj.get("metadata", {}).get("annotations") or {}
    try:
        return orjson.loads(annotations.get(_LAST_APPLIED, "null"))
    except orjson.JSONDecodeError:
        return None


def _fields_of_client_side_apply(live: Object, schema: Schema) -> FieldSet:
    """Fields that may be taken over from client-side apply: still as its annotation says."""
    last = _last_applied_config(live)
    if not isinstance(last, dict):
        return fieldsets.EMPTY
    difference = fieldsets.compare(live, last, schema)
    return fieldsets.fields_of(last, schema) - difference.modified - difference.added - difference.removed


def _refresh_last_applied(merged: Object, config: Object, writer: Writer) -> Object:
    """The object with kubectl's annotation, where it carries one, saying what was applied now."""
    if writer.manager != "kubectl" or _last_applied_config(merged) is None:
        return merged
    metadata = config.get("metadata") or {}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED
    }
    bare = {**config, "metadata": {key: value for key, value in metadata.items() if key != "annotations"}}
    if annotations:
        bare["metadata"]["annotations"] = annotations
    text = orjson.dumps(bare, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    noted = {**merged["metadata"]["annotations"], _LAST_APPLIED: text}
    return {**merged, "metadata": {**merged["metadata"], "annotations": noted}}


def _take_away(merged: Object, last: FieldSet, ownership: Ownership, schema: Schema) -> Object:
    """Remove what the manager applied before and no manager owns now."""
    named = fieldsets.with_named_parents
    pruned = fieldsets.remove(merged, schema, named(last, schema))
    everything = named(fieldsets.fields_of(merged, schema), schema)
    claimed = named(frozenset().union(*(owned.fields for owned in ownership.values())), schema)
    rest = named(fieldsets.fields_of(pruned, schema), schema)
    pruned = fieldsets.remove(merged, schema, everything - (rest | claimed))
    rest = named(fieldsets.fields_of(pruned, schema), schema)
    return fieldsets.remove(merged, schema, (everything - rest) & named(last, schema))  # type: ignore[no-any-return]


def _settle(
    live: Object,
    new: Object,
    writer: Writer,
    ownership: Ownership,
    change: OwnershipChange,
    *,
    force: bool = True,
) -> tuple[Ownership, fieldsets.FieldComparison]:
    """Take from other owners what the write changes; raises StatusError 409 when it may not."""
    comparison = fieldsets.compare(live, new, change.schema)
    changed = _ownable_fields(comparison.modified | comparison.added, change.reset)
    removed = _ownable_fields(comparison.removed, change.reset)
    contested = {
        other: owned.fields & changed
        for other, owned in ownership.items()
        if other != writer and owned.fields & changed
    }
    if contested and not force:
        allowed = _fields_of_client_side_apply(live, change.schema)
        contested = {other: left for other, fields in contested.items() if (left := fields - allowed)}
    if contested and not force:
        raise errors.apply_conflict(
            [
                (str(other), fieldsets.path_text(path))
                for other in sorted(contested, key=str)
                for path in sorted(contested[other])
            ]
        )
    after: Ownership = {}
    for other, owned in ownership.items():
        # The writer keeps what it applies; an updater's own fields go where its write removed them.
        applies = other == writer and writer.operation == "Apply"
        left = owned.fields if applies else owned.fields - changed - removed
        if left or applies:
            after[other] = replace(owned, fields=left)
    return after, comparison


def _limit_updaters(ownership: Ownership) -> Ownership:
    """Keep ten updaters; the oldest beyond that become one entry per API version."""
    updaters = [(writer, owned) for writer, owned in ownership.items() if writer.operation == "Update"]
    if len(updaters) <= _MAX_UPDATERS:
        return ownership
    updaters.sort(key=lambda item: (item[1].time, item[0].manager))
    after = dict(ownership)
    while sum(writer.operation == "Update" for writer in after) > _MAX_UPDATERS and updaters:
        writer, owned = updaters.pop(0)
        ancient = Writer(_ANCIENT, "Update", writer.api_version)
        del after[writer]
        merged = after.get(ancient, OwnedFields(fieldsets.EMPTY, owned.time))
        after[ancient] = OwnedFields(merged.fields | owned.fields, max(merged.time, owned.time))
    return after
