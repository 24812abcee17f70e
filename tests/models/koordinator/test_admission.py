"""Decisions of koord-scheduler about a pod and a node, rule by rule; every rule also has vectors."""

import json

import pytest

from numazones import cpuset
from numazones.errors import UnmodelledFeature
from numazones.kubelet.pod import Pod
from numazones_koordinator.admission import Admission, Stage, admit, admit_each, remove
from numazones_koordinator.annotations import (
    AMPLIFICATION_RATIO,
    DEVICE_ALLOCATED,
    NODE_CPU_BIND_POLICY,
    NODE_RESERVATION,
    PRIORITY_CLASS,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
)
from numazones_koordinator.books import Use
from numazones_koordinator.explanation import explain
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import InvalidConfiguration, SchedulerCrash
from tests.models.koordinator.building import detail, gpu, node, node_object, nrt, pod, pod_object, running

BIND_POLICY_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
POLICIES = ("", "BestEffort", "Restricted", "SingleNUMANode")


def amounts(admission: Admission) -> dict[int, dict[str, int]]:
    """Return what is recorded per NUMA node, in whole units."""
    return {
        numa: {name: amount // 10**9 for name, amount in given.items()}
        for numa, given in admission.numa_resources
    }


@pytest.mark.parametrize("own", POLICIES)
@pytest.mark.parametrize("theirs", POLICIES)
def test_a_pods_policy_and_its_nodes_must_not_contradict(own: str, theirs: str) -> None:
    admission = admit(node(policy=theirs), pod(policy=own, cpu="2", memory="1Gi"))
    assert admission.admitted is (not own or not theirs or own == theirs)
    if admission.admitted:
        assert admission.outcome.policy == (own or theirs)
    else:
        assert admission.reason == "UnschedulableAndUnresolvable"
        assert admission.message == "node(s) NUMA Topology policy not match"
        assert admission.outcome.stage is Stage.FILTER
        assert admission.annotations == {}
        assert admission.node == admission.before


def test_single_numa_node_pod_gets_its_cpus_and_memory_there() -> None:
    admission = admit(node(), pod(policy="SingleNUMANode", cpu="4", memory="2Gi"))
    assert cpuset.format(admission.cpus) == "0-1,8-9"
    assert amounts(admission) == {0: {"cpu": 4, "memory": 2 << 30}}
    assert json.loads(admission.annotations[RESOURCE_STATUS]) == {
        "cpuset": "0-1,8-9",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "2Gi"}}],
    }
    assert json.loads(admission.annotations[RESOURCE_SPEC]) == {"preferredCPUBindPolicy": "FullPCPUs"}
    after = admission.node
    assert cpuset.format(after.free_cpus()) == "2-7,10-15"
    assert after.use(0) is Use.SINGLE
    assert after.requested == {"cpu": 4000, "memory": 2 << 30}


def test_pod_annotations_read_back_as_the_same_node() -> None:
    asked = pod_object("p", policy="Restricted", cpu="10", memory="20Gi")
    admission = admit(node(), Pod.from_api(asked))
    asked["metadata"]["annotations"].update(admission.annotations)
    assert node().bind(Pod.from_api(asked)).state_key == admission.node.state_key


def test_a_pod_that_is_removed_leaves_all_it_held() -> None:
    admission = admit(node(), pod(policy="Restricted", cpu="10", memory="20Gi"))
    after = remove(admission.node, "p")
    assert after.free_cpus() == node().free_cpus()
    assert after.available() == node().available()
    assert after.use(0) is after.use(1) is Use.IDLE
    assert not any(after.requested.values())
    assert remove(after, "unknown") is after


def test_single_numa_node_pods_exclude_spanning_ones_by_default() -> None:
    taken = admit(node(), pod("a", policy="SingleNUMANode", cpu="2")).node
    spanning = pod("b", policy="Restricted", cpu="10")
    assert admit(taken, spanning).message == "Unaligned NUMA Hint cause cpu prefer [11] among [11]"
    assert admit(taken, pod("b", policy="Restricted", exclusive="Preferred", cpu="10")).admitted
    shared = admit(node(), spanning).node
    assert not admit(shared, pod("c", policy="SingleNUMANode", cpu="2")).admitted


