"""Documents of the page against the library's results on the same objects."""

import json
from typing import Any

import pytest

from numazones import cpuset
from numazones.alignment import pod_alignment as alignment
from numazones.api.rebalance import RebalanceRecommendationSpec, RebalanceRecommendationStatus
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.usage import Usage
from numazones.kubelet.admission import admit
from numazones.kubelet.pod import Pod
from numazones.placement import Unknown
from numazones.placement.fragmentation import Shape, exclusive_cpus, room
from numazones.placement.occupancy import Occupancy
from numazones.prediction.forecast import predict
from numazones.prediction.held_room import ArrivalPath, Hold
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_page import html
from numazones_page.documents import (
    machine_document,
    node_documents,
    recommendation_document,
    use_documents,
)
from numazones_page.pods import WaitingPod, held_documents, waiting_documents
from numazones_topology_aware.admission import admit as admit_topology_aware
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement
from tests.kubectl.best_effort_cluster import best_effort_cluster
from tests.kubectl.guide_cluster import guide_cluster
from tests.kubectl.small_cluster import pod_body
from tests.models.koordinator import building as koordinator
from tests.models.topology_aware.machines import configuration, guaranteed, hardware
from tests.numazones.kubelet import building
from tests.support.page.clusters import dump, nodes_of

SHAPES = (Shape.parse("cpu=4"), Shape.parse("cpu=16"))


def occupied(node: ClusterNode) -> Occupancy:
    found = node.occupancy
    assert found is not None
    return found


@pytest.mark.parametrize("node", nodes_of(dump(10)).values(), ids=lambda node: node.name)
def test_a_nodes_figures_are_the_librarys(node: ClusterNode) -> None:
    assert node.state is not None
    occupancy = occupied(node)
    free = room(node.state)["cpu"]
    for zone in occupancy.zones:
        assert zone.cpus[0] == exclusive_cpus(node.state)[zone.numa]
        assert zone.cpus[1] - zone.cpus[0] == free[zone.numa]
    held = [cpu for holder in occupancy.holders for cpu in cpuset.ids(holder.cpus)]
    assert len(held) == len(set(held)) == sum(zone.cpus[0] for zone in occupancy.zones)
    assert not cpuset.of(held) & occupancy.reserved


@pytest.mark.parametrize("node", nodes_of(dump(5)).values(), ids=lambda node: node.name)
def test_a_machine_has_every_cpu_once(node: ClusterNode) -> None:
    assert node.state is not None
    listed = [
        cpu
        for socket in machine_document(occupied(node))["sockets"]
        for zone in socket["zones"]
        for cache in zone["caches"]
        for core in cache["cores"]
        for cpu in core
    ]
    assert sorted(listed) == [cpu.id for cpu in node.state.machine.cpus]


@pytest.mark.parametrize("node", nodes_of(best_effort_cluster()).values(), ids=lambda node: node.name)
def test_pods_that_are_not_aligned_are_the_librarys(node: ClusterNode) -> None:
    document = node_documents(node, ())[f"node/{node.name}"]
    lying = alignment.by_name(node)
    assert document["aligned"] == sum(found.aligned for found in lying.values())
    assert [(told["pod"], told["says"], cpuset.parse(told["apart"])) for told in document["misaligned"]] == [
        (name, found.sentence, found.apart) for name, found in lying.items() if not found.aligned
    ]
    assert all(cpuset.parse(one["apart"]).bit_count() == one["badness"][1] for one in document["misaligned"])


def test_memory_that_is_remote_is_named_by_numa_node() -> None:
    """The memory manager may promise on several NUMA nodes what one has not."""
    wide = building.pod("wide", building.container("main", 4, "20Gi"))
    said = admit(building.node(policy="best-effort", memory="Static"), wide)
    assert said.admitted, said.message
    node = ClusterNode("n").with_pod(ClusterPod("d", "wide", "wide", node="n")).with_state(said.node)
    (told,) = node_documents(node, ())["node/n"]["misaligned"]
    assert told["says"] == "spanning 2 NUMA nodes"
    assert told["memory"] == [1]


def test_equal_machines_are_told_once() -> None:
    documents: dict[str, Any] = {}
    for node in nodes_of(dump(20, waiting=0)).values():
        documents |= node_documents(node, SHAPES)
    # Two of the five kinds have the same machine.
    assert sum(key.startswith("machine/") for key in documents) == 4
    assert sum(key.startswith("node/") for key in documents) == 20


def test_pods_served_as_a_whole_hold_what_their_pod_holds() -> None:
    body = pod_body("whole", 2)
    body["spec"] = {
        "resources": {
            "requests": {"cpu": "4", "memory": "1Gi"},
            "limits": {"cpu": "4", "memory": "1Gi"},
        },
        "containers": [building.container("main", 2)],
    }
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    state = building.node(
        topologyManagerPolicy="single-numa-node", topologyManagerScope="pod", featureGates=gates
    )
    admission = admit(state, Pod.from_api(body))
    assert admission.admitted, admission.message
    node = ClusterNode("one").with_state(admission.node).with_pods([ClusterPod.from_api(body)])
    (holder,) = occupied(node).holders
    assert holder.name == "team/whole"
    assert holder.cpus == admission.node.cpus.exclusive_cpus()


