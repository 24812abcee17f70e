"""Quantities as the API server writes them back: `1000m` becomes `1`, `1024Mi` becomes `1Gi`.

Only built-in kinds have quantity fields; in custom resources they are strings like any other.
The rule is resource.Quantity's canonical form: the largest unit of the same family that needs no
fraction, amounts below 1024 without a binary unit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from numazones import quantity
from numazones_simulator.apiserver.schema import Schema

_NANO = 10**9
_LARGEST_SCALE = 18
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


@lru_cache(maxsize=4096)
def canonical(text: str | float) -> str:
    """The canonical form of one quantity; raises numazones.quantity.InvalidQuantity."""
    parsed = quantity.parse(text)
    written = str(text).strip()
    if re.search(r"[KMGTPE]i$", written) and abs(parsed.nanos) >= 1024 * _NANO:
        return quantity.format_bytes(parsed.value())
    if parsed.nanos == 0:
        return "0"
    amount, scale = parsed.nanos, -9
    while amount % 1000 == 0 and scale < _LARGEST_SCALE:
        amount //= 1000
        scale += 3
    if re.search(r"[eE][+-]?\d+$", written):
        return f"{amount}e{scale}" if scale else str(amount)
    return f"{amount}{_DECIMAL[(scale + 9) // 3]}"


def normalised(value: Any, schema: Schema) -> Any:
    """The value with every quantity in canonical form; what holds none is returned as it is."""
    if schema.format == "quantity":
        return canonical(value) if value is not None else value
    if isinstance(value, dict) and (schema.properties or schema.values is not None):
        changed = {}
        for key, item in value.items():
            if not isinstance(item, dict | list | str | int | float):
                continue
            child = schema.properties.get(key) or schema.values
            if child is not None and (child.format == "quantity" or isinstance(item, dict | list)):
                new = normalised(item, child)
                if new is not item:
                    changed[key] = new
        return {**value, **changed} if changed else value
    if isinstance(value, list) and schema.items is not None and value and not isinstance(value[0], str):
        items = [normalised(item, schema.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
