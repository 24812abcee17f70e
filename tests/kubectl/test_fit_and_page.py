"""``fit`` and everybody who says how many more pods of a shape fit give one answer."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_numazones.printing import answers
from numazones.apimachinery.taints import Taint
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.dump import Dump
from numazones.kubelet.device_manager import Device
from numazones.placement import Placement, Unknown
from numazones.placement.fragmentation import Shape
from numazones.placement.kubelet import KubeletPlacement
from numazones.prediction.forecast import place_beside
from numazones.prediction.room import FittingPods, pod_of_shape
from numazones.rebalance.dump import situation_of
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_koordinator.scheduler import Scheduler
from numazones_page.documents import node_documents
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement
from tests.models.koordinator import building as koordinator
from tests.models.topology_aware.machines import configuration, hardware
from tests.numazones.kubelet import building
from tests.support.page.clusters import dump

SHAPES = tuple(
    map(
        Shape.parse,
        ("cpu=1", "cpu=2", "cpu=3", "cpu=4", "cpu=2,memory=1Gi", "cpu=6,memory=64Mi", "cpu=1,vendor/nic=1"),
    )
)
GIB = 1 << 30


def count_of_fit(node: ClusterNode, shape: Shape) -> int:
    """Return how many copies ``fit`` places on a node."""
    nodes, pod = {node.name: node}, pod_of_shape(shape)
    return len(answers.place(pod, nodes, answers.forecast_of(pod, nodes), most=10_000))


def test_answers_about_an_unreadable_pod_say_so() -> None:
    pod = ClusterPod.from_api(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "much"}}}]},
        }
    )
    node = ClusterNode("one").with_placement(KubeletPlacement(building.node()))
    nodes = {"one": node}
    assert answers.decide(pod, node) == f"the pod cannot be read: {pod.problem}"
    assert answers.forecast_of(pod, nodes) is None
    assert [line.why for line in answers.node_lines(pod, nodes)] == [f"the pod cannot be read: {pod.problem}"]
    assert answers.place(pod, nodes, None, most=1) == []


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Nodes without pods: kubelets under all policies, and those of the other models."""
    kubelet: st.SearchStrategy[Placement] = st.builds(
        lambda policy, scope, cpus, memory, whole, near: KubeletPlacement(
            building.node(
                devices={"vendor/nic": tuple(Device(f"nic-{n}", mask) for n, mask in enumerate(near))},
                memoryManagerPolicy=memory,
                cpuManagerPolicyOptions={"full-pcpus-only": "true"} if whole and cpus == "static" else {},
                topologyManagerPolicy=policy,
                topologyManagerScope=scope,
                cpuManagerPolicy=cpus,
                reservedSystemCPUs="0" if cpus == "static" else "",
            )
        ),
        st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        st.sampled_from(["container", "pod"]),
        st.sampled_from(["none", "static"]),
        st.sampled_from(["None", "Static"]),
        st.booleans(),
        st.lists(st.sampled_from([(), (0,), (1,), (0, 1)]), max_size=4),
    )
    # Pods of shapes name no scheduler, so the default one's are Koordinator's here.
    scheduled = Scheduler(names=frozenset({"default-scheduler"}))
    others: st.SearchStrategy[Placement] = st.sampled_from(
        [
            *(
                KoordinatorPlacement(koordinator.node(policy=policy, scheduler=scheduled))
                for policy in ("", "BestEffort", "Restricted", "SingleNUMANode")
            ),
            KoordinatorPlacement(koordinator.node()),
            KoordinatorPlacement(
                koordinator.node(), KubeletPlacement(building.node(cpuManagerPolicy="none"))
            ),
            TopologyAwarePlacement(TopologyAwareNode.fresh(hardware(), configuration())),
            TopologyAwarePlacement(TopologyAwareNode.fresh(hardware(), configuration(prefer_isolated=False))),
        ]
    )
    return draw(kubelet | others)


