"""What a pod says about the nodes it may run on, and what a node says about the pods it takes.

Values of core/v1 as written in the API: taints, tolerations, ``nodeSelector`` and the required part of
node affinity. Their meaning is in ``numazones.scheduling``. Everything here is hashable, so that pods of
one template share one value.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark of a node that keeps away pods which do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read an entry of ``spec.taints`` of a Node."""
        return cls(body.get("key", ""), body.get("value") or "", body.get("effect", ""))


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's consent to a taint; an empty key or effect stands for all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read an entry of ``spec.tolerations`` of a Pod."""
        return cls(
            body.get("key") or "",
            body.get("operator") or "Equal",
            body.get("value") or "",
            body.get("effect") or "",
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label or field of a node."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: tuple[str, ...] = ()

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read a NodeSelectorRequirement."""
        return cls(
            body.get("key", ""), body.get("operator", ""), tuple(str(v) for v in body.get("values") or ())
        )


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Conditions that must all hold; a term without any selects no node."""

    expressions: tuple[Requirement, ...] = ()
    """On labels."""
    fields: tuple[Requirement, ...] = ()
    """On fields; Kubernetes knows metadata.name."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read a NodeSelectorTerm."""
        return cls(_requirements(body.get("matchExpressions")), _requirements(body.get("matchFields")))


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
    beyond: tuple[str, ...] = ()
    """Rules that look at other pods or at volumes, by field: ``numazones.scheduling`` does not cover them."""

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
            beyond=tuple(_beyond(spec)),
        )


def _beyond(spec: Mapping[str, Any]) -> Iterator[str]:
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


def _requirements(bodies: Iterable[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement.from_api(body) for body in bodies or ())
