"""The scheduler extender: what it says of nodes, what it binds, and what it never does."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit
from numazones.prediction.held_room import ArrivalPath
from numazones_client import Unreachable
from numazones_client.errors import Request
from numazones_operator.mirror.decoding import ZoneReport
from numazones_operator.mirror.mirrored_node import MirroredNode
from numazones_operator.prevention.extender import extender as extender_module
from numazones_operator.prevention.extender import messages
from numazones_operator.prevention.extender.binding import BOUND
from numazones_operator.prevention.extender.extender import LEAST_SAMPLE
from numazones_operator.prevention.extender.messages import UnreadableRequest
from numazones_operator.prevention.extender.rejected_pods import TRY_AGAIN, RejectedPods
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_simulator import node_kinds
from tests.operator.offline_pipeline import ALL_OF_A_ZONE, RUNNING, SETTLE
from tests.operator.prevention.extender.cluster import Cluster

LOST = Unreachable(Request("create", "pods/binding"), "the connection broke", sent=True)
SPREAD = 2 * ALL_OF_A_ZONE
NOT_KNOWN = "node(s) whose NUMA state is not known"
"""CPUs that the node has, but no NUMA node of it."""


# filter


async def test_rejecting_nodes_are_unresolvable_with_a_reason() -> None:
    cluster = Cluster("a", "b")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("too", cpu=ALL_OF_A_ZONE - 4, nodeName="a")
    answer = await cluster.filter(cluster.pod("p", cpu=ALL_OF_A_ZONE), ["a", "b"])
    assert answer == {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"a": "Insufficient cpu"},
        "Error": "",
    }


async def test_pod_across_numa_nodes_is_rejected_in_kubelets_words() -> None:
    cluster = Cluster("a")
    answer = await cluster.filter(cluster.pod("p", cpu=SPREAD - 2), ["a"])
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": "node(s) that would not admit the pod (kubelet: TopologyAffinityError)"
    }


async def test_reasons_stay_the_same_and_name_no_figures_or_nodes() -> None:
    cluster = Cluster("node-17")
    texts = set()
    for cpu in (SPREAD - 2, SPREAD - 4):
        answer = await cluster.filter(cluster.pod(f"p{cpu}", cpu=cpu), ["node-17"])
        texts |= set(answer["FailedAndUnresolvableNodes"].values())
    assert len(texts) == 1
    assert not any(sign.isdigit() for sign in texts.pop())


async def test_pod_without_numa_requirements_may_go_everywhere() -> None:
    cluster = Cluster("a")
    body = cluster.pod("p")
    body["spec"]["containers"][0]["resources"] = {}
    assert (await cluster.filter(body, ["a", "unheard-of"]))["NodeNames"] == ["a", "unheard-of"]


@pytest.mark.parametrize(
    ("unknown", "beside_known", "alone"),
    [
        (UnknownNodes.LAST_RESORT, ["a"], ["b"]),
        (UnknownNodes.ALLOW, ["a", "b"], ["b"]),
        (UnknownNodes.REJECT, ["a"], []),
    ],
)
async def test_nodes_of_unknown_state(
    unknown: UnknownNodes, beside_known: list[str], alone: list[str]
) -> None:
    cluster = Cluster("a", "b", unknown=unknown)
    for zone in list(cluster.state.zones):
        if zone.node == "b":
            cluster.state.zones.remove(zone)
    pod = cluster.pod("p")
    assert (await cluster.filter(pod, ["a", "b"]))["NodeNames"] == beside_known
    assert (await cluster.filter(pod, ["b"]))["NodeNames"] == alone
    scores = await cluster.prioritize(pod, ["a", "b"])
    assert scores == {"a": 10}  # a node without a score has 0


async def test_a_node_that_only_the_request_knows_is_unknown() -> None:
    """As an autoscaler simulates."""
    cluster = Cluster("a")
    pod = cluster.pod("p")
    assert (await cluster.filter(pod, ["template-of-an-autoscaler"]))["NodeNames"] == [
        "template-of-an-autoscaler"
    ]
    assert (await cluster.filter(pod, ["a", "template-of-an-autoscaler"]))["NodeNames"] == ["a"]


async def test_a_change_of_a_node_is_heeded_at_once() -> None:
    cluster = Cluster("a")
    pod = cluster.pod("p", cpu=ALL_OF_A_ZONE)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    cluster.pod("one", cpu=2, nodeName="a")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    cluster.pod("two", cpu=ALL_OF_A_ZONE - 2, nodeName="a")
    cluster.pod("three", cpu=2, nodeName="a")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []


async def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    """With nodeCacheCapable off only Nodes counts."""
    cluster = Cluster("a", "b")
    cluster.pod("there", cpu=SPREAD - 10, nodeName="a")
    nodes = [{"metadata": {"name": name, "labels": {"x": "y"}}} for name in ("a", "b")]
    body = {"Pod": cluster.pod("p", cpu=20), "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
    answer = await cluster._ask(cluster.extender.filter, body)
    assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == answer["NodeNames"]
    assert all(node["metadata"]["labels"] == {"x": "y"} for node in answer["Nodes"]["items"])


async def test_before_the_cluster_is_read_nothing_is_said() -> None:
    cluster = Cluster("a")
    cluster.ready = False
    pod = cluster.pod("p")
    assert "not finished reading the cluster" in (await cluster.filter(pod, ["a"]))["Error"]
    assert "not finished reading the cluster" in await cluster.bind("p", "a")
    assert cluster.server.bindings == []


# prioritize


async def test_the_best_node_alone_gets_the_best_score() -> None:
    cluster = Cluster("empty", "used")
    cluster.pod("there", cpu=ALL_OF_A_ZONE - 4, nodeName="used")
    scores = await cluster.prioritize(cluster.pod("p", cpu=4), ["empty", "used"])
    assert scores == {"used": 10, "empty": 9}


# preempt


async def test_only_nodes_with_sufficient_victims_are_kept() -> None:
    """Pods of 15 CPUs fill NUMA node 0 first: two of one NUMA node make room, one of each do not."""
    cluster = Cluster("a", "b")
    for node in ("a", "b"):
        for number in range(4):
            cluster.pod(f"{node}{number}", cpu=ALL_OF_A_ZONE // 2, nodeName=node)
    wanted = cluster.pod("p", cpu=ALL_OF_A_ZONE, priority=1000)
    kept = await cluster.preempt(wanted, {"a": ["uid-a0", "uid-a1"], "b": ["uid-b0", "uid-b2"]})
    assert kept == {"a": ["uid-a0", "uid-a1"]}
    assert cluster.metric("numazones_extender_vetoed_preemptions_total") == 1


@pytest.mark.parametrize(
    "victims",
    [{"a": ["uid-unheard-of"]}, {"unheard-of": ["uid-there"]}],
    ids=["a victim that is not there", "a node that is not there"],
)
async def test_what_cannot_be_judged_is_vetoed(victims: dict[str, list[str]]) -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=2, nodeName="a")
    assert await cluster.preempt(cluster.pod("p", cpu=4), victims) == {}


async def test_a_node_without_victims_stays_without_and_is_not_vetoed() -> None:
    """From 1.38 on such nodes come for the extender that names their victims, which may be another one."""
    cluster = Cluster("a", "b")
    for number in range(4):
        cluster.pod(f"a{number}", cpu=ALL_OF_A_ZONE // 2, nodeName="a")
    offered: dict[str, Any] = {
        "a": {"Pods": [{"UID": "uid-a0"}], "NumPDBViolations": 0},  # too little room
        "b": {"Pods": [], "NumPDBViolations": 2},
        "gone": {"Pods": None, "NumPDBViolations": 0},
        "null": None,
    }
    wanted = cluster.pod("p", cpu=ALL_OF_A_ZONE, priority=1000)
    for pod in (wanted, cluster.pod("small", cpu="100m", priority=1000)):
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": offered}
        answer = json.loads(messages.encode(await cluster.extender.preempt(json.dumps(body).encode())))
        kept = answer["NodeNameToMetaVictims"]
        assert kept.pop("a", {"Pods": ["there"]})["Pods"]
        assert kept == {
            "b": {"Pods": [], "NumPDBViolations": 2},
            "gone": {"Pods": [], "NumPDBViolations": 0},
            "null": {"Pods": [], "NumPDBViolations": 0},
        }
    assert cluster.metric("numazones_extender_vetoed_preemptions_total") == 1


async def test_on_a_node_of_unknown_state_nobody_is_evicted() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=2, nodeName="a")
    for zone in list(cluster.state.zones):
        cluster.state.zones.remove(zone)
    assert await cluster.preempt(cluster.pod("p"), {"a": ["uid-there"]}) == {}


async def test_nominated_node_is_awaited_while_the_mirror_shows_its_victims() -> None:
    """Else the pod would go elsewhere, and its victims would have been evicted for nothing."""
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("victim", cpu=20, nodeName="a")
    cluster.ask_to_delete("victim")
    pod = cluster.pod("p", cpu=20, priority=1000)
    pod["status"]["nominatedNodeName"] = "a"
    asked = asyncio.create_task(cluster.filter(pod, ["a"]))
    for _ in range(3):  # it asks, and waits
        await asyncio.sleep(0)
    assert not asked.done()
    cluster.delete("victim")
    assert (await asked)["NodeNames"] == ["a"]


async def test_nominated_node_without_leaving_victims_is_answered_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_module, "_MIRROR_LAG", 1e9)
    cluster = Cluster("a")
    cluster.pod("there", cpu=SPREAD - 4, nodeName="a")
    pod = cluster.pod("p", cpu=20, priority=1000)
    pod["status"]["nominatedNodeName"] = "a"
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []


# bind


async def test_a_pod_is_bound_to_the_node_that_admits_it() -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    assert await cluster.bind("p", "a") == BOUND
    assert cluster.server.bindings == [("p", "a")]


async def test_of_two_bindings_for_one_slot_the_second_is_refused() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    for name in ("p", "q"):
        cluster.pod(name, cpu=20)
    answers = await asyncio.gather(cluster.bind("p", "a"), cluster.bind("q", "a"))
    assert sorted(map(bool, answers)) == [False, True]
    assert len(cluster.server.bindings) == 1
    assert cluster.metric("numazones_extender_bind_conflicts_total") == 1
    # Filter, too, counts what is being bound, long before the watch shows it.
    answer = await cluster.filter(cluster.pod("r", cpu=20), ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": "node(s) whose free NUMA room is held for pods on their way to them"
    }


async def test_a_binding_that_failed_gives_its_room_back() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("p", cpu=20)
    cluster.pod("q", cpu=20)
    cluster.server.failures = [LOST]
    assert "did not bind the pod" in await cluster.bind("p", "a")
    assert await cluster.bind("q", "a") == BOUND


@pytest.mark.parametrize("mirrored", [True, False], ids=["mirrored", "not mirrored yet"])
async def test_binding_twice_is_done_once(*, mirrored: bool) -> None:
    """The scheduler gave up waiting, and tries again."""
    cluster = Cluster("a", "b")
    cluster.pod("p")
    assert await cluster.bind("p", "a") == BOUND
    if mirrored:
        cluster.mirror("p")
    assert await cluster.bind("p", "a") == BOUND
    assert "bound to another node" in await cluster.bind("p", "b")
    assert cluster.server.bindings == [("p", "a")]


async def test_a_binding_whose_answer_was_lost_is_looked_up() -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    cluster.server.failures, cluster.server.losing_answers = [LOST], True
    assert await cluster.bind("p", "a") == BOUND


async def test_binding_with_unknown_outcome_keeps_its_room_held() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("p", cpu=20)
    cluster.pod("q", cpu=20)
    cluster.server.failures, cluster.server.losing_answers = [LOST, LOST], True
    assert "it is unknown whether" in await cluster.bind("p", "a")
    assert "has changed" in await cluster.bind("q", "a")


async def test_deleted_or_recreated_pod_is_not_bound() -> None:
    cluster = Cluster("a")
    assert "is gone" in await cluster.bind("p", "a")
    cluster.pod("p", mirrored=False)
    assert "created again" in await cluster.bind("p", "a", uid="uid-of-the-first")
    assert cluster.server.bindings == []


async def test_unknown_node_gets_pods_unless_configured_otherwise() -> None:
    for unknown, bound in ((UnknownNodes.LAST_RESORT, True), (UnknownNodes.REJECT, False)):
        cluster = Cluster("a", unknown=unknown)
        for zone in list(cluster.state.zones):
            cluster.state.zones.remove(zone)
        cluster.pod("p")
        assert (await cluster.bind("p", "a") == BOUND) is bound


# Pods that leave


def with_init_container(body: dict[str, Any], cpu: int) -> dict[str, Any]:
    (container,) = body["spec"]["containers"]
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    body["spec"]["initContainers"] = [{**container, "name": "init", "resources": resources}]
    return body


async def test_room_freed_by_a_leaving_pod_may_cause_rejection() -> None:
    """An init container's CPUs are used again: the NUMA node that it is given is the one for the pod.

    Seen on a kubelet of 1.36: it took CPUs that had become free 25 ms before, and rejected the pod for them.
    """
    cluster = Cluster("a")
    cluster.pod("stays", cpu=18, nodeName="a")
    cluster.pod("leaves", cpu=10, nodeName="a")  # 2 CPUs are left on NUMA node 0
    pod = with_init_container(cluster.pod("p", cpu=20), 4)
    cluster.mirror("p")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    cluster.ask_to_delete("leaves")
    answer = await cluster.filter(pod, ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": "node(s) that would not admit the pod (kubelet: TopologyAffinityError)"
    }
    assert "TopologyAffinityError" in await cluster.bind("p", "a")
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []
    small = with_init_container(cluster.pod("small", cpu=10), 4)
    assert (await cluster.filter(small, ["a"]))["NodeNames"] == ["a"]


async def test_nodes_without_leaving_pods_are_cached_until_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    alternatives = MirroredNode.alternatives

    def counted(record: MirroredNode, *given: Any, **options: Any) -> tuple[ClusterNode, ...] | None:
        made.append(record.name)
        return alternatives(record, *given, **options)

    monkeypatch.setattr(MirroredNode, "alternatives", counted)
    names = ["a", "b"]
    cluster = Cluster(*names)
    for name in names:
        cluster.pod(f"leaves-{name}", cpu=10, nodeName=name)
    cluster.ask_to_delete("leaves-a")
    pod = cluster.pod("p", cpu=4)
    made.clear()
    for _ in range(3):
        assert (await cluster.filter(pod, names))["NodeNames"] == names
    assert made == ["a"]
    cluster.ask_to_delete("leaves-b")
    made.clear()
    assert (await cluster.filter(pod, names))["NodeNames"] == names
    assert made == ["b"]
    cluster.delete("leaves-a")
    made.clear()
    assert (await cluster.filter(pod, names))["NodeNames"] == names
    assert made == []


# Nodes of unknown state, and what is known of them all the same


def fall_silent(cluster: Cluster) -> None:
    """Let the Leases of all exporters run out."""
    cluster.offline.let_pass(61)


def forget_zones(cluster: Cluster) -> None:
    for zone in list(cluster.state.zones):
        cluster.state.zones.remove(zone)


def let_kubelet_reject(cluster: Cluster, name: str, node: str) -> None:
    """Let a pod be bound, and then rejected by the kubelet."""
    body = cluster.server.pods[f"default/{name}"]
    body["spec"]["nodeName"] = node
    cluster.mirror(name)
    body["status"] = {"phase": "Failed", "reason": "TopologyAffinityError"}
    cluster.mirror(name)


@pytest.mark.parametrize("unknown", [UnknownNodes.LAST_RESORT, UnknownNodes.ALLOW])
async def test_node_with_silent_exporter_is_followed_from_its_last_state(
    unknown: UnknownNodes,
) -> None:
    cluster = Cluster("a", unknown=unknown)
    cluster.pod("one", cpu=20, nodeName="a")
    fall_silent(cluster)
    pod = cluster.pod("p", cpu=12)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    cluster.pod("two", cpu=20, nodeName="a")  # 10 CPUs are left on each NUMA node
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    assert (await cluster.filter(cluster.pod("small", cpu=10), ["a"]))["NodeNames"] == ["a"]
    cluster.delete("two")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]


async def test_silent_node_reports_rejection_by_its_last_known_state() -> None:
    cluster = Cluster("a")
    fall_silent(cluster)
    answer = await cluster.filter(cluster.pod("p", cpu=SPREAD - 2), ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": f"{NOT_KNOWN} (LeaseExpired); in their last known state, they would reject the pod"
    }
    assert "in their last known state" in await cluster.bind("p", "a")
    assert cluster.server.bindings == []


@pytest.mark.parametrize("silent", [True, False])
async def test_location_of_pods_bound_during_a_departure_is_not_guessed(silent: bool) -> None:  # noqa: FBT001
    """A kubelet may free a pod's room at once, long before its phase tells, and give it to the next one."""
    cluster = Cluster("a")
    if silent:
        fall_silent(cluster)
    cluster.pod("leaves", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("there", cpu=10, nodeName="a")
    cluster.ask_to_delete("leaves")
    cluster.pod("next", cpu=10, nodeName="a")  # where the first was, or beside the second
    cluster.delete("leaves")
    pod = cluster.pod("p", cpu=ALL_OF_A_ZONE)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    assert await cluster.bind("p", "a") != BOUND
    assert (await cluster.filter(cluster.pod("small", cpu=20), ["a"]))["NodeNames"] == ["a"]


@pytest.mark.parametrize("unknown", [UnknownNodes.LAST_RESORT, UnknownNodes.ALLOW])
async def test_node_without_zones_is_followed_from_its_last_state(unknown: UnknownNodes) -> None:
    cluster = Cluster("a", unknown=unknown)
    for name in ("one", "two"):
        cluster.pod(name, cpu=20, nodeName="a")  # 10 CPUs are left on each NUMA node
    forget_zones(cluster)
    answer = await cluster.filter(cluster.pod("p", cpu=12), ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": f"{NOT_KNOWN} (NoZones); in their last known state, they would reject the pod"
    }
    assert "in their last known state" in await cluster.bind("p", "a")
    assert (await cluster.filter(cluster.pod("small", cpu=10), ["a"]))["NodeNames"] == ["a"]
    cluster.delete("two")
    assert await cluster.bind("p", "a") == BOUND


async def test_node_with_unreadable_new_zones_is_followed_from_old_ones() -> None:
    cluster = Cluster("a")
    zones = cluster.offline.publish("a", node_kinds.single_numa_node("a", "10.0.0.1").empty_node())
    cluster.pod("one", cpu=20, nodeName="a")
    cluster.pod("two", cpu=20, nodeName="a")
    for body in zones:
        body["status"]["kubelet"]["cpuManagerPolicy"] = "psychic"
        body["status"]["snapshot"] = "newer"
        cluster.state.zones.put(ZoneReport.from_api(body))
    assert (await cluster.filter(cluster.pod("p", cpu=12), ["a"]))["NodeNames"] == []
    assert (await cluster.filter(cluster.pod("small", cpu=10), ["a"]))["NodeNames"] == ["a"]


def never_known(unknown: UnknownNodes) -> Cluster:
    """A node created again, of which no zones have come; its exporter gives signs of life."""
    cluster = Cluster("a", unknown=unknown)
    node = cluster.state.nodes.get("a")
    assert node is not None
    cluster.state.nodes.remove(node)
    forget_zones(cluster)
    cluster.state.nodes.put(replace(node, uid="another"))
    return cluster


@pytest.mark.parametrize(
    ("unknown", "passes"),
    [(UnknownNodes.LAST_RESORT, False), (UnknownNodes.ALLOW, True), (UnknownNodes.REJECT, False)],
)
async def test_never_known_node_gets_nothing_while_its_exporter_runs(
    *, unknown: UnknownNodes, passes: bool
) -> None:
    cluster = never_known(unknown)
    pod = cluster.pod("p", cpu=4)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"] * passes
    assert (await cluster.bind("p", "a") == BOUND) is passes


async def test_exporter_that_does_not_start_is_not_awaited_forever() -> None:
    cluster = never_known(UnknownNodes.LAST_RESORT)
    cluster.offline.let_pass(61)  # its Lease runs out
    pod = cluster.pod("p", cpu=4)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    body = cluster.pod("exporter", mirrored=False, nodeName="a")
    body["metadata"]["labels"] = {"app.kubernetes.io/name": "numazones-exporter"}
    cluster.mirror("exporter")
    answer = await cluster.filter(pod, ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": "node(s) whose NUMA state is not known (NoZones); their exporters have not published it yet"
    }
    cluster.offline.let_pass(301)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]


