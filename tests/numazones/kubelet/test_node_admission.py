"""A node's answer to a pod that is bound to it: managers first, then the node as a whole."""

from dataclasses import replace
from typing import Any

import pytest

from numazones.apimachinery.taints import Taint
from numazones.cluster.requests import effective_requests
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.explanation import explain
from numazones.kubelet.node_admission import NodeAdmission, admit_to_node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from tests.numazones.kubelet.building import GI, container, gpus, machine, node

AMOUNTS = {"cpu": 46_000, "memory": 8 * GI, "hugepages-2Mi": GI, "v.example/nic": 2}


def pod(uid: str, requests: dict[str, str] | None = None, *, limits: bool = False, **more: Any) -> PodInfo:
    """A pod of one container; ``metadata`` and ``status`` may be given, the rest is its spec."""
    amounts = requests or {}
    one = {"name": "c", "resources": {"requests": amounts, **({"limits": amounts} if limits else {})}}
    body = {
        "metadata": {"uid": uid, "name": uid, **more.pop("metadata", {})},
        "status": more.pop("status", {}),
        "spec": {"containers": [one], **more},
    }
    return PodInfo(Pod.from_api(body), Constraints.from_api(body["spec"]), effective_requests(body))


def info(*pods: PodInfo, **values: Any) -> NodeInfo:
    """A node of 46 CPUs whose managers pin nothing unless a state is given."""
    state = values.pop("state", None) or node(policy="none", cpus="none", memory="None")
    return NodeInfo(
        state,
        **{
            "allocatable": AMOUNTS,
            "pods": {one.pod.uid: one for one in pods},
            "name": "n1",
            "labels": {"zone": "a"},
            **values,
        },
    )


BUSY = info(pod("other", {"cpu": "44750m", "memory": "6Gi", "v.example/nic": "1"}))


def verdict(admission: NodeAdmission) -> str:
    return f"{admission.reason}: {admission.message}" if admission.reason else ""


@pytest.mark.parametrize(
    ("requests", "expected", "sentence"),
    [
        ({"cpu": "1250m", "memory": "2Gi", "v.example/nic": "1"}, "", ""),
        (
            {"cpu": "2"},
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 44750, capacity: 46000",
            "requests 2 cpu; pods on the node request 44.75 of its 46",
        ),
        (
            {"memory": "3Gi", "v.example/nic": "5"},
            (
                "OutOfmemory: Node didn't have enough resource: memory, "
                "requested: 3221225472, used: 6442450944, capacity: 8589934592"
            ),
            "requests 3Gi memory; pods on the node request 6Gi of its 8Gi",
        ),
        (
            {"v.example/nic": "2"},
            (
                "OutOfv.example/nic: Node didn't have enough resource: v.example/nic, "
                "requested: 2, used: 1, capacity: 2"
            ),
            "requests 2 v.example/nic; pods on the node request 1 of its 2",
        ),
        (
            {"hugepages-2Mi": "2Gi"},
            (
                "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, "
                "requested: 2147483648, used: 0, capacity: 1073741824"
            ),
            "requests 2Gi hugepages-2Mi; pods on the node request 0 of its 1Gi",
        ),
        (
            {"hugepages-1Gi": "1Gi"},
            (
                "OutOfhugepages-1Gi: Node didn't have enough resource: hugepages-1Gi, "
                "requested: 1073741824, used: 0, capacity: 0"
            ),
            "requests 1Gi hugepages-1Gi; pods on the node request 0 of its 0",
        ),
        ({"elsewhere.example/licence": "9"}, "", ""),
        ({"hugepages-1Gi": "0"}, "", ""),
    ],
)
def test_requests_are_weighed_against_what_is_left(
    requests: dict[str, str], expected: str, sentence: str
) -> None:
    found = admit_to_node(BUSY, pod("new", requests))
    assert (verdict(found), found.sentence) == (expected, sentence)


def test_empty_pod_fits_on_an_overcommitted_node() -> None:
    assert admit_to_node(info(pod("other", {"cpu": "50"})), pod("new")).admitted


def test_pod_slots_come_first() -> None:
    full = info(*(pod(name) for name in "abc"), pod_slots=3)
    found = admit_to_node(full, pod("new", {"cpu": "99"}))
    assert verdict(found) == (
        "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
    )
    assert found.sentence == "the node runs 3 pods and allows at most 3"
    assert admit_to_node(replace(full, pod_slots=4), pod("new")).admitted


