"""Shapes of pods on the command line: ``cpu=16,memory=32Gi``."""

from typing import Any

import click

from numazones.placement.fragmentation import InvalidShape, Shape


class ShapeType(click.ParamType[Shape]):
    """Reads a shape; the error names the option."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shape:
        """Return the shape."""
        if isinstance(value, Shape):
            return value
        try:
            return Shape.parse(str(value))
        except InvalidShape as error:
            return self.fail(str(error), param, ctx)