async def test_what_was_known_of_a_node_goes_with_it() -> None:
    cluster = Cluster("a")
    for name in ("one", "two"):
        cluster.pod(name, cpu=20, nodeName="a")
    node = cluster.state.nodes.get("a")
    assert node is not None
    cluster.state.nodes.put(replace(node, uid="another"))
    for name in ("one", "two"):
        cluster.delete(name)
    forget_zones(cluster)
    cluster.offline.let_pass(61)
    big = cluster.pod("p", cpu=SPREAD - 2)
    assert (await cluster.filter(big, ["a"]))["NodeNames"] == ["a"]  # nobody knows better


async def test_room_on_a_silent_node_is_promised_once() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    fall_silent(cluster)
    for name in ("p", "q"):
        cluster.pod(name, cpu=20)
    assert await cluster.bind("p", "a") == BOUND
    assert "in their last known state" in await cluster.bind(
        "q", "a"
    )  # the mirror does not show the first one yet


@pytest.mark.parametrize("unknown", [UnknownNodes.LAST_RESORT, UnknownNodes.ALLOW])
async def test_node_with_partly_written_first_zones_is_awaited(unknown: UnknownNodes) -> None:
    """A process that starts may list some zones of one snapshot and some of the next."""
    cluster = Cluster("a", unknown=unknown)
    first, second = cluster.offline.publish("a", node_kinds.single_numa_node("a", "10.0.0.1").empty_node())
    forget_zones(cluster)
    cluster.state.zones.put(ZoneReport.from_api(first))
    pod, big = cluster.pod("p", cpu=4), cluster.pod("big", cpu=SPREAD - 2)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    assert await cluster.bind("p", "a") != BOUND
    cluster.offline.let_pass(5)
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []
    cluster.state.zones.put(ZoneReport.from_api(second))
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p"]
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    assert (await cluster.filter(big, ["a"]))["NodeNames"] == []


