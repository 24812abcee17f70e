"""Nodes on which Koordinator or the topology-aware policy places pods, as events tell of them."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.node import Node as KubeletNode
from numazones.prediction.forecast import NodeAnswer, PodKind, ask, predict
from numazones_koordinator.identity import DEVICE
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import Heartbeat, ModelObject, TopologyReport, ZoneReport
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.verification.causes import Accuracy
from numazones_operator.verification.verifier import Verification, Verifier
from numazones_topology_aware.admission import admit, create_missing, remove
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.identity import POLICIES
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement
from numazones_topology_aware.publishing import topology_of
from tests.models.koordinator import building as koordinator
from tests.models.topology_aware.machines import configuration, hardware

SPEC = {
    "reservedResources": {"cpu": "750m"},
    "pinCPU": True,
    "pinMemory": True,
    "preferIsolatedCPUs": True,
}
SETTLE = 10.0


class Setting:
    """A node fed by hand, the policy's own state beside it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.state = ClusterState(
            settle=SETTLE, pod_changed=self._pod_changed, clock=lambda: self.now, wall=lambda: self.now
        )
        self.metrics = Metrics(CollectorRegistry())
        self.verifier = Verifier(metrics=self.metrics, fates=self.state.fates, clock=lambda: self.now)
        self.told: list[Verification] = []
        self.bare = KubeletNode.fresh(hardware().machine, KubeletConfiguration.from_api({}))
        self.policy = TopologyAwareNode.fresh(
            Hardware.of(self.bare.machine), configuration(reserved_cpu="750m", pin_cpu=True)
        )

    def _pod_changed(self, old: ClusterPod | None, new: ClusterPod | None) -> None:
        self.state.let_go(old, new)
        if new is not None and self.state.is_binding(new):
            self.verifier.bound(new, self.state.as_found(new.node), self.state.node(new.node))
        self.state.record_pod(old, new, rejected=False)
        if new is not None and (found := self.verifier.compare(new)) is not None:
            self.told.append(found)

    def node(self, **labels: str) -> None:
        allocatable = {"cpu": "64", "memory": "16Gi", "pods": "110"}  # no kubelet says OutOfcpu first
        body = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": allocatable}}
        self.state.nodes.put(ClusterNode.from_api(body))

    def zones(self) -> None:
        for zone in zones_from_node(self.bare, node_name="n", pods={}):
            self.state.zones.put(ZoneReport.from_api(zone.to_api()))
        self.state.heartbeats.put(Heartbeat("n", "2026-01-31T08:00:00Z", 0.0))
        self.state.heartbeats.put(Heartbeat("n", "again", 1e6))

    def configured(self, **spec: Any) -> None:
        body = {"metadata": {"namespace": "kube-system", "name": "default"}, "spec": {**SPEC, **spec}}
        self.state.model_objects[POLICIES].put(ModelObject.from_api(body))

    def publish(self) -> None:
        """The policy publishes its pools."""
        body: dict[str, Any] = json.loads(json.dumps(topology_of(self.policy, "n")))
        self.state.topologies.put(TopologyReport.from_api(body))

    def topology_aware(self) -> None:
        self.node()
        self.zones()
        self.configured()
        self.publish()

    def pod(self, name: str, cpu: str, *, namespace: str = "d", **status: Any) -> ClusterPod:
        amounts = {"cpu": cpu, "memory": "64Mi"}
        container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        return ClusterPod.from_api(
            {
                "metadata": {"namespace": namespace, "name": name, "uid": name},
                "spec": {"nodeName": "n", "containers": [container]},
                "status": {"phase": "Pending", **status},
            }
        )

    def several(self, *uncreated: str, silent: bool = False) -> ClusterPod:
        """A pod of three containers, and which of them its status says could not be created."""
        cpus = {"big": "6", "middle": "2", "small": "1"}
        containers = []
        for name, cpu in cpus.items():
            amounts = {"cpu": cpu, "memory": "64Mi"}
            containers.append({"name": name, "resources": {"requests": amounts, "limits": amounts}})
        refused = {"waiting": {"reason": "CreateContainerError", "message": "NRI plugin: no room"}}
        statuses: list[dict[str, Any]] = [
            {"name": name, "state": refused if name in uncreated else {"running": {}}} for name in cpus
        ]
        phase = "Pending" if uncreated or silent else "Running"
        return ClusterPod.from_api(
            {
                "metadata": {"namespace": "d", "name": "several", "uid": "several"},
                "spec": {"nodeName": "n", "containers": containers},
                "status": {"phase": phase, **({} if silent else {"containerStatuses": statuses})},
            }
        )

    def bind(self, name: str, cpu: str) -> None:
        """A pod is bound, and the policy creates its container."""
        self.take(self.pod(name, cpu))

    def take(self, pod: ClusterPod) -> None:
        """A pod is bound, or heard of again, and the policy creates its missing containers."""
        self.state.pods.put(pod)
        self.place(pod)

    def place(self, pod: ClusterPod) -> None:
        """The policy creates missing containers, and nobody hears of it."""
        assert pod.admission is not None
        self.policy = create_missing(self.policy, pod.admission).node

    def end(self, name: str) -> None:
        self.state.pods.discard(name)
        self.policy = remove(self.policy, name)

    def seen(self) -> TopologyAwareNode | KoordinatorNode | None:
        node = self.state.node("n")
        assert node is not None
        placement = node.known
        if isinstance(placement, TopologyAwarePlacement | KoordinatorPlacement):
            return placement.node
        return None

    def why(self) -> str:
        node = self.state.node("n")
        assert node is not None
        assert node.unknown is not None
        return node.unknown.message


