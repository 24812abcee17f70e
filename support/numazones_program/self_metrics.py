"""Metrics that every program has: which version runs, and what the process uses."""

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.process_collector import ProcessCollector


def register(registry: CollectorRegistry, *, prefix: str) -> None:
    """Register ``<prefix>_build_info`` and ``<prefix>_process_*``, read from /proc when asked for."""
    build = Gauge(
        f"{prefix}_build_info",
        "Always 1; the labels give the versions that are running.",
        ("version", "python_version"),
        registry=registry,
    )
    build.labels(version("numazones"), platform.python_version()).set(1)
    ProcessCollector(namespace=prefix, registry=registry)