async def test_a_node_whose_zones_stay_incomplete_is_of_unknown_state() -> None:
    cluster = Cluster("a")
    first, _ = cluster.offline.publish("a", node_kinds.single_numa_node("a", "10.0.0.1").empty_node())
    forget_zones(cluster)
    cluster.state.zones.put(ZoneReport.from_api(first))
    pod = cluster.pod("p", cpu=4)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    cluster.offline.let_pass(SETTLE)
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p"]
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]


def show(cluster: Cluster, *names: str) -> None:
    """Let the exporter on node a publish pods where its kubelet put them, in this order."""
    state = node_kinds.single_numa_node("a", "10.0.0.1").empty_node()
    for name in names:
        wanted = ClusterPod.from_api(cluster.server.pods[f"default/{name}"]).admission
        assert wanted is not None
        state = admit(state, wanted).node
    cluster.offline.publish("a", state)


def let_run(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.server.pods[f"default/{name}"]["status"] = RUNNING
        cluster.mirror(name)


def started_beside_a_silent_exporter() -> Cluster:
    """An extender that finds on node a, of 30 CPUs on each NUMA node, pods that came while nobody looked.

    The zones show ``young``. ``old`` was created before it and bound after them. Whether it is beside the
    young one cannot be known: others came and went meanwhile.
    """
    cluster = Cluster("a")
    for name, created in (("old", "2026-01-31T07:00:00Z"), ("young", "2026-01-31T08:00:00Z")):
        body = cluster.pod(name, cpu=10, nodeName="a", mirrored=False)
        body["metadata"]["creationTimestamp"] = created
        cluster.mirror(name)
    show(cluster, "young")
    let_run(cluster, "old", "young")
    cluster.state.all_found()
    return cluster


@pytest.mark.parametrize("waited", [0.0, SETTLE, 10 * SETTLE])
@pytest.mark.parametrize("size", [4, 20])
async def test_node_with_pods_newer_than_its_zones_is_awaited(waited: float, size: int) -> None:
    cluster = started_beside_a_silent_exporter()
    cluster.offline.let_pass(waited)
    cluster.offline.beat("a")
    pod = cluster.pod("p", cpu=size)
    answer = await cluster.filter(pod, ["a"])
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"]["a"].startswith(
        "node(s) whose NUMA state is not known (ZonesBehind)"
    )
    assert await cluster.bind("p", "a") != BOUND
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []
    show(cluster, "young", "old")
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p"]
    assert await cluster.bind("p", "a") == BOUND


