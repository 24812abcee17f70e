"""NUMA nodes of a cluster: what they hold, what a kubelet would admit, what moving pods would gain.

This package is the pure library: values in, values out. It does no I/O, reads no clock, keeps no
global state and knows no Kubernetes client; the exporter, the operator, the lab and the
kubectl plugin are the edges that do. Packages, each importing only those before it: ``apimachinery``,
``kubelet`` and ``dra``, ``api`` and ``placement``, ``cluster``, ``prediction`` and ``alignment``,
``rebalance``, ``advice`` and ``whatif``. import-linter enforces the order.

The names in ``__all__`` are the public face. Each is loaded when it is first asked for, so that a program
which needs one module pays for that one only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numazones import build, cpuset
    from numazones.api.numazone import NUMAZone
    from numazones.api.zones import node_from_zones
    from numazones.api.zones_from_node import zones_from_node
    from numazones.apimachinery import quantity
    from numazones.apimachinery.quantity import Quantity
    from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
    from numazones.cluster.dump import cluster_from_api
    from numazones.errors import NumazonesError
    from numazones.kubelet.admission import Admission, ContainerAllocation, admit, remove
    from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
    from numazones.kubelet.demand import Container
    from numazones.kubelet.device_manager import Device
    from numazones.kubelet.explanation import Explanation, explain
    from numazones.kubelet.machine import CPU, Machine, NUMANode
    from numazones.kubelet.node import Node
    from numazones.kubelet.pod import InvalidPod, Pod
    from numazones.kubelet.restart import node_from_checkpoints
    from numazones.placement.fragmentation import Fragmentation, Shape
    from numazones.prediction.forecast import Prediction, predict
    from numazones.rebalance.plan import Plan, plan

__all__ = [
    "CPU",
    "Admission",
    "Cluster",
    "ClusterNode",
    "ClusterPod",
    "Container",
    "ContainerAllocation",
    "Device",
    "Explanation",
    "Fragmentation",
    "InvalidConfiguration",
    "InvalidPod",
    "KubeletConfiguration",
    "Machine",
    "NUMANode",
    "NUMAZone",
    "Node",
    "NumazonesError",
    "Plan",
    "Pod",
    "Prediction",
    "Quantity",
    "Shape",
    "admit",
    "build",
    "cluster_from_api",
    "cpuset",
    "explain",
    "node_from_checkpoints",
    "node_from_zones",
    "plan",
    "predict",
    "quantity",
    "remove",
    "zones_from_node",
]

_MODULES = {
    "api.numazone": ("NUMAZone",),
    "api.zones": ("node_from_zones",),
    "api.zones_from_node": ("zones_from_node",),
    "apimachinery.quantity": ("Quantity",),
    "cluster.cluster": ("Cluster", "ClusterNode", "ClusterPod"),
    "cluster.dump": ("cluster_from_api",),
    "errors": ("NumazonesError",),
    "kubelet.admission": ("Admission", "ContainerAllocation", "admit", "remove"),
    "kubelet.config": ("InvalidConfiguration", "KubeletConfiguration"),
    "kubelet.demand": ("Container",),
    "kubelet.device_manager": ("Device",),
    "kubelet.explanation": ("Explanation", "explain"),
    "kubelet.machine": ("CPU", "Machine", "NUMANode"),
    "kubelet.node": ("Node",),
    "kubelet.pod": ("InvalidPod", "Pod"),
    "kubelet.restart": ("node_from_checkpoints",),
    "placement.fragmentation": ("Fragmentation", "Shape"),
    "prediction.forecast": ("Prediction", "predict"),
    "rebalance.plan": ("Plan", "plan"),
}
_PUBLIC_MODULES = {"build": "build", "cpuset": "cpuset", "quantity": "apimachinery.quantity"}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers know the names from above, and find misspelt ones

    def __getattr__(name: str) -> Any:
        """Load a public name from the module that defines it (PEP 562)."""
        if name in _PUBLIC_MODULES:
            return import_module(f"{__name__}.{_PUBLIC_MODULES[name]}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
