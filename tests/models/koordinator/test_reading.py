"""Reading nodes and pods as they stand in a live cluster."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.pod import Pod
from numazones_koordinator.admission import admit
from numazones_koordinator.annotations import (
    AMPLIFICATION_RATIO,
    CPU_TOPOLOGY,
    KUBELET_CPU_MANAGER_POLICY,
    NODE_CPU_BIND_POLICY,
    NODE_NUMA_ALLOCATE_STRATEGY,
    NODE_RESERVATION,
    NUMA_TOPOLOGY_SPEC,
    POD_CPU_ALLOCS,
    RESOURCE_STATUS,
    SYSTEM_QOS_RESOURCE,
    NodeCPUBindPolicy,
)
from numazones_koordinator.books import Use
from numazones_koordinator.device_inventory import Inventory
from numazones_koordinator.explanation import explain
from numazones_koordinator.node import Node
from numazones_koordinator.placement import written_outcome
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import InvalidNode, SchedulerCrash
from tests.models.koordinator.building import detail, gpu, node, node_object, nrt, pod, pod_object, running

ZONES = {0: {"cpu": "8"}, 1: {"cpu": "8"}}


@pytest.mark.parametrize(
    ("key", "value", "reserved"),
    [
        (KUBELET_CPU_MANAGER_POLICY, '{"policy":"static","reservedCPUs":"0,8"}', "0,8"),
        (KUBELET_CPU_MANAGER_POLICY, '{"reservedCPUs":"x"}', ""),
        (NODE_RESERVATION, '{"reservedCPUs":"1-2"}', "1-2"),
        (NODE_RESERVATION, '{"resources":{"cpu":"2"}}', ""),
        (NODE_RESERVATION, "", ""),
        (SYSTEM_QOS_RESOURCE, '{"cpuset":"3"}', "3"),
        (SYSTEM_QOS_RESOURCE, '{"cpuset":"3","cpusetExclusive":false}', ""),
        (POD_CPU_ALLOCS, '[{"uid":"a","cpuset":"4","managedByKubelet":true}]', "4"),
        (POD_CPU_ALLOCS, '[{"uid":"a","cpuset":"4"}]', ""),
        (POD_CPU_ALLOCS, '[{"cpuset":"4","managedByKubelet":true}]', ""),
        (POD_CPU_ALLOCS, '[{"uid":"a","cpuset":"x","managedByKubelet":true}]', ""),
        (POD_CPU_ALLOCS, "{}", ""),
    ],
)
def test_cpus_are_reserved_by_annotations_of_the_topology(key: str, value: str, reserved: str) -> None:
    read = node(annotations={key: value})
    assert cpuset.format(read.host.reserved) == reserved
    count = cpuset.parse(reserved).bit_count()
    assert sum(left["cpu"] for left in read.available().values()) == (16 - count) * 10**9
    assert bool(read.host.warnings) is (value in {'{"reservedCPUs":"x"}', "{}"})


@pytest.mark.parametrize(
    ("label", "kubelet", "policy"),
    [
        ("", "{}", NodeCPUBindPolicy.NONE),
        ("None", '{"policy":"static"}', NodeCPUBindPolicy.NONE),
        ("SpreadByPCPUs", '{"policy":"static"}', NodeCPUBindPolicy.SPREAD_BY_PCPUS),
        ("FullPCPUsOnly", "{}", NodeCPUBindPolicy.FULL_PCPUS_ONLY),
        (
            "SpreadByPCPUs",
            '{"policy":"static","options":{"full-pcpus-only":"true"}}',
            NodeCPUBindPolicy.FULL_PCPUS_ONLY,
        ),
        ("", '{"policy":"none","options":{"full-pcpus-only":"true"}}', NodeCPUBindPolicy.NONE),
    ],
)
def test_the_node_s_bind_policy(label: str, kubelet: str, policy: NodeCPUBindPolicy) -> None:
    read = node(labels={NODE_CPU_BIND_POLICY: label}, annotations={KUBELET_CPU_MANAGER_POLICY: kubelet})
    assert read.host.bind_policy is policy


@pytest.mark.parametrize(
    ("label", "default", "most"),
    [
        ("", "LeastAllocated", False),
        ("", "MostAllocated", True),
        ("LeastAllocated", "MostAllocated", False),
        ("MostAllocated", "LeastAllocated", True),
        ("DistributeEvenly", "MostAllocated", False),
    ],
)
def test_the_strategy_of_taking_cpus(label: str, default: str, *, most: bool) -> None:
    scheduler = Scheduler.from_args({"numaScoringStrategy": {"type": default}})
    read = node(labels={NODE_NUMA_ALLOCATE_STRATEGY: label} if label else {}, scheduler=scheduler)
    assert read.host.most_allocated is most


def test_zones_are_numa_nodes_by_type_and_name() -> None:
    topology = nrt(detail(), {1: {"cpu": "8"}, 0: {"cpu": "8"}})
    topology["zones"] += [
        {"name": "socket-0", "type": "Socket", "resources": []},
        {"name": "node-x", "type": "Node", "resources": []},
        {"name": "numa-3", "type": "Node", "resources": []},
        {"name": "node-2", "type": "Node"},
    ]
    assert Node.read(node_object(), topology).host.numa_ids == (0, 1, 2)
    assert Node.read(node_object()).host.numa_ids == ()


def test_the_topology_s_own_amplification_goes_before_the_node_s() -> None:
    amplified = node_object(annotations={AMPLIFICATION_RATIO: '{"cpu":2,"memory":1.5}'})
    zones = {0: {"cpu": "8", "memory": "1Gi", "example.com/nic": "1"}}
    read = Node.read(amplified, nrt(detail(), zones)).available()[0]
    assert read == {"cpu": 16 * 10**9, "memory": (3 << 29) * 10**9, "example.com/nic": 10**9}
    own = nrt(detail(), zones, annotations={AMPLIFICATION_RATIO: '{"cpu":1.5}'})
    host = Node.read(amplified, own).host
    assert (host.ratio, host.node_ratio, host.zones[0].resources["cpu"]) == (1.5, 2.0, 8 * 10**9)


def test_an_unreadable_cpu_topology_crashes_the_scheduler() -> None:
    for text in ("{", '{"detail":[{"id":"0"}]}', "[]"):
        broken = nrt(None, ZONES, annotations={CPU_TOPOLOGY: text})
        with pytest.raises(SchedulerCrash, match="crashes on the NodeResourceTopology's annotation"):
            Node.read(node_object(), broken)


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (nrt([{"id": -1}], ZONES), "-1 is not a CPU id"),
        (nrt([{"id": 70000}], ZONES), "70000 is not a CPU id"),
        ({**nrt(None, ZONES), "zones": "x"}, "zones is not a list of mappings"),
        ({**nrt(None, ZONES), "topologyPolicies": 1}, "topologyPolicies must be a list, not int"),
        ({"metadata": "x"}, "metadata must be a mapping, not str"),
        ({"metadata": []}, ""),
    ],
)
def test_what_is_no_node_is_rejected(topology: dict[str, Any], message: str) -> None:
    if message:
        with pytest.raises(InvalidNode, match=message):
            Node.read(node_object(), topology)
    else:
        assert Node.read(node_object(), topology).host.zones == ()


def test_running_pods_hold_what_their_annotations_say() -> None:
    held = node().bind(running("a", "0,9", {0: {"cpu": "2", "memory": "1Gi"}}))
    assert cpuset.format(held.free_cpus()) == "1-8,10-15"
    assert held.available()[0] == {"cpu": 6 * 10**9, "memory": (15 << 30) * 10**9}
    assert held.use(0) is Use.SINGLE
    for text in ("{", '{"cpuset":"x"}', '{"numaNodeResources":[{"node":"0"}]}'):
        asked = pod_object("b", cpu="2", annotations={"scheduling.koordinator.sh/resource-status": text})
        unread = node().bind(Pod.from_api(asked))
        assert unread.free_cpus() == node().free_cpus()
        assert unread.requested["cpu"] == 2000


def test_node_is_read_without_its_ended_pods() -> None:
    def bound(uid: str, created: str, phase: str) -> dict[str, Any]:
        asked = pod_object(
            uid, cpu="2", status={"cpuset": "0-1"}, spec={"preferredCPUExclusivePolicy": f"{uid}Level"}
        )
        asked["metadata"]["creationTimestamp"] = created
        return {**asked, "status": {"phase": phase}}

    pods = [
        bound("NUMANode", "2026-01-02T00:00:00Z", "Running"),
        bound("PCPU", "2026-01-01T00:00:00Z", "Pending"),
        bound("ended", "2026-01-03T00:00:00Z", "Succeeded"),
        bound("failed", "2026-01-03T00:00:00Z", "Failed"),
    ]
    read = Node.read(node_object(), nrt(detail(), ZONES), pods=pods)
    assert sorted(read.members) == ["NUMANode", "PCPU"]
    assert cpuset.format(read.books.numa_exclusive) == "0-1"  # the younger pod's policy counts


def test_running_pods_may_hold_shared_or_missing_cpus() -> None:
    shared = node().bind(running("a", "0-1")).bind(running("b", "1-2")).bind(running("c", "99"))
    assert cpuset.format(shared.used_cpus) == "0-2,99"
    assert cpuset.format(shared.remove("a").used_cpus) == "1-2,99"
    assert cpuset.format(shared.remove("a").remove("b").used_cpus) == "99"
    assert shared.remove("a").remove("b").use(0) is Use.SINGLE


def test_pod_seen_again_replaces_its_earlier_state() -> None:
    first = node().bind(running("a", "0-1", {0: {"cpu": "2"}}))
    again = first.bind(running("a", "4", {1: {"cpu": "1"}}))
    assert cpuset.format(again.used_cpus) == "4"
    assert again.requested["cpu"] == 1000
    assert again.available()[0]["cpu"] == 8 * 10**9


def test_devices_of_running_pods_are_taken_even_if_unlisted() -> None:
    given = {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]}
    asked = pod("a", annotations={"scheduling.koordinator.sh/device-allocated": json.dumps(given)}, cpu="1")
    bare = node().bind(asked)
    assert bare.devices is not None
    assert bare.devices.free("gpu") == {0: {"koordinator.sh/gpu-core": 0}}
    assert not admit(bare, pod("b", cpu="1", nvidia="1")).admitted
    held = node(gpus=[0]).bind(asked)
    assert held.devices is not None
    assert held.devices.free("gpu")[0]["koordinator.sh/gpu-core"] == 0
    broken = pod("c", annotations={"scheduling.koordinator.sh/device-allocated": "{"}, cpu="1")
    assert node(gpus=[0]).bind(broken).holds("c")
    assert admit(node(gpus=[0]), broken).message == "unexpected end of JSON input"


@pytest.mark.parametrize(
    "device", [{"type": "gpu"}, {**gpu(0, 0), "minor": -1}, {**gpu(0, 0), "topology": {"nodeID": 64}}]
)
def test_what_is_no_device_is_rejected(device: dict[str, Any]) -> None:
    with pytest.raises(InvalidNode):
        Inventory.read({"spec": {"devices": [device]}})
    with pytest.raises(InvalidNode):
        Inventory.read({"spec": {"devices": device}})


json_texts = st.one_of(
    st.text(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 70000) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "cpuset",
                        "node",
                        "resources",
                        "detail",
                        "id",
                        "numaNodeResources",
                        "policy",
                        "uid",
                        "cpu",
                        "gpu",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).map(json.dumps),
)
KEYS = [
    "scheduling.koordinator.sh/numa-topology-spec",
    "scheduling.koordinator.sh/resource-spec",
    "scheduling.koordinator.sh/resource-status",
    "scheduling.koordinator.sh/device-allocated",
    AMPLIFICATION_RATIO,
    CPU_TOPOLOGY,
    KUBELET_CPU_MANAGER_POLICY,
    NODE_RESERVATION,
    POD_CPU_ALLOCS,
    SYSTEM_QOS_RESOURCE,
]


@given(st.dictionaries(st.sampled_from(KEYS), json_texts), st.dictionaries(st.sampled_from(KEYS), json_texts))
def test_any_annotation_gives_a_decision_or_a_library_error(
    of_node: dict[str, str], of_pod: dict[str, str]
) -> None:
    try:
        topology = nrt(detail(), ZONES, annotations=of_node)
        read = Node.read(node_object(annotations=of_node), topology, {"spec": {"devices": [gpu(0, 0)]}})
        asked = pod(annotations=of_pod, cpu="2", memory="1Gi", nvidia="1")
        held = read.bind(asked)
        held.available()
        assert explain(admit(held, pod("q", policy="SingleNUMANode", cpu="2"))).lines()
        assert explain(admit(read, asked)).lines()
        assert hash(held.remove("p").state_key) == hash(held.remove("p").state_key)
    except NumazonesError:
        pass


MEMBERS = """
    metadata spec status name labels annotations allocatable zones type resources topologyPolicies devices
    minor health topology socketID nodeID pcieID scoringStrategy numaScoringStrategy weight
    defaultCPUBindPolicy
    gpuShareUnsupportedModels vendor
