"""CustomResourceDefinitions: what makes one acceptable, and the kinds that it adds to the API.

Rules of apiextensions.k8s.io/v1. Of ``x-kubernetes-validations`` only the transition rule
``self == oldSelf`` is evaluated; other rules are stored, and their author is warned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery import jsonpath
from numazones_apiserver import definitions, errors
from numazones_apiserver.builtin_kinds import metadata_fields
from numazones_apiserver.errors import FieldError, Object
from numazones_apiserver.kinds import Kind
from numazones_apiserver.schema import Schema, compile_schema, is_evaluated, validate
from numazones_apiserver.tables import custom_columns

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class CustomStrategy:
    """Write custom resources as their definition says."""

    has_status: bool

    def for_create(self, obj: Object) -> Object:
        """The object, without its status where that is a subresource."""
        return {key: value for key, value in obj.items() if key != "status"} if self.has_status else obj

    def for_update(self, obj: Object, old: Object) -> Object:
        """The object, with the old status where that is a subresource."""
        if not self.has_status:
            return obj
        result = self.for_create(obj)
        return {**result, "status": old["status"]} if "status" in old else result

    def for_status(self, obj: Object, old: Object) -> Object:
        """The old object with the new status and its owners."""
        metadata = dict(old["metadata"])
        metadata.pop("managedFields", None)
        if "managedFields" in obj["metadata"]:
            metadata["managedFields"] = obj["metadata"]["managedFields"]
        result = {**{key: value for key, value in old.items() if key != "status"}, "metadata": metadata}
        return {**result, "status": obj["status"]} if "status" in obj else result

    def check(self, obj: Object, old: Object | None) -> Iterator[FieldError]:
        """Nothing: the schema says all there is to check."""
        del obj, old
        yield from ()


def _root_schema(source: Mapping[str, Any]) -> Schema:
    """The schema of whole objects, with the identity and metadata that every object has."""
    schema = compile_schema(source)
    schema.type = "object"
    schema.properties = {
        **schema.properties,
        "apiVersion": Schema(type="string"),
        "kind": Schema(type="string"),
        "metadata": definitions.schema(definitions.OBJECT_META),
    }
    return schema


def _openapi(source: Mapping[str, Any], kind: Mapping[str, str]) -> Object:
    described = definitions.by_name()[definitions.names()["", "v1", "Pod"]]["properties"]
    properties = {
        "apiVersion": definitions.openapi(described["apiVersion"]),
        "kind": definitions.openapi(described["kind"]),
        "metadata": definitions.openapi(described["metadata"]),
    }
    own = {name: one for name, one in (source.get("properties") or {}).items() if name not in properties}
    return {
        **source,
        "type": "object",
        "properties": {**properties, **own},
        "x-kubernetes-group-version-kind": [dict(kind)],
    }


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds that a definition serves, one per served version."""
    return [_kind(definition, version) for version in definition["spec"]["versions"] if version.get("served")]


def _kind(definition: Object, version: Mapping[str, Any]) -> Kind:
    spec = definition["spec"]
    names = spec["names"]
    source = version["schema"]["openAPIV3Schema"]
    subresources = version.get("subresources") or {}
    namespaced = spec["scope"] == "Namespaced"
    identity = {"group": spec["group"], "version": version["name"], "kind": names["kind"]}
    api_version = f"{spec['group']}/{version['name']}"
    fields = metadata_fields(namespaced=namespaced)
    for one in version.get("selectableFields") or ():
        fields[one["jsonPath"].removeprefix(".")] = _field_reader(one["jsonPath"])
    several = len(spec["versions"]) > 1
    storage = next(one["name"] for one in spec["versions"] if one.get("storage"))
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names["singular"],
        namespaced=namespaced,
        load_schema=lambda: _root_schema(source),
        strategy=CustomStrategy("status" in subresources),
        columns=custom_columns(version.get("additionalPrinterColumns")),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(subresources),
        selectable=fields,
        custom=True,
        list_kind=names["listKind"],
        collection=(spec["group"], names["plural"]),
        from_storage=(lambda obj: {**obj, "apiVersion": api_version}) if several else None,
        to_storage=(lambda obj: {**obj, "apiVersion": f"{spec['group']}/{storage}"}) if several else None,
        openapi=lambda: _openapi(source, identity),
        scale=subresources.get("scale"),
    )


