"""Sets of fields, their notation ``fieldsV1``, and how objects are compared and merged by them.

Server-side apply is defined by sets of paths: which fields a configuration names, which fields
differ between two objects, which fields to take away. KEP-555 and the structured-merge-diff
project define them. A path is a tuple of elements in ``fieldsV1`` notation: ``f:name`` for a field,
``k:{"name":"a"}`` for an item of a list map, ``v:"x"`` for an item of a set.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.schema import MISSING, Schema

Path = tuple[str, ...]
FieldSet = frozenset[Path]
EMPTY: FieldSet = frozenset()


def from_fields_v1(fields: Mapping[str, Any]) -> FieldSet:
    """The set that a ``fieldsV1`` object denotes."""
    paths: set[Path] = set()
    _read(fields, (), paths)
    return frozenset(paths)


def _read(node: Mapping[str, Any], path: Path, paths: set[Path]) -> None:
    for key, child in node.items():
        if key == ".":
            paths.add(path)
        elif not child:
            paths.add((*path, key))
        else:
            _read(child, (*path, key), paths)


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """The ``fieldsV1`` object of a set; members that have children carry a ``.``."""
    root: Object = {}
    # Sorted, a member comes before its children, so the child finds it and marks it.
    for path in sorted(paths):
        node = root
        for element in path[:-1]:
            child = node.get(element)
            if child is None:
                child = node[element] = {}
            elif not child:
                child["."] = {}
            node = child
        node.setdefault(path[-1], {})
    return root


def path_text(path: Path) -> str:
    """A path as conflicts name it: ``.spec.containers[name="a"].image``."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + ",".join(f"{key}={_json(value)}" for key, value in json.loads(rest).items()) + "]"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            text += f"[{rest}]"
    return text


def without_subtrees(paths: FieldSet, roots: FieldSet) -> FieldSet:
    """The paths that lie under none of the roots."""
    if not roots:
        return paths
    depths = {len(root) for root in roots}
    return frozenset(path for path in paths if not any(path[:depth] in roots for depth in depths))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _is_list_of_items(schema: Schema | None) -> bool:
    return schema is not None and schema.list_type in ("set", "map")


def _is_granular(value: Any, schema: Schema | None) -> bool:
    """Return whether the fields of the value are owned one by one."""
    if isinstance(value, dict):
        return schema is None or not schema.atomic
    return isinstance(value, list) and _is_list_of_items(schema)


def item_element(item: Any, schema: Schema) -> str:
    """The path element of one item of a set or list map; absent keys take their default."""
    if schema.list_type == "set":
        return f"v:{_json(item)}"
    if not isinstance(item, dict):
        raise StatusError(
            400, "BadRequest", f"associative list with keys may not have non-map elements: {item!r}"
        )
    keys = {}
    for name in sorted(schema.map_keys):
        if item.get(name) is not None:
            keys[name] = item[name]
        else:
            declared = schema.items.properties.get(name) if schema.items is not None else None
            if declared is not None and declared.default is not MISSING:
                keys[name] = declared.default
    if not keys:
        names = ", ".join(json.dumps(name) for name in schema.map_keys)
        raise StatusError(
            500, "InternalError", f"associative list with keys has an element that omits key field {names}"
        )
    return f"k:{_json(keys)}"


def fields_of(value: Any, schema: Schema | None) -> FieldSet:
    """The fields that a configuration names."""
    paths: set[Path] = set()
    _collect(value, schema, (), paths)
    return frozenset(paths)


def _collect(value: Any, schema: Schema | None, path: Path, paths: set[Path]) -> None:
    if not _is_granular(value, schema):
        if path and not (value is None and _is_list_of_items(schema)):
            paths.add(path)
        return
    if isinstance(value, dict):
        named = schema.properties if schema is not None else {}
        for key, item in value.items():
            here = (*path, f"f:{key}")
            _collect(item, schema.field(key) if schema is not None else None, here, paths)
            if item is None or item == {} or key not in named:
                paths.add(here)
        return
    if schema is not None:
        elements = [item_element(item, schema) for item in value]
        repeated = (
            {element for element in elements if elements.count(element) > 1} if _repeats(elements) else set()
        )
        for element, item in zip(elements, value, strict=True):
            here = (*path, element)
            paths.add(here)
            if element not in repeated:
                _collect(item, schema.items, here, paths)


def _repeats(elements: list[str]) -> bool:
    return len(set(elements)) != len(elements)


@dataclass(slots=True)
class FieldComparison:
    """Difference between two objects, by field."""

    added: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)


def compare(old: Any, new: Any, schema: Schema | None) -> FieldComparison:
    """The fields added, removed and modified between two values."""
    result = FieldComparison()
    _compare(old, new, schema, (), result)
    return result