"""
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(("node-0", "Node", "gpu", "LeastAllocated", "1Gi")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS.split()), inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(MEMBERS.split()), documents, max_size=5)


@given(objects, objects, objects)
def test_any_object_is_read_or_refused_by_the_library(
    host: dict[str, Any], topology: dict[str, Any], device: dict[str, Any]
) -> None:
    with suppress(NumazonesError):
        Node.read(host, topology, device).available()


@given(objects, objects)
def test_any_arguments_are_read_or_refused_by_the_library(
    numa: dict[str, Any], device: dict[str, Any]
) -> None:
    with suppress(NumazonesError):
        Scheduler.from_args(numa, device)


def test_ratios_beyond_all_bounds_are_unreadable_or_bounded() -> None:
    for ratio, problem in (
        ("1e999", "cpu is not a number that fits 64 bits"),
        ("1" + "0" * 400, "it contains a number of more than 64 digits"),
    ):
        huge = node_object(annotations={AMPLIFICATION_RATIO: f'{{"cpu":{ratio}}}'})
        assert problem in Node.read(huge, nrt(detail(), ZONES)).host.ratio_error
    large = node_object(annotations={AMPLIFICATION_RATIO: '{"cpu":1e300}'})
    assert Node.read(large, nrt(detail(), ZONES)).available()[0]["cpu"] > 0


def test_running_pod_holds_its_cpus_whatever_its_topology_spec_says() -> None:
    object_ = pod_object("a", status={"cpuset": "0-3"}, annotations={NUMA_TOPOLOGY_SPEC: "{"}, cpu="4")
    assert node().bind(Pod.from_api(object_)).used_cpus == 0b1111


@pytest.mark.parametrize(
    "written", ["-1", "{", '{"cpuset":"x"}', '{"numaNodeResources":[{"node":"0"}]}', "[" * 10_000]
)
def test_unreadable_status_leaves_only_the_verdict(written: str) -> None:
    assert written_outcome("Admitted", {RESOURCE_STATUS: written}) == "Admitted"
