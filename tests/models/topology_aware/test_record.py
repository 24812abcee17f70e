"""Tests of the record of a followed node, and of reading it again."""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.errors import UnmodelledFeature
from numazones.kubelet.pod import Pod
from numazones.placement import UnreadableNode
from numazones_topology_aware.admission import admit, create_missing, missing, remove
from numazones_topology_aware.live import node_from_cluster
from numazones_topology_aware.node import Node
from numazones_topology_aware.publishing import topology_of
from numazones_topology_aware.record import node_from_record, record_of
from tests.models.topology_aware.machines import (
    GIB,
    configuration,
    guaranteed,
    hardware,
    machines,
    pod,
    pods,
    pods_of_several,
    several,
)

MAX_SIZE = 40_000


def written(node: Node) -> dict[str, Any]:
    """The record as it comes back from JSON."""
    record: dict[str, Any] = json.loads(json.dumps(record_of(node)))
    return record


def fresh_of(node: Node) -> Node:
    return Node.fresh(node.policy.topology.hardware, node.policy.config)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Node, dict[str, Pod]]:
    """A node after pods came, were tried again and went, and the pods that are there."""
    config = configuration(
        colocate_pods=draw(st.booleans()), pin_cpu=draw(st.booleans()), pin_memory=draw(st.booleans())
    )
    node, present = Node.fresh(draw(machines()), config), {}
    for number in range(draw(st.integers(1, 12))):
        event = draw(st.sampled_from(["come", "come", "again", "go"]))
        if event == "come":
            name = f"p{number}"
            one = draw(pods(name) | pods_of_several(name))
            one = replace(one, namespace=draw(st.sampled_from(["default", "other", "kube-system"])))
            failed = draw(st.sets(st.sampled_from([container.name for container in one.containers])))
            uncreated = failed if draw(st.booleans()) else ()
            node, present[one.uid] = create_missing(node, one, uncreated=uncreated).node, one
        elif present:
            uid = draw(st.sampled_from(sorted(present)))
            if event == "again":
                node = create_missing(node, present[uid]).node
            else:
                del present[uid]
                node = remove(node, uid)
    return node, present


def assert_decides_alike(node: Node, other: Node, one: Pod) -> None:
    expected, found = admit(node, one), admit(other, one)
    assert (found.admitted, found.message, found.rejected) == (
        expected.admitted, expected.message, expected.rejected
    )  # fmt: skip
    assert found.containers == expected.containers
    assert found.node.state_key == expected.node.state_key


@given(histories(), pods("next"), pods_of_several("following"), st.data())
def test_node_read_from_its_record_decides_the_same(
    history: tuple[Node, dict[str, Pod]], one: Pod, several_more: Pod, data: st.DataObject
) -> None:
    node, present = history
    found = node_from_record(fresh_of(node), written(node), present.values())
    assert found.state_key == node.state_key
    assert (found.cpus, found.grants, found.names) == (node.cpus, node.grants, node.names)
    assert found.containers.keys() == node.containers.keys()
    assert found.sandboxes == node.sandboxes
    for name in node.grants:
        assert found.cpus_of(name) == node.cpus_of(name)
        assert found.containers[name].mems == node.containers[name].mems
    for known in present.values():
        assert missing(found, known) == missing(node, known)
    for _ in range(2):
        assert_decides_alike(node, found, one)
        node, found = admit(node, one).node, admit(found, one).node
        assert_decides_alike(node, found, several_more)
        if present:
            uid = data.draw(st.sampled_from(sorted(present)))
            again = create_missing(node, present[uid]), create_missing(found, present.pop(uid))
            assert again[0].containers == again[1].containers
            node, found = remove(again[0].node, uid), remove(again[1].node, uid)
            assert found.state_key == node.state_key


@given(histories())
def test_record_survives_reading_and_writing(
    history: tuple[Node, dict[str, Pod]],
) -> None:
    node, present = history
    record = written(node)
    assert written(node_from_record(fresh_of(node), record, present.values())) == record


@given(histories(), st.data())
def test_pods_that_are_gone_are_removed_by_the_rules(
    history: tuple[Node, dict[str, Pod]], data: st.DataObject
) -> None:
    node, present = history
    record = written(node)
    for uid in data.draw(st.sets(st.sampled_from(sorted(present)))) if present else ():
        node = remove(node, uid)
        del present[uid]
    found = node_from_record(fresh_of(node), record, present.values())
    assert found.state_key == node.state_key
    assert found.sandboxes == node.sandboxes