def _compare(old: Any, new: Any, schema: Schema | None, path: Path, result: FieldComparison) -> None:
    if old is not MISSING and new is not MISSING and old == new:
        return
    if _descends(old, new, schema):
        for element, before, after, child in _pairs(old, new, schema):
            _compare(before, after, child, (*path, element), result)
        if old is MISSING:
            result.added.add(path)
        elif new is MISSING:
            result.removed.add(path)
    elif old is MISSING:
        result.added.add(path)
    elif new is MISSING:
        result.removed.add(path)
    else:
        result.modified.add(path)


def _descends(old: Any, new: Any, schema: Schema | None) -> bool:
    """Return whether a difference has single fields; two empty sides and a changed type differ as a whole."""
    present = [side for side in (old, new) if side is not MISSING and side is not None]
    if not present or not all(_is_granular(side, schema) for side in present):
        return False
    return any(present) and len({type(side) for side in present}) == 1


def _pairs(old: Any, new: Any, schema: Schema | None) -> Iterable[tuple[str, Any, Any, Schema | None]]:
    if isinstance(old, dict) or isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        for key in before.keys() | after.keys():
            child = schema.field(key) if schema is not None else None
            yield f"f:{key}", before.get(key, MISSING), after.get(key, MISSING), child
        return
    if schema is None:
        return
    before_items = _by_element(old, schema)
    after_items = _by_element(new, schema)
    for element in before_items.keys() | after_items.keys():
        was, now = before_items.get(element, []), after_items.get(element, [])
        if len(was) <= 1 and len(now) <= 1:
            yield element, was[0] if was else MISSING, now[0] if now else MISSING, schema.items
        else:  # repeated items are compared as one
            yield element, was or MISSING, now or MISSING, Schema()


def _by_element(items: Any, schema: Schema) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items if isinstance(items, list) else ():
        found.setdefault(item_element(item, schema), []).append(item)
    return found


def merge(live: Any, config: Any, schema: Schema | None) -> Any:
    """The live value with the configuration merged into it."""
    if config is MISSING:
        return live
    if live is MISSING or not _descends(live, config, schema) or live is None or config is None:
        return config
    if isinstance(config, dict):
        merged = dict(live)
        for key, value in config.items():
            child = schema.field(key) if schema is not None else None
            merged[key] = merge(live.get(key, MISSING), value, child)
        return merged
    return _merge_items(live, config, schema) if schema is not None else config


def _merge_items(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Items in the configuration's order; live items keep their place relative to the shared ones."""
    left = [item_element(item, schema) for item in live]
    right = [item_element(item, schema) for item in config]
    if _repeats(right):
        repeated = next(element for element in right if right.count(element) > 1)
        raise StatusError(
            500,
            "InternalError",
            f"failed to merge config: duplicate entries for key {path_text((repeated,))}",
        )
    lives = dict(zip(left, live, strict=True))
    wanted = dict(zip(right, config, strict=True))
    shared = [element for element in right if element in lives]
    merged: list[Any] = []
    done: set[str] = set()
    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right):
        if at_left < len(left):
            element = left[at_left]
            if element not in wanted:
                merged.append(live[at_left])
                at_left += 1
                continue
            if element in done or (shared and shared[0] != element):
                at_left += 1
                continue
        if at_right < len(right):
            element = right[at_right]
            merged.append(merge(lives.get(element, MISSING), wanted[element], schema.items))
            done.add(element)
            at_right += 1
            if shared and shared[0] == element:
                shared.pop(0)
    return merged


def remove(value: Any, schema: Schema | None, paths: FieldSet) -> Any:
    """The value without the fields and items in the set."""
    return _remove(value, schema, to_fields_v1(paths)) if paths else value


def _is_member(node: Mapping[str, Any]) -> bool:
    return not node or "." in node


def _remove(value: Any, schema: Schema | None, tree: Mapping[str, Any]) -> Any:
    if not _is_granular(value, schema):
        return value
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            node = tree.get(f"f:{key}")
            if node is None:
                kept[key] = item
            elif not _is_member(node):
                kept[key] = _remove(item, schema.field(key) if schema is not None else None, node)
        return kept
    kept_items = []
    for item in value if schema is not None else ():
        node = tree.get(item_element(item, schema)) if schema is not None else None
        if node is None:
            kept_items.append(item)
        elif not _is_member(node):
            kept_items.append(_remove(item, schema.items if schema is not None else None, node))
    return kept_items


def with_named_parents(paths: FieldSet, schema: Schema | None) -> FieldSet:
    """The set with the declared fields above its members, which are removed with all that is below them."""
    parents: set[Path] = set()
    seen: set[Path] = set()
    for path in paths:
        node = schema
        for depth, element in enumerate(path[:-1], start=1):
            if node is None:
                break
            prefix = path[:depth]
            name = element.removeprefix("f:")
            if element.startswith("f:"):
                if prefix not in seen and name in node.properties:
                    parents.add(prefix)
                seen.add(prefix)
                node = node.field(name)
            else:
                node = node.items
    return paths | parents