def test_decision_has_the_managers_hints_and_the_nodes_new_state() -> None:
    start = pinning()
    admitted = admit_to_node(start, guaranteed("fits", 4))
    assert (admitted.admitted, verdict(admitted), admitted.message, admitted.sentence) == (True, "", "", "")
    assert admitted.managers == admit(start.state, guaranteed("fits", 4).pod)
    assert admitted.state == admitted.recorded == admitted.managers.node

    by_managers = admit_to_node(start, guaranteed("big", 20))
    assert by_managers.admitted is False
    assert by_managers.managers == admit(start.state, guaranteed("big", 20).pod)
    assert by_managers.state == by_managers.recorded == by_managers.managers.node

    busy = replace(start, pods={"burst": pod("burst", {"cpu": "12"})})
    by_the_node = admit_to_node(busy, guaranteed("late", 4))
    assert by_the_node.admitted is False
    assert by_the_node.managers == admit(start.state, guaranteed("late", 4).pod)


def pinning(**config: Any) -> NodeInfo:
    """Sixteen CPUs of which one is reserved."""
    return info(state=node(machine(2, cores=4), **config), allocatable={"cpu": 15_000, "memory": 31 * GI})


def guaranteed(uid: str, cpu: int, **more: Any) -> PodInfo:
    return pod(uid, {"cpu": str(cpu), "memory": "1Gi"}, limits=True, **more)


def test_the_managers_decide_first() -> None:
    found = admit_to_node(pinning(), guaranteed("big", 20))
    assert found.reason == "TopologyAffinityError"
    assert found.managers is not None
    assert explain(found.managers).shortfall
    assert found.sentence == ""


def test_rejected_pods_resources_stay_recorded_until_the_next_pod() -> None:
    start = replace(pinning(), pods={"burst": pod("burst", {"cpu": "12"})})
    found = admit_to_node(start, guaranteed("late", 4))
    assert found.reason == "OutOfcpu"
    assert found.recorded.cpus.assignments["late"]["c"].bit_count() == 4
    assert found.state.cpus == start.state.cpus
    # Read again from its state files, the node still shows it; the kubelet knows that the pod has ended.
    shown = replace(start, state=found.recorded, pods={})
    wide = guaranteed("next", 14, containers=[container("a", 6), container("b", 8)])
    assert admit_to_node(shown, wide).reason == "TopologyAffinityError"
    assert admit_to_node(replace(shown, ended=frozenset({"late"})), wide).admitted


def test_pods_whose_containers_have_stopped_hold_nothing_any_more() -> None:
    first = admit_to_node(pinning(), guaranteed("leaving", 7))
    running = {"leaving": guaranteed("leaving", 7)}
    still = replace(
        pinning(), state=first.state, pods=running, allocatable={"cpu": 10_000, "memory": 31 * GI}
    )
    assert admit_to_node(still, guaranteed("next", 7)).reason == "OutOfcpu"
    stopped = replace(still, pods={}, ended=frozenset({"leaving"}))
    found = admit_to_node(stopped, guaranteed("next", 7))
    assert found.admitted
    assert found.state.pods == {"next"}


def test_devices_that_were_just_given_count_as_allocatable() -> None:
    """The node's status may lag behind the plugin."""
    state = node(machine(2, cores=4), devices=gpus((0,), (1,)), policy="none", cpus="none", memory="None")
    start = info(state=state, allocatable={"vendor/gpu": 1, "cpu": 8000, "memory": 8 * GI})
    assert admit_to_node(start, pod("new", {"vendor/gpu": "2"}, limits=True)).admitted


def test_devices_not_yet_assigned_count_as_allocatable() -> None:
    """After a restart, the kubelet knows of a running pod before its devices."""
    state = node(machine(2, cores=4), devices=gpus((0,), (1,)), policy="none", cpus="none", memory="None")
    other = pod("other", {"vendor/gpu": "1"}, limits=True)
    start = info(other, state=state, allocatable={"vendor/gpu": 2, "cpu": 8000, "memory": 8 * GI})
    assert admit_to_node(start, pod("new", {"vendor/gpu": "1"}, limits=True)).admitted


def test_what_dynamic_resource_allocation_serves_is_not_weighed() -> None:
    claims = {
        "requestMappings": [{"containerName": "c", "resourceName": "v.example/nic", "requestName": "r"}]
    }
    claimed = pod("new", {"v.example/nic": "9"}, status={"extendedResourceClaimStatus": claims})
    assert admit_to_node(info(), claimed).admitted
    older = node(policy="none", cpus="none", memory="None", version="1.34")
    assert admit_to_node(info(state=older), claimed).reason == "OutOfv.example/nic"


