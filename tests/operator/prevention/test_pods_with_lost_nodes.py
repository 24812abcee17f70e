"""Pods that were released to nodes which are lost before they had one: replaced where that is harmless."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster.admission_gate import GATE, RELEASED
from numazones.cluster.cluster import ClusterNode
from numazones_client import APIError
from numazones_client.errors import Request
from numazones_operator.metrics.registry import Metrics
from numazones_operator.prevention.pods_with_lost_nodes import PATIENCE, PodsWithLostNodes
from tests.operator.prevention.extender.cluster import Cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
CORDON: dict[str, Any] = {"unschedulable": True}


class Events:
    """Takes all events."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str]] = []

    def post(self, about: dict[str, str], *, type: str, reason: str, message: str) -> bool:  # noqa: A002, ARG002
        self.posted.append((about["name"], reason, message))
        return True


class Setting:
    """Nodes ``a``, ``b`` and ``other``, and a pod that was released to the first two."""

    def __init__(self, *, replaces: bool = True) -> None:
        self.cluster = Cluster("a", "b", "other")
        self.events = Events()
        self.metrics = Metrics(CollectorRegistry())
        self.leads = True
        self.lost = PodsWithLostNodes(
            self.cluster.server,  # type: ignore[arg-type]
            self.cluster.state,
            self.events,  # type: ignore[arg-type]
            replaces=replaces,
            metrics=self.metrics,
            leads=lambda: self.leads,
            clock=self.cluster.offline.clock,
        )

    def release(self, owner: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        """A pod as the gate leaves it."""
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in "ab"
        ]
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        body = self.cluster.pod("p", mirrored=False, cpu=4, affinity=affinity, **spec)
        body["metadata"] |= {"annotations": {RELEASED: "2026-01-31T08:00:00Z"}, "resourceVersion": "7"}
        body["metadata"]["ownerReferences"] = [owner] if owner else []
        self.cluster.mirror("p")
        return body

    def change(self, name: str, **values: Any) -> None:
        node = self.cluster.state.nodes.get(name)
        assert isinstance(node, ClusterNode)
        self.cluster.state.nodes.put(replace(node, **values))

    def lose(self) -> None:
        """One node is gone, the other cordoned."""
        node = self.cluster.state.nodes.get("a")
        assert node is not None
        self.cluster.state.nodes.remove(node)
        self.change("b", **CORDON)

    async def wait(self, seconds: float = PATIENCE) -> list[str]:
        """Look now and after some time; return the reasons of all events."""
        await self.lost.look()
        self.cluster.offline.clock.now += seconds
        await self.lost.look()
        return [reason for _, reason, _ in self.events.posted]


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "StatefulSet"])
async def test_replaceable_pod_with_lost_nodes_is_evicted_before_binding(kind: str) -> None:
    setting = Setting()
    setting.release(REPLICA_SET | {"kind": kind})
    setting.lose()
    assert await setting.wait() == ["AdmissionGateReplaced"]
    assert setting.cluster.server.evicted == ["p"]
    assert setting.metrics.released_pods_replaced._value.get() == 1


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (None, "kubectl delete pod -n default p, and recreate it"),
        (
            REPLICA_SET | {"kind": "Job"},
            "and its Job creates a replacement, and counts this one as a failure",
        ),
        (REPLICA_SET | {"kind": "Workflow"}, "and its Workflow creates a replacement"),
        (REPLICA_SET | {"controller": False}, "and recreate it"),
    ],
    ids=["bare", "Job", "unknown", "owned but not controlled"],
)
async def test_of_others_one_event_says_what_to_do(owner: dict[str, Any] | None, says: str) -> None:
    setting = Setting()
    setting.release(owner)
    setting.lose()
    assert await setting.wait() == ["AdmissionGateNodesLost"]
    await setting.lost.look()
    ((name, _, message),) = setting.events.posted
    assert name == "p"
    assert "released it to a, b only" in message
    assert says in message
    assert setting.cluster.server.evicted == []
    assert setting.lost.count() == 1


async def test_nobody_is_evicted_unless_that_is_switched_on() -> None:
    setting = Setting(replaces=False)
    setting.release(REPLICA_SET)
    setting.lose()
    assert await setting.wait() == ["AdmissionGateNodesLost"]
    assert setting.cluster.server.evicted == []


async def test_a_node_may_come_back_for_a_minute() -> None:
    setting = Setting()
    setting.release(REPLICA_SET)
    setting.lose()
    assert await setting.wait(PATIENCE - 1) == []
    setting.change("b", unschedulable=False)
    assert await setting.wait() == []
    setting.change("b", **CORDON)  # the minute begins anew
    assert await setting.wait(PATIENCE - 1) == []
    assert await setting.wait(1) == ["AdmissionGateReplaced"]


async def test_pod_with_one_remaining_node_is_kept() -> None:
    setting = Setting()
    setting.release(REPLICA_SET)
    setting.change("a", **CORDON)
    assert await setting.wait(10 * PATIENCE) == []
    assert setting.lost.count() == 0


async def test_one_that_tolerates_what_keeps_others_away_is_left_alone() -> None:
    setting = Setting()
    setting.release(REPLICA_SET, tolerations=[{"operator": "Exists"}])
    setting.lose()
    assert await setting.wait() == []


async def test_gated_or_nominated_pod_is_kept() -> None:
    setting = Setting()
    setting.release(REPLICA_SET, schedulingGates=[{"name": GATE}])
    setting.lose()
    assert await setting.wait() == []
    body = setting.release(REPLICA_SET)
    body["status"]["nominatedNodeName"] = "b"
    setting.cluster.mirror("p")
    assert await setting.wait() == []


async def test_a_pod_that_is_bound_or_changed_meanwhile_stays() -> None:
    """The mirror may be behind: what the API server has decides, at the moment of the eviction."""
    setting = Setting()
    body = setting.release(REPLICA_SET)
    setting.lose()
    body["spec"]["nodeName"] = "b"
    assert await setting.wait() == []
    del body["spec"]["nodeName"]
    body["metadata"]["uid"] = "another"
    assert await setting.wait() == []
    assert setting.cluster.server.evicted == []


async def test_who_may_not_lead_any_more_evicts_nobody() -> None:
    setting = Setting()
    setting.release(REPLICA_SET)
    setting.lose()
    setting.leads = False
    assert await setting.wait() == []
    setting.leads = True
    assert await setting.wait(0) == ["AdmissionGateReplaced"]


async def test_where_the_api_server_refuses_the_pods_event_says_so() -> None:
    setting = Setting()
    setting.release(REPLICA_SET)
    setting.lose()
    setting.cluster.server.failures = [APIError(Request("create", "pods/eviction"), "forbidden", code=403)]
    assert await setting.wait() == ["AdmissionGateNodesLost"]
    assert "the operator could not evict it" in setting.events.posted[0][2]


async def test_pods_without_node_limits_of_the_gate_are_ignored() -> None:
    setting = Setting()
    body = setting.cluster.pod("free", mirrored=False, cpu=4, nodeSelector={"pool": "gone"})
    body["metadata"] |= {"annotations": {RELEASED: "2026-01-31T08:00:00Z"}, "resourceVersion": "1"}
    body["metadata"]["ownerReferences"] = [REPLICA_SET]
    setting.cluster.mirror("free")
    assert await setting.wait() == []
