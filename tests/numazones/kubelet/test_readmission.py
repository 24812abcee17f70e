"""Effects of a restart: whether the kubelet starts, and which pods it admits again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.readmission import RunningPod, Uncertainty, restart
from tests.numazones.kubelet import building

GI = building.GI


def pod(name: str, cpus: int, memory: int = 1, *, init: dict[str, Any] | None = None, **extra: Any) -> Pod:
    main = building.container("main", cpus, f"{memory}Gi", **extra)
    spec: dict[str, Any] = {"containers": [main]}
    if init:
        spec["initContainers"] = [init]
    return Pod.from_api({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec})


def at(node: Node, *pods: Pod) -> tuple[NodeInfo, list[RunningPod]]:
    """The node with these pods, and the pods as its kubelet finds them, in this order of age."""
    running = []
    for age, one in enumerate(pods):
        said = admit(node, one)
        assert said.admitted, said.message
        node = said.node
        names = frozenset(item.name for item in one.containers if item.name != "init")
        running.append(RunningPod(f"team/{one.name}", PodInfo(one), f"2026-01-01T00:00:{age:02}Z", names))
    allocatable = {"cpu": 15_000, "memory": 30 * GI}
    return NodeInfo(node, allocatable, 110, name="worker-1"), running


def other(node: NodeInfo, **changes: Any) -> KubeletConfiguration:
    return replace(node.state.config, **changes)


def test_unchanged_kubelet_readmits_its_pods_with_their_resources() -> None:
    node, pods = at(building.node(), pod("one", 3), pod("two", 6))
    said = restart(node, pods)
    assert said.refusals == ()
    assert [(one.name, one.admitted, one.cpus) for one in said.readmissions] == [
        ("team/one", True, None),
        ("team/two", True, None),
    ]


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "another CPU Manager policy": (
        {"cpu_manager_policy": "none"},
        'configured policy "none" differs from state checkpoint policy "static"',
        "cpu_manager_state",
    ),
    "another Memory Manager policy": (
        {"memory_manager_policy": "None", "reserved_memory": ()},
        '[memorymanager] configured policy "None" differs from state checkpoint policy "Static"',
        "memory_manager_state",
    ),
    "a reserved CPU that a pod has": (
        {"reserved_system_cpus": "0-2"},
        'not all reserved cpus: "0-2" are present in defaultCpuSet: "0,4-8,12-15"',
        "cpu_manager_state",
    ),
    "a strict reservation where reserved CPUs were shared": (
        {
            "cpu_manager_policy_options": (("strict-cpu-reservation", "true"),),
            "feature_gates": (("CPUManagerPolicyOptions", True),),
        },
        'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,4-8,12-15"',
        "cpu_manager_state",
    ),
}


@pytest.mark.parametrize(("changes", "message", "file"), REFUSALS.values(), ids=REFUSALS)
def test_contradictory_state_file_prevents_the_kubelet_from_starting(
    changes: dict[str, Any], message: str, file: str
) -> None:
    node, pods = at(building.node(), pod("six", 6))
    said = restart(node, pods, other(node, **changes))
    assert [(one.message, one.file) for one in said.refusals] == [(message, file)]


PARTITIONED = building.node(memory="None", reservedMemory=[], reserved="0,8", version="1.34")


def partitioned(node: Node) -> Node:
    """The node under OpenShift's workload partitioning."""
    config = replace(node.config, workload_partitioning=True)
    return Node.fresh(node.machine, config)


def test_partitioned_cpus_are_kept_and_survive_a_restart() -> None:
    node, pods = at(partitioned(PARTITIONED), pod("one", 3))
    assert cpuset.format(node.state.cpus.default | node.state.cpus.held_by("one")) == "1-7,9-15"
    assert restart(node, pods).refusals == ()
    (refusal,) = restart(node, pods, other(node, workload_partitioning=False)).refusals
    assert refusal.message.startswith('not all reserved cpus: "0,8" are present in defaultCpuSet: ')


def test_partitioning_enabled_later_prevents_the_kubelet_from_starting() -> None:
    node, pods = at(PARTITIONED)
    (refusal,) = restart(node, pods, other(node, workload_partitioning=True)).refusals
    assert refusal.message == (
        'current set of available CPUs "1-7,9-15" doesn\'t match with CPUs in state "0-15"'
    )