def test_a_node_without_exclusive_cpus_says_so() -> None:
    state = building.node(cpuManagerPolicy="none", topologyManagerPolicy="none", reservedSystemCPUs="")
    document = node_documents(ClusterNode("one").with_state(state), SHAPES)["node/one"]
    assert document["exclusive"] is False
    assert [zone["cpus"] for zone in document["zones"]] == [[0, 0], [0, 0]]


def test_an_unknown_node_tells_why_and_nothing_else() -> None:
    node = ClusterNode("one").with_placement(Unknown("Stale", "its exporter is silent"))
    assert node_documents(node, SHAPES) == {
        "node/one": {"ready": True, "cordoned": False, "unknown": "its exporter is silent"}
    }


def test_nothing_is_measured_of_a_node_without_zones() -> None:
    node = ClusterNode("one").with_placement(Unknown("Stale", "its exporter is silent"))
    assert use_documents(node, Usage()) == {}


def test_koordinators_books_are_read() -> None:
    annotation = json.dumps(
        {"detail": [{"id": n, "core": n // 2, "socket": 0, "node": n // 4} for n in range(8)]}
    )
    topology = {
        "metadata": {"name": "k", "annotations": {"node.koordinator.sh/cpu-topology": annotation}},
        "zones": [
            {"name": f"node-{numa}", "type": "Node", "resources": [
                {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"},
                {"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "8Gi"},
            ]}
            for numa in (0, 1)
        ],
    }  # fmt: skip
    body = pod_body("bound", 2, phase="Running", spec={"nodeName": "k"})
    given = {"cpuset": "4-5", "numaNodeResources": [{"node": 1, "resources": {"cpu": "2", "memory": "1Gi"}}]}
    body["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": json.dumps(given)}
    node = {"metadata": {"name": "k"}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi"}}}
    state = KoordinatorNode.read(node, topology, pods=[body])
    found = occupied(ClusterNode("k").with_placement(KoordinatorPlacement(state)))
    assert [(item.name, cpuset.format(item.cpus)) for item in found.holders] == [("team/bound", "4-5")]
    assert [(zone.numa, zone.cpus, zone.memory) for zone in found.zones] == [
        (0, (0, 4), (("memory", 0, 8 << 30),)),
        (1, (2, 4), (("memory", 1 << 30, 8 << 30),)),
    ]
    assert [zone.free for zone in found.zones] == [4, 2]


def test_cpus_with_shares_of_pods_are_not_free() -> None:
    amounts = {1: {"cpu": "3", "memory": "1Gi"}}
    state = koordinator.node().bind(koordinator.running("p", amounts=amounts))
    document = node_documents(ClusterNode("k").with_placement(KoordinatorPlacement(state)), SHAPES)["node/k"]
    assert [(zone["cpus"], zone["free"]) for zone in document["zones"]] == [([0, 8], 8), ([0, 8], 5)]


def test_the_topology_aware_policys_grants_are_read() -> None:
    given = admit_topology_aware(
        TopologyAwareNode.fresh(hardware(), configuration(prefer_isolated=False)), guaranteed("a", "1500m")
    )
    found = occupied(ClusterNode("t").with_placement(TopologyAwarePlacement(given.node)))
    assert [(item.name, cpuset.format(item.cpus)) for item in found.holders] == [("default/a", "4")]
    assert [zone.cpus for zone in found.zones] == [(0, 3), (1, 4), (0, 4), (0, 4)]


def test_pods_of_one_owner_wait_together_and_count_their_rejections() -> None:
    items = guide_cluster()
    second = json.loads(json.dumps(items[-1]).replace("trainer-2", "trainer-3"))
    nodes = nodes_of(items)
    pods = [ClusterPod.from_api(body) for body in (items[-1], second)]
    waiting = [WaitingPod(pod, predict(pod, nodes.values())) for pod in pods]
    (counts, _), (key, document), *others = waiting_documents(
        waiting,
        ended=[ClusterPod.from_api(items[-2])],
        plans={"team/trainer-3": {"a": "plan a"}, "team/trainer-2": {"b": "plan b"}},
    )
    assert not others
    assert (counts, key) == ("counts/", "waiting/team/trainer-2")
    assert document["pods"] == ["trainer-2", "trainer-3"]
    assert document["rejected"]["count"] == 1
    assert document["plans"] == [("a", "plan a"), ("b", "plan b")]
    assert document["verdict"] == "Inadmissible"
    assert document["reasons"][0]["nodes"] == 2


def test_room_is_held_per_zone_on_each_possible_node() -> None:
    nodes = nodes_of(guide_cluster())
    first, second, third = (ClusterPod.from_api(pod_body(name, 3)) for name in ("one", "two", "three"))
    held = [
        Hold(first, ("worker-2",), ArrivalPath.ASSUMED, 60.0),
        Hold(second, ("worker-1", "worker-2", "gone"), ArrivalPath.RELEASED, 61.5),
        Hold(third, ("worker-1",), ArrivalPath.NOMINATED),
    ]
    documents = dict(held_documents(held, nodes.get))
    assert [(key, found["way"], found["until"]) for key, found in documents.items()] == [
        ("held/team/one", "being bound by a scheduler", "1970-01-01T00:01:00Z"),
        ("held/team/two", "released from the gate", "1970-01-01T00:01:01Z"),
        ("held/team/three", "nominated by a scheduler", ""),
    ]
    # worker-1 has four and two CPUs left, worker-2 four and three; a kubelet takes the lower NUMA node.
    places = [
        [(place["node"], place["numaIDs"]) for place in found["places"]] for found in documents.values()
    ]
    assert places == [
        [("worker-2", [0])],
        [("worker-1", [0]), ("worker-2", [1]), ("gone", [])],
        [("worker-1", [])],  # no room is left for it there; who is nominated waits until somebody ends
    ]
    assert documents["held/team/one"]["asks"] == [["cpu", "3"], ["memory", "1Gi"]]


def test_running_plan_is_shown_with_the_zones_of_its_creation() -> None:
    items = guide_cluster()
    nodes = nodes_of(items)
    pods = {body["metadata"]["uid"]: ClusterPod.from_api(body) for body in items if body["kind"] == "Pod"}
    there = {"node": "worker-1", "numaIDs": [0]}
    spec = RebalanceRecommendationSpec.model_validate(
        {
            "policy": "default",
            "goal": "pod team/trainer-2",
            "moves": [
                {
                    "pod": {"namespace": "team", "name": "web-1", "uid": "web-1"},
                    "source": there,
                    "target": {"node": "worker-2", "numaIDs": [0]},
                }
            ],
            "placements": [
                {
                    "pod": {"namespace": "team", "name": "trainer-2", "uid": "trainer-2"},
                    "target": there,
                }
            ],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 1, "cpus": "3"},
            "digest": "d",
        }
    )
    proposed = RebalanceRecommendationStatus(phase="Proposed")
    align = spec.model_copy(
        update={"goal": "align pods", "gain": spec.gain.model_copy(update={"before": -4, "after": -3})}
    )
    told = recommendation_document("two", align, proposed, nodes.get, pods.get, mode="Approve")["plan/two"]
    assert told["counts"] == ["4 not aligned", "3 not aligned"]
    assert told["objection"] == ""
    ((_, refused),) = recommendation_document(
        "two", align, proposed, nodes.get, pods.get, mode="Recommend"
    ).items()
    assert refused["objection"].startswith("policy default is in mode Recommend")
    first = recommendation_document("one", spec, proposed, nodes.get, pods.get, mode="Approve")["plan/one"]
    assert [(zone["node"], zone["cpus"], zone["pods"]) for zone in first["zones"]] == [
        ("worker-1", 7, [["team/web-1", 3]]),
        ("worker-2", 7, [["team/web-2", 3]]),
    ]
    assert (first["moves"][0]["cpus"], first["placements"][0]["cpus"]) == (3, 5)
    evicted = RebalanceRecommendationStatus.model_validate(
        {
            "phase": "Executing",
            "progress": [{"pod": {"namespace": "team", "name": "web-1", "uid": "web-1"}, "phase": "Evicted"}],
        }
    )
    later = recommendation_document(
        "one", spec, evicted, nodes.get, lambda _uid: None, mode="Approve", first=first
    )["plan/one"]
    assert later["phase"] == "Executing"
    assert later["moves"] == [first["moves"][0] | {"phase": "Evicted"}]
    assert (later["zones"], later["placements"]) == (first["zones"], first["placements"])
    # Who comes later sees zones that are no longer those before the plan.
    late = recommendation_document("one", spec, evicted, nodes.get, pods.get, mode="Approve")["plan/one"]
    assert (late["phase"], late["zones"]) == ("Executing", [])
    for phase in ("Succeeded", "Failed", "Expired", "Superseded", "Rejected"):
        ended = RebalanceRecommendationStatus(phase=phase)
        assert (
            recommendation_document("one", spec, ended, nodes.get, pods.get, mode="Approve")["plan/one"][
                "zones"
            ]
            == []
        )


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028", "\ud800", "]]>", '"'])
def test_no_text_leaves_the_block_of_json(text: str) -> None:
    page = html.report({"cluster/": {"source": text}}, title=text)
    start = page.index('id="documents">') + len('id="documents">')
    block = page[start : page.index("</script>", start)]
    assert json.loads(block) == {"cluster/": {"source": text}}
    assert "<" not in block
    page.encode()