async def test_ended_pod_leaves_the_node_as_its_zones_show() -> None:
    cluster = started_beside_a_silent_exporter()
    cluster.ask_to_delete("old")
    pod = cluster.pod("p", cpu=20)
    cluster.offline.let_pass(SETTLE)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    cluster.delete("old")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]


async def test_pod_next_to_an_unlocated_one_is_unlocated_too() -> None:
    cluster = started_beside_a_silent_exporter()
    cluster.pod("around", cpu=10, nodeName="a")
    cluster.delete("old")
    pod = cluster.pod("p", cpu=20)
    for _ in range(2):
        assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
        cluster.offline.let_pass(SETTLE - 1)
        cluster.offline.beat("a")
        let_run(cluster, "around")
    cluster.delete("around")
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]


async def test_pod_not_started_by_the_kubelet_comes_after_zones() -> None:
    """As where pods are bound to a node whose kubelet is away: its exporter has nothing new to say."""
    cluster = Cluster("a")
    cluster.pod("there", cpu=20, nodeName="a")
    cluster.pod("coming", cpu=20, nodeName="a")
    show(cluster, "there")
    cluster.state.all_found()
    pod = cluster.pod("p", cpu=10)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
    cluster.offline.let_pass(SETTLE)
    assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"]
    assert (await cluster.filter(cluster.pod("big", cpu=20), ["a"]))["NodeNames"] == []


