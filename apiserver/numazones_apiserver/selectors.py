"""Which objects a list, a watch or a deletecollection means: label and field selectors.

The grammar is apimachinery's pkg/labels and pkg/fields; which fields may be selected differs by
kind and is part of the kind's entry in the registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from numazones_apiserver.errors import ApiError, Object, bad_request

_TOKEN = re.compile(r"\s*(!=|==|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_NAME = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label; `operator` is in, notin, exists, !, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the condition."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = int(next(iter(self.values)))
        try:
            number = int(value) if value is not None else None
        except ValueError:
            return False
        return number is not None and (number > bound if self.operator == "gt" else number < bound)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Conditions that must all hold."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet every condition."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens(text)
        self.at = 0

    def _tokens(self, text: str) -> list[str]:
        tokens, at = [], 0
        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"unexpected {text[at:]!r}")
            tokens.append(found.group(1))
            at = found.end()
        return tokens

    def error(self, why: str) -> ApiError:
        return bad_request(f"unable to parse requirement: {why}")

    def next(self) -> str:
        if self.at >= len(self.tokens):
            return ""
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self.tokens:
            return found
        while True:
            found.append(self.requirement())
            separator = self.next()
            if separator == "":
                return found
            if separator != ",":
                raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")

    def key(self) -> str:
        key = self.next()
        if not _NAME.match(key):
            raise self.error(
                f"<nil>: Invalid value: {key!r}: name part must consist of alphanumeric characters"
            )
        return key

    def value(self, value: str) -> str:
        if not _VALUE.match(value):
            raise self.error(
                f"Invalid value: {value!r}: a valid label must be an empty string or alphanumeric"
            )
        return value

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.next()
            return Requirement(self.key(), "!")
        key = self.key()
        operator = self.peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self.next()
        if operator in ("in", "notin"):
            return Requirement(key, operator, frozenset(self.values()))
        if operator not in ("=", "==", "!=", "<", ">"):
            raise self.error(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        value = "" if self.peek() in ("", ",") else self.value(self.next())
        if operator in ("<", ">"):
            if not re.fullmatch(r"[-+]?\d+", value):
                raise self.error(f"for 'Gt', 'Lt' operators, the value must be an integer, not {value!r}")
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset([value]))
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset([value]))

    def values(self) -> list[str]:
        opening = self.next()
        if opening != "(":
            raise self.error(f"found '{opening}' expected: '('")
        values: list[str] = []
        expects_value = True
        while True:
            found = self.next()
            if found == ")":
                return [*values, ""] if expects_value else values
            if found == "":
                raise self.error("expected ')'")
            if found == ",":
                if expects_value:
                    values.append("")
                expects_value = True
            else:
                values.append(self.value(found))
                expects_value = False


def parse_labels(text: str) -> LabelSelector:
    """A label selector from its query parameter; raises ApiError 400."""
    return LabelSelector(tuple(_Parser(text).requirements()))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on one selectable field."""

    field: str
    value: str
    negated: bool
    read: Callable[[Object], str]

    def matches(self, obj: Object) -> bool:
        """Whether the object's field equals the value (or not, when negated)."""
        return (self.read(obj) == self.value) is not self.negated


def _split_fields(text: str) -> Iterable[tuple[str, bool, str]]:
    for term in re.split(r"(?<!\\),", text):
        if not term.strip():
            continue
        found = re.match(r"^(.*?)(!=|==|=)(.*)$", term, re.DOTALL)
        if found is None:
            raise bad_request(
                f"invalid field selector: {text}: invalid selector: '{text}'; can't understand '{term}'"
            )
        value = re.sub(r"\\([\\,=])", r"\1", found.group(3))
        yield found.group(1).strip(), found.group(2) == "!=", value.strip()


def parse_fields(
    text: str, readers: Mapping[str, Callable[[Object], str]], *, custom: bool = False
) -> tuple[FieldTerm, ...]:
    """A field selector; `readers` are the kind's selectable fields. Raises ApiError 400."""
    terms = []
    for field, negated, value in _split_fields(text):
        if field not in readers and set(readers) <= {"metadata.name", "metadata.namespace"} and not custom:
            known = ", ".join(f'"{name}"' for name in readers)
            raise bad_request(f'"{field}" is not a known field selector: only {known}')
        if field not in readers:
            raise bad_request(f"field label not supported: {field}")
        terms.append(FieldTerm(field, value, negated, readers[field]))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """Everything a request says about which objects it means, except their namespace."""

    labels: LabelSelector = LabelSelector()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether nothing is filtered out."""
        return not self.labels.requirements and not self.fields

    def matches(self, obj: Object) -> bool:
        """Whether the object is meant."""
        if self.fields and not all(term.matches(obj) for term in self.fields):
            return False
        if not self.labels.requirements:
            return True
        return self.labels.matches(obj["metadata"].get("labels") or {})
