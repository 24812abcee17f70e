"""Promises of koord-scheduler's design documents that it keeps, and those that it does not."""

import pytest

from numazones.kubelet.pod import Pod
from numazones_koordinator.admission import Admission, admit
from numazones_koordinator.annotations import NODE_NUMA_TOPOLOGY_POLICY
from numazones_koordinator.explanation import explain
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import Scheduler
from tests.models.koordinator.building import detail, node, node_object, nrt, pod, running


def decide(
    asked: Pod, *running_pods: Pod, numas: int = 2, scheduler: Scheduler | None = None, **more: object
) -> Admission:
    """A decision about a node on which some pods were admitted before."""
    place = node(numas, scheduler=scheduler, **more)  # type: ignore[arg-type]
    for earlier in running_pods:
        admission = admit(place, earlier)
        assert admission.admitted, admission.message
        place = admission.node
    return admit(place, asked)


# The proposal's worked examples.


@pytest.mark.parametrize("limit", ["1", "2"])
def test_pods_without_class_lsr_get_no_exclusive_cpus(limit: str) -> None:
    assert decide(pod(policy="SingleNUMANode", qos="", cpu="1", limits={"cpu": limit})).cpus == 0


def test_gpu_and_cpu_are_aligned_only_with_a_policy() -> None:
    busy = running("busy", amounts={0: {"cpu": "8"}})
    aligned = admit(node(gpus=[0, 1]).bind(busy), pod(policy="SingleNUMANode", cpu="1", nvidia="1"))
    assert [numa for numa, _ in aligned.numa_resources] == [1]
    assert [minor for minor, _ in aligned.devices["gpu"]] == [1]
    apart = admit(node(gpus=[0, 1]).bind(busy), pod(cpu="1", nvidia="1"))
    assert apart.numa_resources == ()
    assert [minor for minor, _ in apart.devices["gpu"]] == [0]


def test_restricted_pod_does_not_span_zones_of_single_numa_pod() -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    assert not decide(pod("b", policy="Restricted", cpu="10"), first).admitted


def test_it_does_where_exclusivity_is_only_preferred() -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    assert decide(pod("b", policy="Restricted", exclusive="Preferred", cpu="10"), first).admitted


# The table of differences.


def test_exclusivity_does_not_see_pods_without_cpus_of_their_own() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="2", limits={})
    assert decide(pod("b", policy="Restricted", qos="LS", cpu="10", limits={}), first).admitted


def test_exclusivity_protects_pods_on_one_numa_node_whatever_their_policy() -> None:
    first = pod("a", policy="Restricted", cpu="2")
    assert not decide(pod("b", policy="Restricted", cpu="10"), first).admitted


def test_single_numa_node_pod_may_not_join_a_spanning_one() -> None:
    first = pod("a", policy="Restricted", cpu="10")
    assert not decide(pod("b", policy="SingleNUMANode", cpu="2"), first).admitted


def test_best_effort_violates_exclusivity_even_where_it_is_required() -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    assert decide(pod("b", policy="BestEffort", exclusive="Required", cpu="10"), first).admitted


def test_preferred_exclusivity_does_not_look_for_idle_numa_nodes() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="1", limits={})
    second = pod("b", policy="Restricted", exclusive="Preferred", qos="LS", cpu="15", memory="1Gi", limits={})
    most = Scheduler.from_args({"numaScoringStrategy": {"type": "MostAllocated"}})
    given = decide(second, first, numas=4, scheduler=most).numa_resources
    assert [numa for numa, _ in given] == [0, 1]


def test_the_score_does_not_put_single_numa_node_pods_together() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="2", memory="4Gi", limits={})
    second = pod("b", policy="SingleNUMANode", qos="LS", cpu="2", memory="4Gi", limits={})
    assert [numa for numa, _ in decide(second, first).numa_resources] == [1]


def test_three_numa_nodes_give_in_a_wasteful_order() -> None:
    three = node(3, zone={"cpu": "8"})
    for uid, numa, cpu in (("a", 0, "1"), ("b", 1, "5"), ("c", 2, "3")):
        three = three.bind(running(uid, amounts={numa: {"cpu": cpu}}))
    rejected = admit(three, pod(policy="Restricted", qos="LS", cpu="14", limits={}))
    assert not rejected.admitted
    assert "wrong order" in explain(rejected).defects[0]


def test_a_pod_may_get_more_cpus_than_it_asks_for() -> None:
    three = node(3, sockets=3).bind(running("a", "4,8"))
    assert admit(three, pod(qos="LSR", cpu="13")).cpus.bit_count() == 14


def test_the_weights_of_the_numa_strategy_do_not_count() -> None:
    asked = pod(policy="SingleNUMANode", cpu="4", memory="1Gi")
    for scheduler in (
        Scheduler(),
        Scheduler.from_args(
            {
                "numaScoringStrategy": {
                    "type": "LeastAllocated",
                    "resources": [{"name": "memory", "weight": 1}],
                }
            }
        ),
    ):
        hints = explain(decide(asked, scheduler=scheduler)).hints
        # (50 of cpu + 93 of memory) / 2
        assert "NUMA node 0 (preferred, score 71)" in hints[0]


@pytest.mark.parametrize(
    ("reported", "policy", "ignored"),
    [
        ("BestEffort", "BestEffort", False),
        ("Restricted", "Restricted", False),
        ("SingleNUMANodePodLevel", "SingleNUMANode", False),
        ("SingleNUMANodeContainerLevel", "", True),
        ("RestrictedContainerLevel", "", True),
        ("RestrictedPodLevel", "", True),
        ("BestEffortContainerLevel", "", True),
        ("BestEffortPodLevel", "", True),
        ("None", "", False),
        ("Other", "", False),
    ],
)
def test_policies_that_koordlet_reports_of_kubelets(reported: str, policy: str, *, ignored: bool) -> None:
    topology = nrt(detail(), {0: {"cpu": "8"}}, policies=[reported])
    host = Node.read(node_object(), topology).host
    assert host.topology_policy == policy
    assert bool(host.warnings) is ignored


def test_the_label_goes_before_the_kubelets_policy() -> None:
    labelled = node_object(labels={NODE_NUMA_TOPOLOGY_POLICY: "BestEffort"})
    topology = nrt(detail(), {0: {"cpu": "8"}}, policies=["Restricted"])
    assert Node.read(labelled, topology).host.topology_policy == "BestEffort"
