"""The cluster of docs/guides/alignment.md, kept as tests/data/kubectl/best-effort.json.

Nodes of two NUMA nodes each, with two NICs near either, whose kubelets have no memory manager; the policy is
best-effort, on ``worker-3`` none.
"""

from collections.abc import Iterable
from typing import Any

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.device_manager import Device
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.kubectl.small_cluster import TIME, node_body
from tests.numazones.kubelet import building

NIC = "nic.example/vf"
_ARRIVALS = {
    "worker-1": (("cache-1", 5, 0), ("web-1", 4, 0), ("db-1", 6, 0), ("web-1", 0, 0), ("router-1", 2, 2)),
    "worker-2": (("cache-2", 3, 0), ("router-2", 2, 1), ("batch-1", 9, 0)),
    "worker-3": (("router-3", 2, 1), ("router-4", 2, 1)),
    "worker-4": (("db-2", 6, 0),),
}
"""Node → what happened there: pod, exclusive CPUs (0: it left), NICs."""


def best_effort_cluster() -> list[dict[str, Any]]:
    """All objects, in the order in which kubectl lists them."""
    nodes, zones, pods = [], [], []
    for name, arrivals in _ARRIVALS.items():
        found, here = _node(arrivals, "none" if name == "worker-3" else "best-effort")
        named = {body["metadata"]["uid"]: ("team", body["metadata"]["name"]) for body in here}
        nodes.append(node_body(name))
        zones += [
            zone.to_api() for zone in zones_from_node(found, node_name=name, pods=named, version="v1.36.2")
        ]
        pods += [{**body, "spec": {**body["spec"], "nodeName": name}} for body in here]
    return [*nodes, *zones, *pods]


def _node(arrivals: Iterable[tuple[str, int, int]], policy: str) -> tuple[Node, list[dict[str, Any]]]:
    devices = {NIC: tuple(Device(f"vf-{number}", (number % 2,)) for number in range(4))}
    node = building.node(policy=policy, memory="None", devices=devices)
    here: dict[str, dict[str, Any]] = {}
    for name, cpus, nics in arrivals:
        if not cpus:
            node = remove(node, name)
            del here[name]
            continue
        body = _pod(name, cpus, nics)
        said = admit(node, Pod.from_api(body))
        if not said.admitted:
            raise AssertionError(f"{name}: {said.message}")
        node, here[name] = said.node, body
    return node, list(here.values())


def _pod(name: str, cpus: int, nics: int) -> dict[str, Any]:
    container = building.container("main", cpus)
    if nics:
        for kind in ("requests", "limits"):
            container["resources"][kind][NIC] = str(nics)
    app = name.partition("-")[0]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": app,
        "uid": f"rs-{app}",
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": TIME,
            "labels": {"app": app},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "startTime": TIME, "containerStatuses": [{"name": "main"}]},
    }
