"""NodeResourceTopology: what is written for schedulers, and what is imagined from what others write."""

from typing import Any

import pytest
from hypothesis import given

from numazones.api.meta import InvalidResource, OwnerReference
from numazones.api.noderesourcetopology import (
    NodeResourceTopology,
    from_zones,
    node_from_topology,
    policy_and_scope,
)
from numazones.api.numazone import NUMAZone
from numazones.api.snapshot import NodeSnapshot
from numazones.api.zone_building import build_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.numazones.api.nodes import GIB, NIC, nodes, pod


def attributes(body: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in body["attributes"]}


def zone_id(zone: dict[str, Any]) -> int:
    told = {entry["name"]: entry["value"] for entry in zone.get("attributes", ())}
    return int(told.get("numazones.io/numa-id", zone["name"].removeprefix("node-")))


def topology(*, policy: str = "single-numa-node", scope: str = "container", **zones: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "worker"},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [
            {
                "name": name.replace("_", "-"),
                "type": "Node",
                "resources": [
                    {
                        "name": resource,
                        "capacity": capacity,
                        "allocatable": allocatable,
                        "available": available,
                    }
                    for resource, (capacity, allocatable, available) in resources.items()
                ],
            }
            for name, resources in zones.items()
        ],
    }


def state(node: Node) -> tuple[Any, ...]:
    return node.machine, node.kubelet.config, node.cpus, node.memory, node.devices


ZONES: dict[str, Any] = {
    "node_0": {"cpu": ("8", "7", "3"), "memory": ("8Gi", "7Gi", "2Gi"), NIC: ("2", "2", "1")},
    "node_1": {"cpu": ("8", "8", "8"), "memory": ("8Gi", "8Gi", "8Gi"), NIC: ("2", "1", "1")},
}


@given(nodes())
def test_zones_are_written_with_their_amounts_costs_and_policy(node: Node) -> None:
    zones = zones_from_node(node, node_name="worker", pods={}, pods_fingerprint="pfp0v001ef46db3751d8e999")
    written = from_zones(zones)
    body = written.to_api()
    assert (body["apiVersion"], body["kind"]) == ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology")
    assert body["metadata"]["name"] == "worker"
    assert body["metadata"]["annotations"] == {"topology.node.k8s.io/fingerprint": "pfp0v001ef46db3751d8e999"}
    assert [zone["name"] for zone in body["zones"]] == [
        f"node-{n}" for n in range(len(node.machine.numa_nodes))
    ]
    for zone, numa in zip(body["zones"], node.machine.numa_nodes, strict=True):
        assert zone["type"] == "Node"
        assert tuple(cost["value"] for cost in zone.get("costs", ())) == (numa.distances or ())
        assert zone_id(zone) == numa.id
    told = attributes(body)
    assert told["topologyManagerPolicy"] == node.config.topology_manager_policy
    assert told["topologyManagerScope"] == node.config.topology_manager_scope
    assert told["topologyManagerMaxNUMANodes"] == "8"
    assert told["nodeTopologyPodsFingerprintMethod"] == "all"
    assert NodeResourceTopology.from_api(body) == written
    assert policy_and_scope(written)[0] == node.config.topology_manager_policy


def test_amounts_that_are_not_known_are_left_out() -> None:
    machine = Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, GIB),))
    body = from_zones(build_zones(NodeSnapshot("worker", machine, node_uid="u"))).to_api()
    assert body["zones"] == [{"name": "node-0", "type": "Node"}]
    assert "attributes" not in body
    owner = OwnerReference(api_version="v1", kind="Node", name="worker", uid="u")
    assert body["metadata"]["ownerReferences"] == [owner.to_api()]


def test_a_zone_without_status_is_written_bare() -> None:
    zone = NUMAZone.from_api({"spec": {"nodeName": "worker", "numaID": 2}})
    (written,) = from_zones([zone]).to_api()["zones"]
    assert written == {
        "name": "node-0",
        "type": "Node",
        "attributes": [{"name": "numazones.io/numa-id", "value": "2"}],
    }


def test_options_are_attributes_in_camel_case() -> None:
    (zone,) = build_zones(NodeSnapshot("worker", Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, GIB),))))
    body = zone.to_api()
    body["status"]["kubelet"] = {
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {
            "prefer-closest-numa-nodes": "true",
            "max-allowable-numa-nodes": "16",
        },
    }
    written = from_zones([NUMAZone.from_api(body)]).to_api()
    assert "topologyPolicies" not in written
    assert attributes(written) == {
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "pod",
        "topologyManagerMaxNUMANodes": "16",
        "topologyManagerOptionMaxAllowableNumaNodes": "16",
        "topologyManagerOptionPreferClosestNumaNodes": "true",
    }


