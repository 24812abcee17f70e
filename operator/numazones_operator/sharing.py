"""Equal parts of many objects, kept once.

Fifty thousand pods come from a few hundred templates, five thousand nodes from a few models. Labels,
constraints, containers and machines are immutable values, so equal ones can be the same object; this is what
keeps a whole cluster within a few hundred MiB, and makes comparing them a matter of identity.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numazones.cluster import ClusterPod
from numazones.node import Node
from numazones.pod import Pod

T = TypeVar("T", bound=Hashable)

# Beyond so many distinct values there is little to share; starting over keeps the memory bounded.
_MOST = 20_000


class Sharing:
    """Remembers one of each value."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._mappings: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}

    def value(self, value: T) -> T:
        """Return the remembered equal of a value."""
        if len(self._values) > _MOST:
            self._values.clear()
        shared: T = self._values.setdefault(value, value)
        return shared

    def mapping(self, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the remembered equal of a flat mapping."""
        if len(self._mappings) > _MOST:
            self._mappings.clear()
        return self._mappings.setdefault(tuple(mapping.items()), mapping)

    def pod(self, pod: ClusterPod) -> ClusterPod:
        """Return the pod made of shared parts."""
        return replace(
            pod,
            labels=self.mapping(pod.labels),
            annotations=self.mapping(pod.annotations),
            requests=self.mapping(pod.requests),
            constraints=self.value(pod.constraints),
            owners=self.value(pod.owners),
            node=self.value(pod.node),
            namespace=self.value(pod.namespace),
            admission=None if pod.admission is None else self._admission(pod.admission),
        )

    def _admission(self, pod: Pod) -> Pod:
        """Share what is the same for all pods of a template; derived parts would otherwise be made again."""
        key = (pod.containers, pod.pod_requests, pod.pod_limits, pod.has_pod_resources, pod.qos_class)
        like: Pod = self._values.setdefault(key, pod)
        if like is not pod:
            for name in ("containers", "pod_requests", "pod_limits", "demands", "total", "claimed_resources"):
                if getattr(like, name) == getattr(pod, name):
                    object.__setattr__(pod, name, getattr(like, name))
        return pod

    def node(self, node: Node) -> Node:
        """Return the state with a kubelet that equal nodes share."""
        kubelet = node.kubelet
        devices = kubelet.devices
        key = (kubelet.machine, kubelet.config, tuple(devices.resources.items()), devices.numa_mask)
        try:
            shared = self._values.setdefault(key, kubelet)
        except TypeError:  # devices with parts that cannot be hashed are simply not shared
            return node
        return replace(node, kubelet=shared)