@pytest.mark.parametrize(("version", "starts"), [("v1.34.9", True), ("v1.34.9+1a2b3c4", False)])
def test_openshift_cannot_restart_with_strict_reservation_alone(version: str, starts: bool) -> None:  # noqa: FBT001
    config = building.configuration(cpu_options={"strict-cpu-reservation": "true"}, version=version)
    node, pods = at(Node.fresh(building.machine(), config))
    assert (restart(node, pods).refusals == ()) == starts
    assert restart(node, pods, replace(config, workload_partitioning=True)).refusals == ()


def test_another_reservation_of_memory_keeps_it_from_starting() -> None:
    node, pods = at(building.node())
    less = building.configuration(
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}],
        evictionHard={"memory.available": "1Gi"},
    )
    said = restart(node, pods, less)
    assert [one.file for one in said.refusals] == ["memory_manager_state"]


def test_invalid_configuration_is_reported_in_the_kubelets_words_alone() -> None:
    node, pods = at(building.node(), pod("one", 2))
    said = restart(node, pods, other(node, topology_manager_policy="sngle"))
    assert (
        'topologyManagerPolicy (--topology-manager-policy) "sngle" must be one of' in said.refusals[0].message
    )
    assert said.refusals[0].file == ""
    assert said.readmissions == ()


def test_removed_file_gives_pods_new_cpus_oldest_first() -> None:
    node, pods = at(building.node(), pod("gone", 4), pod("kept", 2))
    left = replace(node, state=remove(node.state, "gone"))
    grown = other(node, reserved_system_cpus="0-2,8-10")
    said = restart(left, pods[1:], grown)
    assert said.refusals == ()
    assert said.moved == ()  # what is on file stays, though the policy would choose anew
    none = restart(left, pods[1:], other(node, reserved_system_cpus="0,3,11"))
    assert [one.file for one in none.refusals] == ["cpu_manager_state"]
    assert [tuple(map(cpuset.format, one.cpus or ())) for one in none.moved] == [("3,11", "1,9")]


def test_without_the_cpu_manager_pods_lose_their_own_cpus() -> None:
    node, pods = at(building.node(), pod("one", 3))
    said = restart(node, pods, other(node, cpu_manager_policy="none"))
    assert [tuple(map(cpuset.format, one.cpus or ())) for one in said.moved] == [("1,8-9", "")]


def test_a_stricter_policy_rejects_what_spans_numa_nodes() -> None:
    node, pods = at(building.node(policy="best-effort"), pod("small", 2), pod("wide", 10))
    said = restart(node, pods, other(node, topology_manager_policy="single-numa-node"))
    assert said.refusals == ()
    assert [(one.name, one.reason) for one in said.rejected] == [("team/wide", "TopologyAffinityError")]


def test_a_larger_reservation_leaves_too_little_for_the_youngest() -> None:
    node, pods = at(building.node(), pod("one", 2), pod("two", 2), pod("three", 2))
    tight = replace(node, allocatable={"cpu": 6_000, "memory": 30 * GI})
    # Every reserved CPU is in the shared pool, so the kubelet starts.
    said = restart(tight, pods, other(node, reserved_system_cpus="0,4"))
    assert [(one.name, one.reason) for one in said.rejected] == [("team/three", "OutOfcpu")]
    assert said.rejected[0].message.endswith("requested: 2000, used: 4000, capacity: 5000")


def test_pod_is_stopped_if_its_init_containers_memory_is_taken() -> None:
    """kubernetes/kubernetes 123971."""
    initial = building.container("init", 1, "12Gi")
    node, pods = at(building.node(), pod("first", 1, init=initial), pod("later", 1, 12))
    said = restart(node, pods)
    assert [one.name for one in said.rejected] == ["team/first"]
    assert said.rejected[0].reason == "TopologyAffinityError"


def test_readmitted_init_container_takes_cpus_from_later_pods() -> None:
    """With the state file removed: while both came one by one, the first had given it back."""
    initial = building.container("init", 1, "12Gi")
    hardware = building.machine(1)
    node, pods = at(building.node(hardware), pod("first", 1, init=initial), pod("later", 1, 8))
    assert [one.name for one in restart(node, pods).rejected] == ["team/first"]
    smaller = other(
        node,
        reserved_memory=building.configuration(
            reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}]
        ).reserved_memory,
        kept_memory=None,
    )
    assert [one.name for one in restart(node, pods, smaller).rejected] == ["team/later"]