@pytest.fixture
def setting() -> Setting:
    return Setting()


def held(node: TopologyAwareNode | KoordinatorNode | None) -> Mapping[str, tuple[str, int]]:
    assert isinstance(node, TopologyAwareNode)
    return {name: (node.pools[one.pool].name, one.exclusive) for name, one in node.grants.items()}


def test_topology_aware_node_is_followed_through_pod_changes(setting: Setting) -> None:
    setting.topology_aware()
    for name, cpu in (("a", "2"), ("b", "2"), ("c", "3")):
        setting.bind(name, cpu)
        setting.publish()
        assert held(setting.seen()) == held(setting.policy)
    setting.end("a")
    assert held(setting.seen()) == held(setting.policy)  # before the pools show it
    setting.publish()
    setting.bind("d", "1500m")
    setting.bind("e", "2")
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    # Placed anew in the order of creation, they would sit elsewhere: only who has followed knows.
    other = TopologyAwareNode.fresh(Hardware.of(setting.bare.machine), setting.policy.policy.config)
    for pod in setting.state.pods:
        assert pod.admission is not None
        other = admit(other, pod.admission).node
    assert held(other) != held(setting.policy)


def rejected_in_part(setting: Setting) -> None:
    """Two of a pod's three containers were rejected; there would be room for one, and then for both."""
    setting.topology_aware()
    for name, cpu in (("first", "4"), ("second", "4"), ("third", "6")):
        setting.bind(name, cpu)
    setting.take(setting.several(silent=True))
    assert set(held(setting.policy)) == {"first/c", "second/c", "third/c", "several/small"}
    setting.state.pods.put(setting.several("big", "middle"))
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)


def settles(setting: Setting) -> None:
    """The policy publishes what was followed already, and it stays so."""
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    setting.now += SETTLE + 1
    list(setting.state.expiring())
    assert held(setting.seen()) == held(setting.policy)


