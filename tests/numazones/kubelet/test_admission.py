"""Whole decisions: laws that hold whatever the node, and the cases the laws leave out."""

from typing import Any

import pytest
from hypothesis import assume, given, settings

from numazones import cpuset
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.explanation import explain
from numazones.kubelet.hints import Hint
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.laws import examples
from tests.numazones.kubelet.building import container, gpus, machine, node, pod, sidecar
from tests.numazones.kubelet.days import days, play


@settings(max_examples=examples(150))
@given(days())
def test_cpus_and_devices_belong_to_one_pod_only(day: tuple[Node, list[Pod]]) -> None:
    _, after = play(*day)
    pods_cpus = [
        cpuset.of(cpu for cpus in held.values() for cpu in cpuset.ids(cpus)) | after.cpus.pods.get(uid, 0)
        for uid, held in after.cpus.assignments.items()
    ]
    assert sum(cpus.bit_count() for cpus in pods_cpus) == after.cpus.exclusive_cpus().bit_count()
    assert after.cpus.exclusive_cpus() & after.cpus.default == 0
    assert after.cpus.exclusive_cpus() & after.kubelet.cpus.reserved == 0
    for resource in after.kubelet.devices.resources:
        held = [
            {device for kinds in containers.values() for device in kinds.get(resource, ())}
            for containers in after.device_assignments.values()
        ]
        assert sum(map(len, held)) == len(set().union(*held))


@settings(max_examples=examples(150))
@given(days())
def test_memory_is_never_lost(day: tuple[Node, list[Pod]]) -> None:
    _, after = play(*day)
    manager = after.kubelet.memory
    for kind, allocatable in manager.allocatable.items():
        for position, total in enumerate(allocatable):
            assert after.memory.free[kind][position] + after.memory.reserved[kind][position] == total


@settings(max_examples=examples(150))
@given(days())
def test_removing_all_pods_leaves_a_fresh_node(day: tuple[Node, list[Pod]]) -> None:
    start, arrivals = day
    _, after = play(start, arrivals)
    for arrival in arrivals:
        after = remove(after, arrival.uid)
    # Without the check of groups, a group may be drained of what another one was charged.
    if after.config.release.checks_memory_groups:
        assert after == start
        assert after.state_key == start.state_key
    assert after.pods == frozenset()


@settings(max_examples=examples(100))
@given(days())
def test_decisions_do_not_depend_on_names(day: tuple[Node, list[Pod]]) -> None:
    start, arrivals = day
    renamed = [
        Pod(f"other-{arrival.uid}", "elsewhere", f"x{index}", arrival.containers, arrival.resources)
        for index, arrival in enumerate(reversed(arrivals))
    ]
    admissions, after = play(start, arrivals)
    again, other = play(start, list(reversed(renamed)))
    assert [(one.admitted, one.reason, one.message) for one in admissions] == [
        (one.admitted, one.reason, one.message) for one in again
    ]
    assert after.state_key == other.state_key


@settings(max_examples=examples(100))
@given(days())
def test_a_decision_leaves_the_node_it_was_made_for_alone(day: tuple[Node, list[Pod]]) -> None:
    start, arrivals = day
    key = start.state_key
    admissions, _ = play(start, arrivals)
    assert start.state_key == key
    for admission in admissions:
        repeated = admit(admission.before, admission.pod)
        assert repeated.node.state_key == admission.node.state_key


@settings(max_examples=examples(100))
@given(days())
def test_every_rejection_is_explained_and_gives_its_cpus_back(day: tuple[Node, list[Pod]]) -> None:
    for admission in play(*day)[0]:
        explanation = explain(admission)
        assert explanation.admitted == admission.admitted
        assert (explanation.shortfall == "") == admission.admitted
        if not admission.admitted:
            assert admission.node.cpus == admission.before.cpus
            assert admission.node.devices == admission.before.devices