@pytest.mark.parametrize(("version", "reason"), [("1.36", "OutOfcpu"), ("1.31", "")])
def test_pod_level_requests_and_overhead_count_as_in_the_release(version: str, reason: str) -> None:
    resources = {"requests": {"cpu": "46"}, "limits": {"cpu": "46"}}
    asked = pod("new", {"cpu": "1"}, resources=resources, overhead={"cpu": "1m"})
    state = node(policy="none", cpus="none", memory="None", version=version)
    assert admit_to_node(info(state=state), asked).reason == reason


def test_pod_level_memory_and_overhead_count_without_containers() -> None:
    memory = {"requests": {"memory": "9Gi"}, "limits": {"memory": "9Gi"}}
    assert admit_to_node(info(), pod("new", {"memory": "1Gi"}, resources=memory)).reason == "OutOfmemory"
    assert admit_to_node(info(), pod("new", overhead={"cpu": "47"})).reason == "OutOfcpu"
    assert admit_to_node(info(), pod("new", overhead={"cpu": "46"})).admitted


def test_node_affinity_is_checked_again() -> None:
    assert admit_to_node(info(), pod("new", nodeSelector={"zone": "a"})).admitted
    assert verdict(admit_to_node(info(), pod("new", nodeSelector={"zone": "b"}))) == (
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    arm = pod("new", nodeSelector={"kubernetes.io/arch": "arm64"})
    assert admit_to_node(info(labels={"kubernetes.io/arch": "amd64"}), arm).reason == "NodeAffinity"


@pytest.mark.parametrize(("effect", "reason"), [("NoExecute", "TaintToleration"), ("NoSchedule", "")])
def test_only_taints_that_evict_concern_the_kubelet(effect: str, reason: str) -> None:
    tainted = info(taints=(Taint("k", "", effect),))
    found = admit_to_node(tainted, pod("new"))
    message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    assert (found.reason, found.message) == (reason, message if reason else "")
    assert admit_to_node(tainted, pod("new", tolerations=[{"key": "k", "operator": "Exists"}])).admitted
    static = {"annotations": {"kubernetes.io/config.source": "file"}}
    assert admit_to_node(tainted, pod("new", metadata=static)).admitted


def ports(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(entries)}]}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"hostPort": 80}, "NodePorts"),
        ({"hostPort": 80, "hostIP": "10.0.0.9"}, "NodePorts"),
        ({"hostPort": 80, "protocol": "UDP"}, ""),
        ({"hostPort": 81}, ""),
        ({"containerPort": 80}, ""),
    ],
)
def test_host_ports_must_be_free(entry: dict[str, Any], reason: str) -> None:
    taken = info(pod("other", **ports({"hostPort": 80})))
    found = admit_to_node(taken, pod("new", **ports(entry)))
    message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert (found.reason, found.message) == (reason, message if reason else "")


def test_pods_of_another_operating_system_are_rejected_before_all_else() -> None:
    labelled = {"labels": {"kubernetes.io/os": "windows"}}
    asked = pod("new", {"cpu": "99"}, metadata=labelled, priority=2_000_000_000)
    rejected = admit_to_node(info(), asked)
    assert rejected.sentence == admit_to_node(info(), pod("new", os={"name": "windows"})).sentence
    assert "linux" in rejected.sentence
    assert verdict(rejected) == (
        "PodOSSelectorNodeLabelDoesNotMatch: "
        "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
    )
    assert verdict(admit_to_node(info(), pod("new", os={"name": "windows"}))) == (
        "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"
    )
    assert admit_to_node(info(), pod("new", os={"name": "linux"})).admitted