def _field_reader(path: str) -> Any:
    def read(obj: Object) -> str:
        found = jsonpath.find(obj, path)
        value = found[0] if found else ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read


# --- the definitions themselves --------------------------------------------------------------


class DefinitionStrategy:
    """Write CustomResourceDefinitions: with defaults, and checked for structural schemas."""

    def for_create(self, obj: Object) -> Object:
        """The definition with its default names and conversion, and with its status."""
        obj = _with_defaults(obj)
        return {
            **{key: value for key, value in obj.items() if key != "status"},
            "status": definition_status(obj, None),
        }

    def for_update(self, obj: Object, old: Object) -> Object:
        """The definition with its defaults, and with the status that follows from it."""
        obj = _with_defaults(obj)
        return {**obj, "status": definition_status(obj, old)}

    def for_status(self, obj: Object, old: Object) -> Object:
        """The old definition with the new status."""
        return {**old, "metadata": obj["metadata"], "status": obj.get("status", {})}

    def check(self, obj: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the errors that make the definition unacceptable."""
        spec = obj["spec"]
        wanted = f"{spec['names'].get('plural')}.{spec['group']}"
        if obj["metadata"]["name"] != wanted:
            yield errors.invalid_value(
                "metadata.name", obj["metadata"]["name"], 'must be spec.names.plural+"."+spec.group'
            )
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            yield errors.unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
        elif old is not None and old["spec"].get("scope") != spec["scope"]:
            yield errors.invalid_value("spec.scope", spec["scope"], "field is immutable")
        versions = spec.get("versions") or []
        if sum(bool(one.get("storage")) for one in versions) != 1:
            yield errors.invalid_value(
                "spec.versions",
                [one.get("name") for one in versions],
                "must have exactly one version marked as storage version",
            )
        sources = [(one.get("schema") or {}).get("openAPIV3Schema") for one in versions]
        same = all(source == sources[0] for source in sources)
        for at, (version, source) in enumerate(zip(versions, sources, strict=True)):
            here = f"spec.versions[{at}]"
            path = "spec.validation.openAPIV3Schema" if same else f"{here}.schema.openAPIV3Schema"
            if source is None:
                yield errors.required(f"{here}.schema.openAPIV3Schema", "schemas are required")
            elif not same or at == 0:
                yield from _check_structure(source, path, root=True)
            yield from _check_columns(version, here)


def _with_defaults(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    return {**obj, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def definition_status(obj: Object, old: Object | None) -> Object:
    """The status of a definition once it is accepted; times stay those of the first acceptance."""
    spec = obj["spec"]
    known = {one["type"]: one for one in ((old or {}).get("status") or {}).get("conditions") or ()}
    since = obj["metadata"].get("creationTimestamp")
    conditions = [
        known.get(kind)
        or {"lastTransitionTime": since, "message": message, "reason": reason, "status": "True", "type": kind}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = list(((old or {}).get("status") or {}).get("storedVersions") or ())
    stored += [
        one["name"] for one in spec.get("versions") or () if one.get("storage") and one["name"] not in stored
    ]
    return {"acceptedNames": spec["names"], "conditions": conditions, "storedVersions": stored}


def warnings(definition: Object) -> list[str]:
    """Return warnings for the definition's author: rules that this server does not evaluate."""
    found = []
    for at, version in enumerate(definition["spec"].get("versions") or ()):
        source = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for path, rule in _rules(source, f"spec.versions[{at}].schema.openAPIV3Schema"):
            if not is_evaluated(rule):
                found.append(
                    f'{path}: x-kubernetes-validations rule "{rule.get("rule")}" is stored but not evaluated'
                )
    return found


def _rules(source: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for rule in source.get("x-kubernetes-validations") or ():
        yield path, rule
    for below, one in _children(source, path):
        yield from _rules(one, below)


def _children(source: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas one step down, with their paths."""
    for name, one in (source.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", one
    for word in ("items", "additionalProperties"):
        if isinstance(source.get(word), Mapping):
            yield f"{path}.{word}", source[word]


def _check_structure(source: Mapping[str, Any], path: str, *, root: bool = False) -> Iterator[FieldError]:
    """Rules of structural schemas: types everywhere, keys of list maps, defaults that fit."""
    kind = source.get("type", "")
    yield from _check_type(source, path, root=root)
    if kind == "array" and not isinstance(source.get("items"), Mapping):
        yield errors.required(f"{path}.items", "must be specified")
    if source.get("properties") and source.get("additionalProperties"):
        yield errors.forbidden_field(f"{path}.additionalProperties", "must not be set if properties is set")
    yield from _check_list_type(source, path)
    if "default" in source:
        compiled = compile_schema(source)
        yield from validate(source["default"], compiled, f"{path}.default")
    for below, one in _children(source, path):
        if not (root and below.endswith(("[apiVersion]", "[kind]", "[metadata]"))):
            yield from _check_structure(one, below)


def _check_type(source: Mapping[str, Any], path: str, *, root: bool) -> Iterator[FieldError]:
    free = source.get("x-kubernetes-int-or-string") or source.get("x-kubernetes-preserve-unknown-fields")
    kind = source.get("type", "")
    if root and not kind:
        yield errors.required(f"{path}.type", "must not be empty at the root")
    elif root and kind != "object":
        yield errors.invalid_value(f"{path}.type", kind, "must be object at the root")
    elif not kind and not free:
        place = "array items" if path.endswith(".items") else "object fields"
        yield errors.required(f"{path}.type", f"must not be empty for specified {place}")
    elif kind and kind not in _TYPES:
        yield errors.unsupported(f"{path}.type", kind, _TYPES)


def _check_list_type(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind, keys = source.get("x-kubernetes-list-type"), source.get("x-kubernetes-list-map-keys") or []
    if kind is not None and source.get("type") != "array":
        yield errors.invalid_value(
            f"{path}.type", source.get("type"), "must be array if x-kubernetes-list-type is specified"
        )
    if kind not in (None, "atomic", "set", "map"):
        yield errors.unsupported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    if kind == "map" and not keys:
        detail = "must not be empty if x-kubernetes-list-type is map"
        yield errors.required(f"{path}.x-kubernetes-list-map-keys", detail)
    items = source.get("items") or {}
    for key in keys:
        declared = (items.get("properties") or {}).get(key)
        if declared is None:
            yield errors.invalid_value(
                f"{path}.x-kubernetes-list-map-keys",
                keys,
                f"entries must all be names of item properties; {key} is none",
            )
        elif key not in (items.get("required") or ()) and "default" not in declared:
            detail = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            yield errors.required(f"{path}.items.properties[{key}].default", detail)


def _check_columns(version: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for at, column in enumerate(version.get("additionalPrinterColumns") or ()):
        here = f"{path}.additionalPrinterColumns[{at}]"
        if column.get("type") not in ("integer", "number", "string", "boolean", "date"):
            supported = ("boolean", "date", "integer", "number", "string")
            yield errors.unsupported(f"{here}.type", column.get("type"), supported)
        try:
            jsonpath.compile_path(column.get("jsonPath", ""))
        except jsonpath.InvalidJSONPath as error:
            yield errors.invalid_value(f"{here}.jsonPath", column.get("jsonPath"), str(error))