@settings(max_examples=examples(60))
@given(days())
def test_a_restarted_kubelet_admits_its_containers_again_from_its_state(day: tuple[Node, list[Pod]]) -> None:
    """Unless parts of cores are asked about first, or the pod as a whole is compared with one container."""
    admissions, after = play(*day)
    options = dict(after.config.cpu_manager_policy_options)
    assume(not after.kubelet.topology.pod_scope and "full-pcpus-only" not in options)
    for admission in admissions:
        simple = len(admission.pod.containers) == 1
        if admission.admitted and simple:
            again = admit(after, admission.pod)
            assert again.admitted
            assert again.node.state_key == after.state_key


def test_pod_scope_gives_all_containers_the_same_affinity() -> None:
    start = node(machine(2, cores=4), scope="pod")
    admission = admit(start, pod("u", container("a", 2), container("b", 4)))
    assert {given.affinity for given in admission.containers.values()} == {Hint(0b01, True)}
    rejected = admit(start, pod("u", container("a", 4), container("b", 6)))
    assert (rejected.admitted, rejected.reason) == (False, "TopologyAffinityError")


def test_container_scope_may_split_a_pod() -> None:
    admission = admit(node(machine(2, cores=4)), pod("u", container("a", 6), container("b", 6)))
    assert [given.affinity.affinity for given in admission.containers.values()] == [0b01, 0b10]


def test_container_reuses_the_cpus_of_every_init_container() -> None:
    init = (container("wide", 6), container("narrow", 2))
    containers = admit(node(machine(2, cores=4)), pod("u", container("app", 6), init=init)).containers
    assert containers["narrow"].cpus & ~containers["wide"].cpus == 0
    assert containers["app"].cpus == containers["wide"].cpus


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (({}, pod("u")), "use build.node or node_from_zones; for a ClusterNode, pass its state"),
        ((node(), {}), "use build.pod or Pod.from_api"),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_pass(arguments: tuple[Any, Any], answer: str) -> None:
    with pytest.raises(TypeError, match=f"; {answer}$"):
        admit(*arguments)


def test_sidecars_count_towards_the_pod_with_what_starts_after_them() -> None:
    start = node(machine(2, cores=4), scope="pod", memory="None")
    init = (container("before", 8), sidecar("side", 2), container("after", 6))
    assert admit(start, pod("u", container("app", 6), init=init)).admitted
    too_many = (sidecar("side", 4), container("after", 6))
    assert not admit(start, pod("u", container("app", 1), init=too_many)).admitted


def test_policy_none_stores_no_affinity() -> None:
    admission = admit(node(policy="none"), pod("u"))
    assert admission.containers["c"].affinity == Hint(None, False)


def test_pod_level_resources_leave_cpus_and_memory_to_nobody() -> None:
    resources = {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    admission = admit(node(), pod("u", container("c", 2, "2Gi"), resources=resources))
    assert admission.admitted
    assert (admission.containers["c"].cpus, admission.containers["c"].memory) == (0, ())


def test_a_rejected_pods_grants_are_freed() -> None:
    start = node(machine(2, cores=4))
    rejected = admit(start, pod("u", container("a", 2), container("b", 9)))
    assert not rejected.admitted
    assert rejected.node == start
    assert rejected.containers == {}


def test_removing_an_unknown_pod_changes_nothing() -> None:
    start = node()
    assert remove(start, "unknown") is start


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    "keeps",
    [
        {"memory": "None"},
        {"cpus": "none", "reserved": ""},
        {"cpus": "none", "reserved": "", "memory": "None", "devices": gpus((0,), (1,))},
    ],
    ids=["CPUs", "memory", "devices"],
)
def test_readmitted_pod_gets_hints_for_its_place(keeps: dict[str, Any], scope: str) -> None:
    """As after a restart of the kubelet; other NUMA nodes may look better by then."""
    start = node(machine(2, cores=4), scope=scope, **keeps)
    asked = pod("u", container("c", 2, "1Gi", vendor_gpu="1"))
    full = admit(start, pod("early", container("c", 7, "15Gi", vendor_gpu="1"))).node
    admission = admit(full, asked)
    assert admission.affinities == {"c": Hint(0b10, True)}
    alone = remove(admission.node, "early")
    again = admit(alone, asked)
    assert again.affinities == {"c": Hint(0b10, True)}
    assert again.node == alone