def test_another_attempt_is_followed_without_moving_what_runs(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("third")
    setting.end("second")
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    again = setting.several()
    assert again.admission is not None
    anew = admit(setting.policy, again.admission).node
    setting.state.changed_nodes.clear()
    setting.take(again)
    assert held(setting.policy) != held(anew)
    assert held(setting.seen()) == held(setting.policy)
    assert set(setting.state.changed_nodes) == {"n"}
    settles(setting)


def test_retry_that_creates_some_missing_containers_is_followed(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("second")
    setting.take(setting.several("big"))
    assert {"several/middle", "several/small"} <= set(held(setting.policy))
    assert "several/big" not in held(setting.policy)
    settles(setting)


def test_another_attempt_may_be_heard_of_after_what_happened_later(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("third")
    setting.end("second")
    again, younger = setting.several(), setting.pod("younger", "2")
    assert younger.admission is not None
    younger = replace(younger, admission=replace(younger.admission, created="2026-01-31T08:00:00Z"))
    setting.place(again)
    setting.place(younger)
    setting.state.pods.put(younger)
    setting.state.pods.put(again)
    assert held(setting.seen()) != held(setting.policy)  # as the events came
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)


def test_retry_may_be_seen_after_pods_that_ended_later(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("third")
    setting.place(setting.several())
    setting.end("second")
    setting.bind("younger", "2")
    setting.publish()
    assert "several/big" in held(setting.policy)
    assert held(setting.seen()) != held(setting.policy)
    setting.state.pods.put(setting.several("middle"))
    assert held(setting.seen()) == held(setting.policy)
    setting.bind("youngest", "1")
    setting.end("younger")
    settles(setting)


def test_further_attempts_at_two_pods_may_be_heard_of_late(setting: Setting) -> None:
    rejected_in_part(setting)
    waiting = [{"name": "c", "state": {"waiting": {"reason": "CreateContainerError", "message": "no room"}}}]
    setting.take(setting.pod("late", "5"))
    setting.state.pods.put(setting.pod("late", "5", containerStatuses=waiting))
    assert "late/c" not in held(setting.policy)
    for name in ("third", "second"):
        setting.end(name)
    setting.place(setting.several())
    setting.end("first")
    setting.place(setting.pod("late", "5"))
    setting.bind("younger", "2")
    setting.publish()
    assert {"late/c", "several/big", "several/middle"} <= set(held(setting.policy))
    setting.state.pods.put(setting.several())
    setting.state.pods.put(setting.pod("late", "5", **RUNNING))
    assert held(setting.seen()) == held(setting.policy)
    settles(setting)


def test_publication_before_the_pods_event_is_no_second_attempt(
    setting: Setting,
) -> None:
    rejected_in_part(setting)
    setting.end("second")
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    other = setting.pod("other", "2")
    setting.place(other)
    setting.publish()
    assert "several/middle" not in held(setting.seen())
    setting.state.pods.put(other)
    assert held(setting.seen()) == held(setting.policy)


def test_uncreated_containers_hold_nothing_when_a_node_is_reread(setting: Setting) -> None:
    several = setting.several("big", "middle")
    setting.state.pods.put(several)
    assert several.admission is not None
    setting.policy = create_missing(setting.policy, several.admission, uncreated=several.uncreated).node
    setting.topology_aware()
    assert set(held(setting.seen())) == {"several/small"}


def test_ending_a_deleted_pod_creates_no_containers(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("third")
    setting.end("second")
    leaving = replace(setting.several(), deleting=True)
    setting.state.pods.put(leaving)
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)


def test_simultaneous_events_release_resources_first(setting: Setting) -> None:
    setting.topology_aware()
    for name in "abc":
        setting.bind(name, "2")
    setting.publish()
    assert setting.seen() is not None
    new, brief, other = (
        setting.pod(name, cpu) for name, cpu in (("new", "1"), ("brief", "3"), ("other", "2"))
    )
    setting.state.pods.put(new)
    setting.state.pods.put(brief)
    setting.state.pods.discard("a")
    setting.state.pods.discard("brief")
    setting.state.pods.put(other)
    setting.policy = remove(setting.policy, "a")
    for pod in (new, other):
        assert pod.admission is not None
        setting.policy = admit(setting.policy, pod.admission).node
    assert held(setting.seen()) != held(setting.policy)  # as the events came
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)


def test_pools_may_be_published_before_the_pods_event_comes(setting: Setting) -> None:
    setting.topology_aware()
    assert held(setting.seen()) == {}
    ahead = setting.pod("a", "2")
    assert ahead.admission is not None
    setting.policy = admit(setting.policy, ahead.admission).node
    setting.publish()
    assert held(setting.seen()) == {}
    setting.now += SETTLE / 2
    setting.state.pods.put(ahead)
    assert held(setting.seen()) == held(setting.policy)


def test_lasting_unexplained_difference_makes_the_node_unknown(setting: Setting) -> None:
    setting.topology_aware()
    assert setting.seen() is not None
    unseen = setting.pod("a", "2")
    assert unseen.admission is not None
    setting.policy = admit(setting.policy, unseen.admission).node
    setting.publish()
    assert setting.seen() is not None
    setting.now += SETTLE + 1
    list(setting.state.expiring())
    assert setting.seen() is None
    assert "but placing the running pods in order of creation" in setting.why()
    setting.policy = remove(setting.policy, "a")
    setting.publish()
    assert setting.seen() is not None


def test_topology_aware_node_needs_zones_and_configuration_and_follows_both(
    setting: Setting,
) -> None:
    setting.node()
    setting.publish()
    assert "there is no TopologyAwarePolicy for node n" in setting.why()
    setting.configured()
    assert "which only NUMAZones describe" in setting.why()
    setting.zones()
    assert setting.seen() is not None
    setting.configured(reservedResources={"cpu": "none"})
    assert "spec.reservedResources.cpu" in setting.why()
    setting.configured()
    assert setting.seen() is not None
    setting.state.topologies.retain(set())  # its definition is gone
    node = setting.state.node("n")
    assert node is not None
    assert node.state is not None


def test_plugins_in_two_namespaces_make_it_unknown(setting: Setting) -> None:
    setting.topology_aware()
    body = {"metadata": {"namespace": "elsewhere", "name": "default"}, "spec": SPEC}
    setting.state.model_objects[POLICIES].put(ModelObject.from_api(body))
    assert "resources in the namespaces elsewhere, kube-system" in setting.why()


def test_forecasts_tell_namespaces_apart_only_beside_topology_aware_nodes(setting: Setting) -> None:
    setting.node()
    setting.zones()
    forecasts = LiveForecasts(setting.state, metrics=setting.metrics, candidates=5)
    waiting = [setting.pod(name, "2", namespace=name).placed("") for name in ("d", "kube-system")]
    for pod in waiting:
        assert pod.admission is not None
        setting.state.pods.put(pod)

    async def shared() -> bool:
        async for _ in forecasts.renew():
            pass
        return forecasts.forecast_of("d") is forecasts.forecast_of("kube-system")

    assert asyncio.run(shared())
    setting.configured()
    setting.publish()
    assert not asyncio.run(shared())
    assert PodKind.of(waiting[0]) == PodKind.of(waiting[1])


def koordinated(setting: Setting) -> None:
    setting.node(**{"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"})
    topology = koordinator.nrt(
        koordinator.detail(2, 4, 2), {numa: {"cpu": "8", "memory": "8Gi"} for numa in (0, 1)}
    )
    topology["metadata"]["name"] = "n"
    setting.state.topologies.put(TopologyReport.from_api(topology))


def lsr(name: str, *, given: str | None = None, node: str = "n", **status: Any) -> ClusterPod:
    noted = {"cpuset": given, "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}
    body = koordinator.pod_object(name, cpu="4", status=None if given is None else noted)
    body["spec"]["nodeName"] = node
    return ClusterPod.from_api({**body, "status": {"phase": "Pending", **status}})


def test_koordinator_node_matches_its_objects_and_pods(setting: Setting) -> None:
    koordinated(setting)
    state = setting.seen()
    assert isinstance(state, KoordinatorNode)
    setting.state.pods.put(lsr("a", given="0-3"))
    after = setting.seen()
    assert isinstance(after, KoordinatorNode)
    assert after.books.used == 0b1111
    setting.state.pods.discard("a")
    freed = setting.seen()
    assert isinstance(freed, KoordinatorNode)
    assert freed.free_cpus() == state.free_cpus()
    setting.state.model_objects[DEVICE].put(
        ModelObject.from_api({"metadata": {"name": "n"}, "spec": {"devices": []}})
    )
    again = setting.seen()
    assert isinstance(again, KoordinatorNode)
    assert again.host.inventory is not None
    setting.state.model_objects[DEVICE].retain(set())
    last = setting.seen()
    assert isinstance(last, KoordinatorNode)
    assert last.host.inventory is None


def test_unreadable_pod_makes_a_koordinator_node_unknown(setting: Setting) -> None:
    koordinated(setting)
    broken = {
        "metadata": {"namespace": "d", "name": "x", "uid": "x"},
        "spec": {"nodeName": "n", "containers": []},
    }
    setting.state.pods.put(ClusterPod.from_api(broken))
    assert "pod d/x on the node cannot be read" in setting.why()


RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "c"}]}


