"""Terms of a ``core/v1`` NodeSelector: which nodes a pod may run on, and from which devices can be reached.

Scheduler, kubelet and the allocator of devices ask the same question with the same code
(``component-helpers/scheduling/corev1/nodeaffinity`` of Kubernetes 1.36).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from numazones.apimachinery.label_selector import Requirement, integer


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

    @property
    def well_formed(self) -> bool:
        """Whether its expressions can be read; otherwise it selects no node."""
        return all(_is_well_formed(requirement) for requirement in self.expressions)

    @property
    def texts(self) -> Iterator[str]:
        """Keys and operators."""
        for requirement in (*self.expressions, *self.fields):
            yield requirement.key
            yield requirement.operator

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the term selects a node of this name and these labels."""
        if not self.expressions and not self.fields:
            return False
        if not self.well_formed:
            return False
        return all(requirement.matches(labels) for requirement in self.expressions) and all(
            _holds_for_field(requirement, name) for requirement in self.fields
        )


def _requirements(bodies: Iterable[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    """Read NodeSelectorRequirements, also those that no node can meet."""
    return tuple(
        Requirement(
            body.get("key", ""),
            body.get("operator", ""),
            tuple(str(value) for value in body.get("values") or ()),
        )
        for body in bodies or ()
    )


def _is_well_formed(requirement: Requirement) -> bool:
    """Return whether it can be read; a term with one that cannot selects nothing."""
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and integer(requirement.values[0]) is not None
        case _:
            return False


def _holds_for_field(requirement: Requirement, name: str) -> bool:
    """Return whether it holds for the fields of a node of this name."""
    value = name if requirement.key == "metadata.name" else ""
    if len(requirement.values) != 1:
        return False
    if requirement.operator == "In":
        return value == requirement.values[0]
    return requirement.operator == "NotIn" and value != requirement.values[0]
