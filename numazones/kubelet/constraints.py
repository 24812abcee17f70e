"""Constraints of a pod on its nodes.

Values of core/v1 as written in the API: tolerations, ``nodeSelector`` and the required part of
node affinity, host ports and the operating system. Scheduler and kubelet
ask the same questions with the same code (``component-helpers/scheduling/corev1`` of Kubernetes 1.36).
Everything here is hashable, so that pods of one template share one value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from numazones.apimachinery.node_selector import SelectorTerm
from numazones.apimachinery.taints import Taint, Toleration

_ANY = "0.0.0.0"  # noqa: S104 - what an empty hostIP stands for


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a pod asks for."""

    port: int
    protocol: str = "TCP"
    address: str = _ANY

    def collides(self, other: "HostPort") -> bool:
        """Return whether only one of two pods can have the port."""
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.address == other.address or _ANY in {self.address, other.address})


@dataclass(frozen=True, slots=True)
class Constraints:
    """Everything in a pod's spec by which the default scheduler excludes nodes, resources aside."""

    node_selector: tuple[tuple[str, str], ...] = ()
    """(label, value), sorted; a node must have all of them."""
    node_affinity: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: one of the terms must hold; None where the pod has none."""
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    scheduler_name: str = "default-scheduler"
    host_ports: tuple[HostPort, ...] = ()
    os: str = ""
    """``spec.os.name``; empty: not said."""
    beyond: tuple[str, ...] = ()
    """Rules about other pods or volumes, by field: ``numazones.cluster.scheduling`` does not cover them."""
    prefers_nodes: bool = False
    """Whether it has preferred node affinity."""

    @classmethod
    def from_api(cls, spec: Mapping[str, Any]) -> Self:
        """Read the ``spec`` of a Pod."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return cls(
            node_selector=tuple(
                sorted((key, str(value)) for key, value in (spec.get("nodeSelector") or {}).items())
            ),
            node_affinity=None
            if required is None
            else tuple(SelectorTerm.from_api(term) for term in required.get("nodeSelectorTerms") or ()),
            tolerations=tuple(Toleration.from_api(item) for item in spec.get("tolerations") or ()),
            scheduling_gates=tuple(gate.get("name", "") for gate in spec.get("schedulingGates") or ()),
            scheduler_name=spec.get("schedulerName") or "default-scheduler",
            host_ports=tuple(_host_ports(spec)),
            os=(spec.get("os") or {}).get("name") or "",
            beyond=tuple(_unmodelled(spec)),
            prefers_nodes=bool(affinity.get("preferredDuringSchedulingIgnoredDuringExecution")),
        )

    def tolerates(self, taint: Taint) -> bool:
        """Return whether one of the tolerations covers a taint."""
        return any(toleration.covers(taint) for toleration in self.tolerations)

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether nodeSelector and required node affinity take a node of this name and labels."""
        for key, value in self.node_selector:
            if labels.get(key) != value:
                return False
        return self.node_affinity is None or any(term.holds(name, labels) for term in self.node_affinity)


def _host_ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    """Yield the host ports of containers that keep running."""
    sidecars = (item for item in spec.get("initContainers") or () if item.get("restartPolicy") == "Always")
    for container in (*sidecars, *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                protocol, address = port.get("protocol") or "TCP", port.get("hostIP") or _ANY
                yield HostPort(port["hostPort"], protocol, address)


def _unmodelled(spec: Mapping[str, Any]) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield kind
    spread = spec.get("topologySpreadConstraints") or ()
    if any(entry.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for entry in spread):
        yield "topologySpreadConstraints"
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    if any(port.get("hostPort") for container in containers for port in container.get("ports") or ()):
        yield "hostPort"