async def test_new_zones_settle_pods_bound_before_the_start() -> None:
    cluster = started_beside_a_silent_exporter()
    cluster.pod("third", cpu=2, nodeName="a")
    show(cluster, "young", "third")
    assert (await cluster.filter(cluster.pod("p", cpu=ALL_OF_A_ZONE), ["a"]))["NodeNames"] == ["a"]
    assert await cluster.bind("p", "a") == BOUND
    cluster.mirror("p")
    # Its 10 CPUs are held beside the 12 that the zones show.
    assert (await cluster.filter(cluster.pod("more", cpu=10), ["a"]))["NodeNames"] == []
    assert (await cluster.filter(cluster.pod("small", cpu=8), ["a"]))["NodeNames"] == ["a"]


async def test_unknown_node_rejects_only_one_of_equal_pods_until_changed() -> None:
    """A ReplicaSet answers each rejection with another pod."""
    cluster = Cluster("a")
    cluster.pod("there", cpu=2, nodeName="a")
    forget_zones(cluster)
    for name in ("first", "second"):
        cluster.pod(name, cpu=20)
    assert (await cluster.filter(cluster.server.pods["default/first"], ["a"]))["NodeNames"] == ["a"]
    let_kubelet_reject(cluster, "first", "a")
    second = cluster.server.pods["default/second"]
    assert (await cluster.filter(second, ["a"]))["NodeNames"] == []
    assert await cluster.bind("second", "a") != BOUND
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []
    other = cluster.pod("other", cpu=4)
    assert (await cluster.filter(other, ["a"]))["NodeNames"] == ["a"]
    cluster.delete("first")  # it held nothing
    assert (await cluster.filter(second, ["a"]))["NodeNames"] == []
    cluster.delete("there")
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["second"]
    assert (await cluster.filter(second, ["a"]))["NodeNames"] == ["a"]


