"""Discovery documents of the server: the legacy ones and the aggregated one.

Clients ask for the aggregated document (apidiscovery.k8s.io/v2) first and fall back to one
document per group and version.
"""

from collections.abc import Iterable

from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind, Registry

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # What a subresource speaks: group, version, kind, verbs.
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "finalize": ("", "v1", "Namespace", ("update",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}


def _subresource(kind: Kind, name: str) -> tuple[str, str, str, tuple[str, ...]]:
    if name == "proxy":
        return "", "v1", f"{kind.kind}ProxyOptions", ("get",)
    return _SUBRESOURCES.get(name) or (kind.group, kind.version, kind.kind, ("get", "patch", "update"))


def api_versions(address: str) -> Object:
    """The document at ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group(name: str, versions: Iterable[str]) -> Object:
    """The document at ``/apis/GROUP``."""
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def groups(registry: Registry) -> Object:
    """The document at ``/apis``."""
    listed = []
    for name, versions in registry.groups().items():
        one = group(name, versions)
        del one["kind"], one["apiVersion"]
        listed.append(one)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def resources(group_version: str, kinds: Iterable[Kind]) -> Object:
    """The document at ``/api/v1`` or ``/apis/GROUP/VERSION``."""
    listed: list[Object] = []
    for kind in kinds:
        entry: Object = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        listed.append(entry)
        for name in sorted(kind.subresources):
            sub_group, sub_version, sub_kind, verbs = _subresource(kind, name)
            sub: Object = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind,
                "verbs": list(verbs),
            }
            if (sub_group, sub_version) != (kind.group, kind.version):
                sub |= {"group": sub_group, "version": sub_version}
            listed.append(sub)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def document(registry: Registry, parts: list[str], address: str) -> Object | None:
    """The legacy document of a path, given in parts; None when there is none."""
    match parts:
        case ["api"]:
            return api_versions(address)
        case ["apis"]:
            return groups(registry)
        case ["api", "v1"]:
            return resources("v1", registry.of("", "v1"))
        case ["apis", name] if name in registry.groups():
            return group(name, registry.groups()[name])
        case ["apis", name, version] if registry.of(name, version):
            return resources(f"{name}/{version}", registry.of(name, version))
    return None


def aggregated_document(registry: Registry, *, core: bool) -> Object:
    """``/api`` and ``/apis`` as one APIGroupDiscoveryList."""
    versions = {"": ["v1"]} if core else registry.groups()
    items = []
    for name, listed in versions.items():
        items.append(
            {
                "metadata": {"name": name, "creationTimestamp": None}
                if name
                else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": version,
                        "freshness": "Current",
                        "resources": [_aggregated_resource(kind) for kind in registry.of(name, version)],
                    }
                    for version in listed
                ],
            }
        )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(kind: Kind) -> Object:
    entry: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": dict(
                    zip(("group", "version", "kind"), _subresource(kind, name)[:3], strict=True)
                ),
                "verbs": list(_subresource(kind, name)[3]),
            }
            for name in sorted(kind.subresources)
        ]
    return entry
