"""Equal parts of many objects, kept once.

Fifty thousand pods come from a few hundred templates, five thousand nodes from a few models. Labels,
constraints, containers and machines are immutable values, so equal ones can be the same object; this is what
keeps a whole cluster within a few hundred MiB, and makes comparing them a matter of identity.
"""

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from numazones.cluster import MIRROR, ClusterPod, Demands, demands_key
from numazones.kubelet.node import Node
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
        return self.value_under(value, value)

    def mapping(self, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the remembered equal of a flat mapping."""
        if len(self._mappings) > _MOST:
            self._mappings.clear()
        return self._mappings.setdefault(tuple(mapping.items()), mapping)

    def pod(self, body: Mapping[str, Any]) -> ClusterPod:
        """Read a pod, made of shared parts."""
        pod = ClusterPod.from_api(body, demands_of=self._demands_of)
        for name, shared in (
            ("labels", self.mapping(pod.labels)),
            ("annotations", self.mapping(pod.annotations)),
            ("constraints", self.value(pod.constraints)),
            ("owners", self.value(pod.owners)),
            ("node", self.value(pod.node)),
            ("namespace", self.value(pod.namespace)),
        ):
            object.__setattr__(pod, name, shared)
        return pod

    def _demands_of(self, body: Mapping[str, Any]) -> Demands:
        """Read a template once; of its other pods only the names have to be read."""
        key = demands_key(body)
        known: Demands | None = self._values.get(key)
        if known is None:
            known = self.value_under(key, Demands.of(body))
        like = known.admission
        return known if like is None else replace(known, admission=self._renamed(like, body))

    def _renamed(self, like: Pod, body: Mapping[str, Any]) -> Pod:
        """Return a pod of the same template without working its demands out again."""
        pod, metadata = copy(like), body["metadata"]
        annotations = metadata.get("annotations") or {}
        for name, value in (
            ("name", metadata.get("name", "")),
            ("namespace", metadata.get("namespace", "")),
            ("uid", annotations.get(MIRROR) or metadata.get("uid", "")),
            ("created", metadata.get("creationTimestamp") or ""),
            ("labels", self.value(tuple(sorted((metadata.get("labels") or {}).items())))),
            ("annotations", self.value(tuple(sorted(annotations.items())))),
            ("priority", body["spec"].get("priority")),
        ):
            object.__setattr__(pod, name, value)
        return pod

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
