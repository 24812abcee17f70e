"""Predictions of admission, reasons and the first node, as people and programs read them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.apimachinery.taints import Taint
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers
from numazones.placement import Placement, Unknown
from numazones.placement.kubelet import SOURCE
from numazones.prediction import forecast as prediction
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    NodeAnswer,
    PodKind,
    ask,
    predict,
)

GIB = 2**30
NIC = "vendor.example/nic"
STALE = Unknown("LeaseExpired", "the exporter's Lease was not renewed for 200 s")


def machine(*, zones: int = 2, cores: int = 8) -> Machine:
    """Zones of 2 * cores CPUs, sibling threads next to each other, and 32 GiB each."""
    size = 2 * cores
    cpus = tuple(CPU(id=i, core=i // 2, socket=i // size, die=0, numa=i // size) for i in range(zones * size))
    return Machine(cpus, tuple(NUMANode(id=n, memory=32 * GIB) for n in range(zones)))


def node_state(
    *, policy: str = "single-numa-node", held: tuple[int, int] = (0, 0), nics: int = 0, **config: Any
) -> Node:
    """A node with CPUs 0,1 of zone 0 reserved and ``held`` CPUs given away per zone; NICs are at zone 1."""
    configuration = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0,1",
            "memoryManagerPolicy": "Static",
            "systemReserved": {"memory": "924Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "topologyManagerPolicy": policy,
            **config,
        }
    )
    taken = {
        f"uid-held-{zone}": {"main": cpuset.of(range(16 * zone + 16 - cpus, 16 * zone + 16))}
        for zone, cpus in enumerate(held)
        if cpus
    }
    devices = {NIC: [Device(f"nic-{number}", numa=(1,)) for number in range(nics)]} if nics else {}
    return Node.restore(KubeletManagers.start(configuration, machine(), devices), cpu_assignments=taken)


def worker(name: str, state: Node | None = None, **values: Any) -> ClusterNode:
    node = ClusterNode(name, allocatable={"cpu": 30000, "memory": 62 * GIB, NIC: 4}, **values)
    return node.with_placement(STALE) if state is None else node.with_state(state)


def pod(name: str, *, cpu: int | str = 1, memory: str = "1Gi", nics: int = 0, **spec: Any) -> ClusterPod:
    amounts: Mapping[str, str] = {"cpu": str(cpu), "memory": memory} | ({NIC: str(nics)} if nics else {})
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    return ClusterPod.from_api(
        {
            "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
            "spec": {"containers": [container], **spec},
        }
    )


def test_the_verdict_is_admissible_if_one_node_admits() -> None:
    full, empty = worker("worker-1", node_state(held=(14, 16))), worker("worker-2", node_state())
    result = predict(pod("big", cpu=16), [full, empty])
    assert result.verdict == ADMISSIBLE
    assert (result.nodes.evaluated, result.nodes.admissible, result.nodes.stale, result.nodes.excluded) == (
        2,
        1,
        0,
        0,
    )
    assert [(item.node, item.zones) for item in result.candidates] == [("worker-2", (1,))]
    assert result.sentence == "1 of 2 nodes would admit it; best is worker-2 on NUMA node 1"


def test_several_numa_nodes_are_named_as_a_list() -> None:
    wide = pod("wide", cpu=20, memory="40Gi")
    result = predict(wide, [worker("worker-1", node_state(policy="best-effort"))])
    assert result.sentence == "1 of 1 nodes would admit it; best is worker-1 on NUMA nodes 0-1"


def test_rejection_has_the_kubelets_words_and_plain_ones() -> None:
    nodes = [
        worker("worker-1", node_state(held=(10, 10))),
        worker("worker-2", node_state(held=(10, 4))),
        worker("worker-3", node_state(held=(14, 12))),
    ]
    result = predict(pod("big", cpu=16), nodes)
    assert result.verdict == INADMISSIBLE
    (reason,) = result.reasons
    assert reason.reason == "TopologyAffinityError"
    assert reason.source == SOURCE
    assert reason.message == "Resources cannot be allocated with Topology locality"
    assert reason.count == 3
    assert reason.node == "worker-2"
    assert reason.sentence == (
        "needs 16 exclusive CPUs on one NUMA node; at most 12 are free on one NUMA node (NUMA node 1 of "
        "worker-2)"
    )
    assert result.sentence == reason.sentence


def test_a_node_whose_state_is_unknown_never_counts_as_fitting() -> None:
    result = predict(pod("a"), [worker("worker-1")])
    assert result.verdict == UNKNOWN
    assert (result.nodes.evaluated, result.nodes.stale, result.nodes.admissible) == (1, 1, 0)
    assert result.reasons[0].reason == "LeaseExpired"
    assert result.reasons[0].message == STALE.message


def test_unknown_node_makes_rejections_unknown_but_not_admissions() -> None:
    stale, full, empty = (
        worker("worker-1"),
        worker("worker-2", node_state(held=(14, 16))),
        worker("worker-3", node_state()),
    )
    assert predict(pod("a", cpu=4), [stale, full]).verdict == UNKNOWN
    assert predict(pod("a", cpu=4), [stale, full, empty]).verdict == ADMISSIBLE


def test_nodes_that_the_scheduler_passes_over_are_not_asked() -> None:
    cordoned = worker("worker-1", node_state(), unschedulable=True)
    stale_but_cordoned = worker("worker-2", unschedulable=True)
    result = predict(pod("a", cpu=4), [cordoned, stale_but_cordoned])
    assert result.verdict == INADMISSIBLE
    assert (result.nodes.evaluated, result.nodes.excluded, result.nodes.stale) == (0, 2, 0)
    assert [(item.reason, item.count) for item in result.reasons] == [("node(s) were unschedulable", 2)]


def test_shortage_of_the_selected_node_comes_before_unselected_nodes() -> None:
    selected = {"kubernetes.io/hostname": "worker-1"}
    nodes = [worker(f"worker-{number}", node_state()) for number in range(2, 5)]
    chosen = worker("worker-1", node_state(), labels=selected)
    lacking = predict(pod("a", cpu=40, nodeSelector=selected), [chosen, *nodes])
    assert lacking.sentence == "no node has 40 CPUs at all; the most is 30, on worker-1"
    taint = Taint("dedicated", "x", "NoSchedule")
    tainted = predict(pod("a", nodeSelector=selected), [replace(chosen, taints=(taint,)), *nodes])
    assert tainted.sentence == "node(s) had untolerated taint(s)"
    full = replace(chosen, requested={"cpu": 29000})
    assert predict(pod("a", cpu=4, nodeSelector=selected), [full, *nodes]).brief == (
        "Insufficient cpu: 4 requested, 1 free"
    )
    closed = [replace(node, taints=(taint,)) for node in nodes]
    assert predict(pod("a", cpu=4), [full, *closed]).brief == "Insufficient cpu: 4 requested, 1 free"
    assert [reason.count for reason in lacking.reasons] == [4]


def test_no_nodes_at_all_is_unknown() -> None:
    result = predict(pod("a"), [])
    assert result.verdict == UNKNOWN
    assert result.sentence == "the cluster has no nodes"


def test_unreadable_pod_is_unknown_with_the_reason() -> None:
    result = predict(pod("a", cpu="twelve"), [worker("worker-1", node_state())])
    assert result.verdict == UNKNOWN
    assert "twelve" in result.sentence


def test_a_pod_for_another_operating_system_is_inadmissible_everywhere() -> None:
    result = predict(pod("a", os={"name": "windows"}), [worker("worker-1", node_state())])
    assert result.verdict == INADMISSIBLE
    assert (result.reasons[0].reason, result.reasons[0].source) == ("PodOSNotSupported", SOURCE)
    assert result.sentence == "it is not for linux, the node's operating system"


def test_what_the_model_declines_is_unknown() -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "hugepages-64Ki": "64Ki"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    node = replace(
        worker("worker-1", node_state()),
        allocatable={"cpu": 30000, "memory": 62 * GIB, "hugepages-64Ki": 1 << 20},
    )
    result = predict(pod("a", containers=[container]), [node])
    assert result.verdict == UNKNOWN
    assert "would crash" in result.reasons[0].message


def test_pod_level_resources_are_predicted_with_their_feature_gate() -> None:
    gated = node_state(featureGates={"PodLevelResourceManagers": True}, topologyManagerScope="pod")
    amounts = {"cpu": "4", "memory": "1Gi"}
    result = predict(
        pod("a", resources={"requests": amounts, "limits": amounts}), [worker("worker-1", gated)]
    )
    assert (result.verdict, len(result.candidates[0].zones)) == (ADMISSIBLE, 1)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pod("a"), True),
        (pod("a", memory="0"), False),
        (pod("a", nics=1, memory="0"), True),
        (pod("a", cpu="twelve"), True),
    ],
)
def test_which_pods_numa_placement_concerns(wanted: ClusterPod, *, expected: bool) -> None:
    assert prediction.relevant(wanted) is expected


def test_a_burstable_pod_with_hugepages_is_concerned() -> None:
    container = {
        "name": "c",
        "resources": {"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}},
    }
    body = {"metadata": {"name": "h"}, "spec": {"containers": [container]}}
    assert prediction.relevant(ClusterPod.from_api(body))


@pytest.mark.parametrize(
    ("policy", "wanted", "held", "sentence"),
    [
        (
            "single-numa-node",
            pod("p", cpu=4, nics=2),
            (0, 0),
            (
                "needs 2 vendor.example/nic on one NUMA node, more than any has even when empty; "
                "at most 1 is free on one NUMA node (NUMA node 1 of worker-1)"
            ),
        ),
        (
            "single-numa-node",
            pod("p", cpu=10, nics=1),
            (4, 8),
            (
                "no NUMA node has everything free at once; the closest, NUMA node 1, lacks 2 of the 10 "
                "exclusive CPUs (worker-1)"
            ),
        ),
        (
            "restricted",
            pod("p", cpu=20),
            (10, 4),
            (
                "on an empty node memory would fit on one NUMA node, cpu only on two; policy restricted "
                "requires the same NUMA nodes for all; now at most 16 of 20 exclusive CPUs on NUMA nodes 0-1 "
                "are free (worker-1)"
            ),
        ),
    ],
)
def test_the_sentence_names_what_is_short(
    policy: str, wanted: ClusterPod, held: tuple[int, int], sentence: str
) -> None:
    result = predict(wanted, [worker("worker-1", node_state(policy=policy, held=held, nics=1))])
    assert result.verdict == INADMISSIBLE
    assert result.sentence == sentence


def test_best_node_is_the_one_whose_hole_the_pod_fills() -> None:
    nodes = [
        worker("empty", node_state()),
        worker("snug", node_state(held=(10, 16))),
        worker("loose", node_state(held=(6, 16))),
    ]
    result = predict(pod("p", cpu=4), nodes)
    assert [item.node for item in result.candidates] == ["snug", "loose", "empty"]
    scores = [item.score for item in result.candidates]
    assert scores == sorted(scores, reverse=True)
    assert result.candidates[2].free_block == 16


def test_node_that_aligns_the_pod_is_preferred_over_spreading() -> None:
    spread = worker("spread", node_state(policy="best-effort", held=(12, 13)))
    tight = worker("tight", node_state(policy="best-effort", held=(10, 12)))
    result = predict(pod("p", cpu=4), [spread, tight])
    assert [(item.node, item.zones) for item in result.candidates] == [("tight", (0,)), ("spread", (0, 1))]


def test_a_node_without_any_pinning_is_the_last_choice() -> None:
    loose = worker("floating", Node.fresh(machine(), KubeletConfiguration()))
    result = predict(pod("p", cpu=4), [loose, worker("pinned", node_state())])
    assert [item.node for item in result.candidates] == ["pinned", "floating"]
    assert result.candidates[1].score == 0
    assert result.candidates[1].zones == ()


def test_exact_nodes_come_before_approximate_ones() -> None:
    inferred = worker("a").with_state(node_state(held=(10, 16)), approximate=True)
    result = predict(pod("p", cpu=4), [inferred, worker("b", node_state())])
    assert [(item.node, item.approximate) for item in result.candidates] == [("b", False), ("a", True)]


def test_candidates_are_limited_and_in_a_stable_order() -> None:
    state = node_state()
    nodes = [worker(f"worker-{number:02}", state) for number in range(20)]
    result = predict(pod("p", cpu=4), reversed(nodes), candidates=3)
    assert [item.node for item in result.candidates] == ["worker-00", "worker-01", "worker-02"]
    assert result.nodes.admissible == 20


def test_nodes_in_equal_states_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Placement] = []

    def counting(pod_: Any, placement: Placement) -> prediction.NodeVerdict:
        asked.append(placement)
        return real(pod_, placement)

    real = prediction.ask_placement
    monkeypatch.setattr(prediction, "ask_placement", counting)
    # Other pods, in the same places: to a newcomer the nodes are the same.
    one, other = (
        admit(node_state(), prediction.PodKind.of(pod(name, cpu=4)).admission).node  # type: ignore[union-attr]
        for name in ("one", "other")
    )
    predict(pod("p", cpu=4), [worker("a", one), worker("b", other), worker("c", one)])
    assert len(asked) == 1


def forecast(wanted: ClusterPod) -> Forecast:
    kind = PodKind.of(wanted)
    assert kind is not None
    return Forecast(kind)


def test_a_forecast_follows_the_nodes_that_change() -> None:
    outlook = forecast(pod("p", cpu=16))
    assert outlook.renew([worker("a", node_state()), worker("b", node_state(held=(4, 4)))])
    assert outlook.prediction().nodes.admissible == 1
    assert not outlook.renew([worker("a", node_state())])
    assert outlook.renew([worker("a", node_state(held=(0, 2)))])
    assert outlook.prediction().verdict == INADMISSIBLE
    assert outlook.renew([worker("b", node_state())])
    assert outlook.admitting == ("b",)
    assert outlook.forget("b")
    assert not outlook.forget("b")
    assert outlook.prediction().nodes.evaluated == 1


def test_running_pod_of_equal_shape_is_not_the_newcomer() -> None:
    outlook = forecast(pod("p", cpu=10))
    holding = admit(node_state(), outlook.kind.admission).node
    outlook.renew([worker("a", holding)])
    assert outlook.prediction().candidates[0].zones == (1,)


def test_pods_of_one_template_are_of_one_kind() -> None:
    assert PodKind.of(pod("a", cpu=4)) == PodKind.of(pod("b", cpu=4))
    assert PodKind.of(pod("a", cpu=4)) != PodKind.of(pod("a", cpu=5))
    assert PodKind.of(pod("a", cpu=4)) != PodKind.of(pod("a", cpu=4, nodeSelector={"zone": "a"}))
    assert PodKind.of(pod("a", cpu="x")) is None


HELD = st.tuples(st.integers(0, 14), st.integers(0, 16))
STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.just("stale"), HELD)), min_size=1, max_size=12
)


@given(steps=STEPS, cpus=st.integers(1, 16))
def test_a_renewed_forecast_equals_one_made_afresh(steps: list[tuple[str, Any]], cpus: int) -> None:
    outlook = forecast(pod("p", cpu=cpus))
    nodes: dict[str, ClusterNode] = {}
    for name, held in steps:
        if held is None:
            nodes.pop(name, None)
            outlook.forget(name)
            continue
        nodes[name] = worker(name, None if held == "stale" else node_state(held=held))
        outlook.renew([nodes[name]])
    assert outlook.prediction() == predict(pod("p", cpu=cpus), nodes.values())


@pytest.mark.parametrize(
    ("node", "answer", "obstacles"),
    [
        (worker("n", node_state()), NodeAnswer.ADMITS, ()),
        (worker("n", node_state(), unschedulable=True), NodeAnswer.EXCLUDED, ("node(s) were unschedulable",)),
        (worker("n", node_state(held=(10, 10))), NodeAnswer.REJECTS, ("TopologyAffinityError",)),
        (worker("n"), NodeAnswer.UNKNOWN, ("LeaseExpired",)),
    ],
)
def test_one_node_asked_alone_answers_as_in_a_forecast(
    node: ClusterNode, answer: NodeAnswer, obstacles: tuple[str, ...]
) -> None:
    kind = PodKind.of(pod("a", cpu=8))
    assert kind is not None
    verdict = ask(kind, node)
    assert verdict.answer is answer
    assert tuple(reason for reason, _ in verdict.obstacles) == obstacles
    forecast = Forecast(kind)
    forecast.renew([node])
    assert {reason.reason for reason in forecast.prediction().reasons} == set(obstacles)


POOLS = st.lists(
    st.tuples(
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, 20000, 30000]),
        st.one_of(st.none(), HELD),
    ),
    max_size=8,
)


@given(pools=POOLS, cpus=st.integers(1, 16))
def test_reason_counts_add_up_to_the_rejecting_nodes(
    pools: list[tuple[bool, bool, int, tuple[int, int] | None]], cpus: int
) -> None:
    taint = Taint("example.com/busy", "", "NoSchedule")
    nodes = [
        worker(
            f"n{number}",
            None if held is None else node_state(held=held),
            unschedulable=cordoned,
            taints=(taint,) if tainted else (),
            requested={"cpu": used, "memory": used << 21},
        )
        for number, (cordoned, tainted, used, held) in enumerate(pools)
    ]
    found = predict(pod("p", cpu=cpus), nodes)
    assert sum(reason.count for reason in found.reasons) == len(nodes) - found.nodes.admissible


def test_scheduler_shortage_names_amounts_on_the_closest_node() -> None:
    nodes = [
        worker("worker-1", node_state(), requested={"cpu": 29000}),
        worker("worker-2", node_state(), requested={"cpu": 28100}),
        worker("worker-3", node_state(), requested={"cpu": 28000, "memory": 61 * GIB}),
    ]
    result = predict(pod("p", cpu=4, memory="8Gi"), nodes)
    assert [(reason.reason, reason.count, reason.node) for reason in result.reasons] == [
        ("Insufficient cpu", 3, "worker-2")
    ]
    assert result.sentence == "No node has 4 CPUs free. Closest: worker-2 (1.9 free)"
    assert result.brief == "Insufficient cpu: 4 requested, 1.9 free"
    alone = predict(pod("p", cpu=4, memory="8Gi"), nodes[2:])
    assert alone.sentence == (
        "Insufficient memory: 8Gi requested, 1Gi free; Insufficient cpu: 4 requested, 2 free on worker-3"
    )


def test_heavily_overcommitted_node_is_named() -> None:
    result = predict(pod("p", cpu=4), [worker("worker-1", node_state(), requested={"cpu": 10**6})])
    assert [(reason.reason, reason.node) for reason in result.reasons] == [("Insufficient cpu", "worker-1")]


@pytest.mark.parametrize(
    ("asked", "holders"),
    [
        ({"cpu": 16}, (("uid-held-1", "4 exclusive CPUs"),)),
        ({"cpu": 4, "nics": 3}, (("nics", f"2 {NIC}"),)),
    ],
)
def test_a_rejection_names_who_holds_what_is_missing(asked: dict[str, Any], holders: Any) -> None:
    start = node_state(held=(10, 4), nics=4)
    holder = PodKind.of(pod("nics", cpu=1, nics=2))
    assert holder is not None
    state = admit(start, replace(holder.admission, uid="nics")).node if "nics" in asked else start
    result = predict(pod("big", **asked), [worker("worker-2", state)])
    assert result.reasons[0].held_by == holders


def test_a_rejection_has_a_few_words_for_tables() -> None:
    result = predict(pod("big", cpu=16), [worker("worker-2", node_state(held=(10, 4)))])
    assert result.brief == "16 exclusive CPUs requested, 12 free on NUMA node 1"
    assert predict(pod("a"), [worker("worker-1")]).brief == "LeaseExpired"
    assert predict(pod("a"), [worker("worker-1", node_state())]).brief == ""


def test_a_cluster_without_nodes_is_said_to_have_none() -> None:
    assert predict(pod("a"), []).sentence == "the cluster has no nodes"


def test_first_names_of_equally_good_nodes_are_the_candidates() -> None:
    nodes = [worker(f"worker-{number}", node_state()) for number in range(9)]
    nodes.append(worker("tight", node_state(held=(10, 8))))
    found = predict(pod("a", cpu=4), nodes, candidates=2)
    assert [item.node for item in found.candidates] == ["tight", "worker-0"]


GPU = "gpu.example/large"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpus"


def asking(resource: str, *, cpu: int = 1) -> ClusterPod:
    amounts = {"cpu": str(cpu), "memory": "1Gi", resource: "1"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    return ClusterPod.from_api(
        {"metadata": {"namespace": "n", "name": "p", "uid": "u"}, "spec": {"containers": [container]}}
    )


@pytest.mark.parametrize(
    ("resource", "classes", "plugin", "verdict"),
    [
        (GPU, {}, 0, INADMISSIBLE),
        (GPU, {GPU: "gpus"}, 0, UNKNOWN),
        (GPU, {GPU: "gpus"}, 1, ADMISSIBLE),
        (IMPLICIT, {}, 0, UNKNOWN),
    ],
    ids=["nobody has it", "a DeviceClass maps it", "a device plugin offers it", "a DeviceClass's own name"],
)
def test_extended_resource_of_dra_is_unknown_not_lacking(
    resource: str, classes: dict[str, str], plugin: int, verdict: str
) -> None:
    """KEP-5004: NodeResourcesFit leaves it to the allocator, unless the node's allocatable has some."""
    node = worker("worker-1", node_state(), device_classes=classes)
    node = replace(node, allocatable={**node.allocatable, **({resource: plugin} if plugin else {})})
    result = predict(asking(resource), [node])
    assert result.verdict == verdict
    if verdict == UNKNOWN:
        assert (result.nodes.admissible, result.nodes.stale, result.candidates) == (0, 1, ())
        assert result.sentence == (
            f"it requests {resource}, which dynamic resource allocation provides (DeviceClass gpus): "
            "only the scheduler's allocator knows which nodes have such devices free"
        )