@given(histories())
def test_cluster_node_is_read_from_record_pools_and_pods(
    history: tuple[Node, dict[str, Pod]],
) -> None:
    node, present = history
    uncreated = {uid: [container.name for container in missing(node, one)] for uid, one in present.items()}
    found = read(node, present.values(), record=written(node), uncreated=uncreated)
    assert found.state_key == node.state_key


def read(node: Node, present: Iterable[Pod], **others: Any) -> Node:
    """Read a node as somebody does who sees what it publishes, and its pods."""
    topology = json.loads(json.dumps(topology_of(node, "n")))
    machine, config = node.policy.topology.hardware, node.policy.config
    return node_from_cluster(machine, config, topology, present, **others)


def busy(*names: str) -> tuple[Node, dict[str, Pod]]:
    """A node whose pods came in this order within a second."""
    node, present = Node.fresh(hardware(), configuration()), {}
    for number, name in enumerate(names):
        one = guaranteed(name, ["3", "1500m", "2"][number % 3])
        node, present[one.uid] = admit(node, one).node, one
    return node, present


def test_pods_created_in_one_second_come_from_the_record() -> None:
    node, present = busy("b", "a")
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        read(node, present.values())
    assert read(node, present.values(), record=written(node)).state_key == node.state_key


def test_node_after_a_pod_left_is_read_from_the_record() -> None:
    node, present = busy("a", "b", "c")
    node = remove(node, "uid-a")
    del present["uid-a"]
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        read(node, present.values())
    assert read(node, present.values(), record=written(node)).state_key == node.state_key


def test_pods_unknown_to_the_record_are_created_after_it() -> None:
    node, present = busy("b", "a")
    record = written(node)
    for name in ("c", "d"):
        one = guaranteed(name, "1500m")
        node, present[one.uid] = admit(node, one).node, one
    assert read(node, present.values(), record=record).state_key == node.state_key


def test_container_newer_than_the_record_is_created_on_reading() -> None:
    leaver, two = guaranteed("leaver", "10"), several("two", big="6", small="1")
    node = admit(admit(Node.fresh(hardware(), configuration()), leaver).node, two).node
    record = written(node)
    node = remove(node, leaver.uid)
    waiting = read(node, [two], record=record, uncreated={two.uid: ["big"]})
    assert set(waiting.grants) == {"uid-two/small"}
    node = create_missing(node, two).node
    assert read(node, [two], record=record).state_key == node.state_key


def test_containers_after_a_failing_init_container_are_not_created() -> None:
    large, small = guaranteed("large", "10"), guaranteed("small", "1")
    one = several("one", ("i", "6", False), a="1")
    node = Node.fresh(hardware(), configuration())
    for each in (large, small, one):
        node = admit(node, each).node
    node = remove(node, small.uid)  # what the attempt at the init container left behind is cleared
    found = read(node, [large, one], record=written(node), uncreated={one.uid: ["i"]})
    assert found.state_key == node.state_key
    assert set(found.grants) == {"uid-large/c"}


def test_record_that_contradicts_explained_pools_is_ignored() -> None:
    node, present = busy("a", "b")
    record = written(busy("b", "a")[0])
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        read(busy("a", "b", "c")[0], present.values(), record=record)
    assert read(node, present.values(), record=record).state_key == node.state_key
    assert read(node, present.values(), record={"pods": 3}).state_key == node.state_key


def test_a_node_with_a_cold_start_has_no_record() -> None:
    cold = guaranteed("a", "1", annotations={"cold-start": "duration: 60s"})
    node = admit(Node.fresh(hardware(far=(8 * GIB, 8 * GIB)), configuration()), cold).node
    assert record_of(node) is None


def test_record_has_containers_resources_and_failed_attempts() -> None:
    node = Node.fresh(hardware(isolated="6-7"), configuration())
    for one in (
        guaranteed("a", "1500m", "1Gi"),
        pod("b"),
        guaranteed("c", "500m", namespace="kube-system"),
        guaranteed("d", "64"),
    ):
        node = admit(node, one).node
    assert written(node) == {
        "pools": [pool.name for pool in node.pools],
        "memoryZones": ["1", "2", "0-3", "0", "0-1", "3", "2-3"],
        "pods": [
            {
                "uid": "uid-a",
                "containers": [{"name": "c", "pool": 1, "cpus": "6", "zone": "1"}],
            },
            {"uid": "uid-b", "containers": [{"name": "c", "pool": 3, "zone": "2"}]},
            {
                "uid": "uid-c",
                "containers": [{"name": "c", "pool": 6, "zone": "0-3"}],
            },
            {"uid": "uid-d", "containers": [{"name": "c"}]},
        ],
    }


