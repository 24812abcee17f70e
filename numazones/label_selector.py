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
_PARTS = re.compile(r"(?:[^,(]|\([^)]*\))+")
_WRITTEN = re.compile(
    r"(?P<absent>!)?\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)\s*"
    r"(?:(?P<compare>==?|!=)\s*(?P<value>[^\s=!()]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class InvalidSelector(NumazonesError):
    """A label selector is not valid; the message quotes the part that is wrong."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One entry of ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it."""
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

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a selector as ``kubectl -l`` takes it: ``app=web,tier!=db,zone in (a,b),gpu,!spot``.

        Raises:
            InvalidSelector: a part of it is no requirement.
        """
        return cls((), tuple(_requirement(part) for part in _PARTS.findall(text) if part.strip()))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy all requirements."""
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


def _requirement(part: str) -> Expression:
    """Read one requirement as ``kubectl -l`` takes it."""
    match = _WRITTEN.fullmatch(part.strip())
    if match is None or (match["absent"] and (match["compare"] or match["set"])):
        raise InvalidSelector(
            f"{part.strip()!r} selects no labels; write for example app=web,zone in (a,b),!spot"
        )
    if match["compare"]:
        return Expression(match["key"], "NotIn" if match["compare"] == "!=" else "In", (match["value"],))
    if match["set"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Expression(match["key"], "In" if match["set"] == "in" else "NotIn", values)
    return Expression(match["key"], "DoesNotExist" if match["absent"] else "Exists")