def test_released_exclusivity_ignores_pods_without_exclusive_cpus() -> None:
    taken = admit(node(), pod("a", policy="SingleNUMANode", qos="LS", cpu="2")).node
    assert amounts(admit(taken, pod("b", policy="Restricted", qos="LS", cpu="10"))) == {
        0: {"cpu": 5},
        1: {"cpu": 5},
    }
    assert taken.use(0) is Use.IDLE


def test_best_effort_passes_filter_and_may_fail_at_reserve() -> None:
    admission = admit(node(), pod(policy="BestEffort", qos="LS", cpu="20"))
    assert (admission.outcome.stage, admission.message) == (Stage.RESERVE, "Insufficient NUMA cpu")
    nothing = Node.read(node_object(), nrt(None, {}))
    admission = admit(nothing, pod(policy="BestEffort", qos="LS", cpu="1"))
    assert (admission.outcome.stage, admission.message) == (Stage.RESERVE, "node(s) missing NUMA resources")


@pytest.mark.parametrize(
    ("labels", "priority", "bound"),
    [
        ({}, None, True),
        ({PRIORITY_CLASS: "koord-prod"}, 5500, True),
        ({PRIORITY_CLASS: "koord-batch"}, None, False),
        ({PRIORITY_CLASS: "production"}, 5500, True),
        ({}, 9500, True),
        ({}, 5500, False),
        ({}, 100, True),
    ],
)
def test_lse_and_lsr_pods_of_production_priority_get_exclusive_cpus(
    labels: dict[str, str], priority: int | None, *, bound: bool
) -> None:
    asked = pod_object(labels=labels, cpu="2")
    if priority is not None:
        asked["spec"]["priority"] = priority
    assert bool(admit(node(), Pod.from_api(asked)).cpus) is bound
    asked["metadata"]["labels"]["koordinator.sh/qosClass"] = "LS"
    assert not admit(node(), Pod.from_api(asked)).cpus


def test_pods_to_be_bound_ask_for_whole_cpus() -> None:
    admission = admit(node(), pod(cpu="1500m"))
    assert (admission.outcome.stage, admission.message) == (
        Stage.PRE_FILTER,
        "the requested CPUs must be integer",
    )
    strict = node(labels={NODE_CPU_BIND_POLICY: "FullPCPUsOnly"})
    admission = admit(strict, pod(qos="LS", cpu="1500m"))
    assert (admission.outcome.stage, admission.message) == (
        Stage.FILTER,
        "the requested CPUs must be integer",
    )
    assert admit(node(), pod(spec={"preferredCPUBindPolicy": "ConstrainedBurst"}, cpu="1500m")).admitted


@pytest.mark.parametrize(
    ("node_policy", "required", "cpu", "message"),
    [
        (
            "FullPCPUsOnly",
            "SpreadByPCPUs",
            "2",
            "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
        ),
        ("FullPCPUsOnly", "", "3", "node(s) requested cpus not multiple cpus per core"),
        ("", "FullPCPUs", "3", "node(s) requested cpus not multiple cpus per core"),
        ("SpreadByPCPUs", "", "12", "not enough cpus available to satisfy request"),
        ("None", "", "3", ""),
        ("Other", "", "3", ""),
    ],
)
def test_node_and_the_pod_may_require_a_cpu_bind_policy(
    node_policy: str, required: str, cpu: str, message: str
) -> None:
    labelled = node(labels={NODE_CPU_BIND_POLICY: node_policy} if node_policy else {})
    assert admit(labelled, pod(spec={"requiredCPUBindPolicy": required}, cpu=cpu)).message == message


def test_node_without_cpu_topology_binds_no_cpus_and_records_nothing() -> None:
    bare = node(topology=False)
    assert admit(bare, pod(cpu="2")).message == "node(s) invalid CPU Topology"
    shared = admit(bare, pod(policy="SingleNUMANode", qos="LS", cpu="8"))
    assert amounts(shared) == {0: {"cpu": 8}}
    assert amounts(admit(shared.node, pod("q", policy="SingleNUMANode", qos="LS", cpu="8"))) == {
        0: {"cpu": 8}
    }