def test_record_of_250_pods_has_at_most_40_000_bytes() -> None:
    machine = hardware(sockets=2, numas=4, cores=16, memory=64 * GIB)
    node = Node.fresh(machine, configuration())
    amounts = ["1500m", "1", "100m", "250m"]
    for number in range(250):
        one = replace(
            guaranteed(f"p{number}", amounts[number % 4], "1234567890"),
            uid=f"8f3a1c52-7d0e-4b6a-9c1d-{number:012}",
        )
        node = admit(node, one).node
    assert len(node.pods) == 250
    assert len(json.dumps(record_of(node), separators=(",", ":"))) <= MAX_SIZE


def test_containers_beyond_an_api_objects_limit_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, _ = busy("b", "a")
    monkeypatch.setattr("numazones_topology_aware.record.MAX_CONTAINERS", 2)
    assert record_of(node) is not None
    monkeypatch.setattr("numazones_topology_aware.record.MAX_CONTAINERS", 1)
    assert record_of(node) is None


def _holding(record: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = record["pods"][0]["containers"][0]
    return container


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(pools=["root"]), "its pools are not those of the machine"),
        (lambda record: record.update(version=2), "has unknown fields: version"),
        (lambda record: record.update(pods={}), "pods is not a list"),
        (lambda record: record.update(pods=[3]), "a pod is not a mapping: 3"),
        (lambda record: record["pods"][0].update(uid=7), "uid is not a string: 7"),
        (lambda record: record["pods"].append(record["pods"][0]), "appears twice"),
        (
            lambda record: record.update(memoryZones=["9"]),
            "memory zones repeat, are empty, or go beyond NUMA nodes 0-3",
        ),
        (lambda record: record.update(memoryZones=[]), "the memory zone of container c is not among"),
        (lambda record: record.update(memoryZones=[0]), "0 is not a list of CPUs or NUMA nodes"),
        (lambda record: _holding(record).update(cpus="99"), "CPUs 99 do not belong to NUMA node"),
        (lambda record: _holding(record).update(cpus="4-"), "'4-' is not a CPU list"),
        (lambda record: _holding(record).update(pool=99), "is in pool 99, which does not exist"),
        (lambda record: _holding(record).update(pool=True), "is in pool True, which does not exist"),
        (lambda record: _holding(record).update(pool="0"), "is in pool '0', which does not exist"),
        (lambda record: _holding(record).pop("pool"), "is in pool None, which does not exist"),
        (lambda record: _holding(record).pop("cpus"), "does not request what the record says"),
        (lambda record: _holding(record).update(shared=True), "does not request what the record says"),
        (lambda record: _holding(record).update(shared=1), "not true or false"),
        (lambda record: _holding(record).update(colour="red"), "unknown fields: colour"),
        (lambda record: _holding(record).update(name="d"), "pod b has no container 'd'"),
        (
            lambda record: record["pods"][1]["containers"][0].update(
                pool=_holding(record)["pool"], cpus=_holding(record)["cpus"]
            ),
            "are assigned twice",
        ),
    ],
)
def test_a_record_that_makes_no_sense_is_named(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    node, present = busy("b", "a")
    record = written(node)
    change(record)
    with pytest.raises(UnreadableNode, match=message):
        node_from_record(fresh_of(node), record, present.values())


_FIELDS = [
    "pools",
    "memoryZones",
    "pods",
    "uid",
    "containers",
    "name",
    "pool",
    "cpus",
    "zone",
    "memory",
    "idle",
]
_VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["uid-a", "uid-b", "c", "0", "0-3", "4-5"])
)  # fmt: skip
_JSON = st.recursive(
    _VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(value=_JSON, field=st.sampled_from(_FIELDS[:3]), whole=st.booleans())
def test_whatever_stands_in_a_record_is_read_or_named(*, value: Any, field: str, whole: bool) -> None:
    node, present = busy("b", "a")
    record: Mapping[str, Any] = value if whole else {**written(node), field: value}
    with contextlib.suppress(UnreadableNode):
        node_from_record(fresh_of(node), record, present.values())


@given(st.sampled_from(_FIELDS[5:]), _VALUES, st.integers(0, 1))
def test_any_container_of_a_record_is_read_or_named(field: str, value: Any, number: int) -> None:
    node, present = busy("b", "a")
    record = written(node)
    record["pods"][number]["containers"][0][field] = value
    with contextlib.suppress(UnreadableNode):
        node_from_record(fresh_of(node), record, present.values())
    with contextlib.suppress(UnmodelledFeature):
        assert read(node, present.values(), record=record).cpus == node.cpus
