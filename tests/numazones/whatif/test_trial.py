"""One run, small enough to be followed by hand."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement.fragmentation import Shape
from numazones.whatif import trial
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.settings import parse
from numazones.whatif.trial import TrialResult
from numazones.whatif.workload import Leaving, PodGroup, Recipe, WorkloadEvent
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_topology_aware.node import Node as TopologyAwareNode
from tests.models.koordinator import building as koordinator
from tests.models.placements import placement_of
from tests.models.topology_aware.machines import configuration, hardware

# 16 CPUs on each of two NUMA nodes; CPUs 0 and 16 are reserved.
MACHINE = "sockets=2,numa=2,cores=16,threads=2,memory=64Gi,x.example/nic@1=2"


def nodes(*given: str, count: int = 1) -> list[ClusterNode]:
    return start_nodes(
        node_template(MACHINE, name=f"m{number}").with_settings(parse(given)) for number in range(count)
    )


def pods(*groups: str) -> list[ClusterPod]:
    arriving = Recipe(tuple(map(PodGroup.parse, groups))).events(RandomNumbers(1, 0))
    return [event for event in arriving if isinstance(event, ClusterPod)]


def run(events: Iterable[WorkloadEvent], *given: str, shape: str = "cpu=10", count: int = 1) -> TrialResult:
    return trial.run(nodes(*given, count=count), events, shape=Shape.parse(shape))


def test_a_run_is_counted() -> None:
    # NUMA node 0 takes 14 of its 14, NUMA node 1 takes 12 of its 16, and the third finds 4 there.
    outcome = run(pods("cpu=14", "cpu=12", "cpu=5"), shape="cpu=3")
    assert outcome == TrialResult(
        arrived=3,
        admitted=2,
        rejected=(("Unschedulable", 1),),
        crossing=0,
        lopsided=0,
        exclusive=((0, 14), (1, 12)),
        spread=2,
        free=4,
        stranded=1,
        largest=4,
    )


def test_what_the_scheduler_lets_pass_the_kubelet_may_reject() -> None:
    outcome = run(pods("cpu=8", "cpu=8", "cpu=9"))
    assert outcome.rejected == (("TopologyAffinityError", 1),)
    assert (outcome.free, outcome.stranded, outcome.largest) == (14, 14, 8)


@pytest.mark.parametrize("numa", [34, 70])
def test_all_cpus_are_stranded_where_every_pod_hangs_the_kubelet(numa: int) -> None:
    machine = f"sockets=1,numa={numa},cores={2 * numa},threads=1,memory={2 * numa}Gi"
    many = ("topologyManagerPolicyOptions.max-allowable-numa-nodes=100", "memoryManagerPolicy=Static")
    start = start_nodes([node_template(machine, name="m").with_settings(parse(many))])
    outcome = trial.run(start, pods("cpu=1"), shape=Shape.parse("cpu=1"))
    assert outcome.admitted == 0
    assert outcome.stranded == outcome.free > 0


def test_cpus_that_the_scheduler_counts_as_requested_are_stranded() -> None:
    outcome = run(pods("cpu=29500m"), shape="cpu=2")
    assert (outcome.admitted, outcome.free, outcome.stranded) == (1, 30, 30)


def test_a_pod_that_leaves_makes_room() -> None:
    first, second, third = pods("cpu=14", "cpu=16", "cpu=14")
    assert run([first, second, third]).admitted == 2
    assert run([first, second, Leaving("pod-0"), third]).admitted == 3


def test_a_pod_that_was_rejected_leaves_without_a_trace() -> None:
    first, second = pods("cpu=16", "cpu=17")
    assert run([first, second, Leaving("pod-1")]) == run([first, second])


def test_pods_across_numa_nodes_and_their_imbalance_are_counted() -> None:
    packed = run(pods("cpu=20"), "topologyManagerPolicy=best-effort")
    assert (packed.crossing, packed.lopsided, packed.exclusive) == (1, 12, ((0, 4), (1, 16)))
    even = run(
        pods("cpu=20"),
        "topologyManagerPolicy=best-effort",
        "cpuManagerPolicyOptions.distribute-cpus-across-numa=true",
        "featureGates.CPUManagerPolicyAlphaOptions=true",
    )
    assert (even.crossing, even.lopsided, even.exclusive) == (1, 0, ((0, 10), (1, 10)))


def test_memory_on_another_numa_node_is_across_them_too() -> None:
    outcome = run(pods("cpu=2,memory=40Gi"), "topologyManagerPolicy=best-effort")
    assert (outcome.crossing, outcome.lopsided) == (1, 0)


def test_largest_pod_is_found_though_a_smaller_one_is_rejected() -> None:
    # Restricted: 12 and 14 CPUs are free. A pod of 15 or 16 belongs on one NUMA node, a larger one on both.
    restricted = ("topologyManagerPolicy=restricted", "memoryManagerPolicy=None")
    outcome = run(pods("cpu=2", "cpu=2,x.example/nic=1"), *restricted)
    assert (outcome.free, outcome.largest) == (26, 26)
    one_numa = run(pods("cpu=2", "cpu=2,x.example/nic=1"))
    assert (one_numa.free, one_numa.largest) == (26, 14)


def test_nothing_is_free_for_exclusive_use_where_nothing_is_exclusive() -> None:
    outcome = run(pods("cpu=2"), "cpuManagerPolicy=none")
    assert (outcome.admitted, outcome.free, outcome.stranded, outcome.largest) == (1, 0, 0, 0)


def test_the_scheduler_takes_the_node_with_the_most_left() -> None:
    outcome = run(pods("cpu=2,memory=1Gi", "cpu=2,memory=1Gi", "cpu=2,memory=30Gi", "cpu=26"), count=2)
    assert outcome.exclusive == ((0, 2 + 2 + 2), (1, 0))
    assert outcome.rejected == (("TopologyAffinityError", 1),)


def test_a_pod_goes_to_the_node_that_it_names() -> None:
    arriving = [pod.placed("m1") for pod in pods("2xcpu=8")]
    assert run(arriving, count=2).spread == 0
    assert run([pod.placed("gone") for pod in arriving]).rejected == (("Unschedulable", 2),)


def test_a_kubelet_that_lacks_amounts_says_so_itself() -> None:
    arriving = [pod.placed("m0") for pod in pods("cpu=29500m", "cpu=2")]
    assert run(arriving).rejected == (("OutOfcpu", 1),)


def test_a_pod_that_cannot_be_read_is_no_admission() -> None:
    body = {"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": []}}
    assert run([ClusterPod.from_api(body)]).rejected == (("Unreadable", 1),)


def test_a_node_whose_state_is_unknown_admits_nothing() -> None:
    unknown = ClusterNode("m0", allocatable={"cpu": 64_000})
    outcome = trial.run([unknown], [pod.placed("m0") for pod in pods("cpu=2")])
    assert outcome.rejected == (("Undecided", 1),)
    assert (outcome.free, outcome.stranded, outcome.largest) == (0, None, 0)


@given(
    st.lists(st.integers(1, 20), max_size=12),
    st.sampled_from(["single-numa-node", "restricted", "best-effort"]),
)
def test_whatever_happens_the_books_agree(counts: list[int], policy: str) -> None:
    outcome = run(
        pods(*(f"cpu={count}" for count in counts)) if counts else [], f"topologyManagerPolicy={policy}"
    )
    assert outcome.arrived == outcome.admitted + sum(count for _, count in outcome.rejected) == len(counts)
    assert sum(cpus for _, cpus in outcome.exclusive) + outcome.free == 30
    assert outcome.stranded is not None
    assert 0 <= outcome.stranded <= outcome.free
    assert 0 <= outcome.largest <= outcome.free


def placed_by(state: KoordinatorNode | TopologyAwareNode, *, cpu: int) -> ClusterNode:
    node = ClusterNode("m0", allocatable={"cpu": cpu, "memory": 64 << 30})
    return node.with_placement(placement_of(state))


def test_other_models_decide_on_their_own_nodes() -> None:
    node = placed_by(TopologyAwareNode.fresh(hardware(), configuration()), cpu=8000)
    first, second, third = pods("3xcpu=3,memory=1Gi")
    outcome = trial.run([node], [first, second, third], shape=Shape.parse("cpu=2"))
    assert (outcome.admitted, outcome.rejected) == (2, (("Unschedulable", 1),))
    assert sum(cpus for _, cpus in outcome.exclusive) == 6
    again = trial.run([node], [first, second, Leaving("pod-0"), third], shape=Shape.parse("cpu=2"))
    assert (again.admitted, again.exclusive) == (3, outcome.exclusive)


def test_sums_count_where_other_models_leave_them_to_the_scheduler() -> None:
    node = placed_by(koordinator.node(2), cpu=3000)
    arriving = [pod.placed("m0") for pod in pods("2xcpu=2")]
    assert trial.run([node], arriving).rejected == (("Insufficient cpu", 1),)


def test_pod_that_is_preempted_makes_room_and_leaves_no_more() -> None:
    first, second = (pod.placed("m0") for pod in pods("cpu=14", "cpu=16"))
    body = {
        "metadata": {"name": "critical", "namespace": "kube-system", "uid": "critical"},
        "spec": {
            "nodeName": "m0",
            "priority": 2_000_000_000,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
        },
    }
    outcome = run(
        [first, second, ClusterPod.from_api(body), Leaving("pod-0"), Leaving("pod-1")], shape="cpu=16"
    )
    assert (outcome.admitted, outcome.rejected) == (3, ())
    assert (outcome.free, outcome.largest) == (30, 16)
