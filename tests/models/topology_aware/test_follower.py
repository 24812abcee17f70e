"""A node that is followed: what it says of itself for whoever starts later."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numazones.cluster.cluster import ClusterPod
from numazones.errors import UnmodelledFeature
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement.model import NodeObjects, PodEvent
from numazones_topology_aware.admission import admit, remove
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.follower import Follower
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.identity import POLICIES
from numazones_topology_aware.node import Node
from numazones_topology_aware.node_placement import read
from numazones_topology_aware.publishing import topology_of
from numazones_topology_aware.record import record_of
from tests.models.topology_aware.machines import hardware

SPEC = {
    "reservedResources": {"cpu": "750m"},
    "pinCPU": True,
    "pinMemory": True,
    "preferIsolatedCPUs": True,
}
SECOND = "2026-01-31T08:00:00Z"


class Setting:
    """A node of a cluster: the policy's own state, and what the API server tells of it."""

    def __init__(self) -> None:
        self.kubelet = KubeletNode.fresh(hardware().machine, KubeletConfiguration.from_api({}))
        self.policy = Node.fresh(Hardware.of(self.kubelet.machine), Configuration.from_spec(SPEC))
        self.pods: dict[str, ClusterPod] = {}

    def bind(self, name: str, cpu: str = "1500m", *, created: str = SECOND) -> PodEvent:
        amounts = {"cpu": cpu, "memory": "64Mi"}
        container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        pod = ClusterPod.from_api(
            {
                "metadata": {"namespace": "d", "name": name, "uid": name, "creationTimestamp": created},
                "spec": {"nodeName": "n", "containers": [container]},
            }
        )
        assert pod.admission is not None
        self.pods[name] = pod
        self.policy = admit(self.policy, pod.admission).node
        return PodEvent(name, pod.admission)

    def end(self, name: str) -> PodEvent:
        del self.pods[name]
        self.policy = remove(self.policy, name)
        return PodEvent(name, None)

    def topology(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(json.dumps(topology_of(self.policy, "n")))
        return body

    def objects(self, record: Mapping[str, Any] | None = None) -> NodeObjects:
        policies = {"metadata": {"namespace": "kube-system", "name": "default"}, "spec": SPEC}
        return NodeObjects(
            node={"metadata": {"name": "n"}},
            topology=self.topology(),
            pods=tuple(self.pods.values()),
            kubelet=self.kubelet,
            others={POLICIES.kind: (policies,)},
            record=None if record is None else json.loads(json.dumps(record)),
        )


def followed(setting: Setting, *events: PodEvent) -> Follower:
    """A follower of a node that had no pods, after what happened and was published."""
    empty = Setting()
    follower = Follower(empty.objects())
    for event in events:
        follower.take(event)
    assert follower.agrees(setting.topology(), 0.0)
    return follower


def test_follower_started_after_a_pod_left_needs_the_record() -> None:
    setting = Setting()
    events = [setting.bind("a", "3"), setting.bind("b"), setting.bind("c", "2"), setting.end("a")]
    record = followed(setting, *events).record()
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        Follower(setting.objects())
    later = Follower(setting.objects(record))
    assert later.placement({}).node.state_key == remove_all(setting.policy).state_key
    known = {uid: pod.admission for uid, pod in setting.pods.items() if pod.admission is not None}
    assert later.placement(known).node.state_key == setting.policy.state_key
    later.take(setting.bind("d", "3"))
    assert later.agrees(setting.topology(), 1.0)
    assert later.record() == record_of(setting.policy)


def remove_all(node: Node) -> Node:
    for uid in list(node.sandboxes):
        node = remove(node, uid)
    return node


def test_pods_of_one_second_are_read_in_followed_order() -> None:
    setting = Setting()
    record = followed(setting, setting.bind("b", "3"), setting.bind("a")).record()
    with pytest.raises(UnmodelledFeature, match="but placing the running pods in order of creation"):
        read(setting.objects())
    assert read(setting.objects(record)).node.state_key == setting.policy.state_key


@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "come", "go"]), st.integers(0, 9), st.booleans()), max_size=14
    )
)
@example([("come", 0, False)] * 4 + [("come", 6, False)] * 2 + [("go", 0, False)])
@example([("come", 0, False)] * 4 + [("come", 6, False)] * 2 + [("come", 0, False)])
def test_node_read_from_its_record_equals_the_followed_one(
    history: list[tuple[str, int, bool]],
) -> None:
    setting, follower = Setting(), followed(Setting())
    for number, (event, choice, published) in enumerate(history):
        if event == "come":
            amount = ("100m", "500m", "1", "1500m", "2", "3", "6")[choice % 7]
            created = f"2026-01-31T08:00:0{number // 4}Z"
            follower.take(setting.bind(f"{9 - choice}-{number}", amount, created=created))
        elif setting.pods:
            follower.take(setting.end(sorted(setting.pods)[choice % len(setting.pods)]))
        if published:
            assert follower.agrees(setting.topology(), float(number))
    assert follower.agrees(setting.topology(), 100.0)
    record = follower.record()
    assert follower.record() is record
    assert read(setting.objects(record)).node.state_key == setting.policy.state_key
    later = Follower(setting.objects(record))
    assert later.agrees(setting.topology(), 101.0)
    assert later.record() == record


def test_unchanged_state_keeps_the_same_record_object() -> None:
    setting = Setting()
    follower = followed(setting, setting.bind("a"))
    record = follower.record()
    assert follower.record() is record
    assert follower.agrees(setting.topology(), 1.0)  # published again, as it was
    assert follower.record() is record
    follower.take(setting.bind("b"))
    assert follower.record() is record  # the pools do not show it yet
    assert follower.agrees(setting.topology(), 2.0)
    assert follower.record() == record_of(setting.policy)
    assert follower.record() is not record


def test_the_record_has_pods_that_change_no_pool() -> None:
    setting = Setting()
    follower = followed(setting)
    event = setting.bind("huge", "64")  # rejected: the pools stay as they are
    follower.take(event)
    record = follower.record()
    assert record is not None
    assert record["pods"] == [{"uid": "huge", "containers": [{"name": "c"}]}]


def test_a_contradicted_follower_keeps_the_record_of_what_was_settled() -> None:
    setting = Setting()
    follower = followed(setting, setting.bind("a"))
    record = follower.record()
    setting.bind("unheard-of", "3")
    assert not follower.agrees(setting.topology(), 1.0)
    assert follower.record() is record


def test_a_record_that_agrees_no_more_is_passed_over() -> None:
    setting = Setting()
    setting.bind("a")
    other = Setting()
    record = followed(other, other.bind("b", "3"), other.bind("a")).record()
    assert read(setting.objects(record)).node.state_key == setting.policy.state_key