async def test_rejection_is_forgotten_once_zones_or_node_change() -> None:
    for renew in (cluster_zones_anew, node_object_anew):
        cluster = Cluster("a")
        forget_zones(cluster)
        pod = cluster.pod("p", cpu=4)
        cluster.pod("first", cpu=4)
        let_kubelet_reject(cluster, "first", "a")
        assert (await cluster.filter(pod, ["a"]))["NodeNames"] == []
        renew(cluster)
        assert (await cluster.filter(pod, ["a"]))["NodeNames"] == ["a"], renew


def cluster_zones_anew(cluster: Cluster) -> None:
    cluster.offline.publish("a", node_kinds.single_numa_node("a", "10.0.0.1").empty_node())


def node_object_anew(cluster: Cluster) -> None:
    node = cluster.state.nodes.get("a")
    assert node is not None
    cluster.state.nodes.put(replace(node, labels={**node.labels, "new": "yes"}))


# What is rejected is tried again


async def test_rejected_pod_is_woken_once_when_a_node_fits() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("also", cpu=20, nodeName="a")
    assert (await cluster.filter(cluster.pod("p", cpu=20), ["a"]))["NodeNames"] == []
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []
    cluster.delete("also")
    for _ in range(3):
        await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p"]
    # Taken by another and free again, it is another chance.
    cluster.pod("also", cpu=20, nodeName="a")
    await cluster.extender.rejected.wake()
    cluster.delete("also")
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p", "p"]


