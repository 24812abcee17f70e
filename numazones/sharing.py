"""Equal parts of many objects, kept once.

Fifty thousand pods come from a few hundred templates, five thousand nodes from a few models. Labels,
constraints, containers and machines are immutable values, so equal ones can be the same object; this is what
keeps a whole cluster within a few hundred MiB, and makes comparing them a matter of identity.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numazones.cluster import ClusterPod, Demands, demands_key
from numazones.kubelet.node import Node

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
        return self.value_under(value, value)

    def mapping(self, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the remembered equal of a flat mapping."""
        if len(self._mappings) > _MOST:
            self._mappings.clear()
        return self._mappings.setdefault(tuple(mapping.items()), mapping)

    def pod(self, body: Mapping[str, Any]) -> ClusterPod:
        """Read a pod, made of shared parts."""
        pod = ClusterPod.from_api(body, demands_of=self._demands_of)
        return replace(
            pod,
            labels=self.mapping(pod.labels),
            annotations=self.mapping(pod.annotations),
            constraints=self.value(pod.constraints),
            owners=self.value(pod.owners),
            node=self.value(pod.node),
            namespace=self.value(pod.namespace),
        )

    def _demands_of(self, body: Mapping[str, Any]) -> Demands:
        """Read a template once; of its other pods only the names have to be read."""
        key = demands_key(body)
        known: Demands | None = self._values.get(key)
        if known is None:
            known = self.value_under(key, Demands.of(body))
        like = known.admission
        if like is None:
            return known
        return replace(known, admission=like.named(body["metadata"], share=self.value))

    def value_under(self, key: Hashable, value: T) -> T:
        """Remember a value under a key of its own."""
        if len(self._values) > _MOST:
            self._values.clear()
        shared: T = self._values.setdefault(key, value)
        return shared

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
