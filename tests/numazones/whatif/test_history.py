"""A history is replayed operation by operation; whatever the model sees otherwise is named."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet.admission import admit
from numazones.kubelet.machine import Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.whatif.history import (
    AlreadyRunning,
    Arrival,
    Departure,
    DeviceHealth,
    KubeletRestart,
    Observed,
    Operation,
    Preference,
    ReplayedDecision,
    replay,
)
from tests.numazones.kubelet import building

GI = building.GI
ALIGNMENT = "Resources cannot be allocated with Topology locality"


def arrival(name: str, count: int, *, gpus: int = 0, ended: bool = False, **seen: Any) -> Arrival:
    limits = {"vendor_gpu": str(gpus)} if gpus else {}
    pod = building.pod(name, building.container("main", count, **limits))
    return Arrival(f"team/{name}", PodInfo(pod), Observed(**{"admitted": True, **seen}), ended=ended)


def replayed(operations: Iterable[Operation], *, cpu: int = 16_000) -> list[ReplayedDecision]:
    devices = building.gpus((0,), (0,), (1,))
    preference = Preference()
    state = Node.fresh(building.machine(), building.configuration(), devices, preferred_allocation=preference)
    node = NodeInfo(state, allocatable={"cpu": cpu, "memory": 32 * GI})
    return list(replay(node, devices, operations, preference=preference))


def differences(*operations: Operation, **node: int) -> list[str]:
    return [line for outcome in replayed(operations, **node) for line in outcome.differences]


def test_what_was_observed_and_what_the_model_says_agree() -> None:
    first = arrival(
        "first",
        4,
        cpus={"main": cpuset.parse("1-2,9-10")},
        memory={"main": (("memory", (0,), GI),)},
        default_cpus=cpuset.parse("0,3-8,11-15"),
    )
    rejected = arrival("second", 9, admitted=False, reason="TopologyAffinityError", message=ALIGNMENT)
    assert replayed([first, rejected]) == [ReplayedDecision("team/first"), ReplayedDecision("team/second")]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        pytest.param(
            {"admitted": False, "reason": "OutOfcpu", "message": "full"},
            "observed OutOfcpu: full, model admitted",
            id="verdict",
        ),
        pytest.param({"cpus": {"main": 6}}, "CPUs: observed main 1-2, model main 1-2,9-10", id="CPUs"),
        pytest.param({"cpus": {}}, "CPUs: observed none, model main 1-2,9-10", id="no CPUs"),
        pytest.param(
            {"memory": {}},
            f"memory: observed {{}}, model {{'main': (('memory', (0,), {GI}),)}}",
            id="memory",
        ),
        pytest.param({"default_cpus": 1}, "shared CPUs: observed 0, model 0,3-8,11-15", id="shared CPUs"),
        pytest.param(
            {"devices": frozenset({"gpu-9"})}, "devices: observed ['gpu-9'], model []", id="devices"
        ),
    ],
)
def test_each_difference_is_named(seen: dict[str, Any], said: str) -> None:
    assert differences(arrival("first", 4, **seen)) == [said]


def test_node_level_check_follows_the_managers() -> None:
    message = "Node didn't have enough resource: cpu, requested: 4000, used: 4000, capacity: 6000"
    late = arrival("late", 4, admitted=False, reason="OutOfcpu", message=message)
    assert differences(arrival("first", 4), late, cpu=6_000) == []


def test_resources_are_free_once_a_pod_left_or_ended() -> None:
    seven: dict[str, Any] = {"cpus": {"main": cpuset.parse("1-3,8-11")}}
    assert differences(arrival("first", 7), Departure("first"), arrival("next", 7, **seven)) == []
    assert differences(arrival("job", 7, ended=True), arrival("next", 7, **seven)) == []


def test_pod_with_unseen_decision_counts_but_is_not_compared() -> None:
    unseen = arrival("unseen", 7, admitted=None)
    after = arrival("after", 4, cpus={"main": cpuset.parse("4-5,12-13")})
    assert replayed([unseen, after]) == [ReplayedDecision("team/after")]


def test_pods_that_run_are_admitted_again_after_a_restart() -> None:
    first, second = arrival("first", 4), arrival("second", 2)
    outcomes = replayed([first, second, Departure("second"), KubeletRestart()])
    assert outcomes == [
        ReplayedDecision("team/first"),
        ReplayedDecision("team/second"),
        ReplayedDecision("team/first"),
    ]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((), []),
        (("first",), []),  # freed when the next init container started
        (("first", "second"), []),
        (("first", "second", "main"), ["after a restart: the model gives it different resources"]),
    ],
)
def test_init_containers_that_still_run_are_no_difference(gone: tuple[str, ...], said: list[str]) -> None:
    fresh = Node.fresh(building.machine(), building.configuration(), {})
    init = (building.container("first", 2, "4Gi"), building.container("second", 1, "6Gi"))
    pod = building.pod("p", building.container("main", 2), init=init)
    given = admit(fresh, pod).fresh
    assert given.memory.assignments["p"].keys() == {"first", "second", "main"}
    memory = given.kubelet.memory.remove(given.memory, "p", gone)
    state = Node(given.kubelet, given.cpus, memory, given.devices)
    held = AlreadyRunning("team/p", PodInfo(pod), {"main": given.cpus.assignments["p"]["main"]}, {})
    node = NodeInfo(state, allocatable={"cpu": 16_000, "memory": 32 * GI})
    (outcome,) = replay(node, {}, [held], preference=Preference())
    assert list(outcome.differences) == said


def test_pod_that_a_restart_would_reject_is_no_difference() -> None:
    """As a kubelet 1.36.2 did: the memory of the init container was taken, and the pod was stopped."""
    fresh = Node.fresh(building.machine(), building.configuration("restricted"), {})
    init = (building.container("init", 1, "12Gi"),)
    first = building.pod("first", building.container("main", 2, "1Gi"), init=init)
    state = admit(fresh, first).node
    state = admit(state, building.pod("second", building.container("main", 2, "13Gi"))).node
    seen: Any = {"main": (("memory", (0,), GI),)}
    held = AlreadyRunning(
        "team/first", PodInfo(first), {"main": state.cpus.assignments["first"]["main"]}, seen
    )
    node = NodeInfo(state, allocatable={"cpu": 16_000, "memory": 32 * GI})
    said = f"TopologyAffinityError: {ALIGNMENT}"
    assert list(replay(node, {}, [held], preference=Preference())) == [
        ReplayedDecision("team/first", (), said)
    ]


def test_running_pod_with_other_devices_is_named() -> None:
    devices = building.gpus((0,), (0,), (1,))
    fresh = Node.fresh(building.machine(), building.configuration(), devices)
    pod = arrival("p", 2, gpus=1).pod
    given = admit(fresh, pod.pod).node
    held = [AlreadyRunning("team/p", pod, {}, {}, frozenset({name})) for name in ("gpu-0", "gpu-9")]
    outcomes = replay(NodeInfo(given), devices, held, preference=Preference())
    assert [one.differences for one in outcomes] == [
        (),
        ("devices: observed ['gpu-9'], in the state ['gpu-0']",),
    ]


def test_pod_of_a_kubelet_that_would_hang_is_named() -> None:
    many = tuple(NUMANode(numa, 16 * GI) for numa in range(34))
    machine = Machine(building.machine(1).cpus, many)
    state = Node.fresh(machine, building.configuration("none"), {})
    held = AlreadyRunning("team/p", PodInfo(building.pod("p", building.container("main", 2))), {}, {})
    (outcome,) = replay(NodeInfo(state), {}, [held], preference=Preference())
    assert outcome.differences[0].startswith("the model does not decide: the kubelet would hang")


def test_failed_device_is_not_assigned_until_it_recovers() -> None:
    sick, well = (DeviceHealth("vendor/gpu", "gpu-2", healthy) for healthy in (False, True))
    wanted = arrival("wanted", 8, gpus=1, devices=frozenset({"gpu-2"}))
    assert differences(sick, wanted) == [f"observed admitted, model TopologyAffinityError: {ALIGNMENT}"]
    assert differences(sick, well, wanted) == []


def test_the_kubelets_own_pick_among_equal_devices_is_taken() -> None:
    for picked in ("gpu-0", "gpu-1"):
        assert differences(arrival("one", 1, gpus=1, devices=frozenset({picked}))) == []


def test_a_decision_that_the_model_declines_is_a_difference() -> None:
    pod = building.pod("huge", building.container("main", 1, **{"hugepages-2Mi": "2Mi"}))
    declined = replace(arrival("huge", 1), pod=PodInfo(pod))
    [said] = differences(declined)
    assert said.startswith("the model does not decide: ")