def test_pod_with_unallocated_claims_is_unknown() -> None:
    wanted = pod("claims", cpu=4, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    node = worker("worker-1", node_state())
    result = predict(wanted, [node])
    assert result.verdict == UNKNOWN
    assert "it claims devices through resourceClaims" in result.sentence
    after = PodKind.of(wanted, allocated=True)
    assert after is not None
    assert ask(after, node).answer is NodeAnswer.ADMITS


def test_what_the_kubelet_rejects_stays_inadmissible_whatever_is_claimed() -> None:
    wanted = pod("claims", cpu=17, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    assert predict(wanted, [worker("worker-1", node_state())]).verdict == INADMISSIBLE


def test_placement_alone_admits_where_devices_are_still_to_be_allocated() -> None:
    wanted = pod("claims", cpu=4, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    made = forecast(wanted)
    made.renew([worker("full", node_state(held=(14, 16))), worker("empty", node_state())])
    assert made.admitting == ("empty",)
    assert made.admits_anywhere


@given(held=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 8)), max_size=4), claims=st.booleans())
def test_a_pod_is_admitted_anywhere_if_some_node_is_named(held: list[tuple[int, int]], claims: bool) -> None:  # noqa: FBT001
    claimed = [{"name": "gpu", "resourceClaimName": "mine"}] if claims else []
    made = forecast(pod("p", cpu=8, resourceClaims=claimed))
    states = [node_state(held=(2 * one, 2 * other)) for one, other in held]
    made.renew([worker("unknown"), *(worker(f"worker-{n}", state) for n, state in enumerate(states))])
    assert made.admits_anywhere == bool(made.admitting)


