"""Clusters to draw: simulated machines of all kinds, filled with pods at random, and some pods that wait."""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.dump import Dump
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.rebalance.dump import situation_of
from numazones_simulator import node_kinds
from numazones_simulator.workload import PodStream

TIME = "2026-11-20T10:00:00Z"
_FILLINGS = 60
"""Different fillings of nodes; beyond that nodes of a kind repeat them, with pods of their own names."""


def dump(nodes: int, *, waiting: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    """Everything that ``kubectl get`` prints of such a cluster."""
    items: list[dict[str, Any]] = []
    fillings: dict[int, tuple[Node, list[dict[str, Any]]]] = {}
    for number, spec in enumerate(node_kinds.mixed(nodes)):
        filling = number % _FILLINGS
        if filling not in fillings:
            fillings[filling] = _filled(spec.empty_node(), random.Random(seed * 1000 + filling))
        state, templates = fillings[filling]
        pods = [_running(body, spec.name) for body in templates]
        names = {
            body["metadata"]["uid"]: ("shop", pod["metadata"]["name"])
            for body, pod in zip(templates, pods, strict=True)
        }
        zones = [zone.to_api() for zone in zones_from_node(state, node_name=spec.name, pods=names)]
        for zone in zones:
            for held in zone["status"].get("assignments", ()):
                held["uid"] = f"{spec.name}-{held['uid']}"
        items += [_node(spec.name, state, len(pods)), *zones, *pods]
        items += [_replica_set(pod) for pod in pods]
    for number in range(waiting):
        pod = _pod(f"trainer-{number + 1}", f"uid-trainer-{number + 1}", 24 + 4 * number)
        items += [pod, _replica_set(pod)]
    return items


def _filled(node: Node, draw: random.Random) -> tuple[Node, list[dict[str, Any]]]:
    """A node that pods came to and left, and the pods that stayed."""
    stayed: dict[str, dict[str, Any]] = {}
    for number, body in enumerate(_submitted(draw)):
        uid = body["metadata"]["uid"] = f"uid-{number}"
        admission = _tried(node, body)
        if admission is not None and admission.admitted:
            node = admission.node
            stayed[uid] = body
        if stayed and draw.random() < 0.25:
            gone = draw.choice(sorted(stayed))
            node = remove(node, gone)
            del stayed[gone]
    return node, [body for uid, body in stayed.items() if node.holds(uid)]


def _submitted(draw: random.Random) -> Iterator[dict[str, Any]]:
    pods = PodStream(draw.randrange(1 << 30), namespace="shop").pods()
    for _ in range(draw.randrange(8, 40)):
        yield next(pods)


def _tried(node: Node, body: dict[str, Any]) -> Admission | None:
    try:
        return admit(node, Pod.from_api(body))
    except NumazonesError:
        return None


def _running(template: dict[str, Any], node: str) -> dict[str, Any]:
    metadata = template["metadata"]
    name, uid = f"{metadata['name']}-{node}", f"{node}-{metadata['uid']}"
    return {
        **template,
        "metadata": {**metadata, "name": name, "uid": uid, "creationTimestamp": TIME}
        | {"ownerReferences": [_owner(name)]},
        "spec": {**template["spec"], "nodeName": node},
        "status": {"phase": "Running", "startTime": TIME, "containerStatuses": [{"name": "main"}]},
    }


def _pod(name: str, uid: str, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "8Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "creationTimestamp": TIME}
        | {"ownerReferences": [_owner(name)]},
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Pending"},
    }


def _owner(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"rs-{name}",
        "uid": f"rs-{name}",
        "controller": True,
    }


def _replica_set(pod: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"rs-{pod['metadata']['name']}", "namespace": "shop"}
        | {"uid": f"rs-{pod['metadata']['name']}"},
        "spec": {"replicas": 1, "template": {"metadata": {}, "spec": spec}},
    }


def _node(name: str, state: Node, pods: int) -> dict[str, Any]:
    cpus = len(state.machine.cpus) - state.kubelet.cpus.reserved.bit_count()
    allocatable = {"cpu": str(cpus), "memory": "500Gi", "pods": str(110 + pods)} | {
        resource: str(len(item.devices)) for resource, item in state.kubelet.devices.resources.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def nodes_of(items: Iterable[dict[str, Any]]) -> dict[str, ClusterNode]:
    return dict(situation_of(Dump.of(items), datetime(2026, 11, 20, tzinfo=UTC)).cluster.nodes)
