"""Idle exclusive CPUs: the request that fits, as the node's kubelet would admit it, and what fits then."""

from typing import Any

import pytest

from numazones.advice.right_sizing import fitting_cpus, resized, right_sizing
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.usage import MeasuredUse
from numazones.kubelet.admission import admit
from numazones.placement.fragmentation import Shape
from tests.numazones.kubelet import building

SHAPE = Shape.parse("cpu=4")


def pod(name: str, *cpus: int, owner: str = "", init: int = 0) -> ClusterPod:
    containers = [building.container(f"c{number}", count) for number, count in enumerate(cpus)]
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}] if owner else []
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "ownerReferences": owners},
        "spec": {
            "nodeName": "n",
            "containers": containers,
            "initContainers": [building.container("init", init)] if init else [],
        },
        "status": {"phase": "Running"},
    }
    return ClusterPod.from_api(body)


def node(*pods: ClusterPod, **settings: Any) -> ClusterNode:
    """Two NUMA nodes of 8 CPUs; CPU 0 is reserved, of whole cores 0 and 8."""
    state = building.node(**settings)
    for one in pods:
        assert one.admission is not None
        state = admit(state, one.admission).node
    amounts = {"cpu": 15000, "memory": 30 << 30}
    found = ClusterNode("n", allocatable=amounts, pod_slots=110).with_state(state)
    for one in pods:
        found = found.with_pod(one)
    return found


def use(name: str, cpus: int, used: float, container: str = "c0") -> MeasuredUse:
    return MeasuredUse("team", name, container, "n", cpus, used, 3600.0)


def test_idle_containers_are_sorted_by_cpus_they_would_free() -> None:
    found = right_sizing(
        {"n": node(pod("a", 6), pod("b", 4), pod("busy", 3))},
        [use("b", 4, 0.1), use("a", 6, 0.3), use("busy", 3, 0.9)],
        SHAPE,
    )
    assert [(one.use.pod, one.request, one.given_back, one.then_fit) for one in found.idle] == [
        ("a", 1, 5, 1),
        ("b", 1, 3, 1),
    ]
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("cpus", "used", "request_"),
    [(8, 0.79, 1), (16, 0.8, 1), (16, 0.81, 2), (32, 3.0, 4), (2, 0.0, 1)],
)
def test_request_keeps_its_cpus_four_fifths_busy_at_most(cpus: int, used: float, request_: int) -> None:
    assert fitting_cpus(use("a", cpus, used)) == request_


def test_request_is_one_that_the_kubelet_admits() -> None:
    whole_cores = {"cpu_options": {"full-pcpus-only": "true"}}
    (one,) = right_sizing({"n": node(pod("a", 6), **whole_cores)}, [use("a", 6, 0.1)]).idle
    assert one.request == 2


def test_containers_of_one_pod_shrink_together() -> None:
    whole = node(pod("a", 4, 4), pod("b", 3))
    found = right_sizing({"n": whole}, [use("a", 4, 0.1), use("a", 4, 0.1, "c1"), use("b", 3, 0.1)], SHAPE)
    assert found.more_pods({"n": whole}, SHAPE) == {"n": 2}
    assert sum(one.given_back for one in found.idle) == 8


def test_nothing_is_said_of_what_cannot_be_checked() -> None:
    here = node(pod("a", 6))
    found = right_sizing(
        {"n": here, "m": ClusterNode("m")},
        [
            use("gone", 4, 0.0),
            use("a", 6, 0.0, ""),
            MeasuredUse("team", "x", "c0", "m", 4, 0.0, 60.0),
            MeasuredUse("team", "x", "c0", "nowhere", 4, 0.0, 60.0),
        ],
        SHAPE,
    )
    assert found.idle == ()
    assert [one.why for one in found.unknown] == [
        "its CPUs are assigned to the pod as a whole",
        "the state of node m is unknown",
        "pod team/gone does not exist or cannot be read",
        "node nowhere does not exist",
    ]


def test_pod_is_resized_to_its_use_and_never_enlarged() -> None:
    here = node(pod("a", 6, 2))
    asked = here.pods["a"]
    assert resized(asked, [use("a", 6, 1.7), use("a", 2, 2.0, "c1")], here).requests["cpu"] == 5000


def test_busiest_replica_decides_for_all_of_them() -> None:
    here = node(pod("a", 4, owner="web"), pod("b", 4, owner="web"))
    found = right_sizing({"n": here}, [use("a", 4, 0.1), use("b", 4, 2.0)])
    assert [(one.use.pod, one.request) for one in found.idle] == [("a", 3)]
    assert right_sizing({"n": here}, [use("a", 4, 0.1), use("b", 4, 3.9)]).idle == ()


def test_replica_that_was_not_measured_leaves_all_unjudged() -> None:
    here = node(pod("a", 4, owner="web"), pod("b", 4, owner="web"))
    (one,) = right_sizing({"n": here}, [use("a", 4, 0.1)]).unknown
    assert one.why == "its replica team/b was not measured, or not for long enough"


@pytest.mark.parametrize("cpus", [2, 12, 60_000])
def test_use_measured_with_other_cpus_is_not_judged(cpus: int) -> None:
    found = right_sizing({"n": node(pod("a", 6))}, [use("a", cpus, 0.0)])
    assert found.idle == ()
    assert [one.why for one in found.unknown] == [
        f"measured with {cpus} CPUs, but its kubelet has since given it 6"
    ]


def test_requests_of_all_idle_containers_are_admitted_together() -> None:
    options = {"cpu_options": {"full-pcpus-only": "true"}, "scope": "pod", "policy": "single-numa-node"}
    whole = node(pod("a", 2, 4), pod("b", 4, 2), **options)
    uses = [
        MeasuredUse("team", name, container, "n", cpus, 0.0, 3600.0)
        for name, amounts in (("a", (2, 4)), ("b", (4, 2)))
        for container, cpus in zip(("c0", "c1"), amounts, strict=True)
    ]
    found = right_sizing({"n": whole}, uses)
    assert {(one.use.pod, one.use.container, one.request) for one in found.idle} == {
        ("a", "c1", 2),
        ("b", "c0", 2),
    }
    assert found.nodes["n"].state is not None
    after = {
        uid: held.bit_count() for uid, held in found.nodes["n"].state.cpus.exclusive_cpus_by_pod().items()
    }
    assert after == {"a": 4, "b": 4}


def test_cpus_that_an_init_container_keeps_are_not_given_back() -> None:
    here = node(pod("a", 2, init=6))
    found = right_sizing({"n": here}, [use("a", 2, 0.1), use("a", 6, 0.1, "init")])
    assert found.idle == ()
    assert [one.why for one in found.unknown] == [
        "init container init has finished, but the pod keeps its CPUs"
    ]
    assert resized(here.pods["a"], [use("a", 6, 0.1, "init")], here).requests["cpu"] == 6000
    partly = node(pod("a", 6, init=4))
    found = right_sizing({"n": partly}, [use("a", 6, 0.1)])
    # Of 6, init keeps 4, and the kubelet gives c0 the CPU whose sibling is reserved.
    assert [(one.request, one.given_back) for one in found.idle] == [(1, 1)]
    assert found.given_back({"n": partly}) == 1
