"""Devices that a DeviceClass selects, for simple expressions; others are Unknown.

Most classes name their driver, and perhaps the kind of device, so these forms are understood, joined by
``&&``: ``device.driver == "D"``, ``device.attributes["D"].NAME == VALUE`` and ``device.attributes["D"].NAME``
for a boolean. Of any other expression (CEL) it is not known which devices it selects; nothing is guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.dra import fields
from numazones.dra.devices import PublishedDevice, Value
from numazones.errors import NumazonesError

KIND: Final = "DeviceClass"

_TEXT = r"\"([^\"\\]*)\"|'([^'\\]*)'"
_DRIVER = re.compile(rf"device\.driver\s*==\s*(?:{_TEXT})")
_ATTRIBUTE = re.compile(
    rf"device\.attributes\[(?:{_TEXT})\]\.([A-Za-z_]\w*)(?:\s*==\s*(?:{_TEXT}|(-?[0-9]{{1,18}})|(true|false)))?"
)
_AND = "&&"


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass as far as it selects devices."""

    name: str
    extended_resource: str = ""
    """The extended resource that asks for its devices (KEP-5004)."""
    selectors: tuple[str, ...] = ()
    """Expressions (CEL), all of which a device has to meet."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "DeviceClass":
        """Read a DeviceClass of resource.k8s.io/v1.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.
        """
        metadata, spec, _ = parts_of(body, KIND)
        try:
            expressions = tuple(
                fields.text(fields.part(one, "cel"), "expression") for one in fields.parts(spec, "selectors")
            )
            return cls(metadata["name"], fields.text(spec, "extendedResourceName"), expressions)
        except (NumazonesError, *MALFORMED) as error:
            raise invalid(body, KIND, error) from error

    def selects(self, device: PublishedDevice) -> bool | None:
        """Return whether it means a device; None where an expression is not understood.

        >>> own = DeviceClass("gpu", selectors=('device.driver == "gpu.example"',))
        >>> [own.selects(Device(driver, "pool", "0")) for driver in ("gpu.example", "nic.example")]
        [True, False]
        """
        unknown = False
        for expression in self.selectors:
            for term in _terms(expression):
                found = _meets(term, device)
                if found is False:
                    return False
                unknown |= found is None
        return None if unknown else True


def _terms(expression: str) -> list[str]:
    """The parts that ``&&`` joins; an expression of another build remains one that is not understood."""
    if any(mark in expression for mark in ("||", "?", "(", ")", "!")):
        return [expression]
    return [term.strip() for term in expression.split(_AND)]


def _meets(term: str, device: PublishedDevice) -> bool | None:
    if found := _DRIVER.fullmatch(term):
        return device.driver == _first(found[1], found[2])
    found = _ATTRIBUTE.fullmatch(term)
    if found is None:
        return None
    value = device.attributes.get(f"{_first(found[1], found[2])}/{found[3]}")
    wanted = _literal(*found.groups()[3:])
    # An attribute that is absent, or of another type, is an error of the expression.
    if value is None or type(value) is not type(wanted):
        return None
    return value == wanted


def _literal(double: str | None, single: str | None, integer: str | None, boolean: str | None) -> Value:
    if integer is not None:
        return int(integer)
    if double is not None or single is not None:
        return _first(double, single)
    return boolean != "false"


def _first(one: str | None, other: str | None) -> str:
    return one if one is not None else other or ""
