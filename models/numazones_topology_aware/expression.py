"""Expressions that select containers: ``{key: labels/app, operator: In, values: [a, b]}``.

Keys are paths into the container (``name``, ``labels/KEY``, ``pod/name`` …); a key that starts with a
colon joins several. Two defects of the code are kept: ``pod/qosclass`` is accepted but never resolves,
and so is ``uid`` of a container.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numazones_topology_aware import glob, go_yaml
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.sandbox import ContainerSpec, Sandbox

EQUALS, NOT_EQUAL = "Equals", "NotEqual"
IN, NOT_IN = "In", "NotIn"
EXISTS, NOT_EXIST = "Exists", "NotExist"
MATCHES, MATCHES_NOT = "Matches", "MatchesNot"
MATCHES_ANY, MATCHES_NONE = "MatchesAny", "MatchesNone"
ALWAYS_TRUE = "AlwaysTrue"

# Operator → how many values it takes; None: any number.
_VALUES: Mapping[str, int | None] = {
    EQUALS: 1, NOT_EQUAL: 1, MATCHES: 1, MATCHES_NOT: 1,
    EXISTS: 0, NOT_EXIST: 0, ALWAYS_TRUE: 0,
    IN: None, NOT_IN: None, MATCHES_ANY: None, MATCHES_NONE: None,
}  # fmt: skip
_PLAIN_KEYS = frozenset({"id", "uid", "name", "namespace", "qosclass"})
_MAP_KEYS = frozenset({"labels", "tags"})
_MIN_JOINT = 4
_NO_SEPARATORS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/.")


@dataclass(frozen=True, slots=True)
class Subject:
    """A container for which an expression holds or not."""

    sandbox: Sandbox
    container: ContainerSpec

    def resolve(self, key: str) -> str | None:
        """Return the value of a key; None where there is none."""
        first, _, rest = posixpath.normpath(key).partition("/")
        if first == "pod":
            return self._of_pod(rest)
        if first == "labels":
            return self.container.labels.get(rest)
        plain = {
            "name": self.container.name,
            "namespace": self.sandbox.namespace,
            "qosclass": self.sandbox.qos.value,
            "id": self.container.id,
        }
        return None if rest else plain.get(first)

    def _of_pod(self, key: str) -> str | None:
        first, _, rest = key.partition("/")
        if first == "labels":
            return self.sandbox.labels.get(rest)
        plain = {
            "name": self.sandbox.name,
            "namespace": self.sandbox.namespace,
            "id": self.sandbox.id,
            "uid": self.sandbox.uid,
        }
        return None if rest else plain.get(first)


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression."""

    operator: str
    key: str = ""
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any) -> "Expression":
        """Read an expression of an annotation.

        Raises:
            InvalidDocument: it is none; with the reason.
        """
        read = go_yaml.fields(value, "key", "operator", "values", strict=True)
        expression = cls(
            go_yaml.text(read.get("operator")),
            go_yaml.text(read.get("key")),
            go_yaml.texts(read.get("values")),
        )
        expression.check()
        return expression

    def check(self) -> None:
        """Reject unknown keys and operators and wrong numbers of values.

        Raises:
            InvalidDocument: with the reason.
        """
        for key in _split(self.key)[0]:
            _check_key(key)
        if self.operator not in _VALUES:
            raise InvalidDocument(f"unknown operator {self.operator!r}")
        wanted = _VALUES[self.operator]
        if wanted is not None and len(self.values) != wanted:
            raise InvalidDocument(f"{self.operator} takes {wanted or 'no'} value{'s' if wanted != 1 else ''}")

    def holds(self, subject: Subject) -> bool:
        """Return whether a container is selected."""
        if self.operator == ALWAYS_TRUE:
            return True
        value = self._value(subject)
        if self.operator in {EXISTS, NOT_EXIST}:
            return (value is None) is (self.operator == NOT_EXIST)
        return _TESTS[self.operator](value, self.values)

    def _value(self, subject: Subject) -> str | None:
        keys, separator = _split(self.key)
        found = [subject.resolve(key) for key in keys]
        if all(value is None for value in found):
            return None
        return separator.join(value or "" for value in found)


def _equals(value: str | None, values: tuple[str, ...]) -> bool:
    return value is not None and any(wanted in {value, "*"} for wanted in values)


def _matches(value: str | None, values: tuple[str, ...]) -> bool:
    return value is not None and any(glob.valid(one) and glob.matches(one, value) for one in values)


_TESTS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    EQUALS: _equals,
    NOT_EQUAL: lambda value, values: value is None or value != values[0],  # here * is not special
    IN: _equals,
    NOT_IN: lambda value, values: not _equals(value, values),
    MATCHES: _matches,
    MATCHES_NOT: lambda value, values: not _matches(value, values),
    MATCHES_ANY: _matches,
    MATCHES_NONE: lambda value, values: not _matches(value, values),
}


def _split(key: str) -> tuple[list[str], str]:
    """Return the keys of a joint key, and what their values are joined with."""
    if len(key) < _MIN_JOINT or key[0] != ":":
        return [key], ""
    key = key[1:]
    if key[0] not in _NO_SEPARATORS and key[1] not in _NO_SEPARATORS:
        return key[2:].split(key[0]), key[1]
    return key.split(":"), ":"


def _check_key(key: str) -> None:
    rest = key.lstrip("/")
    while True:
        first, _, rest = rest.partition("/")
        if first in _MAP_KEYS or first == "pod":
            if not rest:
                raise InvalidDocument(f"the key {key!r} ends with {first!r}; more must follow")
            if first in _MAP_KEYS:
                return
        elif first not in _PLAIN_KEYS:
            raise InvalidDocument(f"unknown key {key!r}")
        elif rest:
            raise InvalidDocument(f"the key {key!r} continues after {first!r}, which has no parts")
        if not rest:
            return
