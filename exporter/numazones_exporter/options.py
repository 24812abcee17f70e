"""The exporter's settings: one frozen value, whatever mixture of file, environment and flags it came from.

Precedence: defaults < YAML file (``--config``) < environment < flags. ``main`` declares the flags, click
merges the layers, and ``Options`` carries the result together with the origin of each value, which
``--dump-config`` shows. Keys of the YAML file are the fields' names in camelCase, as in Kubernetes'
own configuration files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from numazones.errors import NumazonesError

NUMAZONES = "numazones"
NODE_RESOURCE_TOPOLOGIES = "noderesourcetopologies"
PUBLISHABLE = (NUMAZONES, NODE_RESOURCE_TOPOLOGIES)

Output: TypeAlias = Literal["table", "yaml", "json"]

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


class InvalidOptions(NumazonesError):
    """A setting cannot be used; the message names it, where it came from and the cure."""


@dataclass(frozen=True, slots=True)
class Options:
    """Every setting of the exporter; durations in seconds, sizes in bytes."""

    node_name: str
    """The node to describe: ``--node-name``, else $NODE_NAME, else this machine's host name."""
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    """The kubelet's root directory: state files, ``device-plugins/``, ``pod-resources/``."""
    podresources: str = ""
    """``unix:PATH``, ``replay:DIR`` or ``none``; empty: the socket in ``kubelet_dir``."""
    kubelet_config: str = "configz"
    """``configz``, ``file:PATH`` or ``none``."""
    kubelet_version: str = ""
    """Release of the kubelet, such as v1.36.2; empty: ask the API server where one is used."""
    kubelet_address: str = ""
    """Host (and port) to ask for configz without a detour over the API server; empty: ask the API server."""
    kubelet_certificate_authority: Path | None = None
    """What to trust on that connection; None: the kubelet's own certificate, else the cluster's authority."""
    pods: str = "api"
    """``api``, ``file:PATH`` or ``none``."""
    source_timeout: float = 10.0
    """Seconds after which one source counts as hanging."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG, the service account of the pod, then ~/.kube/config."""
    publish: tuple[str, ...] = (NUMAZONES,)
    """Which objects to maintain, out of ``PUBLISHABLE``."""
    interval: float = 60.0
    """Seconds between readings when nothing happens."""
    metrics_address: str = ":9406"
    """``host:port`` of /metrics, /healthz and /readyz."""
    lease_namespace: str = "numazones-system"
    """Where the liveness Lease of the node lives."""
    lease_duration: float = 180.0
    """Seconds after which readers take a node whose Lease was not renewed as stale."""
    log_level: str = "info"
    log_format: str = "json"
    """``json`` or ``text``."""
    once: bool = False
    output: Output = "table"
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Field → ``default``, ``file PATH``, ``environment`` or ``flag``."""

    def __post_init__(self) -> None:
        if not self.podresources:
            socket = f"unix:{self.kubelet_dir}/pod-resources/kubelet.sock"
            object.__setattr__(self, "podresources", socket)

    @property
    def asks_api_server(self) -> bool:
        """Whether any source, or publishing, needs the API server's address or credentials."""
        return not self.once or self.pods == "api" or self.kubelet_config == "configz"


def file_key(name: str) -> str:
    """Turn a field's name into its key in the YAML file: ``kubelet_dir`` → ``kubeletDir``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def parse_duration(text: str | float) -> float:
    """Read seconds from ``90``, ``90s``, ``1m30s``, ``500ms`` or ``2h``.

    Raises:
        InvalidOptions: the text is no positive duration.
    """
    if isinstance(text, str):
        stripped = text.strip()
        if _DURATION.fullmatch(stripped):
            seconds = sum(
                float(amount) * _SECONDS_PER_UNIT[unit] for amount, unit in _DURATION_PART.findall(stripped)
            )
        else:
            try:
                seconds = float(stripped)
            except ValueError:
                seconds = 0.0
    else:
        seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise InvalidOptions(f"{text!r} is no duration; write a positive time such as 60s, 1m30s or 500ms")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds so that ``parse_duration`` reads them again: ``60s``, ``500ms``."""
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    return f"{seconds * 1000:g}ms"


def as_file(options: Options) -> list[tuple[str, Any, str]]:
    """Rows (key, plain value, origin) of the effective configuration, in the fields' order."""
    return [
        (
            file_key(item.name),
            _plain(item.name, getattr(options, item.name)),
            options.origins.get(item.name, "default"),
        )
        for item in fields(options)
        if item.name != "origins"
    ]


def _plain(name: str, value: Any) -> Any:
    if name in {"source_timeout", "interval", "lease_duration"}:
        return format_duration(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else "" if value is None else value
