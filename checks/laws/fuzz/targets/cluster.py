"""Fuzz targets of the operator: answers of the API server, objects of users, requests of kube-scheduler."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from checks.laws.fuzz.target import Target
from checks.laws.fuzz.targets.node import encoded, json_or, served
from checks.programs.kubectl.test_fuzzed_input import OTHERS
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.rebalance.budgets import Budget
from numazones.rebalance.custom_resources import goals_of, policy_of
from numazones.rebalance.recommendation import Recommendation
from numazones_client import Decoder, Unreadable
from numazones_client.decoding import by_uid
from numazones_operator.mirror import decoding
from numazones_operator.predictions.admission_predictions import PublishedPrediction
from numazones_operator.prevention.extender.messages import encode
from numazones_operator.rebalance.inputs import Defaulting, OwnerTemplate, VolumeClaim
from numazones_operator.rebalance.objects import PolicyObject
from tests.kubectl.healthy_cluster import healthy
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body
from tests.operator.prevention.extender.cluster import Cluster

_DECODERS: tuple[Decoder[Any], ...] = (
    decoding.NODES,
    decoding.ZONES,
    decoding.HEARTBEATS,
    decoding.TOPOLOGIES,
    decoding.DEVICE_CLASSES,
    decoding.MODEL_OBJECTS,
    Decoder(ClusterPod.from_api),
    Decoder(PublishedPrediction.from_api),
    Decoder(Budget.from_api),
    Decoder(Defaulting.from_api),
    Decoder(VolumeClaim.from_api),
    Decoder(OwnerTemplate.from_api, key=by_uid),
    Decoder(PolicyObject.from_api),
    Decoder(Recommendation.from_api),
)
_NOT_AN_ANSWER = (ValueError, KeyError, TypeError, AttributeError)
"""What decoders raise, as they say, where the whole is no list and no event."""


def _watch(data: bytes) -> None:
    """Read a list and an event as those of each kind."""
    for decoder in _DECODERS:
        with suppress(*_NOT_AN_ANSWER):
            decoder.page(data)
        with suppress(*_NOT_AN_ANSWER):
            found = decoder.event(data)
            if found.unreadable is not None:
                assert isinstance(found.unreadable, Unreadable)
                assert isinstance(found.unreadable.key, str)


def _answers() -> list[bytes]:
    chosen = [one for one in (*healthy(), *OTHERS) if one["kind"] != "CustomResourceDefinition"]
    kinds = {one["kind"]: one for one in chosen}
    events = [{"type": "MODIFIED", "object": one} for one in kinds.values()]
    lists = [
        {"kind": f"{kind}List", "metadata": {"resourceVersion": "7"}, "items": [one]}
        for kind, one in kinds.items()
    ]
    return encoded(*events, *lists)


def _operator(data: bytes) -> None:
    """Mirror nodes, zones and pods as they come, and predict: whatever they hold, there is an answer."""
    found = json_or(data)
    if not isinstance(found, Mapping):
        return
    setting = OfflinePipeline()
    state = setting.state
    tables: tuple[tuple[str, Decoder[Any], Any], ...] = (
        ("nodes", decoding.NODES, state.nodes),
        ("leases", decoding.HEARTBEATS, state.heartbeats),
        ("zones", decoding.ZONES, state.zones),
        ("pods", Decoder(state.sharing.pod), state.pods),
    )
    for key, decoder, table in tables:
        bodies = found.get(key)
        for body in map(served, bodies if isinstance(bodies, list) else ()):
            if body is not None:
                event = decoder.event(json.dumps({"type": "ADDED", "object": body}).encode())
                if event.object is not None:
                    table.put(event.object)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(setting.renew())
        setting.let_pass(61)
        loop.run_until_complete(setting.renew())
    finally:
        loop.close()


@cache
def _clusters() -> list[bytes]:
    from numazones_simulator import node_kinds  # noqa: PLC0415 - slow, and only seeds need it
    from numazones_simulator.node_spec import node_object  # noqa: PLC0415

    setting = OfflinePipeline()
    zones = setting.add_node("node")
    spec = node_kinds.single_numa_node("node", "10.0.0.1")
    waiting, bound = pod_body("a", cpu=4), pod_body("b", cpu=2, nodeName="node")
    waiting["metadata"]["uid"], bound["metadata"]["uid"] = "uid-a", "uid-b"
    bound["status"] = {"phase": "Pending"}
    lease = {
        "metadata": {"name": "l", "labels": {"numazones.io/node": "node"}},
        "spec": {"renewTime": "x", "leaseDurationSeconds": 60},
    }
    return encoded(
        {
            "nodes": [node_object(spec, now="2026-01-31T08:00:00Z")],
            "leases": [lease],
            "zones": zones,
            "pods": [waiting, bound],
        }
    )


def _zones(data: bytes) -> None:
    """Read zones as their node's state, as a dump and the operator do."""
    found = json_or(data)
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        return
    node_from_zones(map(NUMAZone.from_api, found))


