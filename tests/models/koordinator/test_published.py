"""What the design documents promise, and where released code differs (docs/reference/koordinator.md)."""

import pytest

from numazones import cpuset
from numazones.pod import Pod
from numazones_koordinator.admission import Admission, admit
from numazones_koordinator.annotations import NODE_NUMA_TOPOLOGY_POLICY
from numazones_koordinator.books import Use
from numazones_koordinator.explanation import explain
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import Rules, Scheduler
from tests.models.koordinator.building import PUBLISHED, detail, node, node_object, nrt, pod, running

UPSTREAM = Scheduler()
BOTH = pytest.mark.parametrize("scheduler", [UPSTREAM, PUBLISHED], ids=["upstream", "published"])


def decide(scheduler: Scheduler, asked: Pod, *running_pods: Pod, numas: int = 2, **more: object) -> Admission:
    """A decision about a node on which some pods were admitted before."""
    place = node(numas, scheduler=scheduler, **more)  # type: ignore[arg-type]
    for earlier in running_pods:
        admission = admit(place, earlier)
        assert admission.admitted, admission.message
        place = admission.node
    return admit(place, asked)


# The proposal's worked examples.


def exclusive_cpu(limit: str) -> Pod:
    return pod(policy="SingleNUMANode", qos="", cpu="1", limits={"cpu": limit})


def test_example_equal_requests_and_limits_get_an_exclusive_cpu() -> None:
    assert decide(PUBLISHED, exclusive_cpu("1")).cpus.bit_count() == 1
    assert decide(UPSTREAM, exclusive_cpu("1")).cpus == 0


def test_example_larger_limits_run_in_the_shared_pool() -> None:
    for scheduler in (UPSTREAM, PUBLISHED):
        assert decide(scheduler, exclusive_cpu("2")).cpus == 0


@BOTH
def test_example_gpu_and_cpu_are_aligned_with_a_policy_and_not_without(scheduler: Scheduler) -> None:
    busy = running("busy", amounts={0: {"cpu": "8"}})
    aligned = admit(
        node(gpus=[0, 1], scheduler=scheduler).bind(busy), pod(policy="SingleNUMANode", cpu="1", nvidia="1")
    )
    assert [numa for numa, _ in aligned.numa_resources] == [1]
    assert [minor for minor, _ in aligned.devices["gpu"]] == [1]
    apart = admit(node(gpus=[0, 1], scheduler=scheduler).bind(busy), pod(cpu="1", nvidia="1"))
    assert apart.numa_resources == ()
    assert [minor for minor, _ in apart.devices["gpu"]] == [0]


@BOTH
def test_example_a_restricted_pod_does_not_span_a_single_numa_node_pod(scheduler: Scheduler) -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    assert not decide(scheduler, pod("b", policy="Restricted", cpu="10"), first).admitted


@BOTH
def test_example_unless_exclusivity_is_but_preferred(scheduler: Scheduler) -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    second = pod("b", policy="Restricted", exclusive="Preferred", cpu="10")
    assert decide(scheduler, second, first).admitted


# The table of differences.


def test_exclusivity_sees_pods_without_cpus_of_their_own() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="2", limits={})
    second = pod("b", policy="Restricted", qos="LS", cpu="10", limits={})
    assert decide(UPSTREAM, second, first).admitted
    rejected = decide(PUBLISHED, second, first)
    assert rejected.message == "Unsatisfied NUMA cpu"
    assert rejected.before.use(0) is Use.SINGLE


def test_exclusivity_protects_single_numa_node_pods_alone() -> None:
    first = pod("a", policy="Restricted", cpu="2")
    second = pod("b", policy="Restricted", cpu="10")
    assert not decide(UPSTREAM, second, first).admitted
    assert decide(PUBLISHED, second, first).admitted


def test_a_single_numa_node_pod_may_join_a_spanning_one() -> None:
    first = pod("a", policy="Restricted", cpu="10")
    second = pod("b", policy="SingleNUMANode", cpu="2")
    assert not decide(UPSTREAM, second, first).admitted
    assert decide(PUBLISHED, second, first).admitted


def test_best_effort_too_keeps_away_where_it_is_required() -> None:
    first = pod("a", policy="SingleNUMANode", cpu="2")
    second = pod("b", policy="BestEffort", exclusive="Required", cpu="10")
    assert decide(UPSTREAM, second, first).admitted
    assert decide(PUBLISHED, second, first).message == "node(s) NUMA nodes in use by SingleNUMANode pods"


def test_preferred_exclusivity_takes_idle_numa_nodes_where_there_are() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="1", limits={})
    second = pod("b", policy="Restricted", exclusive="Preferred", qos="LS", cpu="15", memory="1Gi", limits={})
    spans = {
        rules: [numa for numa, _ in decide(scheduler, second, first, numas=4).numa_resources]
        for rules, scheduler in (("upstream", UPSTREAM), ("published", PUBLISHED))
    }
    assert spans["published"] == [1, 2]
    full = decide(PUBLISHED, pod("b", policy="Restricted", exclusive="Preferred", qos="LS", cpu="15"), first)
    assert full.admitted
    most = {"numaScoringStrategy": {"type": "MostAllocated"}}
    upstream = Scheduler.from_args(most)
    assert [numa for numa, _ in decide(upstream, second, first, numas=4).numa_resources] == [0, 1]