@pytest.mark.parametrize(
    ("pressures", "asked", "admitted"),
    [
        (("MemoryPressure",), pod("new"), False),
        (("MemoryPressure",), pod("new", {"cpu": "1"}), True),
        (
            ("MemoryPressure",),
            pod("new", tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
            True,
        ),
        (("DiskPressure",), pod("new", {"cpu": "1"}), False),
        (("DiskPressure",), pod("new", priority=2_000_000_000), True),
    ],
)
def test_a_node_under_pressure_takes_no_more_pods(
    pressures: tuple[str, ...], asked: PodInfo, *, admitted: bool
) -> None:
    found = admit_to_node(info(pressures=pressures), asked)
    assert found.admitted == admitted
    if not admitted:
        assert verdict(found) == f"Evicted: The node had condition: [{pressures[0]}]. "


# Preemption

CRITICAL: dict[str, Any] = {"priority": 2_000_000_000}


def test_critical_pod_evicts_the_cheapest_sufficient_pods() -> None:
    start = info(
        pod("effort"),
        pod("small", {"cpu": "10"}),
        pod("near", {"cpu": "20"}),
        guaranteed("dear", 16),
    )
    found = admit_to_node(start, pod("system", {"cpu": "15"}, **CRITICAL))
    assert (found.admitted, found.preempted) == (True, ("near",))
    assert (found.reason, found.message, found.sentence) == ("", "", "")
    more = admit_to_node(start, pod("system", {"cpu": "40"}, **CRITICAL))
    assert set(more.preempted) == {"small", "near", "dear"}


@pytest.mark.parametrize(
    ("others", "preempted"),
    [
        ({"a": (20, 3), "b": (20, 2)}, "b"),  # of pods as near, the one that requests less memory
        ({"a": (20, 2), "b": (20, 3)}, "a"),
        ({"a": (24, 2), "b": (20, 2)}, "b"),  # then fewer CPUs
        ({"a": (20, 2), "b": (24, 2)}, "a"),
        ({"a": (20, 2), "b": (20, 2)}, "b"),  # then the last one
    ],
)
def test_of_pods_as_near_the_smallest_is_preempted(
    others: dict[str, tuple[int, int]], preempted: str
) -> None:
    start = info(
        *(pod(uid, {"cpu": str(cpus), "memory": f"{memory}Gi"}) for uid, (cpus, memory) in others.items())
    )
    assert admit_to_node(start, pod("system", {"cpu": "20"}, **CRITICAL)).preempted == (preempted,)


def test_pods_that_cover_some_of_everything_are_nearer() -> None:
    # Missing are 20 CPUs and 4 GiB. What a pod leaves of each counts as a square: "even" leaves 40 % of both,
    # "cpus" 70 % of the memory alone.
    start = info(
        pod("even", {"cpu": "12", "memory": "2458Mi"}),
        pod("cpus", {"cpu": "20", "memory": "1229Mi"}),
        pod("rest", {"cpu": "8", "memory": "1640Mi"}),
    )
    found = admit_to_node(start, pod("system", {"cpu": "26", "memory": "6961Mi"}, **CRITICAL))
    assert set(found.preempted) == {"even", "rest"}


def test_slots_are_made_by_preempting_as_well() -> None:
    full = info(pod("effort"), pod("burst", {"cpu": "1"}), pod_slots=2)
    assert admit_to_node(full, pod("system", **CRITICAL)).preempted == ("effort",)


def test_preempted_pods_share_stays_on_record_until_the_next_admission() -> None:
    first = admit_to_node(pinning(), guaranteed("victim", 7))
    held = replace(pinning(), state=first.state, pods={"victim": guaranteed("victim", 7)})
    found = admit_to_node(
        replace(held, allocatable={"cpu": 8000, "memory": 31 * GI}), guaranteed("system", 4, **CRITICAL)
    )
    assert found.preempted == ("victim",)
    assert found.recorded.pods == {"victim", "system"}
    assert found.state == remove(found.recorded, "victim")
    assert found.managers == admit(held.state, guaranteed("system", 4, **CRITICAL).pod)


def test_a_critical_pod_that_finds_no_victims_keeps_nothing() -> None:
    first = admit_to_node(pinning(), guaranteed("peer", 7, **CRITICAL))
    held = replace(
        pinning(),
        state=first.state,
        pods={"peer": guaranteed("peer", 7, **CRITICAL)},
        allocatable={"cpu": 8000, "memory": 31 * GI},
    )
    found = admit_to_node(held, guaranteed("system", 4, **CRITICAL))
    assert (found.admitted, found.reason) == (False, "UnexpectedAdmissionError")
    assert found.state == first.state
    assert found.recorded.pods == {"peer", "system"}


def test_other_critical_pods_are_not_preempted_unless_they_rank_lower() -> None:
    start = info(pod("peer", {"cpu": "40"}, **CRITICAL))
    found = admit_to_node(start, pod("system", {"cpu": "10"}, **CRITICAL))
    assert verdict(found) == (
        "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: "
        "preemption: error finding a set of pods to preempt: "
        "no set of running pods found to reclaim resources: [(res: cpu, q: 4000), ]"
    )
    above = pod("system", {"cpu": "10"}, priority=2_000_001_000)
    assert admit_to_node(start, above).preempted == ("peer",)


def test_a_critical_pod_is_rejected_for_what_preemption_cannot_mend() -> None:
    found = admit_to_node(
        info(pod("other", {"cpu": "46"})), pod("system", {"cpu": "1"}, nodeSelector={"zone": "b"}, **CRITICAL)
    )
    assert (found.reason, found.preempted) == ("NodeAffinity", ())


def test_static_pods_and_their_mirrors_are_critical() -> None:
    for name in ("kubernetes.io/config.mirror", "kubernetes.io/config.source"):
        assert pod("x", metadata={"annotations": {name: "file"}}).critical
    assert not pod("x", metadata={"annotations": {"kubernetes.io/config.source": "api"}}).critical
    assert not pod("x", priority=1_000_000).critical
