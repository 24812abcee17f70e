"""Pods on their way to a node: each is admitted whichever of the others come first, or nobody is promised."""

from dataclasses import replace
from typing import Any

import pytest

from numazones import build
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement.kubelet import KubeletPlacement
from numazones.prediction.arrivals import MAX_STATES, Arrivals
from numazones.prediction.forecast import PodKind, ask, beside
from numazones.prediction.held_room import with_held

SETTINGS: dict[str, Any] = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "7",
    "systemReserved": {"memory": "924Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
"""4 CPUs and 7 GiB on NUMA node 0, 3 CPUs and 8 GiB on NUMA node 1."""


def node(**settings: Any) -> ClusterNode:
    machine = build.machine(numa=2, cores=8, threads=1, memory="16Gi")
    allocatable = {"cpu": 7000, "memory": 15 << 30}
    return ClusterNode("worker-1", allocatable=allocatable).with_state(
        build.node(machine, SETTINGS | settings)
    )


def pod(name: str, *containers: tuple[Any, str], init: tuple[tuple[Any, str], ...] = ()) -> ClusterPod:
    """Containers by CPUs and memory."""
    body = build.pod_body(name, cpu=1, memory="1Gi")

    def listed(prefix: str, asked: tuple[tuple[Any, str], ...]) -> list[dict[str, Any]]:
        found = []
        for number, (cpu, memory) in enumerate(asked):
            amounts = {"cpu": str(cpu), "memory": memory}
            resources = {"requests": amounts, "limits": amounts}
            found.append({"name": f"{prefix}-{number}", "image": "i", "resources": resources})
        return found

    body["spec"] |= {"containers": listed("app", containers), "initContainers": listed("init", init)}
    return ClusterPod.from_api(body)


def kind(pod: ClusterPod) -> PodKind:
    found = PodKind.of(pod)
    assert found is not None
    return found


LARGE = pod("large", (4, "1Gi"))
SMALL = pod("small", (3, "1Gi"))
HOLDER = pod("holder", ("500m", "5Gi"))
"""Leaves CPUs of NUMA node 0 alone, and too little memory for the first container of PAIR."""
PAIR = pod("pair", (2, "3Gi"), (4, "1Gi"))
"""Alone its first container gets CPUs of NUMA node 0, and then the second fits nowhere."""


def with_running(node: ClusterNode, pod: ClusterPod, *, deleting: bool = False) -> ClusterNode:
    after = beside(replace(pod, deleting=deleting), node)
    assert after is not None
    return after


def test_pod_is_not_admitted_if_coming_first_would_displace_another() -> None:
    after = with_held(node(), [LARGE])
    assert after is not None
    assert ask(kind(SMALL), after).placement_admits  # if it comes second
    assert not Arrivals.of(node(), [LARGE]).admits(kind(SMALL))
    assert Arrivals.of(node(), []).admits(kind(SMALL))
    assert Arrivals.of(with_running(node(), LARGE), []).admits(kind(SMALL))


def test_arrival_dependent_on_an_unbound_pod_is_not_admitted() -> None:
    after = with_held(node(), [HOLDER])
    assert after is not None
    assert ask(kind(PAIR), after).placement_admits
    assert not Arrivals.of(node(), [HOLDER]).admits(kind(PAIR))


@pytest.mark.parametrize("deleting", [True, False], ids=["leaves", "may be asked to"])
def test_arrival_dependent_on_one_pods_presence_is_not_admitted(*, deleting: bool) -> None:
    beside_holder = with_running(node(), HOLDER, deleting=deleting)
    assert ask(kind(PAIR), beside_holder).placement_admits
    assert not Arrivals.of(beside_holder, []).admits(kind(PAIR))


def test_arrival_dependent_on_a_pod_is_admitted_while_that_stays() -> None:
    assert Arrivals.of(with_running(node(), HOLDER), []).admits_unless_pods_end(kind(PAIR))
    leaving = with_running(node(), HOLDER, deleting=True)
    assert not Arrivals.of(leaving, []).admits_unless_pods_end(kind(PAIR))


def test_leaving_pod_makes_no_room_before_it_is_gone() -> None:
    full = with_running(with_running(node(), LARGE, deleting=True), SMALL)
    assert not Arrivals.of(full, []).admits(kind(pod("other", (2, "1Gi"))))


def test_memory_of_init_containers_counts_until_their_pod_has_started() -> None:
    """NUMA node 1 has no CPUs left; of the 7 GiB of NUMA node 0 the init container holds 6."""
    others = with_running(node(), pod("filler", (3, "7500Mi")))
    starting, last = pod("starting", (1, "1Gi"), init=((1, "6Gi"),)), kind(pod("last", (1, "1100Mi")))
    after = with_held(others, [starting])
    assert after is not None
    assert ask(last, after).placement_admits  # once it has started
    assert not Arrivals.of(others, [starting]).admits(last)
    state = others.known
    assert isinstance(state, KubeletPlacement)
    assert starting.admission is not None
    fresh = state.admit(starting.admission).unstarted
    running = others.with_pod(starting.placed("worker-1"))
    assert not Arrivals.of(running.with_placement(fresh), []).admits(last)
    assert Arrivals.of(running.with_placement(fresh.started(starting.admission)), []).admits(last)


def test_pods_of_a_kind_cost_one_state_each() -> None:
    pods = [pod(f"p{number}", (1, "1Gi")) for number in range(7)]
    assert Arrivals.of(node(), pods[:6]).admits(kind(pods[6]))
    assert not Arrivals.of(node(), pods).admits(kind(pods[6]))


def test_too_many_different_arrivals_promise_nothing() -> None:
    pods = [pod(f"p{number}", (1, f"{100 + number}Mi")) for number in range(6)]
    assert 2 ** len(pods) > MAX_STATES
    assert Arrivals.of(node(), pods[:3]).admits(kind(pods[5]))
    assert not Arrivals.of(node(), pods).admits(kind(SMALL))


def test_arrival_that_is_rejected_anyway_has_no_effect() -> None:
    huge = pod("huge", (5, "1Gi"))
    arrivals = Arrivals.of(node(), [huge])
    assert not arrivals.admits(kind(huge))
    assert Arrivals.of(replace(node(), allocatable={"cpu": 99000, "memory": 99 << 30}), [huge]).admits(
        kind(LARGE)
    )


def test_unreadable_arrivals_and_unknown_nodes_promise_nothing() -> None:
    unreadable = ClusterPod.from_api(
        build.pod_body("odd") | {"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}
    )
    assert not Arrivals.of(node(), [unreadable]).admits(kind(SMALL))
    assert not Arrivals.of(ClusterNode("worker-1"), []).admits(kind(SMALL))
