"""The room held for pods on their way: for whom, where, against whom, and until when."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import RELEASED
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NodeName, ObjectFault
from numazones.prediction.forecast import NodeAnswer, PodKind, ask
from numazones.prediction.held_room import MAX_NODES, RELEASE_SECONDS, ArrivalPath, Hold, with_held
from numazones_operator.prevention.held_room import NOMINATION_SECONDS, HeldRoom
from tests.operator.offline_pipeline import ALL_OF_A_ZONE, OfflinePipeline
from tests.operator.pods import pod_body

EPOCH = 1_700_000_000.0


class Cluster:
    """Two nodes, and pods that wait for them."""

    def __init__(self, *nodes: str) -> None:
        self.offline = OfflinePipeline()
        self.offline.clock.now = EPOCH
        for name in nodes or ("a", "b"):
            self.offline.add_node(name)
        self.state = self.offline.state
        self.unproven: set[str] = set()
        """Names of pods whose releases others may have written."""
        self.held = HeldRoom(
            self.state,
            proven=lambda pod: pod.name not in self.unproven,
            clock=self.offline.clock,
            wall=self.offline.clock,
        )

    def pod(self, name: str, **parts: Any) -> ClusterPod:
        pod = waiting_pod(name, **parts)
        self.state.pods.put(pod)
        return pod

    def at(self, asking: ClusterPod | None = None) -> dict[str, list[str]]:
        return {node: [pod.name for pod in pods] for node, pods in self.held.by_node(asking).items()}


def waiting_pod(
    name: str,
    *,
    cpu: int = 2,
    released: float | None = None,
    nodes: tuple[str, ...] = (),
    nominated: str = "",
    node: str = "",
    priority: int = 0,
    selector: dict[str, str] | None = None,
) -> ClusterPod:
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity: dict[str, Any] = {"affinity": {"nodeAffinity": required}} if nodes else {}
    body = pod_body(name, cpu=cpu, nodeName=node, priority=priority, nodeSelector=selector or {}, **affinity)
    body["metadata"]["uid"] = f"uid-{name}"
    if released is not None:
        body["metadata"]["annotations"] = {RELEASED: timestamp.format(datetime.fromtimestamp(released, UTC))}
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", "nominatedNodeName": nominated}})


def test_released_pod_holds_room_on_every_allowed_node() -> None:
    cluster = Cluster()
    cluster.pod("p", released=EPOCH, nodes=("a", "b"))
    assert cluster.at() == {"a": ["p"], "b": ["p"]}


def test_a_release_that_nobody_can_prove_holds_nothing() -> None:
    cluster = Cluster()
    cluster.unproven.add("p")
    forged = cluster.pod("p", released=EPOCH, nodes=("a", "b"))
    assert cluster.at() == {}
    cluster.held.hold(forged, ("b",), ArrivalPath.RELEASED, seconds=RELEASE_SECONDS)
    assert cluster.at() == {"b": ["p"]}


def test_a_release_at_a_moment_to_come_holds_nothing_before() -> None:
    cluster = Cluster()
    cluster.pod("p", released=EPOCH + 5, nodes=("a",))
    assert cluster.at() == {}
    cluster.offline.clock.now += 5
    assert cluster.at() == {"a": ["p"]}


def test_room_held_for_a_released_pod_ends_after_a_minute() -> None:
    cluster = Cluster()
    cluster.pod("p", released=EPOCH, nodes=("a",))
    cluster.offline.clock.now += RELEASE_SECONDS - 1
    assert cluster.at() == {"a": ["p"]}
    cluster.offline.clock.now += 1
    assert cluster.at() == {}


@pytest.mark.parametrize("step", [-3600.0, 3600.0], ids=["set back", "set forward"])
def test_clock_changes_do_not_affect_held_room(step: float) -> None:
    cluster = Cluster()
    wall = EPOCH
    cluster.held = HeldRoom(cluster.state, clock=cluster.offline.clock, wall=lambda: wall)
    pod = cluster.pod("p")
    cluster.held.hold(pod, ("a",), ArrivalPath.RELEASED, seconds=RELEASE_SECONDS)
    cluster.pod("p", released=wall, nodes=("a",))
    wall += step
    assert cluster.at() == {"a": ["p"]}
    cluster.offline.clock.now += RELEASE_SECONDS
    assert cluster.at() == {}


def test_a_pod_released_without_a_choice_of_nodes_holds_nothing() -> None:
    cluster = Cluster(*(f"n{number}" for number in range(MAX_NODES + 1)))
    cluster.pod("p", released=EPOCH)
    assert list(cluster.held.on_their_way()) == []
    assert cluster.at() == {}


@pytest.mark.parametrize(
    ("nominated", "asking", "counts"),
    [(0, 0, True), (5, 0, True), (5, 3, True), (0, 5, False), (0, 1, False)],
    ids=["as important", "more important", "a little more", "less important", "a little less"],
)
def test_a_nomination_counts_for_pods_that_are_not_more_important(
    nominated: int, asking: int, *, counts: bool
) -> None:
    cluster = Cluster()
    cluster.pod("p", nominated="a", priority=nominated)
    assert cluster.at(cluster.pod("q", priority=asking)) == ({"a": ["p"]} if counts else {})


def test_a_nomination_that_leads_nowhere_ends() -> None:
    cluster = Cluster()
    cluster.pod("p", nominated="a")
    assert cluster.at() == {"a": ["p"]}
    cluster.offline.clock.now += NOMINATION_SECONDS
    assert cluster.at() == {}
    cluster.pod("p", nominated="b")
    assert cluster.at() == {"b": ["p"]}


def test_held_room_names_pod_place_way_and_expiry() -> None:
    cluster = Cluster()
    released = cluster.pod("released", released=EPOCH, nodes=("a", "b"))
    nominated = cluster.pod("nominated", nominated="b")
    assumed = cluster.pod("assumed")
    cluster.held.hold(assumed, ("a",), ArrivalPath.ASSUMED, seconds=45)
    expected = {
        "assumed": Hold(assumed, ("a",), ArrivalPath.ASSUMED, EPOCH + 45),
        "nominated": Hold(nominated, ("b",), ArrivalPath.NOMINATED, EPOCH + NOMINATION_SECONDS),
        "released": Hold(released, ("a", "b"), ArrivalPath.RELEASED, EPOCH + RELEASE_SECONDS),
    }
    for _ in range(2):
        assert {one.pod.name: one for one in cluster.held.on_their_way()} == expected
        cluster.offline.clock.now += 20
    assert cluster.held.uids() == {assumed.uid}
    cluster.offline.clock.now += 20
    assert cluster.held.uids() == set()
    assert [one.pod.name for one in cluster.held.on_their_way()] == ["nominated"]


def test_nomination_holds_room_from_first_sight_until_it_expires() -> None:
    cluster = Cluster()
    pod = cluster.pod("p", nominated="a")
    assert cluster.at() == {"a": ["p"]}
    cluster.offline.clock.now += NOMINATION_SECONDS - 1
    assert cluster.at() == {"a": ["p"]}
    cluster.state.pods.remove(pod)
    assert cluster.at() == {}
    cluster.pod("p", nominated="a")
    cluster.offline.clock.now += 2
    assert cluster.at() == {"a": ["p"]}  # it is another nomination


def test_as_many_nodes_as_a_release_may_choose_are_held() -> None:
    names = tuple(f"n{number}" for number in range(MAX_NODES))
    cluster = Cluster(*names)
    cluster.pod("p", released=EPOCH)
    assert cluster.at() == {name: ["p"] for name in names}


def test_pod_released_to_nodes_by_their_labels_holds_room_there() -> None:
    cluster = Cluster()
    node = cluster.state.node("a")
    assert node is not None
    (label, value) = next(iter(node.labels.items()))
    cluster.pod("p", released=EPOCH, selector={label: value})
    assert "a" in cluster.at()


def test_what_was_never_held_can_be_dropped() -> None:
    cluster = Cluster()
    cluster.held.drop("uid-nobody")
    assert cluster.held.uids() == set()


def test_changed_pod_holds_room_on_its_new_nodes() -> None:
    cluster = Cluster()
    cluster.pod("p", released=EPOCH, nodes=("a",))
    assert cluster.at() == {"a": ["p"]}
    cluster.pod("p", released=EPOCH, nodes=("b",))
    assert cluster.at() == {"b": ["p"]}


def test_nodes_of_a_released_pod_are_determined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    asked: list[str] = []
    choose = cluster.state.nodes_to_ask

    def nodes_to_ask(pod: ClusterPod, names: Collection[str]) -> Collection[str]:
        asked.append(pod.name)
        return choose(pod, names)

    monkeypatch.setattr(cluster.state, "nodes_to_ask", nodes_to_ask)
    for name in ("p", "q"):
        cluster.pod(name, released=EPOCH, nodes=("a",))
    for _ in range(2):
        assert cluster.at() == {"a": ["p", "q"]}
    assert asked == ["p", "q"]


def test_released_pod_respects_room_held_by_others() -> None:
    cluster = Cluster()
    first = cluster.pod("first", nominated="a")
    cluster.held.hold(first, ("a",), ArrivalPath.ASSUMED, seconds=60)
    cluster.pod("second", nominated="a")
    cluster.pod("third", released=EPOCH, nodes=("b",))
    assert cluster.at(first) == {"a": ["second"], "b": ["third"]}


@pytest.mark.parametrize("end", ["Failed", "Succeeded", "deleted"])
def test_a_binding_of_a_pod_that_has_ended_holds_nothing(end: str) -> None:
    cluster = Cluster()
    pod = cluster.pod("p")
    cluster.held.hold(pod, ["a"], ArrivalPath.ASSUMED, seconds=60)
    changed = replace(pod, deleting=True) if end == "deleted" else replace(pod, phase=end)
    cluster.state.pods.put(changed)
    assert cluster.at() == {}


def test_nobody_leaves_room_for_itself() -> None:
    cluster = Cluster()
    assert cluster.at(cluster.pod("p", nominated="a")) == {}


@pytest.mark.parametrize("mirrored", [True, False], ids=["pod mirrored before", "pod not mirrored yet"])
def test_a_binding_holds_room_until_the_mirror_shows_it(*, mirrored: bool) -> None:
    cluster = Cluster()
    pod = cluster.pod("p") if mirrored else waiting_pod("p")
    cluster.held.hold(pod, ["a"], ArrivalPath.ASSUMED, seconds=60)
    assert cluster.at() == {"a": ["p"]}
    cluster.pod("p", node="a")
    assert cluster.at() == {}
    assert not cluster.held.holds(pod.uid)


def test_a_binding_of_a_pod_that_is_deleted_holds_nothing() -> None:
    cluster = Cluster()
    pod = cluster.pod("p")
    cluster.held.hold(pod, ["a"], ArrivalPath.ASSUMED, seconds=60)
    cluster.state.pods.remove(pod)
    assert cluster.at() == {}


def test_unseen_binding_expires_and_failed_binding_ends_immediately() -> None:
    cluster = Cluster()
    pod = waiting_pod("p")
    cluster.held.hold(pod, ["a"], ArrivalPath.ASSUMED, seconds=60)
    cluster.offline.clock.now += 60
    assert cluster.at() == {}
    cluster.held.hold(pod, ["a"], ArrivalPath.ASSUMED, seconds=60)
    cluster.held.drop(pod.uid)
    assert cluster.at() == {}


def test_released_pods_take_numa_nodes_from_later_pods() -> None:
    cluster = Cluster()
    node = cluster.state.node("a")
    kind = PodKind.of(waiting_pod("q", cpu=ALL_OF_A_ZONE))
    assert node is not None
    assert kind is not None
    answers = []
    for number in range(3):
        after = with_held(node, [waiting_pod(f"p{n}", cpu=ALL_OF_A_ZONE) for n in range(number)])
        assert after is not None
        answers.append(ask(kind, after).answer)
    assert answers[:2] == [NodeAnswer.ADMITS, NodeAnswer.ADMITS]
    assert answers[2] is not NodeAnswer.ADMITS


def test_beside_a_pod_that_cannot_be_read_nothing_is_promised() -> None:
    cluster = Cluster()
    node = cluster.state.node("a")
    body = pod_body("p", cpu="many")
    assert node is not None
    assert with_held(node, [ClusterPod.from_api(body)]) is None


def raises(*_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


def test_a_pod_that_raises_holds_room_by_its_nomination_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    counted: list[tuple[str, str]] = []
    monkeypatch.setattr(cluster.state.faults, "count", lambda *what: counted.append(what))
    nominated, released = cluster.pod("n", nominated="a"), cluster.pod("r", released=EPOCH, nodes=("b",))
    cluster.held.proven = raises
    monkeypatch.setattr(type(cluster.state), "nodes_to_ask", raises)
    assert list(cluster.held.on_their_way()) == [Hold(nominated, ("a",), ArrivalPath.NOMINATED)]
    assert counted == [("Pod", "ZeroDivisionError")] * 2
    assert cluster.at(asking=released) == {"a": ["n"]}


def test_room_is_held_for_others_without_the_pod_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    told: list[str] = []
    monkeypatch.setattr(cluster.state.faults, "tell", lambda about, _problem: told.append(about["name"]))
    one, other, asking = cluster.pod("one"), cluster.pod("other"), cluster.pod("asking")
    error = ZeroDivisionError("division by zero")
    assert cluster.held.without_faulty([one, other], ObjectFault.about(error, other, asking)) == [one]
    assert told == ["other"]
    others = (ObjectFault(error), ObjectFault.about(error, asking, one))
    for foreign in (*others, ObjectFault.about(error, NodeName("a"), one)):
        with pytest.raises(ObjectFault):
            cluster.held.without_faulty([one, other], foreign)
    assert told == ["other"]
