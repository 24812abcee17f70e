"""The exporter's settings: one frozen value, whatever mixture of file, environment and flags it came from.

``numazones_program.settings`` makes the flags of the fields: each carries its help and how it is written.
"""

# ruff: noqa: RUF009 - a setting is declared by a call, as with dataclasses.field itself

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import click

from numazones_exporter.setting_kinds import NodeNameSetting, ObjectKinds, SourceSetting
from numazones_program.addresses import Address
from numazones_program.settings import DURATION, PATH, REQUIRED, setting

NUMAZONES = "numazones"
NODE_RESOURCE_TOPOLOGIES = "noderesourcetopologies"

LANDLOCK_OFF, LANDLOCK_BEST_EFFORT, LANDLOCK_REQUIRED = "off", "best-effort", "required"

OutputFormat: TypeAlias = Literal["table", "yaml", "json"]


@dataclass(frozen=True, slots=True)
class Options:
    """Every setting of the exporter; durations in seconds."""

    node_name: str = setting(
        REQUIRED,
        "Name of the node.  [default: this machine's host name]",
        kind=NodeNameSetting(),
        metavar="NAME",
        variable="NODE_NAME",
    )
    sysfs: Path = setting(Path("/sys"), "The machine's /sys, or a recorded one.", kind=PATH, metavar="DIR")
    procfs: Path = setting(Path("/proc"), "The machine's /proc, or a recorded one.", kind=PATH, metavar="DIR")
    kubelet_dir: Path = setting(
        Path("/var/lib/kubelet"),
        "The kubelet's directory, with its state files.",
        kind=PATH,
        metavar="DIR",
    )
    podresources: str = setting(
        "",
        "unix:PATH of the kubelet's podresources socket, replay:DIR with podresources_list.pb and "
        "podresources_allocatable.pb, or none.  [default: unix:KUBELET_DIR/pod-resources/kubelet.sock]",
        kind=SourceSetting(
            words=("none",), schemes=("unix", "replay"), metavar="unix:PATH, replay:DIR, none"
        ),
        metavar="SOURCE",
    )
    kubelet_config: str = setting(
        "configz",
        "The kubelet's configuration: configz reads it from the running kubelet, file:PATH reads a "
        "KubeletConfiguration or a saved configz response (YAML or JSON), none reads nothing.",
        kind=SourceSetting(words=("configz", "none"), schemes=("file",), metavar="configz, file:PATH, none"),
        metavar="SOURCE",
    )
    kubelet_version: str = setting(
        "",
        "Version of the kubelet, such as v1.36.2.  [default: as in the Node object]",
        metavar="VERSION",
    )
    kubelet_address: str = setting(
        "",
        "Read configz from the kubelet at this address. This needs only nodes/configz; "
        "through the API server it needs nodes/proxy.",
        metavar="HOST[:PORT]",
        variable="NODE_ADDRESS",
    )
    kubelet_certificate_authority: Path | None = setting(
        None,
        "Certificates to trust at --kubelet-address.  [default: KUBELET_DIR/pki/kubelet.crt and the "
        "cluster's]",
        kind=PATH,
        metavar="FILE",
    )
    pods: str = setting(
        "api",
        "This node's pods: api, file:PATH of a PodList (YAML or JSON, pods of other nodes are ignored), or "
        "none.",
        kind=SourceSetting(words=("api", "none"), schemes=("file",), metavar="api, file:PATH, none"),
        metavar="SOURCE",
    )
    source_timeout: float = setting(10.0, "Time limit for reading a source.", kind=DURATION)
    kubeconfig: Path | None = setting(
        None,
        "Kubeconfig for the connection to the API server.  [default: $KUBECONFIG, the pod's service "
        "account, ~/.kube/config]",
        kind=PATH,
        metavar="FILE",
    )
    server: str = setting(
        "",
        "URL of the API server, if neither a kubeconfig nor the pod's environment provides it; the "
        "service account's files are used if they exist.",
        metavar="URL",
    )
    publish: tuple[str, ...] = setting(
        (NUMAZONES,),
        "Objects to publish: numazones, noderesourcetopologies.",
        kind=ObjectKinds(NUMAZONES, NODE_RESOURCE_TOPOLOGIES),
    )
    interval: float = setting(60.0, "Maximum time between readings.", kind=DURATION)
    metrics_address: str = setting(
        ":9406",
        "Address on which to serve /metrics, /healthz and /readyz.",
        kind=Address(),
        metavar="HOST:PORT",
    )
    probe_address: str = setting(
        "",
        "Separate address for /healthz and /readyz, such as :9416, so that clients of the metrics port "
        "cannot delay the kubelet's probes.  [default: the metrics address only]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    recordings: bool = setting(
        False,
        "Also serve /recording, for kubectl numazones record. Any client that can connect can read the "
        "hardware, the kubelet's settings and state, and which pods hold what.",
        kind=click.BOOL,
    )
    cgroups: Path | None = setting(
        None,
        "The host's /sys/fs/cgroup. With it, metrics show whether the memory of pods with exclusive CPUs "
        "is on the NUMA nodes of those CPUs.",
        kind=PATH,
        metavar="DIR",
    )
    landlock: str = setting(
        LANDLOCK_OFF,
        "Whether the exporter drops its rights to read other files, write files and start programs: off, "
        "best-effort (if the kernel supports it), or required (otherwise the exporter does not start). Use "
        "it in pods only: the exporter cannot read a kubeconfig afterwards.",
        kind=click.Choice([LANDLOCK_OFF, LANDLOCK_BEST_EFFORT, LANDLOCK_REQUIRED]),
    )
    lease_namespace: str = setting(
        "numazones-system",
        "Namespace of the node's liveness Lease.",
        metavar="NAMESPACE",
        variable="KUBERNETES_NAMESPACE",
    )
    lease_duration: float = setting(
        180.0, "How long the NUMAZones count as current after the Lease is renewed.", kind=DURATION
    )
    log_level: str = setting(
        "info",
        "Minimum severity of messages to log.",
        kind=click.Choice(["debug", "info", "warning", "error"]),
    )
    log_format: str = setting("json", "Format of log messages.", kind=click.Choice(["json", "text"]))
    once: bool = setting(False, "Read the node once, print its NUMA nodes and exit.", flags=("--once",))
    output: OutputFormat = setting(
        "table",
        "Output format of --once; json and yaml print a Kubernetes List.",
        kind=click.Choice(["table", "yaml", "json"]),
        flags=("-o", "--output"),
    )
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Field → ``default``, ``file PATH``, ``environment`` or ``flag``."""

    def __post_init__(self) -> None:
        if not self.podresources:
            socket = f"unix:{self.kubelet_dir}/pod-resources/kubelet.sock"
            object.__setattr__(self, "podresources", socket)

    @property
    def asks_api_server(self) -> bool:
        """Return whether any source, or publishing, needs the API server's address or credentials."""
        return not self.once or self.pods == "api" or self.kubelet_config == "configz"
