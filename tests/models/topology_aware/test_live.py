"""A node of a running cluster from its NodeResourceTopology, its configuration and its pods."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.errors import UnmodelledFeature
from numazones_topology_aware.admission import admit, remove
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.live import (
    InvalidTopology,
    check_published,
    configuration_of,
    node_from_cluster,
    policy_of,
    published_pools,
)
from numazones_topology_aware.node import Node
from numazones_topology_aware.pools import PoolKind
from numazones_topology_aware.publishing import topology_of
from tests.models.topology_aware.machines import (
    GIB,
    configuration,
    guaranteed,
    hardware,
    machines,
    pod,
    several,
)

PODS = (
    guaranteed("a", "1500m"),
    pod("b", {"cpu": "100m"}, {"cpu": "200m", "memory": "64Mi"}),
    pod("c"),
    guaranteed("d", "3"),
)


def running(**changes: object) -> Node:
    node = Node.fresh(hardware(isolated="6-7"), configuration(**changes))
    for one in PODS:
        node = admit(node, one).node
    return node


def published(node: Node) -> dict[str, Any]:
    topology: dict[str, Any] = json.loads(json.dumps(topology_of(node, "node-1")))
    return topology


def test_node_is_rebuilt_from_its_publications_and_pods() -> None:
    node = running()
    # Isolated CPUs are known from the topology alone.
    found = node_from_cluster(hardware(), node.policy.config, published(node), PODS, {})
    assert (found.cpus, found.memory, found.grants) == (node.cpus, node.memory, node.grants)


@given(machines())
def test_an_empty_node_of_any_machine_is_found_again(machine: Any) -> None:
    node = Node.fresh(machine, configuration())
    assert node_from_cluster(machine, node.policy.config, published(node), ()).cpus == node.cpus


def test_the_zones_are_read_with_their_types_amounts_and_attributes() -> None:
    pools = published_pools(published(running()))
    root = pools[-1]
    assert [pool.kind for pool in pools].count(PoolKind.NUMA) == 4
    assert (root.name, root.parent, pools[0].parent) == ("root", "", "socket #0")
    assert root.cpu_capacity == 14_000
    assert cpuset.format(root.reserved) == "0"
    assert cpuset.format(root.isolated) == "6-7"
    assert root.memory_capacity == 8 * GIB
    assert cpuset.format(root.memory_nodes) == "0-3"


def test_the_policy_s_own_form_of_the_zones_is_written() -> None:
    zone = published(running())["zones"][0]
    assert zone["name"] == "NUMA node #0"
    assert zone["type"] == "numa node"
    assert {one["name"] for one in zone["attributes"]} == {"memory set", "shared cpuset", "reserved cpuset"}
    assert {one["name"]: one["capacity"] for one in zone["resources"]} == {"cpu": "4", "memory": str(2 * GIB)}


def test_containers_that_failed_creation_hold_nothing_after_rereading_a_node() -> None:
    leaver, two = guaranteed("leaver", "10"), several("two", big="6", small="1")
    node = admit(Node.fresh(hardware(), configuration()), leaver).node
    first = admit(node, two)
    assert set(first.rejected) == {"big"}
    node = remove(first.node, leaver.uid)
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        node_from_cluster(hardware(), node.policy.config, published(node), [two])
    missing = {two.uid: ("big",)}
    found = node_from_cluster(hardware(), node.policy.config, published(node), [two], uncreated=missing)
    assert set(found.grants) == {"uid-two/small"}


def test_pods_that_contradict_the_pools_make_the_node_unknown() -> None:
    node = running()
    with pytest.raises(UnmodelledFeature, match=r"has .*, but placing the running pods in order"):
        node_from_cluster(hardware(), node.policy.config, published(node), PODS[:-1])


def test_memory_unexplained_by_pods_makes_the_node_unknown() -> None:
    node = running()
    topology = published(node)
    topology["zones"][-1]["resources"][0]["available"] = "1Gi"
    with pytest.raises(UnmodelledFeature, match="1Gi of memory available"):
        node_from_cluster(hardware(), node.policy.config, topology, PODS)


def test_another_machine_than_the_published_one_is_unknown() -> None:
    node = running()
    with pytest.raises(UnmodelledFeature, match="dies, clusters or L3 caches"):
        node_from_cluster(hardware(caches=2), node.policy.config, published(node), ())
    with pytest.raises(UnmodelledFeature, match="isolated or available CPUs differ from those known"):
        node_from_cluster(hardware(), configuration(reserved_cpu="2"), published(node), ())


def test_pools_of_dies_are_found_again_without_knowing_clusters() -> None:
    dies = hardware(sockets=1, dies=2, clusters=2)
    node = admit(Node.fresh(dies, configuration()), PODS[0]).node
    unclustered = Hardware(dies.machine)
    assert node_from_cluster(unclustered, node.policy.config, published(node), PODS[:1]).grants == node.grants


def test_possibly_ongoing_cold_start_makes_the_node_unknown() -> None:
    tiered = hardware(far=(8 * GIB, 8 * GIB))
    cold = guaranteed("a", "1", annotations={"cold-start": "duration: 60s"})
    node = admit(Node.fresh(tiered, configuration()), cold).node
    with pytest.raises(UnmodelledFeature, match="default/a/c has a cold start"):
        node_from_cluster(tiered, node.policy.config, published(node), [cold])


def test_balloons_are_not_modelled_yet() -> None:
    topology = {"attributes": [{"name": "TopologyPolicy", "value": "balloons"}], "zones": []}
    assert policy_of(topology) == "balloons"
    with pytest.raises(UnmodelledFeature, match="balloons policy assigns CPUs"):
        published_pools(topology)


def test_other_exporters_topologies_are_no_pools() -> None:
    assert policy_of({"attributes": [{"name": "topologyManagerPolicy", "value": "none"}]}) is None
    with pytest.raises(InvalidTopology, match="TopologyPolicy"):
        published_pools({"zones": []})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "balloon"}, "zone 'NUMA node #0' has the type 'balloon'"),
        ({"resources": []}, "lacks an amount of cpu or memory"),
        (
            {"attributes": [{"name": "shared cpuset", "value": "3-"}]},
            "'3-' is not a CPU list",
        ),
    ],
)
def test_broken_zones_are_named(change: dict[str, Any], message: str) -> None:
    topology = published(running())
    topology["zones"][0].update(change)
    with pytest.raises(InvalidTopology, match=message):
        published_pools(topology)


def resource(name: str, reserved: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"reservedResources": {"cpu": reserved}}}


RESOURCES = [resource("default", "1"), resource("group.big", "2"), resource("node.one", "3")]


@pytest.mark.parametrize(
    ("node", "labels", "reserved"),
    [
        ("other", {}, "1"),
        ("other", {"config.nri/group": "big"}, "2"),
        ("other", {"group.config.nri": "big"}, "2"),
        ("other", {"resource-policy.nri.io/group": "big"}, "2"),
        ("one", {"config.nri/group": "big"}, "3"),
        ("one", {"config.nri/group": "unknown"}, "3"),
    ],
)
def test_the_most_specific_configuration_is_used_whole(
    node: str, labels: dict[str, str], reserved: str
) -> None:
    assert configuration_of(RESOURCES, node=node, labels=labels).reserved_cpu == reserved


def test_group_without_a_resource_ignores_the_default() -> None:
    with pytest.raises(UnmodelledFeature, match="no TopologyAwarePolicy for node other"):
        configuration_of(RESOURCES, node="other", labels={"config.nri/group": "unknown"})


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "resources", "attributes", "value", "capacity", "available"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_stands_in_a_topology_is_read_or_named(zones: Any) -> None:
    attributes = [{"name": "TopologyPolicy", "value": "topology-aware"}]
    with contextlib.suppress(InvalidTopology):
        published_pools({"attributes": attributes, "zones": zones})


def test_unpublished_pools_are_named_without_crashing() -> None:
    node = Node.fresh(hardware(), configuration())
    published = published_pools(topology_of(node, "n"))
    with pytest.raises(UnmodelledFeature, match="the policy publishes the pools"):
        check_published(node, published[1:])
