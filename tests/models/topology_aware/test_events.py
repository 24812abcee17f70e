"""Containers come, are resized, and go; configurations change."""

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware.events import create, remove_pod, run_pod, stop
from numazones_topology_aware.node import ContainerUpdate, Node
from numazones_topology_aware.sandbox import CGroup, ContainerSpec, Sandbox
from tests.conformance.topology_aware_events import (
    exported_variables,
    finish_cold_start,
    reconfigure,
    resize,
)
from tests.models.topology_aware.machines import GIB, configuration, hardware

MIB = 1 << 20
ONE_CPU = CGroup(1024, 100_000, 100_000, 128 * MIB, -997)
SHARED = CGroup(102, 20_000, 100_000, 64 * MIB, 998)


def node(**changes: object) -> Node:
    fresh = Node.fresh(hardware(), configuration(prefer_isolated=False, **changes))
    for name, qos in (("g", "Guaranteed"), ("b", "Burstable"), ("e", "BestEffort")):
        fresh = run_pod(fresh, Sandbox(name, f"pod-{name}", "default", f"uid-{name}", QOSClass(qos)))
    return fresh


def test_new_container_of_the_same_name_replaces_the_old_one() -> None:
    once = create(node(), "g", ContainerSpec("old", "c", ONE_CPU)).node
    again = create(once, "g", ContainerSpec("new", "c", ONE_CPU)).node
    assert set(again.grants) == {"new"}
    assert again.grants["new"].exclusive == once.grants["old"].exclusive


def test_a_resize_moves_amounts_within_the_pool() -> None:
    first = create(node(), "g", ContainerSpec("a", "c", ONE_CPU)).node
    outcome = resize(first, "a", CGroup(2048, 200_000, 100_000))
    grant = outcome.node.grants["a"]
    assert grant.pool == first.grants["a"].pool
    assert grant.exclusive.bit_count() == 2
    assert outcome.updates["a"].shares == 2048


def test_an_identical_resize_sends_everything_again() -> None:
    first = create(node(), "b", ContainerSpec("a", "c", SHARED)).node
    outcome = resize(first, "a", CGroup())
    assert outcome.updates["a"] == ContainerUpdate(
        first.cpus_of("a"), first.containers["a"].mems, 102, 20_000, 100_000, 64 * MIB
    )
    assert outcome.node.grants == first.grants


def test_a_failed_resize_loses_the_grant_and_tells_others_later() -> None:
    first = create(node(), "b", ContainerSpec("shared", "s", SHARED)).node
    second = create(first, "g", ContainerSpec("a", "c", ONE_CPU)).node
    failed = resize(second, "a", CGroup(64 * 1024))
    assert failed.error is not None
    assert failed.updates == {}
    assert "a" not in failed.node.grants
    assert failed.node.cpus_of("a") == second.cpus_of("a")
    assert set(failed.node.pending) == {"shared"}
    later = stop(failed.node, "a")
    assert later.updates["shared"].cpus == later.node.cpus_of("shared")
    assert not later.node.pending


def test_container_without_a_grant_is_placed_by_its_next_resize() -> None:
    rejected = create(node(), "g", ContainerSpec("a", "c", CGroup(64 * 1024))).node
    assert "a" not in rejected.grants
    placed = resize(rejected, "a", CGroup(1024))
    assert placed.error is None
    assert placed.node.grants["a"].exclusive.bit_count() == 1


def test_events_of_unknown_containers_change_nothing() -> None:
    fresh = node()
    assert stop(fresh, "x").node is fresh
    assert resize(fresh, "x", CGroup(1024)).node is fresh
    error = finish_cold_start(fresh, "x").error
    assert error is not None
    assert error.code == "no-grant"
    assert exported_variables(fresh, "x") == []


def test_a_pod_takes_its_rejected_containers_along() -> None:
    rejected = create(node(), "g", ContainerSpec("a", "c", CGroup(64 * 1024))).node
    gone = remove_pod(rejected, "g")
    assert (set(gone.sandboxes), gone.containers) == ({"b", "e"}, {})


def tiered() -> Node:
    cold = Sandbox(
        "s", "p", "d", "u", QOSClass.GUARANTEED,
        annotations={"cold-start.resource-policy.nri.io": "duration: 60s"},
    )  # fmt: skip
    return run_pod(Node.fresh(hardware(far=(8 * GIB, 8 * GIB)), configuration()), cold)


def test_end_of_cold_start_adds_dram_and_the_next_nodes() -> None:
    cold = create(tiered(), "s", ContainerSpec("a", "c", ONE_CPU)).node
    before = cold.grants["a"].zone
    outcome = finish_cold_start(cold, "a")
    after = outcome.node.grants["a"].zone
    assert before & ~after == 0
    assert after & cpuset.parse("0-3")
    assert outcome.updates["a"].mems == after


def test_a_cold_start_without_further_nodes_ends_where_it_is() -> None:
    plain = create(node(), "g", ContainerSpec("a", "c", ONE_CPU)).node
    outcome = finish_cold_start(plain, "a")
    assert outcome.node.grants["a"].zone == plain.grants["a"].zone


def test_invalid_configuration_is_rejected_and_the_old_one_restored() -> None:
    full = create(node(), "g", ContainerSpec("a", "c", CGroup(4096, 400_000, 100_000, 128 * MIB))).node
    answer = reconfigure(full, configuration(prefer_isolated=False, available_cpu="cpuset:0-2"))
    assert answer.outcome.error is not None
    assert answer.revert_error is None
    assert answer.outcome.node.policy.available == full.policy.available
    assert answer.outcome.node.grants["a"].exclusive == full.grants["a"].exclusive


def test_configuration_that_prevents_the_plugins_start_is_rejected() -> None:
    answer = reconfigure(node(), configuration(reserved_cpu=None))
    assert answer.outcome.error is not None
    assert answer.outcome.error.code == "reconfigure"


def test_containers_that_no_longer_fit_are_placed_again() -> None:
    first = create(node(), "g", ContainerSpec("a", "c", ONE_CPU)).node
    taken = cpuset.format(first.grants["a"].exclusive)
    answer = reconfigure(first, configuration(prefer_isolated=False, available_cpu=f"exclude-cpuset:{taken}"))
    assert answer.outcome.error is None
    assert answer.outcome.node.grants["a"].exclusive not in {0, first.grants["a"].exclusive}


def test_reserved_containers_count_nothing_after_a_reconfiguration() -> None:
    system = run_pod(node(), Sandbox("k", "dns", "kube-system", "u", QOSClass.BURSTABLE))
    first = create(system, "k", ContainerSpec("a", "c", SHARED)).node
    assert first.grants["a"].reserved == 100
    answer = reconfigure(first, first.policy.config)
    assert answer.outcome.node.grants["a"].reserved == 0
    assert answer.outcome.updates["a"].shares == 2


def test_nothing_is_pinned_where_pinning_is_off() -> None:
    outcome = create(node(pin_cpu=False, pin_memory=False), "g", ContainerSpec("a", "c", ONE_CPU))
    assert outcome.own == ContainerUpdate(mems=0)
    assert not outcome.followers
