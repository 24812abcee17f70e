"""The recorded machines that tests of the exporter share."""

from tests.exporter.conftest import machines, recorded, sample

__all__ = ["machines", "recorded", "sample"]
