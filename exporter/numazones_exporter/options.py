"""The exporter's settings: one frozen value, whatever mixture of file, environment and flags it came from.

Precedence: defaults < YAML file (``--config``) < environment < flags. ``main`` declares the flags, click
merges the layers, and ``Options`` carries the result together with the origin of each value, which
``--dump-config`` shows. Keys of the YAML file are the fields' names in camelCase, as in Kubernetes'
own configuration files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

NUMAZONES = "numazones"
NODE_RESOURCE_TOPOLOGIES = "noderesourcetopologies"
PUBLISHABLE = (NUMAZONES, NODE_RESOURCE_TOPOLOGIES)

Output: TypeAlias = Literal["table", "yaml", "json"]


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
    server: str = ""
    """URL of the API server where no kubeconfig and no pod tells; credentials as in a pod, if any."""
    publish: tuple[str, ...] = (NUMAZONES,)
    """Which objects to maintain, out of ``PUBLISHABLE``."""
    interval: float = 60.0
    """Seconds between readings when nothing happens."""
    metrics_address: str = ":9406"
    """``host:port`` of /metrics, /healthz and /readyz."""
    recordings: bool = False
    """Whether /recording is served there: the node as a bug report needs it, to whoever can connect."""
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