@pytest.mark.parametrize(
    ("legacy", "expected"),
    [
        ("None", ("none", "container")),
        ("SingleNUMANodeContainerLevel", ("single-numa-node", "container")),
        ("SingleNUMANodePodLevel", ("single-numa-node", "pod")),
        ("RestrictedContainerLevel", ("restricted", "container")),
        ("RestrictedPodLevel", ("restricted", "pod")),
        ("BestEffortContainerLevel", ("best-effort", "container")),
        ("BestEffortPodLevel", ("best-effort", "pod")),
        ("Restricted", ("restricted", "container")),
        ("BestEffort", ("best-effort", "container")),
    ],
)
def test_deprecated_policy_names_are_understood(legacy: str, expected: tuple[str, str]) -> None:
    body = {"metadata": {"name": "worker"}, "topologyPolicies": ["Balanced", legacy]}
    assert policy_and_scope(NodeResourceTopology.from_api(body)) == expected


def test_a_state_is_imagined_from_amounts() -> None:
    node = node_from_topology(topology(**ZONES))
    machine = node.machine
    assert [machine.cpus_of_numa[numa].bit_count() for numa in (0, 1)] == [8, 8]
    free = node.cpus.default & ~node.kubelet.cpus.reserved
    assert [(free & machine.cpus_of_numa[numa]).bit_count() for numa in (0, 1)] == [3, 8]
    assert node.memory.free["memory"] == (2 * GIB, 8 * GIB)

    def admitted(**amounts: str) -> bool:
        return admit(node, Pod.from_api(pod("new", [amounts], []))).admitted

    assert admitted(cpu="8", memory="8Gi")
    assert admitted(cpu="3", memory="2Gi", **{NIC: "1"})
    assert not admitted(cpu="4", memory="9Gi")
    assert not admitted(cpu="8", memory="1Gi", **{NIC: "2"})


@given(nodes())
def test_what_is_written_can_be_imagined(node: Node) -> None:
    zones = zones_from_node(node, node_name="worker", pods={})
    imagined = node_from_topology(from_zones(zones).to_api())
    assert imagined.config.topology_manager_policy == node.config.topology_manager_policy
    assert [(n.id, n.distances) for n in imagined.machine.numa_nodes] == [
        (n.id, n.distances) for n in node.machine.numa_nodes
    ]
    for numa in node.machine.numa_nodes:
        cpus = node.machine.cpus_of_numa[numa.id] & ~node.kubelet.cpus.reserved
        free = cpus & ~node.cpus.exclusive_cpus()
        seen = imagined.machine.cpus_of_numa[numa.id] & ~imagined.kubelet.cpus.reserved
        assert (seen & imagined.cpus.default).bit_count() == free.bit_count()


def test_amounts_need_not_be_whole_or_in_order() -> None:
    node = node_from_topology(
        topology(
            node_3={"cpu": ("4", "3500m", "9"), "memory": ("1Gi", "2Gi", "0"), "hugepages-2Mi": ("4Mi",) * 3}
        )
    )
    assert node.machine.numa_nodes[0].id == 3
    assert node.machine.numa_nodes[0].hugepages == ((2048, 2),)
    assert (node.cpus.default & ~node.kubelet.cpus.reserved).bit_count() == 3


def test_more_than_eight_numa_nodes_are_allowed() -> None:
    zones: dict[str, Any] = {f"node_{n}": {"cpu": ("2", "2", "2")} for n in range(10)}
    node = node_from_topology(topology(**zones))
    assert dict(node.config.topology_manager_policy_options) == {"max-allowable-numa-nodes": "10"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"metadata": {"name": "w"}}, "NodeResourceTopology w names no topology manager policy"),
        ({"metadata": {"name": "w"}, "topologyPolicies": ["None"]}, "w has no zones of type Node"),
        ({"metadata": {"name": "w"}, "zones": [{"name": "node-0"}]}, r"w: zones.0.type: Field required"),
        (topology(zone_x={}), "zone 'zone-x' is not named node-<id>"),
        (topology(policy="balanced", **ZONES), '"balanced" must be one of'),
        (topology(node_0={"cpu": ("1", "1", "x")}), "zones.0.resources.0.available"),
    ],
)
def test_what_cannot_be_is_rejected(body: dict[str, Any], message: str) -> None:
    with pytest.raises(NumazonesError, match=message):
        node_from_topology(body)


def test_an_object_of_another_form_is_named() -> None:
    with pytest.raises(InvalidResource, match=r"NodeResourceTopology \(unnamed\): metadata: Field required"):
        NodeResourceTopology.from_api({})


@pytest.mark.parametrize("kind", ["socket", "die", "numa node", "L3 cache", "balloon", ""])
def test_zones_of_other_writers_do_not_hide_numa_nodes(kind: str) -> None:
    body = topology(**ZONES)
    strange = {"name": f"{kind} #0", "type": kind, "resources": "whatever", "costs": [{"name": 7}], "x": None}
    body["zones"].insert(0, strange)
    assert state(node_from_topology(body)) == state(node_from_topology(topology(**ZONES)))
    with pytest.raises(InvalidResource, match=rf"has no zones of type Node \(its types: {kind or 'none'}"):
        node_from_topology({**body, "zones": [strange]})


def test_objects_of_v1alpha1_are_read_too() -> None:
    body = topology(**ZONES) | {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
    }
    del body["attributes"]
    assert state(node_from_topology(body)) == state(node_from_topology(topology(**ZONES)))