def _zone_lists() -> list[bytes]:
    return encoded(json.loads(_clusters()[0])["zones"])


def _policy(data: bytes) -> None:
    body = json_or(data)
    if isinstance(body, dict):
        policy = PolicyObject.from_api(body)
        assert isinstance(policy.goals, frozenset)
        policy_of(policy.spec, {"high": 1000})
        tuple(goals_of(policy.spec.goals))


_POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "p", "uid": "u", "generation": 2},
    "spec": {
        "mode": "Approve",
        "target": "SameNode",
        "goals": {
            "shapes": [{"name": "big", "resources": {"cpu": "16", "memory": "8Gi"}, "count": 2}],
            "free": {"nodeName": "n", "numaID": 0},
            "align": True,
            "pendingPods": True,
        },
        "limits": {"maxMovesPerPlan": 3},
        "protections": {
            "minAge": "10m",
            "priorityClass": "high",
            "labelSelector": {"matchLabels": {"a": "b"}},
        },
        "schedule": {"interval": "1h"},
        "cooldown": "1h",
        "expiry": "1h",
        "searchTime": "5s",
    },
}


def _policies() -> list[bytes]:
    found = []
    for keys in (set(), {"protections"}, {"protections", "limits", "target"}):
        spec: dict[str, Any] = _POLICY["spec"]  # type: ignore[assignment] # it is
        body = _POLICY | {"spec": {key: value for key, value in spec.items() if key not in keys}}
        with suppress(NumazonesError, ValueError):
            _policy(json.dumps(body).encode())
            found.append(body)
    return encoded(*found)


def _recommendation(data: bytes) -> None:
    body = json_or(data)
    if isinstance(body, dict):
        found = Recommendation.from_api(body)
        assert len(found.progress) == len(found.spec.moves)
        assert found.is_about_to_evict in {True, False}
        assert found.active in {True, False}
        assert found.ended is None or found.ended.tzinfo


def _recommendations() -> list[bytes]:
    pod = {"namespace": "team", "name": "web-1", "uid": "u"}
    move = {
        "pod": pod,
        "owner": {"kind": "ReplicaSet", "name": "web", "uid": "r"},
        "source": {"node": "worker-1", "zones": [0]},
        "target": {"node": "worker-2", "zones": [1]},
        "affinity": ["worker-2"],
    }
    body = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "room-1", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "policy": "p",
            "goal": "pod team/trainer",
            "moves": [move],
            "placements": [{"pod": pod, "target": {"node": "worker-1"}}],
            "gain": {"before": 0, "after": 1, "total": 1, "minimal": True},
            "disruption": {"evictions": 1, "cpus": "4"},
            "digest": "x",
            "approved": True,
        },
        "status": {
            "phase": "Executing",
            "progress": [{"pod": pod, "phase": "Evicted"}],
            "conditions": [
                {
                    "type": "Complete",
                    "status": "True",
                    "reason": "Done",
                    "message": "",
                    "lastTransitionTime": "2026-01-31T08:00:00Z",
                }
            ],
        },
    }
    return encoded(body)


_EXTENDERS: list[Cluster] = []


def _extender(data: bytes) -> None:
    """Answer each verb: bytes of a request, or nothing that could be one."""
    if not _EXTENDERS:
        _EXTENDERS.append(Cluster("a", "b"))
        _EXTENDERS[0].pod("waiting", cpu=4)
    cluster = _EXTENDERS[0]
    loop = asyncio.new_event_loop()
    try:
        for verb in (
            cluster.extender.filter,
            cluster.extender.prioritize,
            cluster.extender.preempt,
            cluster.extender.bind,
        ):
            with suppress(NumazonesError):
                encode(loop.run_until_complete(verb(data)))
    finally:
        loop.close()


def _requests() -> list[bytes]:
    pod = pod_body("waiting", cpu=4)
    pod["metadata"]["uid"] = "uid-waiting"
    names = {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b", "c"]}
    whole = {"Pod": pod, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None}
    meta = {"a": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}
    victims = {"a": {"Pods": [{"metadata": {"name": "v", "uid": "x"}}], "NumPDBViolations": 1}}
    return encoded(
        names,
        whole,
        {"Pod": pod, "NodeNameToVictims": victims, "NodeNameToMetaVictims": meta},
        {"PodName": "waiting", "PodNamespace": "default", "PodUID": "uid-waiting", "Node": "a"},
    )


TARGETS = (
    Target("watch", _watch, _answers, (), 100),
    Target("operator", _operator, _clusters, (), 40),
    Target("zones", _zones, _zone_lists, (NumazonesError, ValueError), 100),
    Target("policy", _policy, _policies, (NumazonesError, ValueError)),
    Target("recommendation", _recommendation, _recommendations, (NumazonesError, ValueError)),
    Target("extender", _extender, _requests, (), 100),
)
