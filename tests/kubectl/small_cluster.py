"""A small cluster as files: two nodes with zones, a pod that waits, one that was rejected."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.numazones.kubelet import building

TIME = "2026-11-20T10:00:00Z"


def pod_body(name: str, cpus: int, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": TIME},
        "spec": {"containers": [building.container("main", cpus)], **fields.pop("spec", {})},
        "status": {"phase": "Pending", **fields},
    }


def node_body(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "15", "memory": "30Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **fields,
    }


def cluster() -> list[dict[str, Any]]:
    """``worker-1`` is fragmented (free: 4 and 2 CPUs), ``worker-2`` is cordoned and empty."""
    pods = [
        pod_body(
            name, cpus, phase="Running", spec={"nodeName": "worker-1"}, containerStatuses=[{"name": "main"}]
        )
        for name, cpus in (("one", 3), ("two", 6))
    ]
    node: Node = building.node()
    for body in pods:
        node = admit(node, Pod.from_api(body)).node
    names = {body["metadata"]["uid"]: ("team", body["metadata"]["name"]) for body in pods}
    zones = [
        *zones_from_node(node, node_name="worker-1", pods=names, version="v1.36.2"),
        *zones_from_node(building.node(), node_name="worker-2", pods={}, version="v1.36.2"),
    ]
    rejected = pod_body(
        "rejected",
        5,
        phase="Failed",
        reason="TopologyAffinityError",
        message="Pod was rejected: Resources cannot be allocated with Topology locality",
        spec={"nodeName": "worker-1"},
    )
    return [
        node_body("worker-1"),
        node_body("worker-2", spec={"unschedulable": True}),
        *(zone.to_api() for zone in zones),
        *pods,
        pod_body("waiting", 5),
        rejected,
    ]


def written(path: Path, items: Iterable[Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return path
