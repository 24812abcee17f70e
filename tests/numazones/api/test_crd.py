"""The generated definitions: in step with the models, structural, described, bounded."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from pydantic import Field

from numazones.api import crd
from numazones.api.meta import APIModel, APIObject, ResourceType
from numazones.apimachinery.answer import json_name
from tests import real_apiserver
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer

DEFINITIONS = {kind.RESOURCE.kind: crd.crd(kind) for kind in crd.KINDS}


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def walk(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in node:
            yield from walk(node[keyword], f"{path}[]")


def fields(kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """All fields of a kind, those that Kubernetes itself defines aside."""
    ours = (".metadata", ".kind", ".apiVersion")
    return [(path, field) for path, field in walk(schema(kind), kind) if not path.endswith(ours)]


def test_all_kinds_are_defined() -> None:
    assert sorted(DEFINITIONS) == [
        "AdmissionPrediction",
        "NUMAZone",
        "RebalancePolicy",
        "RebalanceRecommendation",
    ]
    names = {kind: definition["spec"]["names"] for kind, definition in DEFINITIONS.items()}
    assert names["NUMAZone"] == {
        "kind": "NUMAZone",
        "listKind": "NUMAZoneList",
        "plural": "numazones",
        "singular": "numazone",
        "shortNames": ["nz"],
        "categories": ["numa"],
    }
    assert DEFINITIONS["NUMAZone"]["metadata"] == {"name": "numazones.numazones.io"}
    scopes = {kind: definition["spec"]["scope"] for kind, definition in DEFINITIONS.items()}
    assert scopes.pop("AdmissionPrediction") == "Namespaced"
    assert set(scopes.values()) == {"Cluster"}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_status_is_a_subresource(kind: str) -> None:
    (version,) = DEFINITIONS[kind]["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert (version["served"], version["storage"]) == (True, True)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_is_typed_and_described(kind: str) -> None:
    for path, field in fields(kind):
        if field.get("x-kubernetes-int-or-string"):
            assert "type" not in field, path
            assert field["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        else:
            assert field["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert field.get("format") == ("int64" if field.get("type") == "integer" else field.get("format")), (
            path
        )
        assert path.endswith("[]") or field["description"].endswith("."), path


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_is_bounded(kind: str) -> None:
    for path, field in fields(kind):
        bound = {"string": "maxLength", "array": "maxItems"}.get(field.get("type", ""))
        assert bound is None or "enum" in field or bound in field, path
        assert "additionalProperties" not in field or "maxProperties" in field, path


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_list_says_how_it_is_merged(kind: str) -> None:
    for path, field in fields(kind):
        if field.get("type") == "array":
            assert field["x-kubernetes-list-type"] in {"atomic", "map"}, path
        for key in field.get("x-kubernetes-list-map-keys", ()):
            assert key in field["items"]["required"], path


def test_resources_are_told_apart_by_name_and_conditions_by_type() -> None:
    properties = schema("NUMAZone")["properties"]["status"]["properties"]
    assert properties["resources"]["x-kubernetes-list-map-keys"] == ["name"]
    assert properties["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_identity_never_changes() -> None:
    spec = schema("NUMAZone")["properties"]["spec"]
    assert spec["x-kubernetes-validations"] == [{"rule": "self == oldSelf", "message": "field is immutable"}]
    assert spec["required"] == ["nodeName", "numaID"]


def test_people_get_defaults_where_they_write_and_nowhere_else() -> None:
    mode = schema("RebalancePolicy")["properties"]["spec"]["properties"]["mode"]
    assert mode["default"] == "Recommend"
    assert mode["enum"] == ["Recommend", "Approve", "Auto"]
    for kind in DEFINITIONS:
        for path, field in walk(schema(kind)["properties"]["status"], f"{kind}.status"):
            assert "default" not in field, path


def columns(kind: str, *, wide: bool) -> list[str]:
    listed = DEFINITIONS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    return [column["name"].upper() for column in listed if bool(column.get("priority")) == wide]


def test_numazones_have_the_columns_that_people_ask_for() -> None:
    assert " ".join(columns("NUMAZone", wide=False)) == ("POLICY CPU FREE MEM-FREE DEVICES STATE")
    assert columns("NUMAZone", wide=True) == [
        *("RESERVED", "ASSIGNED", "MEMORY", "SILENT", "AGE", "SCOPE", "CORES")
    ]


def test_recommendations_have_the_columns_that_read_well() -> None:
    shown = columns("RebalanceRecommendation", wide=False)
    assert shown == ["GOAL", "MOVES", "EVICTED", "GAIN", "PHASE", "AGE"]


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_columns_show_fields_that_exist(kind: str) -> None:
    known = {path.replace("[]", "") for path, _ in walk(schema(kind), "")} | {".metadata.creationTimestamp"}
    for column in DEFINITIONS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[[^'\]]*\]", "", column["jsonPath"])
        unions = [re.split("', *'", names) for names in re.findall(r"\['(.*?)'\]", path)]
        parts = re.split(r"\['.*?'\]", path)
        found = [
            names
            for names in product(*unions)
            if "".join(part + (name and f".{name}") for part, name in zip(parts, (*names, ""), strict=True))
            in known
        ]
        assert found, column
        assert [set(one) for one in zip(*found, strict=True)] == [set(names) for names in unions], column


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("numa_id", "numaID"),
        ("numa_ids", "numaIDs"),
        ("exclusive_cpus", "exclusiveCPUs"),
        ("cpu_manager_policy", "cpuManagerPolicy"),
        ("pod_uid", "podUID"),
        ("uid", "uid"),
        ("resource_version", "resourceVersion"),
    ],
)
def test_field_names_are_written_as_kubernetes_writes_them(name: str, expected: str) -> None:
    assert json_name(name) == expected


class Undecided(APIModel):
    """The reason why a structural schema cannot decide."""

    value: int | str = Field(default=0, description="Either.")


class Tagged(APIModel):
    """Another."""

    value: float = Field(default=0, multiple_of=2, description="Even.")


@pytest.mark.parametrize("part", [Undecided, Tagged])
def test_what_a_structural_schema_cannot_say_is_rejected(part: type[APIModel]) -> None:
    class Odd(APIObject):
        RESOURCE: ClassVar[ResourceType] = ResourceType(
            kind="Odd",
            plural="odds",
            singular="odd",
            short_names=(),
            scope="Cluster",
            columns=(),
            description="Odd.",
        )
        spec: part = Field(description="Spec.")  # type: ignore[valid-type]
        status: Undecided | None = None

    with pytest.raises(crd.UnsupportedSchema, match="cannot be expressed in a structural schema"):
        crd.crd(Odd)


@pytest.mark.real_apiserver
def test_a_real_api_server_takes_them_without_warnings(tmp_path: Path) -> None:
    if not real_apiserver.ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    with real_apiserver.run(tmp_path) as server:  # of its own: on a shared one others may have created them
        taken_without_warnings(server)


def taken_without_warnings(server: RealAPIServer) -> None:
    said = server.kubectl("apply", "-k", str(ROOT / "crds"))
    assert sorted(said.split()) == sorted(
        word
        for definition in DEFINITIONS.values()
        for word in (
            f"customresourcedefinition.apiextensions.k8s.io/{definition['metadata']['name']}",
            "created",
        )
    )
    for definition in DEFINITIONS.values():
        name = definition["metadata"]["name"]
        server.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    assert "headroom" in server.kubectl("explain", "numazone.status")
    zone = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "NUMAZone",
        "metadata": {"name": "a-numa-0"},
        "spec": {"nodeName": "a", "numaID": 0},
    }
    server.kubectl("create", "-f", "-", stdin=yaml.safe_dump(zone))
    patch = '{"spec":{"numaID":1}}'
    rejected = server.kubectl("patch", "nz", "a-numa-0", "--type=merge", "-p", patch, check=False)
    assert "spec: Invalid value: field is immutable" in rejected
    assert server.kubectl("get", "numa").split("\n")[0].split()[:3] == ["NAME", "POLICY", "CPU"]
