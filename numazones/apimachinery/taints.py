"""Taints and tolerations, of nodes and pods as of devices and claims.

The rules are those of ``component-helpers/scheduling/corev1`` for nodes and of
``dynamic-resource-allocation/resourceclaim`` for devices (Kubernetes 1.36); they agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint: a node keeps away pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read an entry of ``spec.taints`` of a Node."""
        return cls(body.get("key", ""), body.get("value") or "", body.get("effect", ""))


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration of a taint; an empty key or effect stands for all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None
    """How long it tolerates NoExecute; kept of claims, which pass it on."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read an entry of ``spec.tolerations`` of a Pod."""
        return cls(
            body.get("key") or "",
            body.get("operator") or "Equal",
            body.get("value") or "",
            body.get("effect") or "",
        )

    def covers(self, taint: Taint) -> bool:
        """Return whether it tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Equal":
            return self.value == taint.value
        # Lt and Gt wait behind a gate that is off by default (TaintTolerationComparisonOperators).
        return self.operator == "Exists"