@st.composite
def nodes(draw: st.DrawFn) -> ClusterNode:
    """Nodes of all models with some pods, of which the sums may allow more or less than who decides there."""
    node = ClusterNode(
        "node",
        allocatable={
            "cpu": draw(st.integers(0, 24)) * 1000,
            "memory": draw(st.integers(0, 40)) * GIB,
            "vendor/nic": draw(st.integers(0, 4)),
        },
        pod_slots=draw(st.integers(0, 20)),
        unschedulable=draw(st.sampled_from([False] * 5 + [True])),
        taints=draw(st.sampled_from([()] * 5 + [(Taint("dedicated", "gpu", "NoSchedule"),)])),
    ).with_placement(draw(placements()))
    for number, cpus in enumerate(draw(st.lists(st.integers(100, 5000), max_size=5))):
        whole = draw(st.booleans())
        placed = place_beside(running(number, cpus // 1000 * 1000 + 1000 if whole else cpus), node)
        node = node if placed is None else placed.node
    return node


def running(number: int, cpus: int) -> ClusterPod:
    amounts = {"cpu": f"{cpus}m", "memory": "64Mi"}
    body = {
        "metadata": {"namespace": "team", "name": f"web-{number}", "uid": f"web-{number}"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
    }
    return ClusterPod.from_api(body)


@given(nodes(), st.sampled_from(SHAPES))
def test_as_many_more_pods_fit_as_fit_places(node: ClusterNode, shape: Shape) -> None:
    assert FittingPods().count(node, shape).fitting == count_of_fit(node, shape)


@given(st.lists(nodes(), min_size=1, max_size=3), st.sampled_from(SHAPES))
def test_the_nodes_of_a_cluster_take_together_what_fit_places(found: list[ClusterNode], shape: Shape) -> None:
    cluster = {f"node-{number}": replace(node, name=f"node-{number}") for number, node in enumerate(found)}
    counts, pod = FittingPods(), pod_of_shape(shape)
    placed = answers.place(pod, cluster, answers.forecast_of(pod, cluster), most=10_000)
    for name, node in cluster.items():
        here = sum(one.node.name == name for one in placed)
        assert counts.count(node, shape).fitting == FittingPods().count(node, shape).fitting == here


@given(nodes(), st.sampled_from(SHAPES))
def test_what_fitting_pods_take_was_free(node: ClusterNode, shape: Shape) -> None:
    found = FittingPods().count(node, shape)
    known = node.known
    assert known is not None
    assert found.free == known.room.free
    assert 0 <= found.usable <= found.free


@given(nodes())
def test_zones_have_as_many_free_cpus_as_their_node(node: ClusterNode) -> None:
    known, occupancy = node.known, node.occupancy
    assert known is not None
    assert occupancy is not None
    assert sum(zone.free for zone in occupancy.zones) == known.room.free


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_page_says_what_fit_says(shape: Shape) -> None:
    items = dump(20, waiting=0)
    for node in situation_of(Dump.of(items), datetime(2026, 11, 20, tzinfo=UTC)).cluster.nodes.values():
        document = node_documents(node, (shape,))[f"node/{node.name}"]
        assert document["fit"][0][2] == count_of_fit(node, shape)
        assert document["fit"][0][3] == 0
        mapped = replace(node, device_classes={"vendor.example/dra": "class"})
        asked = Shape.parse(f"{shape},vendor.example/dra=1")
        assert node_documents(mapped, (asked,))[f"node/{node.name}"]["fit"] == [[0, 0, 0, 1]]


def test_nothing_fits_where_nobody_knows_who_decides() -> None:
    node = ClusterNode("node", allocatable={"cpu": 8000, "memory": GIB}).with_placement(Unknown("Stale", ""))
    assert FittingPods().count(node, SHAPES[0]).fitting == count_of_fit(node, SHAPES[0]) == 0
