"""Tests of discovery, OpenAPI and the version, from which clients learn about the API."""

from typing import Any

from numazones_apiserver import ApiServer

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_discovery_lists_groups_versions_and_resources(api: Any) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    core = (await api.get("/api/v1")).body
    assert (core["kind"], core["groupVersion"]) == ("APIResourceList", "v1")
    pods = next(one for one in core["resources"] if one["name"] == "pods")
    assert pods["namespaced"] is True
    assert pods["shortNames"] == ["po"]
    assert pods["categories"] == ["all"]
    assert set(pods["verbs"]) == {
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    }
    eviction = next(one for one in core["resources"] if one["name"] == "pods/eviction")
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    groups = {one["name"]: one for one in (await api.get("/apis")).body["groups"]}
    wanted = {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apps",
        "batch",
        "contract.example.com",
        "coordination.k8s.io",
        "events.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
    assert wanted <= groups.keys()
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    group = (await api.get("/apis/contract.example.com")).body
    assert (group["kind"], group["preferredVersion"]["version"]) == ("APIGroup", "v1")
    widgets = (await api.get("/apis/contract.example.com/v1")).body["resources"]
    assert {one["name"] for one in widgets} == {"widgets", "widgets/status"}


async def test_aggregated_discovery_lists_all_at_once(api: Any) -> None:
    answer = await api.get("/apis", accept=AGGREGATED)
    assert answer.headers["Content-Type"] == AGGREGATED
    assert (answer.body["kind"], answer.body["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    group = next(one for one in answer.body["items"] if one["metadata"]["name"] == "contract.example.com")
    [version] = group["versions"]
    [widgets] = version["resources"]
    assert widgets["resource"] == "widgets"
    assert widgets["responseKind"] == {"group": "contract.example.com", "version": "v1", "kind": "Widget"}
    assert (widgets["scope"], widgets["singularResource"]) == ("Namespaced", "widget")
    assert widgets["shortNames"] == ["wdg"]
    assert [one["subresource"] for one in widgets["subresources"]] == ["status"]
    core = (await api.get("/api", accept=AGGREGATED)).body
    assert {"pods", "nodes"} <= {one["resource"] for one in core["items"][0]["versions"][0]["resources"]}


async def test_every_kind_is_served_as_a_real_server_serves_it(api: Any) -> None:
    """Scope, names and subresources of every kind that this project serves are the real ones."""
    server = ApiServer()
    for kind in server.registry:
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        found = {one["name"]: one for one in (await api.get(path)).body["resources"]}
        one = found[kind.plural]
        assert one["namespaced"] is kind.namespaced
        assert one["kind"] == kind.kind
        assert one["singularName"] == kind.singular
        assert one.get("shortNames", []) == list(kind.short_names)
        assert one.get("categories", []) == list(kind.categories)
        for subresource in kind.subresources:
            assert f"{kind.plural}/{subresource}" in found


async def test_openapi_documents_describe_custom_resources(api: Any) -> None:
    paths = (await api.get("/openapi/v3")).body["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/contract.example.com/v1"} <= paths.keys()
    url = paths["apis/contract.example.com/v1"]["serverRelativeURL"]
    document = (await api.get(url.partition("?")[0])).body
    assert document["openapi"].startswith("3.")
    schema = document["components"]["schemas"]["com.example.contract.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "contract.example.com", "version": "v1", "kind": "Widget"}
    ]
    assert schema["properties"]["spec"]["properties"]["size"]["description"] == "How big."
    patch = document["paths"]["/apis/contract.example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= {
        one["name"] for one in patch["parameters"]
    }


async def test_openapi_documents_of_built_in_kinds_have_no_dangling_references(api: Any) -> None:
    document = (await api.get("/openapi/v3/api/v1")).body
    schemas = document["components"]["schemas"]
    container = schemas["io.k8s.api.core.v1.Container"]
    assert container["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert container["required"] == ["name"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"].rsplit("/", 1)[-1]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(one) for one in node.values()), set())
        if isinstance(node, list):
            return set().union(*(references(one) for one in node), set())
        return set()

    assert references(document) <= schemas.keys()


async def test_the_server_says_its_version_and_its_health(api: Any) -> None:
    version = (await api.get("/version")).body
    assert version["major"] == "1"
    assert version["gitVersion"].startswith("v1.")
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.get(path)
        assert (answer.code, answer.body) == (200, "ok")