def test_reserved_cpus_are_neither_given_nor_counted() -> None:
    reserved = node(annotations={NODE_RESERVATION: '{"reservedCPUs":"0-3"}'})
    assert reserved.available()[0]["cpu"] == 4 * 10**9
    admission = admit(reserved, pod(policy="SingleNUMANode", cpu="8", memory="1Gi"))
    assert cpuset.format(admission.cpus) == "4-7,12-15"
    assert admit(reserved, pod(cpu="14")).message == "not enough cpus available to satisfy request"


def test_spreading_over_three_numa_nodes_rejects_what_fits_as_released() -> None:
    three = node(3, zone={"cpu": "8"})
    for uid, numa, cpu in (("a", 0, "1"), ("b", 1, "5"), ("c", 2, "3")):
        three = three.bind(running(uid, amounts={numa: {"cpu": cpu}}))
    asked = pod(policy="Restricted", qos="LS", cpu="14")
    admission = admit(three, asked)
    assert admission.message == "Unsatisfied NUMA cpu"
    assert any("wrong order" in line for line in explain(admission).defects)


def test_amplified_nodes_count_cpu_sets_amplified() -> None:
    objects = node_object(cpu="24", annotations={AMPLIFICATION_RATIO: '{"cpu":1.5}'})
    zones = {0: {"cpu": "8"}, 1: {"cpu": "8"}}
    larger = Node.read(objects, nrt(detail(), zones))
    assert larger.available()[0]["cpu"] == 12 * 10**9
    held = admit(larger, pod("a", policy="SingleNUMANode", cpu="4")).node
    assert held.available()[0]["cpu"] == 6 * 10**9
    assert admit(held, pod("b", cpu="14")).message == "Insufficient amplified cpu"
    broken = Node.read(node_object(annotations={AMPLIFICATION_RATIO: "{"}), nrt(detail(), zones))
    assert admit(broken, pod(cpu="1")).message == "node(s) invalid CPU amplification ratio"
    asked = pod(policy="Restricted", memory="1Gi")
    assert "failed to unmarshal node resource amplification ratio" in admit(broken, asked).message


def test_unreadable_request_is_an_error_and_empty_one_gets_nothing() -> None:
    broken = pod(annotations={RESOURCE_SPEC: "{"}, cpu="1")
    admission = admit(node(), broken)
    assert (admission.reason, admission.message) == ("Error", "unexpected end of JSON input")
    idle = admit(node(policy="SingleNUMANode"), pod())
    assert (idle.admitted, idle.annotations, idle.outcome.score) == (True, {}, None)
    assert idle.node.holds("p")


