"""Selectors of devices: the expressions (CEL) of device classes and of requests.

Rules: ``k8s.io/dynamic-resource-allocation/cel`` of Kubernetes 1.36. An expression sees ``device`` with
``driver``, ``attributes`` and ``capacity`` by domain, and ``allowMultipleAllocations``. What cannot be
evaluated here is ``Unsupported`` by name: the answer is Unknown then, never a guess.
"""

import re
from functools import lru_cache
from typing import Any

from numazones.apimachinery.cel.environment import Compiled, Environment, InvalidExpression, type_text
from numazones.apimachinery.cel.values import DefaultingMap, Failure, Unsupported, Value, semver, type_name
from numazones.dra.devices import LISTS, PublishedDevice

_FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_HAS = re.compile(rf"(?<![\w.])(has\s*\(\s*)device(\s*\.\s*(?:{'|'.join(_FIELDS)})\s*\))")
_STAND_IN = "dev1ce"
"""What ``has(device.driver)`` is read from, since the checker takes ``device.driver`` for one variable."""
_UNDECLARED = re.compile(r"undeclared reference to 'device\.(\w+)[^']*' \(in container ''\)")
_WHOLE = "undeclared reference to 'device' (in container '')"
_NOT_BOOL = "must evaluate to bool or the unknown type, not {}"
_TO_BOOL = "CEL result of type {0} could not be converted to bool: unsupported {1} conversion from {2} to {3}"


class InvalidDeviceSelector(Exception):
    """An expression cannot be compiled; the message is that of the scheduler."""


class DeviceSelector:
    """One expression, compiled."""

    __slots__ = ("_compiled", "_lists", "text")

    def __init__(self, text: str, compiled: Compiled, *, lists: bool) -> None:
        self.text, self._compiled, self._lists = text, compiled, lists

    def evaluate(self, device: PublishedDevice, *, shareable: bool) -> tuple[bool | Failure, int]:
        """Return whether a device meets it, or the error, and what the evaluation cost.

        ``shareable``: whether expressions are told that it can be allocated several times.

        Raises:
            Unsupported: the evaluation came to something that is not known here.
        """
        values = _values(device, lists=self._lists)
        if isinstance(values, Failure):
            return values, 0
        values["device.allowMultipleAllocations"] = shareable
        result, cost = self._compiled.program.evaluate(values)
        if isinstance(result, (bool, Failure)):
            return result, cost
        return _not_bool(result), cost


@lru_cache(maxsize=1024)  # few expressions serve thousands of devices
def selector(text: str, *, lists: bool = False) -> DeviceSelector:
    """Compile an expression.

    ``lists``: whether attributes may be lists (DRAListTypeAttributes).

    Raises:
        InvalidDeviceSelector: it cannot be compiled; the scheduler gives up on the pod.
        Unsupported: Kubernetes can evaluate it, and we cannot.
    """
    translated = _HAS.sub(rf"\g<1>{_STAND_IN}\g<2>", text)
    try:
        compiled = _environment(lists=lists).compile(translated)
    except InvalidExpression as error:
        message = str(error).replace(_STAND_IN, "device")
        if text.strip() == "device":
            raise InvalidDeviceSelector(_NOT_BOOL.format("kubernetes.DRADevice")) from error
        if _WHOLE in message:
            raise Unsupported("device as a whole, without one of its fields") from error
        raise InvalidDeviceSelector(_UNDECLARED.sub(r"undefined field '\1'", message)) from error
    if compiled.type not in (("bool",), ("any",), *([("dyn",)] if lists else [])):
        raise InvalidDeviceSelector(_NOT_BOOL.format(type_text(compiled.type)))
    return DeviceSelector(text, compiled, lists=lists)


@lru_cache(maxsize=2)
def _environment(*, lists: bool) -> Environment:
    kind = "dyn" if lists else "any"
    return Environment(
        {
            "device.driver": "string",
            "device.attributes": "{{" + kind + "}}",
            "device.capacity": "{{quantity}}",
            "device.allowMultipleAllocations": "bool",
            _STAND_IN: "{dyn}",
        },
        ("dyn.includes(dyn) bool",),
    )


_PRESENT = dict.fromkeys(_FIELDS, True)


def _values(device: PublishedDevice, *, lists: bool) -> dict[str, Value] | Failure:
    """The variables of an evaluation; a Failure where an attribute has no value that expressions can take."""
    attributes, capacity, driver = DefaultingMap(), DefaultingMap(), device.driver
    for name, (kind, value) in device.attributes.items():
        if kind not in _PLAIN:
            value = _value(kind, value, lists=lists)  # noqa: PLW2901 - of the same attribute
            if isinstance(value, Failure):
                return Failure(f"attribute {name}: {value.message}")
        domain, short = _split(name)
        attributes.setdefault(domain or driver, {})[short] = value
    for name, one in device.capacities.items():
        domain, short = _split(name)
        capacity.setdefault(domain or driver, {})[short] = one.value
    return {
        "device.driver": driver,
        "device.attributes": attributes,
        "device.capacity": capacity,
        _STAND_IN: _PRESENT,
    }


_PLAIN = frozenset({"int", "bool", "string"})


@lru_cache(maxsize=4096)
def _split(name: str) -> tuple[str, str]:
    """Domain and rest of a name; no domain: it is the driver's."""
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else ("", name)


def _value(kind: str, value: Any, *, lists: bool) -> Value:
    if kind == "version":
        return _version(value)
    if kind not in LISTS or not lists:
        return Failure("unsupported attribute value")
    if kind != "versions":
        return value
    found = tuple(map(_version, value))
    return next((one for one in found if isinstance(one, Failure)), found)


@lru_cache(maxsize=1024)
def _version(text: Any) -> Value:
    found = semver(text)
    return Failure(f"parse semantic version: {found.message}") if isinstance(found, Failure) else found


_NATIVE = ("string", "bytes", "double")


def _not_bool(value: Value) -> Failure:
    kind = type_name(value)
    how = ("native", kind, "'bool'") if kind in _NATIVE else ("type", f"'{kind}'", "bool")
    return Failure(_TO_BOOL.format(kind, *how))