async def test_only_the_most_important_pod_is_woken_per_slot() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("also", cpu=20, nodeName="a")
    for number, priority in enumerate((0, 5, 0)):
        await cluster.filter(cluster.pod(f"p{number}", cpu=20, priority=priority), ["a"])
    cluster.delete("also")
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["p1"]


async def test_a_pod_that_is_gone_or_bound_is_not_woken() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=SPREAD - 4, nodeName="a")
    for name in ("gone", "bound"):
        await cluster.filter(cluster.pod(name, cpu=20), ["a"])
    cluster.delete("gone")
    cluster.server.pods["default/bound"]["spec"]["nodeName"] = "a"
    cluster.mirror("bound")
    cluster.delete("there")
    await cluster.extender.rejected.wake()
    assert cluster.server.patches == []


async def test_pod_is_woken_when_held_room_expires_despite_clock_change() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    another = cluster.pod("another", cpu=20)
    cluster.held.hold(ClusterPod.from_api(another), ["a"], ArrivalPath.ASSUMED, seconds=5)
    assert (await cluster.filter(cluster.pod("p", cpu=20), ["a"]))["NodeNames"] == []
    await cluster.extender.rejected.look()
    cluster.offline.clock.now += 6
    cluster.wall.now -= 86_400
    await cluster.extender.rejected.look()
    ((name, patch),) = cluster.server.patches
    assert name == "p"
    since = patch["metadata"]["annotations"][TRY_AGAIN]
    assert since == "1969-12-31T00:16:40.000000Z"  # the time of day


async def test_while_no_node_changes_one_looks_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a")
    looks: list[float] = []

    async def wake(_self: RejectedPods) -> None:
        looks.append(cluster.offline.clock.now)

    monkeypatch.setattr(RejectedPods, "wake", wake)
    start = cluster.offline.clock.now
    for _ in range(8):
        await cluster.extender.rejected.look()
        cluster.offline.clock.now += 0.25
    assert looks == [start, start + 1.0]
    node_object_anew(cluster)
    await cluster.extender.rejected.look()
    await cluster.extender.rejected.look()
    assert looks == [start, start + 1.0, start + 2.0]