def test_late_plugin_makes_pods_with_init_container_devices_uncertain() -> None:
    devices = building.gpus((0,), (1,))
    initial = building.container("init", 1, vendor_gpu="1")
    node, pods = at(
        building.node(devices=devices),
        pod("one", 1, init=initial, vendor_gpu="1"),
        pod("two", 1, vendor_gpu="1"),
    )
    said = restart(node, pods)
    assert said.rejected == ()
    assert [(one.name, one.chance, one.reason, one.message) for one in said.uncertain] == [
        (
            "team/one",
            Uncertainty.PLUGINS,
            "UnexpectedAdmissionError",
            (
                "Allocate failed due to no healthy devices present; "
                "cannot allocate unhealthy devices vendor/gpu, which is unexpected"
            ),
        )
    ]


def test_devices_count_only_if_their_plugins_return_in_time() -> None:
    """Its CPUs stay where they are; the policy would now want them beside the device."""
    node, pods = at(building.node(policy="none", devices=building.gpus((1,))), pod("one", 2, vendor_gpu="1"))
    assert cpuset.format(node.state.cpus.assignments["one"]["main"]) == "1,9"
    said = restart(node, pods, other(node, topology_manager_policy="single-numa-node"))
    assert said.rejected == ()
    assert [(one.reason, one.chance) for one in said.uncertain] == [
        ("TopologyAffinityError", Uncertainty.PLUGINS)
    ]


def test_full_pcpus_only_counts_free_cores_despite_the_pods_own() -> None:
    """kubernetes/kubernetes 129078."""
    options = {"full-pcpus-only": "true"}
    hardware = building.machine(1, cores=4)
    node, pods = at(building.node(hardware, cpu_options=options), pod("most", 4))
    said = restart(node, pods)
    assert [(one.reason, one.message) for one in said.rejected] == [
        (
            "SMTAlignmentError",
            (
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, "
                "requested CPUs = 4, CPUs per core = 2"
            ),
        )
    ]


def test_outcome_that_depends_on_equal_creation_times_says_that() -> None:
    """A ReplicaSet's pods often are; a kubelet takes them in any order."""
    node, pods = at(building.node(), *(pod(name, 2) for name in ("old", "one", "two", "three")))
    tight = replace(node, allocatable={"cpu": 7_000, "memory": 30 * GI})
    tied = [pods[0], *(replace(each, created="2026-01-01T00:01:00Z") for each in pods[1:])]
    said = restart(tight, tied)
    assert said.rejected == ()
    assert {(one.name, one.reason) for one in said.uncertain} == {
        ("team/one", "OutOfcpu"),
        ("team/two", "OutOfcpu"),
        ("team/three", "OutOfcpu"),
    }
    assert [one.name for one in restart(tight, pods).rejected] == ["team/three"]
    roomy = restart(node, tied)
    assert all(one.admitted and one.chance is None for one in roomy.readmissions)


def test_cpus_that_depend_on_that_order_are_not_foretold() -> None:
    node, pods = at(building.node(), *(pod(name, cpus) for name, cpus in (("one", 2), ("two", 3))))
    tied = [replace(each, created="2026-01-01T00:01:00Z") for each in pods]
    said = restart(node, tied, other(node, reserved_system_cpus="0,1"))
    assert [one.file for one in said.refusals] == ["cpu_manager_state"]
    assert [(one.name, one.admitted, one.chance) for one in said.moved] == [
        ("team/one", True, Uncertainty.ORDER),
        ("team/two", True, Uncertainty.ORDER),
    ]


def test_static_pods_come_before_all_others() -> None:
    node, pods = at(building.node(), pod("one", 2), pod("two", 2))
    mirrored = replace(pods[1].info.pod, annotations=(("kubernetes.io/config.source", "file"),))
    said = restart(node, [pods[0], replace(pods[1], info=PodInfo(mirrored))])
    assert [one.name for one in said.readmissions] == ["team/two", "team/one"]


@given(data=st.data(), policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
def test_an_unchanged_kubelet_of_plain_pods_rejects_and_moves_none(data: st.DataObject, policy: str) -> None:
    node, pods = building.node(policy=policy), []
    for number in range(data.draw(st.integers(0, 6))):
        one = pod(f"p{number}", data.draw(st.integers(1, 8)), data.draw(st.integers(1, 12)))
        said = admit(node, one)
        if said.admitted:
            node = said.node
            pods.append(RunningPod(one.name, PodInfo(one), str(number), frozenset({"main"})))
    info = NodeInfo(node, {"cpu": 15_000, "memory": 100 * GI}, 110, name="worker-1")
    foreseen = restart(info, pods)
    assert foreseen.refusals == ()
    assert all(one.admitted and one.cpus is None for one in foreseen.readmissions)