@pytest.mark.parametrize(
    ("given", "hit", "accuracy"),
    [("0-1,8-9", True, Accuracy.RIGHT), ("0-3", False, Accuracy.MODEL)],
)
def test_what_koordinator_writes_on_the_pod_is_the_outcome(
    setting: Setting, given: str, *, hit: bool, accuracy: Accuracy
) -> None:
    koordinated(setting)
    setting.state.pods.put(lsr("a", node=""))
    setting.state.pods.put(lsr("a", given=given))
    setting.state.pods.put(lsr("a", given=given, **RUNNING))
    (found,) = setting.told
    assert found.expectation.model == "koordinator"
    assert (found.expectation.predicted, found.actual, found.hit) == ("Admissible", "Admitted", hit)
    assert found.done == f"Admitted: CPUs {given} and amounts of NUMA nodes 0"
    setting.now += 60
    judged = [one.accuracy for _, one in setting.verifier.judge()]
    assert (judged or [found.accuracy]) == [accuracy]
    labels = (accuracy.lower(), "koordinator")
    assert setting.metrics.accuracy.labels(*labels)._value.get() == 1


def refused(message: str) -> dict[str, Any]:
    waiting = {"reason": "CreateContainerError", "message": message}
    return {"containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]}


@pytest.mark.parametrize(
    ("cpu", "status", "actual", "hit"),
    [
        ("2", RUNNING, "Admitted", True),
        ("40", refused("NRI plugin topology-aware: no room"), "CreateContainerError", True),
        ("2", refused("NRI plugin topology-aware: no room"), "CreateContainerError", False),
        ("2", refused("mount /nowhere: no such directory"), None, None),
        ("2", {"containerStatuses": [{"name": "c", "state": {"waiting": {}}}]}, None, None),
    ],
)
def test_topology_aware_decisions_show_when_containers_are_created(
    setting: Setting, cpu: str, status: dict[str, Any], actual: str | None, *, hit: bool | None
) -> None:
    setting.topology_aware()
    setting.state.pods.put(setting.pod("a", cpu))
    setting.state.pods.put(setting.pod("a", cpu, **status))
    assert [(one.actual, one.hit) for one in setting.told] == ([] if actual is None else [(actual, hit)])


def test_pod_bound_before_another_attempt_was_seen_was_racing(setting: Setting) -> None:
    rejected_in_part(setting)
    setting.end("third")
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    setting.place(setting.several())
    setting.take(setting.pod("younger", "2"))
    setting.state.pods.put(setting.pod("younger", "2", **refused("NRI plugin topology-aware: no room")))
    assert [one.hit for one in setting.told] == [True, False]
    assert setting.told[-1].expectation.predicted == "Admissible"
    setting.state.pods.put(setting.several("middle"))
    setting.publish()
    assert held(setting.seen()) == held(setting.policy)
    assert [one.accuracy for _, one in setting.verifier.judge()] == [Accuracy.RACE]


def test_a_mixed_cluster_predicts_with_each_nodes_model(setting: Setting) -> None:
    setting.topology_aware()
    found = predict(setting.pod("a", "2").placed(""), setting.state.all_nodes())
    assert [one.model for one in found.candidates] == ["topology-aware"]
    assert isinstance(setting.seen(), TopologyAwareNode)


def test_an_attempt_that_nobody_ever_tells_of_explains_a_rejection(setting: Setting) -> None:
    no_room = refused("NRI plugin topology-aware: no room")
    setting.topology_aware()
    for name in ("first", "second", "third", "fourth", "fifth"):
        setting.bind(name, "3")
    setting.take(setting.pod("waiting", "3"))
    setting.state.pods.put(setting.pod("waiting", "3", **no_room))
    assert "waiting/c" not in held(setting.policy)
    setting.end("first")
    setting.place(setting.pod("waiting", "3"))
    assert "waiting/c" in held(setting.policy)
    setting.bind("new", "3")
    setting.end("waiting")
    setting.state.pods.put(setting.pod("new", "3", **no_room))
    assert [(one.expectation.predicted, one.hit) for one in setting.told][-1] == ("Admissible", False)
    assert [one.accuracy for _, one in setting.verifier.judge()] == [Accuracy.RACE]


def test_pods_that_ended_sooner_than_others_came_explain_an_admission(setting: Setting) -> None:
    setting.topology_aware()
    for name in ("first", "second", "third", "fourth", "fifth"):
        setting.bind(name, "3")
    new, younger = setting.pod("new", "3"), setting.pod("younger", "3")
    setting.policy = remove(setting.policy, "first")
    setting.take(new)
    setting.state.pods.put(younger)
    setting.state.pods.discard("first")
    setting.state.pods.put(setting.pod("new", "3", **RUNNING))
    assert [(one.expectation.predicted, one.hit) for one in setting.told][-1] == ("Inadmissible", False)
    assert [one.accuracy for _, one in setting.verifier.judge()] == [Accuracy.RACE]


def test_pod_equal_to_a_running_one_is_judged_as_another(setting: Setting) -> None:
    setting.topology_aware()
    for name in ("first", "second", "third", "fourth", "fifth"):
        setting.bind(name, "3")
    kind, node = PodKind.of(setting.pod("first", "3").placed("")), setting.state.node("n")
    assert kind is not None
    assert node is not None
    assert ask(kind, node).answer is NodeAnswer.REJECTS
