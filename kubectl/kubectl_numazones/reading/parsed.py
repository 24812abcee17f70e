"""Values on the command line that the library reads, such as the shape ``cpu=16,memory=32Gi``."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from numazones.apimachinery.label_selector import LabelSelector
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import Shape

_Value = TypeVar("_Value")


class _Parsed(click.ParamType[_Value]):
    """Reads a value; the error names the option."""

    def __init__(self, name: str, kind: type[_Value], parse: Callable[[str], _Value]) -> None:
        self.name = name
        self._kind, self._parse = kind, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Value:
        if isinstance(value, self._kind):
            return value
        try:
            return self._parse(str(value))
        except NumazonesError as error:
            return self.fail(str(error), param, ctx)


SHAPE = _Parsed("shape", Shape, Shape.parse)
SELECTOR = _Parsed("selector", LabelSelector, LabelSelector.parse)
