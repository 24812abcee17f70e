"""The cluster of docs/guides/kubectl.md, kept as tests/data/kubectl/dump.json.

Two nodes of two NUMA nodes each. ``worker-1`` has six exclusive CPUs left, four and two;
``worker-2`` has seven, four and three. A pod of five fits nowhere, until a small one moves.
"""

from typing import Any

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.kubectl.small_cluster import node_body, pod_body
from tests.numazones.kubelet import building

RUNNING = (
    ("worker-1", "web-1", 3),
    ("worker-1", "cache-1", 6),
    ("worker-2", "web-2", 3),
    ("worker-2", "index-1", 5),
)
OWNERS = {"web": (3, 2), "cache": (6, 1), "index": (5, 1), "trainer": (5, 1)}
"""ReplicaSet → exclusive CPUs of each pod, replicas."""


def guide_cluster() -> list[dict[str, Any]]:
    """All objects, in the order in which kubectl lists them."""
    pods = [_replica(name, cpus, node) for node, name, cpus in RUNNING]
    zones = [zone for name in ("worker-1", "worker-2") for zone in _zones(name, pods)]
    rejected = _replica("trainer-1", 5, "worker-1", phase="Failed")
    rejected["status"] |= {
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
    }
    return [
        node_body("worker-1"),
        node_body("worker-2"),
        *zones,
        *(_replica_set(app, cpus, replicas) for app, (cpus, replicas) in OWNERS.items()),
        *pods,
        rejected,
        _replica("trainer-2", 5, "", phase="Pending"),
    ]


def _zones(name: str, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    node: Node = building.node()
    here = [body for body in pods if body["spec"]["nodeName"] == name]
    for body in here:
        node = admit(node, Pod.from_api(body)).node
    names = {body["metadata"]["uid"]: ("team", body["metadata"]["name"]) for body in here}
    return [zone.to_api() for zone in zones_from_node(node, node_name=name, pods=names, version="v1.36.2")]


def _replica(name: str, cpus: int, node: str, *, phase: str = "Running") -> dict[str, Any]:
    app = name.partition("-")[0]
    body = pod_body(name, cpus, phase=phase, spec={"nodeName": node} if node else {})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"rs-{app}"}
    body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    body["metadata"]["labels"] = {"app": app}
    if phase == "Running":
        body["status"] |= {"startTime": body["metadata"]["creationTimestamp"]}
        body["status"]["containerStatuses"] = [{"name": "main"}]
    return body


def _replica_set(app: str, cpus: int, replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app, "namespace": "team", "uid": f"rs-{app}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [building.container("main", cpus)]},
            },
        },
        "status": {"replicas": replicas},
    }
