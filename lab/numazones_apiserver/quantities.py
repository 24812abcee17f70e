"""Quantities as the API server writes them back: ``1000m`` becomes ``1``, ``1024Mi`` becomes ``1Gi``.

Only built-in kinds have quantity fields; in custom resources they are strings like any other.
"""

from functools import lru_cache
from typing import Any

from numazones.apimachinery import quantity
from numazones_apiserver.schema import Schema


@lru_cache(maxsize=4096)
def canonical(text: str | float) -> str:
    """The canonical form of one quantity; raises numazones.apimachinery.quantity.InvalidQuantity."""
    return quantity.parse(text).canonical()


def _canonical_value(value: Any) -> str:
    """The same for what stands where a quantity belongs: null is 0, lists and objects are none."""
    if isinstance(value, dict | list):
        raise quantity.InvalidQuantity(f"{value!r:.100} is not a Kubernetes quantity")
    return canonical("0" if value is None else value)


def with_canonical_quantities(value: Any, schema: Schema) -> Any:
    """The value with every quantity in canonical form; what holds none is returned as it is."""
    if schema.format == "quantity":
        return _canonical_value(value)
    if isinstance(value, dict) and (schema.properties or schema.values is not None):
        changed = {}
        for key, item in value.items():
            child = schema.properties.get(key) or schema.values
            if child is not None and (child.format == "quantity" or isinstance(item, dict | list)):
                new = with_canonical_quantities(item, child)
                if new is not item:
                    changed[key] = new
        return {**value, **changed} if changed else value
    if isinstance(value, list) and schema.items is not None and value and not isinstance(value[0], str):
        items = [with_canonical_quantities(item, schema.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
