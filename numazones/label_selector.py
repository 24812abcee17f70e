"""Label selectors (``metav1.LabelSelector``), as PodDisruptionBudgets and policies use them.

An absent selector takes nothing and an empty one everything, as in policy/v1. One that the API machinery
cannot read makes no sense to any controller; reading it here is an error, so that the caller decides
whether to reject (a policy) or to ignore it (a budget, as the API server does).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from numazones.errors import NumazonesError

_SET_OPERATORS = frozenset({"In", "NotIn"})
_EXISTENCE_OPERATORS = frozenset({"Exists", "DoesNotExist"})
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class InvalidSelector(NumazonesError):
    """A label selector that cannot be read; the message quotes the part in question."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One entry of ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels, all of which must hold."""

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Expression, ...] = ()

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read a ``metav1.LabelSelector``.

        Raises:
            InvalidSelector: an operator is unknown or has values it must not have, or lacks them.
        """
        labels = tuple(sorted((key, str(value)) for key, value in (body.get("matchLabels") or {}).items()))
        for key, value in labels:
            if _VALUE.fullmatch(value) is None:
                raise InvalidSelector(f"label selector: {value!r} is not a valid value of label {key}")
        return cls(labels, tuple(_expression(entry) for entry in body.get("matchExpressions") or ()))

    @classmethod
    def optional(cls, body: Mapping[str, Any] | None) -> Self | None:
        """Read a selector that may be absent, and then selects nothing.

        Raises:
            InvalidSelector: as for ``from_api``.
        """
        return None if body is None else cls.from_api(body)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy all requirements."""
        return all(labels.get(key) == value for key, value in self.labels) and all(
            expression.matches(labels) for expression in self.expressions
        )


def _expression(entry: Mapping[str, Any]) -> Expression:
    key, operator = entry.get("key") or "", entry.get("operator") or ""
    values = tuple(str(value) for value in entry.get("values") or ())
    if not key:
        raise InvalidSelector("label selector: an expression has no key")
    if operator in _SET_OPERATORS:
        if not values:
            raise InvalidSelector(f"label selector: {operator} on {key} needs values")
    elif operator in _EXISTENCE_OPERATORS:
        if values:
            raise InvalidSelector(f"label selector: {operator} on {key} takes no values")
    else:
        raise InvalidSelector(
            f"label selector: unknown operator {operator!r} on {key}; write In, NotIn, Exists or DoesNotExist"
        )
    return Expression(key, operator, values)
