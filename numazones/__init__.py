"""NUMA zones of Kubernetes nodes: what they hold, what would be admitted there, what moving pods would gain.

This package is the pure library: values in, values out. It does no I/O, reads no clock, keeps no
global state and knows no Kubernetes client; the exporter, the operator, the simulator and the
kubectl plugin are the edges that do. Rooms, lowest first, each building on those before it: values
(``cpuset``, ``quantity``, ``machine``, ``pod``), ``kubelet`` with its node, ``fragmentation``,
``placement``, ``cluster``, ``prediction`` and ``room``, ``rebalance``; ``api`` beside them.
import-linter holds the order.

The names in ``__all__`` are the public face. Each is loaded when it is first asked for, so that a program
which needs one module pays for that one only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numazones import build, cpuset, quantity
    from numazones.api.numazone import NUMAZone
    from numazones.api.zones import node_from_zones, zones_from_node
    from numazones.cluster import Cluster, ClusterNode, ClusterPod
    from numazones.demand import Container
    from numazones.errors import NumazonesError
    from numazones.fragmentation import Fragmentation, Shape
    from numazones.kubelet.admission import Admission, ContainerAllocation, admit, remove
    from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
    from numazones.kubelet.device_manager import Device
    from numazones.kubelet.explanation import Explanation, explain
    from numazones.kubelet.node import Node
    from numazones.kubelet.restart import node_from_checkpoints
    from numazones.machine import CPU, Machine, NUMANode
    from numazones.pod import InvalidPod, Pod
    from numazones.prediction import Prediction, predict
    from numazones.quantity import Quantity

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
    "Pod",
    "Prediction",
    "Quantity",
    "Shape",
    "admit",
    "build",
    "cpuset",
    "explain",
    "node_from_checkpoints",
    "node_from_zones",
    "predict",
    "quantity",
    "remove",
    "zones_from_node",
]

_MODULES = {
    "api.numazone": ("NUMAZone",),
    "api.zones": ("node_from_zones", "zones_from_node"),
    "cluster": ("Cluster", "ClusterNode", "ClusterPod"),
    "demand": ("Container",),
    "errors": ("NumazonesError",),
    "fragmentation": ("Fragmentation", "Shape"),
    "kubelet.admission": ("Admission", "ContainerAllocation", "admit", "remove"),
    "kubelet.config": ("InvalidConfiguration", "KubeletConfiguration"),
    "kubelet.device_manager": ("Device",),
    "kubelet.explanation": ("Explanation", "explain"),
    "kubelet.node": ("Node",),
    "kubelet.restart": ("node_from_checkpoints",),
    "machine": ("CPU", "Machine", "NUMANode"),
    "pod": ("InvalidPod", "Pod"),
    "prediction": ("Prediction", "predict"),
    "quantity": ("Quantity",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers know the names from above, and find misspelt ones

    def __getattr__(name: str) -> Any:
        """Load a public name from the module that defines it (PEP 562)."""
        if name in {"build", "cpuset", "quantity"}:
            return import_module(f"{__name__}.{name}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