async def test_pod_missing_from_the_mirror_is_forgotten_after_a_minute() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("also", cpu=20, nodeName="a")
    for name in ("soon", "late"):
        await cluster.filter(cluster.pod(name, cpu=20, mirrored=False), ["a"])
    await cluster.extender.rejected.wake()
    cluster.mirror("soon")
    for _ in range(3):
        cluster.offline.clock.now += 21
        cluster.offline.beat("a")
    await cluster.extender.rejected.wake()
    cluster.mirror("late")
    cluster.delete("also")
    await cluster.extender.rejected.wake()
    assert [name for name, _ in cluster.server.patches] == ["soon"]


# What is counted


async def test_rejection_counts_as_sampled_if_a_fitting_node_was_omitted() -> None:
    """Below 100 nodes the scheduler samples nothing: its own filters removed the others."""
    cluster = Cluster("full", "free", unknown=UnknownNodes.REJECT)
    cluster.pod("there", cpu=SPREAD - 4, nodeName="full")
    pod = cluster.pod("p", cpu=20)
    for others, counted in ((0, 0), (LEAST_SAMPLE, 1)):
        await cluster.filter(pod, ["full", *(f"n{number}" for number in range(others))])
        assert cluster.metric("numazones_extender_sampled_requests_total") == counted
    await cluster.filter(pod, ["full", "free", *(f"n{number}" for number in range(LEAST_SAMPLE))])
    assert cluster.metric("numazones_extender_sampled_requests_total") == 1


async def test_a_pod_that_spins_is_counted() -> None:
    cluster = Cluster("a")
    pod = cluster.pod("p", cpu=SPREAD - 2)
    for _ in range(25):
        await cluster.filter(pod, ["a"])
    assert cluster.metric("numazones_extender_repeated_requests_total") == 5


async def test_pod_retried_amid_changes_does_not_spin() -> None:
    cluster = Cluster("a")
    pod = cluster.pod("p", cpu=SPREAD - 2)
    for number in range(30):
        cluster.pod(f"comes-{number}", nodeName="a")
        await cluster.filter(pod, ["a"])
        cluster.delete(f"comes-{number}")
        await cluster.filter(pod, ["a"])
    assert cluster.metric("numazones_extender_repeated_requests_total") == 0


# Bad input

POD: dict[str, Any] = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"Pod": null, "NodeNames": ["a"]}',
        b'{"Pod": 7, "NodeNames": ["a"]}',
        b'{"Pod": {}, "NodeNames": ["a"]}',
        b'{"Pod": {"metadata": null}, "NodeNames": ["a"]}',
        b'{"Pod": {"metadata": {"name": "p"}, "spec": {}}, "NodeNames": ["a"]}',
        b'{"Pod": {"metadata": {"name": "p", "uid": "u"}, "spec": 7}, "NodeNames": ["a"]}',
        b'{"Pod": {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": 1}}, "NodeNames": ["a"]}',
        b"[" * 100_000,
        b'{"Pod": ' + b'{"a":' * 100_000,
    ],
)
async def test_invalid_request_is_rejected_with_its_location(verb: str, body: bytes) -> None:
    cluster = Cluster("a")
    with pytest.raises(UnreadableRequest, match="request"):
        await getattr(cluster.extender, verb)(body)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_request_without_nodes_is_rejected(verb: str) -> None:
    with pytest.raises(UnreadableRequest, match="neither NodeNames nor Nodes"):
        await getattr(Cluster("a").extender, verb)(json.dumps({"Pod": POD}).encode())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"PodName": "p", "PodNamespace": "default", "PodUID": "", "Node": "a"},
        {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": None},
        {"PodName": ["p"], "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"},
    ],
)
async def test_a_request_that_makes_no_sense_binds_nothing(body: dict[str, Any]) -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    answer = await cluster._ask(cluster.extender.bind, body)
    assert "request" in answer["Error"]
    assert cluster.server.bindings == []


async def test_a_pod_of_nonsense_counts_as_unknown_everywhere() -> None:
    cluster = Cluster("a", unknown=UnknownNodes.REJECT)
    body = cluster.pod("p", cpu="many")
    answer = await cluster.filter(body, ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "a": "node(s) whose NUMA state is not known (UnreadablePod)"
    }
    assert "UnreadablePod" in await cluster.bind("p", "a")