HELD = st.tuples(st.integers(0, 7), st.integers(0, 8)).map(lambda cores: (2 * cores[0], 2 * cores[1]))


def named(state: Node, name: str) -> Node:
    """The same node, held by pods of its own."""
    taken = {f"{uid}-{name}": held for uid, held in state.cpus.assignments.items()}
    return Node.restore(state.kubelet, cpu_assignments=taken)


@given(held=st.lists(HELD, min_size=1, max_size=4), data=st.data())
def test_headline_says_of_its_node_what_that_node_says_alone(
    held: list[tuple[int, int]], data: st.DataObject
) -> None:
    nodes = [worker(f"node-{n}", named(node_state(held=one), f"{n}")) for n, one in enumerate(held)]
    wanted = pod("big", cpu=16)
    found = predict(wanted, data.draw(st.permutations(nodes)))
    if found.verdict != INADMISSIBLE:
        return
    first = found.reasons[0]
    alone = predict(wanted, [next(node for node in nodes if node.name == first.node)]).reasons[0]
    assert (first.sentence, first.held_by) == (alone.sentence, alone.held_by)


def test_only_the_named_node_of_equally_close_ones_is_described() -> None:
    one = worker("a", named(node_state(held=(4, 8)), "a"))
    other = worker("b", named(node_state(held=(6, 6)), "b"))
    for nodes in ([one, other], [other, one]):
        first = predict(pod("big", cpu=16), nodes).reasons[0]
        assert first.sentence.endswith("at most 10 are free on one NUMA node (NUMA node 0 of a)")
        assert first.held_by == (("uid-held-0-a", "4 exclusive CPUs"),)
