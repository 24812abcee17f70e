"""Label selectors: ``metav1.LabelSelector`` of budgets and policies, and the text that ``kubectl -l`` takes.

An absent selector takes nothing and an empty one everything, as in policy/v1. One that the API machinery
cannot read makes no sense to any controller; reading it here is an error, so that the caller decides
whether to reject it (a policy, a request) or to ignore it (a budget, as the API server does).
Grammar and rules are those of apimachinery's ``pkg/labels`` (Kubernetes 1.36).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from numazones.errors import NumazonesError

_SET_OPERATORS = frozenset({"In", "NotIn"})
_EXISTENCE_OPERATORS = frozenset({"Exists", "DoesNotExist"})
_TOKEN = re.compile(r"\s*(!=|==|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")
_WRITTEN_OPERATORS = {
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
    "in": "In",
    "notin": "NotIn",
}


class InvalidSelector(NumazonesError):
    """A label selector is not valid; the message quotes the part that is wrong."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message
        """What is wrong in the words of apimachinery, which API servers answer with."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label: an entry of ``matchExpressions``, of a selector or of node affinity."""

    key: str
    operator: str
    """In, NotIn, Exists or DoesNotExist; as text and in node affinity also Gt or Lt."""
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{self.values[0]}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        actual = None if value is None else integer(value)
        bound = integer(self.values[0])
        if actual is None or bound is None:
            return False
        return actual > bound if self.operator == "Gt" else actual < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels, all of which must hold; without any, everything is selected."""

    labels: tuple[tuple[str, str], ...] = ()
    """(key, value): labels that must have just this value."""
    requirements: tuple[Requirement, ...] = ()

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
        return cls(labels, tuple(_requirement(entry) for entry in body.get("matchExpressions") or ()))

    @classmethod
    def optional(cls, body: Mapping[str, Any] | None) -> Self | None:
        """Read a selector that may be absent, and then selects nothing.

        Raises:
            InvalidSelector: as for ``from_api``.
        """
        return None if body is None else cls.from_api(body)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a selector as ``kubectl -l`` takes it: ``app=web,tier!=db,zone in (a,b),gpu,!spot,cores>8``.

        Raises:
            InvalidSelector: a part of it is no requirement.
        """
        return cls((), tuple(_Parser(text).requirements()))

    def __str__(self) -> str:
        """Write it as ``kubectl -l`` takes it; requirements are sorted by key, as API servers show them."""
        parts = [(key, f"{key}={value}") for key, value in self.labels]
        parts += [(one.key, str(one)) for one in self.requirements]
        return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))

    @property
    def everything(self) -> bool:
        """Return whether it selects everything."""
        return not self.labels and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy all requirements."""
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self.requirements)


EVERYTHING = LabelSelector()


def integer(text: str) -> int | None:
    """Return the number that Gt and Lt compare; None where Go's ``strconv.ParseInt`` of 64 bits fails.

    >>> integer("+008"), integer("9" * 6000), integer("1_0")
    (8, None, None)
    """
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])  # its zeros aside: Python reads no number of thousands of digits
    return number if -(2**63) <= number < 2**63 else None


def _requirement(entry: Mapping[str, Any]) -> Requirement:
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
    return Requirement(key, operator, values)


class _Parser:
    """Reads the tokens of a selector one by one, as the parser of ``pkg/labels`` does."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        """Read the whole text."""
        if not self._tokens:
            return
        while True:
            yield self._requirement()
            separator = self._next()
            if separator == "":
                return
            if separator != ",":
                raise self._error(f"found '{separator}', expected: ',' or 'end of string'", prefix="")

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _peek(self) -> str:
        """The next token, empty at the end of the text."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _error(self, reason: str, prefix: str = "unable to parse requirement: ") -> InvalidSelector:
        cure = "use one such as app=web,zone in (a,b),!spot"
        return InvalidSelector(f"{self._text!r} is not a label selector ({reason}); {cure}", prefix + reason)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "DoesNotExist")
        key = self._key()
        written = self._peek()
        if written in ("", ","):
            return Requirement(key, "Exists")
        self._next()
        operator = _WRITTEN_OPERATORS.get(written)
        if operator is None:
            raise self._error(f"found '{written}', expected: in, notin, =, ==, !=, gt, lt")
        if written in ("in", "notin"):
            return Requirement(key, operator, tuple(self._values()))
        value = "" if self._peek() in ("", ",") else self._value(self._next())
        if operator in ("Gt", "Lt") and integer(value) is None:
            raise self._error(f"for 'Gt', 'Lt' operators, the value must be an integer, not {value!r}")
        return Requirement(key, operator, (value,))

    def _key(self) -> str:
        key = self._next()
        if _KEY.fullmatch(key) is None:
            raise self._error(
                f"<nil>: Invalid value: {key!r}: name part must consist of alphanumeric characters"
            )
        return key

    def _value(self, value: str) -> str:
        if _VALUE.fullmatch(value) is None:
            raise self._error(
                f"Invalid value: {value!r}: a valid label must be an empty string or alphanumeric"
            )
        return value

    def _values(self) -> Iterator[str]:
        """Read a list in parentheses; between two commas stands an empty value."""
        opening = self._next()
        if opening != "(":
            raise self._error(f"found '{opening}' expected: '('")
        expects_value = True
        while (found := self._next()) != ")":
            if found == "":
                raise self._error("expected ')'")
            if found != ",":
                yield self._value(found)
                expects_value = False
            else:
                if expects_value:
                    yield ""
                expects_value = True
        if expects_value:
            yield ""
