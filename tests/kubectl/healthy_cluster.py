"""A cluster with which nothing is wrong, as ``doctor`` sees it, and what can be taken or changed of it."""

import copy
from collections.abc import Callable
from typing import Any

from numazones.api import crd
from tests.kubectl.small_cluster import TIME, cluster, pod_body

Item = dict[str, Any]
LATER = "2026-11-20T10:05:00Z"
EXPORTER = "numazones-exporter-x"
OPT_IN = {"numazones.io/admission-gate": "enabled"}
DEFINITIONS = tuple(map(crd.crd, crd.KINDS))
"""Made once: each takes hundredths of a second, and a cluster is asked for hundreds of times."""


def program(name: str, node: str = "worker-1", **fields: Any) -> Item:
    """A pod of the exporter or operator that is ready."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    own = f"{name}-x" if node == "worker-1" else f"{name}-xy"
    body = pod_body(own, 1, spec={"nodeName": node}, **{**ready, **fields})
    body["spec"]["containers"] = [{"name": "main", "args": []}]
    body["metadata"] |= {"namespace": "numazones-system", "labels": {"app.kubernetes.io/name": name}}
    return body


def lease(node: str, renewed: str = TIME, *, written_at: str = "") -> Item:
    managed = [{"manager": "numazones-exporter", "time": written_at or renewed}]
    return {
        "kind": "Lease",
        "metadata": {
            "name": f"numazones-exporter-{node}",
            "namespace": "numazones-system",
            "labels": {"numazones.io/node": node},
            "managedFields": managed,
        },
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 180},
    }


def namespace(name: str = "team", **labels: str) -> Item:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def topology(*managers: str) -> Item:
    managed = [{"manager": name, "time": TIME, "fieldsV1": {"f:zones": {}}} for name in managers]
    return {"kind": "NodeResourceTopology", "metadata": {"name": "worker-1", "managedFields": managed}}


def healthy() -> list[Item]:
    """A cluster with which nothing is wrong, and about which everything is known."""
    items = [item for item in cluster() if item["metadata"]["name"] not in {"waiting", "rejected"}]
    for item in items:
        item["spec"] = {key: value for key, value in item.get("spec", {}).items() if key != "unschedulable"}
        if item["kind"] == "NUMAZone":
            item["status"]["kubelet"]["cpuManagerPolicyOptions"] = {"strict-cpu-reservation": "true"}
    return [
        *items,
        pod_body("small", 1),
        *copy.deepcopy(DEFINITIONS),
        *(lease(name) for name in ("worker-1", "worker-2")),
        *(program("numazones-exporter", name) for name in ("worker-1", "worker-2")),
        program("numazones-operator"),
        namespace("team", **OPT_IN),
        topology("numazones-exporter"),
    ]


def without(kind: str, name: str = "") -> list[Item]:
    return [it for it in healthy() if it["kind"] != kind or name not in it["metadata"]["name"]]


def changed(kind: str, name: str, change: Callable[[Item], object]) -> list[Item]:
    items = healthy()
    for item in items:
        if item["kind"] == kind and name in item["metadata"]["name"]:
            change(item)
    return items