def test_sets_to_be_avoided_score_0_and_are_not_preferred() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="1", limits={})
    second = pod("b", policy="Restricted", exclusive="Preferred", qos="LS", cpu="12", limits={})
    rejected = decide(PUBLISHED, second, first, numas=4)
    hints = [line for line in explain(rejected).hints if line.startswith("cpu")]
    assert "NUMA nodes 0-1 (score 0)" in hints[0]
    assert "NUMA nodes 1-2 (preferred, score 83)" in hints[0]


def test_the_score_puts_single_numa_node_pods_together() -> None:
    first = pod("a", policy="SingleNUMANode", qos="LS", cpu="2", memory="4Gi", limits={})
    second = pod("b", policy="SingleNUMANode", qos="LS", cpu="2", memory="4Gi", limits={})
    upstream, published = decide(UPSTREAM, second, first), decide(PUBLISHED, second, first)
    assert [numa for numa, _ in upstream.numa_resources] == [1]
    assert [numa for numa, _ in published.numa_resources] == [0]
    # 100 - 10 for one NUMA node + 10 · ½ for half of its CPUs and memory in use.
    assert published.outcome.score == 95
    spanning = pod("c", policy="Restricted", qos="LS", cpu="12", memory="4Gi", limits={})
    assert decide(PUBLISHED, spanning).outcome.score == 84


def test_three_numa_nodes_give_in_the_order_of_what_they_have_left() -> None:
    asked = pod(policy="Restricted", qos="LS", cpu="14", limits={})
    for scheduler, admitted in ((UPSTREAM, False), (PUBLISHED, True)):
        three = node(3, zone={"cpu": "8"}, scheduler=scheduler)
        for uid, numa, cpu in (("a", 0, "1"), ("b", 1, "5"), ("c", 2, "3")):
            three = three.bind(running(uid, amounts={numa: {"cpu": cpu}}))
        assert admit(three, asked).admitted is admitted


def test_numa_ids_may_have_gaps() -> None:
    assert decide(PUBLISHED, pod(policy="SingleNUMANode", cpu="2"), ids=(0, 4)).admitted


def test_no_pod_gets_more_cpus_than_it_asks_for() -> None:
    counts = {}
    for scheduler in (UPSTREAM, PUBLISHED):
        three = node(3, sockets=3, scheduler=scheduler).bind(running("a", "4,8"))
        counts[scheduler.rules] = admit(three, pod(qos="LSR", cpu="13")).cpus.bit_count()
    assert counts == {"upstream": 14, "published": 13}


def test_the_weights_of_the_numa_strategy_count() -> None:
    weights = {
        "numaScoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "memory", "weight": 1}]}
    }
    assert Scheduler.from_args(weights).numa_weights == (("cpu", 1), ("memory", 1))
    assert Scheduler.from_args(weights, rules="published").numa_weights == (("memory", 1),)


@pytest.mark.parametrize(
    ("reported", "released", "published"),
    [
        ("BestEffort", "BestEffort", "BestEffort"),
        ("Restricted", "Restricted", "Restricted"),
        ("SingleNUMANodePodLevel", "SingleNUMANode", "SingleNUMANode"),
        ("SingleNUMANodeContainerLevel", "", "SingleNUMANode"),
        ("RestrictedContainerLevel", "", "Restricted"),
        ("RestrictedPodLevel", "", "Restricted"),
        ("BestEffortContainerLevel", "", "BestEffort"),
        ("BestEffortPodLevel", "", "BestEffort"),
        ("None", "", ""),
        ("Other", "", ""),
    ],
)
def test_policies_that_koordlet_reports_of_kubelets(reported: str, released: str, published: str) -> None:
    topology = nrt(detail(), {0: {"cpu": "8"}}, policies=[reported])
    found = {
        scheduler.rules: Node.read(node_object(), topology, scheduler=scheduler).host
        for scheduler in (UPSTREAM, PUBLISHED)
    }
    assert found[Rules.UPSTREAM].topology_policy == released
    assert found[Rules.PUBLISHED].topology_policy == published
    assert bool(found[Rules.UPSTREAM].warnings) is (released != published)
    assert not found[Rules.PUBLISHED].warnings


def test_the_kubelets_policy_goes_before_the_label() -> None:
    labelled = node_object(labels={NODE_NUMA_TOPOLOGY_POLICY: "BestEffort"})
    topology = nrt(detail(), {0: {"cpu": "8"}}, policies=["Restricted"])
    for scheduler, policy in ((UPSTREAM, "BestEffort"), (PUBLISHED, "Restricted")):
        assert Node.read(labelled, topology, scheduler=scheduler).host.topology_policy == policy


def test_what_is_the_same_under_both_rules() -> None:
    for asked in (pod(cpu="4"), pod(policy="SingleNUMANode", cpu="4"), pod(policy="Restricted", cpu="10")):
        one, other = decide(UPSTREAM, asked), decide(PUBLISHED, asked)
        assert cpuset.format(one.cpus) == cpuset.format(other.cpus)
        assert one.numa_resources == other.numa_resources