def test_scores_measure_how_full_node_or_numa_nodes_would_be() -> None:
    most = Scheduler.from_args(
        {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
    )
    assert admit(node(), pod(qos="LS", cpu="4", memory="8Gi")).outcome.score == 75
    assert admit(node(scheduler=most), pod(qos="LS", cpu="4")).outcome.score == 25
    assert admit(node(scheduler=most), pod(policy="SingleNUMANode", qos="LS", cpu="4")).outcome.score == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"defaultCPUBindPolicy": "ConstrainedBurst"},
            "defaultCPUBindPolicy is 'ConstrainedBurst'; use FullPCPUs or SpreadByPCPUs",
        ),
        ({"scoringStrategy": {"type": "Random"}}, "scoringStrategy.type: strategy Random is not supported"),
        (
            {"numaScoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]}},
            "numaScoringStrategy.resources[0].weight",
        ),
    ],
)
def test_arguments_that_the_scheduler_would_not_start_with_are_rejected(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        Scheduler.from_args(arguments)
    assert message in str(rejected.value)
    with pytest.raises(InvalidConfiguration, match="disableDeviceNUMATopologyAlignment"):
        Scheduler.from_args(device={"disableDeviceNUMATopologyAlignment": True})


def test_the_default_bind_policy_of_the_scheduler_counts() -> None:
    spread = Scheduler.from_args({"defaultCPUBindPolicy": "SpreadByPCPUs"})
    assert cpuset.format(admit(node(scheduler=spread), pod(cpu="4")).cpus) == "0-3"


def test_where_the_scheduler_would_crash_there_is_no_verdict() -> None:
    with pytest.raises(SchedulerCrash, match="'Strict' is not a NUMA topology policy"):
        admit(node(), pod(policy="Strict", cpu="1"))
    with pytest.raises(SchedulerCrash, match="looks up NUMA node 4"):
        admit(node(ids=(0, 4)), pod(policy="SingleNUMANode", cpu="1"))
    assert admit(node(ids=(0, 4)), pod(policy="SingleNUMANode", exclusive="Preferred", cpu="1")).admitted


def test_many_nodes_get_single_decisions_and_equal_nodes_share_one() -> None:
    used = admit(node(), pod("a", policy="SingleNUMANode", cpu="6")).node
    nodes = [node(name="x"), used, node(name="y"), node(policy="BestEffort")]
    asked = pod(policy="SingleNUMANode", cpu="6", memory="1Gi")
    found = list(admit_each(nodes, asked))
    assert [one.outcome for one in found] == [admit(one, asked).outcome for one in nodes]
    assert found[0].outcome is found[2].outcome
    assert [one.node.name for one in found] == ["x", "n", "y", "n"]


# Devices.


def test_gpus_are_taken_where_the_cpus_are() -> None:
    two = node(gpus=[0, 0, 1, 1]).bind(running("a", amounts={0: {"cpu": "6"}}))
    admission = admit(two, pod(policy="SingleNUMANode", cpu="4", memory="1Gi", nvidia="2"))
    assert cpuset.format(admission.cpus) == "4-5,12-13"
    assert [minor for minor, _ in admission.devices["gpu"]] == [2, 3]
    written = json.loads(admission.annotations[DEVICE_ALLOCATED])["gpu"]
    assert written[0] == {
        "minor": 2,
        "id": "GPU-2",
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "16Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
    }
    after = admission.node
    assert after.devices is not None
    assert not any(after.devices.free("gpu")[2].values())
    assert remove(after, "p").devices == two.devices


def test_single_numa_node_pod_is_rejected_for_gpus_across_nodes() -> None:
    apart = node(gpus=[0, 1])
    admission = admit(apart, pod(policy="SingleNUMANode", cpu="2", nvidia="2"))
    assert admission.message == (
        "Unaligned NUMA Hint cause cpu prefer [01 10] among [01 10 11],gpu prefer [11] among [11]"
    )
    assert [minor for minor, _ in admit(apart, pod(cpu="2", nvidia="2")).devices["gpu"]] == [0, 1]


@pytest.mark.parametrize(
    ("gpus", "asked", "policy", "message"),
    [
        ([0], {"nvidia": "2"}, "", "Insufficient GPU Devices"),
        ([0], {"nvidia": "2"}, "Restricted", "Insufficient NUMA Scoped Devices"),
        ([None], {"nvidia": "2"}, "", "Insufficient gpu devices"),
        ([], {"nvidia": "1"}, "", "Insufficient gpu devices"),
        ([0], {"koordinator.sh/gpu": "150"}, "", "invalid resource unit koordinator.sh/gpu: 150"),
        (
            [0], {"koordinator.sh/gpu-core": "50"}, "",
            "invalid resource device requests: [koordinator.sh/gpu-core]",
        ),
    ],
)  # fmt: skip
def test_devices_that_are_not_there_are_named(
    gpus: list[int | None], asked: dict[str, str], policy: str, message: str
) -> None:
    assert admit(node(gpus=gpus), pod(policy=policy, qos="LS", cpu="1", **asked)).message == message


def test_pods_share_a_gpu_by_memory() -> None:
    one = node(gpus=[0])
    for uid in ("a", "b"):
        admission = admit(one, pod(uid, qos="LS", cpu="1", gpu_memory="8Gi"))
        assert admission.devices["gpu"][0][0] == 0
        one = admission.node
    assert not admit(one, pod("c", qos="LS", cpu="1", gpu_memory="1Gi")).admitted


def test_unhealthy_gpus_are_not_given() -> None:
    device = {"spec": {"devices": [gpu(0, 0, health=False), gpu(1, 1)]}}
    sick = Node.read(node_object(), nrt(detail(), {0: {"cpu": "8"}, 1: {"cpu": "8"}}), device)
    assert [minor for minor, _ in admit(sick, pod(cpu="1", nvidia="1")).devices["gpu"]] == [1]


@pytest.mark.parametrize(
    ("annotations", "labels", "asked"),
    [
        ({"scheduling.koordinator.sh/device-joint-allocate": "{}"}, {}, {"nvidia": "1"}),
        ({"scheduling.koordinator.sh/device-allocate-hint": "{}"}, {}, {"nvidia": "1"}),
        ({}, {}, {"huawei.com/npu-core": "1"}),
        ({}, {"node.koordinator.sh/gpu-model": "H100"}, {"nvidia": "1"}),
    ],
)
def test_what_is_not_modelled_is_said_never_guessed(
    annotations: dict[str, str], labels: dict[str, str], asked: dict[str, str]
) -> None:
    with pytest.raises(UnmodelledFeature, match="nothing is predicted"):
        admit(node(gpus=[0, 1], labels=labels), pod(annotations=annotations, cpu="1", **asked))


def test_rdma_and_fpga_devices_are_given_by_percent() -> None:
    def card(type_: str, minor: int, numa: int) -> dict[str, object]:
        return {**gpu(minor, numa), "type": type_, "resources": {f"koordinator.sh/{type_}": "100"}}

    device = {"spec": {"devices": [card("rdma", 0, 0), card("rdma", 1, 1), card("fpga", 0, 1)]}}
    cards = Node.read(node_object(), nrt(detail(), {0: {"cpu": "8"}, 1: {"cpu": "8"}}), device)
    both = admit(cards, pod("a", cpu="1", **{"koordinator.sh/rdma": "200"}))
    assert [minor for minor, _ in both.devices["rdma"]] == [0, 1]
    part = {"koordinator.sh/rdma": "50", "koordinator.sh/fpga": "100"}
    aligned = admit(cards, pod("b", policy="SingleNUMANode", cpu="1", **part))
    assert {type_: [minor for minor, _ in given] for type_, given in aligned.devices.items()} == {
        "rdma": [1],
        "fpga": [0],
    }
    assert aligned.devices["rdma"][0][1] == {"koordinator.sh/rdma": 50 * 10**9}
    again = admit(aligned.node, pod("c", cpu="1", **{"koordinator.sh/rdma": "200"}))
    assert again.message == "Insufficient rdma devices"


def test_shared_gpus_need_models_and_isolation_of_the_node() -> None:
    labels = {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "A10"}
    shared = pod(labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"}, cpu="1", gpu_memory="1Gi")
    admission = admit(node(gpus=[0], labels=labels), shared)
    assert (admission.reason, admission.message) == (
        "Error",
        "GPUIsolationProviderHAMICore not found on the node",
    )
    isolated = {**labels, "koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    assert admit(node(gpus=[0], labels=isolated), shared).admitted
    unshared = Scheduler.from_args(
        device={"gpuShareUnsupportedModels": [{"vendor": "nvidia", "model": "A10"}]}
    )
    refusing = node(gpus=[0], labels=labels, scheduler=unshared)
    assert admit(refusing, pod(cpu="1", gpu_memory="1Gi")).message == (
        'model "A10" of vendor "nvidia" does not support GPU Share'
    )
    assert admit(refusing, pod(cpu="1", nvidia="1")).admitted


def test_node_without_required_partitions_takes_no_whole_gpus() -> None:
    honoring = node(gpus=[0], labels={"node.koordinator.sh/gpu-partition-policy": "Honor"})
    assert admit(honoring, pod(cpu="1", nvidia="1")).message == "node(s) missing GPU Partition Table"
    assert admit(honoring, pod(cpu="1", gpu_memory="1Gi")).admitted


def test_several_shared_gpus_are_asked_for_by_number() -> None:
    each = {"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "100"}
    admission = admit(node(gpus=[0, 1]), pod(qos="LS", cpu="1", **each))
    assert [
        (minor, amounts["koordinator.sh/gpu-memory-ratio"] // 10**9)
        for minor, amounts in admission.devices["gpu"]
    ] == [(0, 50), (1, 50)]
    odd = {"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "101"}
    assert "invalid resource device requests" in admit(node(gpus=[0, 1]), pod(cpu="1", **odd)).message


def test_too_many_numa_nodes_for_the_modelled_spreading_are_reported() -> None:
    wide = node(13, cores=1, threads=1)
    assert admit(wide, pod(policy="SingleNUMANode", qos="LS", cpu="1")).admitted
    with pytest.raises(UnmodelledFeature, match="order of more than 12 NUMA nodes"):
        admit(wide, pod(policy="Restricted", qos="LS", cpu="13"))
