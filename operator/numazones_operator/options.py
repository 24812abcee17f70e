"""The operator's settings: one frozen value, read from file, environment and flags.

``numazones_program.settings`` makes the flags of the fields: each carries its help and how it is written.
"""

# ruff: noqa: RUF009 - a setting is declared by a call, as with dataclasses.field itself

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from numazones.errors import NumazonesError
from numazones.placement import models
from numazones.placement.fragmentation import Shape
from numazones.prediction.node_choice import ASKING, NodeChoice, Ranking
from numazones_operator.prevention.extender.certificates import Certificates
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_program.addresses import Address
from numazones_program.settings import DURATION, PATH, DurationSetting, InvalidSetting, SettingKind, setting

_SHAPES = ("cpu=4", "cpu=8", "cpu=16")
EXPORTERS = "exporters"
"""Value of ``--page-usage``: the exporters' pods."""


class _Texts(SettingKind):
    """Texts separated by spaces, or a list in the file."""

    def __init__(self, name: str, read: Callable[[Iterable[str]], Iterable[str]]) -> None:
        """``read`` returns the texts as they are kept; it raises where one is wrong."""
        self.name = name
        self._read = read

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        texts = value.split() if isinstance(value, str) else [str(item) for item in value]
        try:
            return tuple(self._read(texts))
        except NumazonesError as error:
            self.fail(str(error), param, ctx)

    def text(self, value: Any) -> str:
        return " ".join(value)


def _shapes(texts: Iterable[str]) -> list[str]:
    return [str(Shape.parse(text)) for text in texts]


def _settings(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        found = models.with_setting(found, text)
    return found


def _checked_settings(texts: Iterable[str]) -> Iterable[str]:
    _settings(texts)
    return texts


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.hostname)


def _known_settings() -> str:
    return "; ".join(
        f"{model.name}.{name}: {text}"
        for model in models.models().values()
        for name, text in model.settings.items()
    )


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Every setting of the operator; durations in seconds."""

    kubeconfig: Path | None = setting(
        None,
        "Kubeconfig file for the API server.  [default: $KUBECONFIG, the pod's service account, "
        "~/.kube/config]",
        kind=PATH,
        metavar="FILE",
    )
    namespace: str = setting(
        "numazones-operator",
        "Namespace of the operator and of its leader election Lease.",
        metavar="NAMESPACE",
        variable="KUBERNETES_NAMESPACE",
    )
    exporter_namespace: str = setting(
        "numazones-system", "Namespace of the exporters' Leases.", metavar="NAMESPACE"
    )
    metrics_address: str = setting(
        ":9407",
        "Address on which to serve /metrics, /healthz and /readyz.",
        kind=Address(),
        metavar="HOST:PORT",
    )
    probe_address: str = setting(
        "",
        "Separate address for /healthz and /readyz, such as :9417, so that clients of the metrics port "
        "cannot delay the kubelet's probes.  [default: the metrics address only]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    page_address: str = setting(
        "",
        "Address of the live page, such as 127.0.0.1:9408. The page is read-only and has no password: "
        "keep it on loopback unless everyone who can connect may see the whole cluster.  [default: not "
        "served]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    page_viewers: int = setting(50, "Maximum number of simultaneous viewers of the live page.")
    page_usage: str = setting(
        "",
        "Source of the CPU and memory usage that the live page shows, read only while the page has "
        "viewers: either the URL of a Prometheus that scrapes the exporters, or the word exporters to "
        "read them through the API server, which requires permission to get pods/proxy in their "
        "namespace.  [default: usage is not shown]",
        metavar="URL|exporters",
    )
    identity: str = setting(
        "", "Name of this replica in the leader election Lease.  [default: host name and a random suffix]"
    )
    lead: bool = setting(
        True,
        "Predict, release pods and rebalance. With --no-lead, this replica never becomes the leader: it "
        "only watches the cluster and serves its extender.",
    )
    leader_elect: bool = setting(True, "Elect a leader: one replica writes, the others are on standby.")
    leader_elect_lease_duration: float = setting(
        9.0, "Time without a renewal after which another replica takes over.", kind=DURATION
    )
    leader_elect_renew_deadline: float = setting(
        7.5, "Time after which a leader that cannot renew its Lease steps down.", kind=DURATION
    )
    leader_elect_retry_period: float = setting(
        1.5,
        "Time between attempts to acquire the Lease, or to renew it after a failure; otherwise a leader "
        "renews it at twice this interval.",
        kind=DURATION,
    )
    debounce: float = setting(0.05, "Time to collect changes before predictions are updated.", kind=DURATION)
    settle: float = setting(
        10.0,
        "Time for which a node's NUMAZones may contradict each other, or not show a pod that is running "
        "there, before the node counts as stale.",
        kind=DURATION,
    )
    candidates: int = setting(5, "Number of candidate nodes to list in each prediction.")
    model_settings: tuple[str, ...] = setting(
        (),
        "Settings of placement models other than the kubelet's, as MODEL.NAME=VALUE, separated by spaces. "
        " " + _known_settings(),
        kind=_Texts("settings", _checked_settings),
        metavar="NAME=VALUE…",
    )
    write_rate: float = setting(
        100.0, "Maximum number of writes to the API server per second, with bursts of up to twice as many."
    )
    event_rate: float = setting(
        5.0, "Maximum number of events per second, with bursts of up to ten times as many."
    )
    event_interval: float = setting(
        60.0, "Minimum time between two events about the verdict for one pod.", kind=DURATION
    )
    admission_gate: bool = setting(
        False,
        "Release pods that carry the scheduling gate numazones.io/admission, in namespaces labelled "
        "numazones.io/admission-gate=enabled, as soon as a node would admit them.",
    )
    admission_gate_timeout: float = setting(
        300.0,
        "Time after which a gated pod is released even if it is unknown whether a node would admit it, "
        "for example because exporters are down; 0s means never. Pods that no node would admit keep "
        "waiting.",
        kind=DurationSetting(zero=True),
    )
    admission_gate_replace: bool = setting(
        False,
        "Evict a released pod that still has no node if all nodes that the gate chose for it have been gone, "
        "cordoned or tainted for a minute, and a ReplicaSet, ReplicationController or StatefulSet will "
        "recreate it; otherwise an event says what to do.",
    )
    placement: str = setting(
        ASKING[0].value,
        "How predictions, the gate and the extender rank the nodes that would admit a pod. best-fit keeps "
        "large blocks free; scarce does the same and also avoids nodes with idle devices or huge pages "
        "that the pod does not request; shapes keeps room for the shapes in --shapes or, if that is not "
        "set, for those of RebalancePolicies and waiting pods; pack prefers nodes with the most requested "
        "CPU and memory; exact prefers those with the least.",
        kind=click.Choice([choice.value for choice in ASKING]),
    )
    extender_address: str = setting(
        "",
        "Address of the extender for kube-scheduler, such as 127.0.0.1:9409. Clients of the extender can "
        "bind pods, so on any address other than loopback they need a client certificate.  [default: not "
        "served]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    extender_certificate: Path | None = setting(
        None, "PEM file with the extender's certificate; reloaded when it changes.", kind=PATH, metavar="FILE"
    )
    extender_key: Path | None = setting(
        None, "PEM file with the private key of that certificate.", kind=PATH, metavar="FILE"
    )
    extender_client_ca: Path | None = setting(
        None,
        "PEM file with the CA for the schedulers' client certificates; it should sign nothing else.",
        kind=PATH,
        metavar="FILE",
    )
    extender_unknown_nodes: str = setting(
        UnknownNodes.LAST_RESORT.value,
        "How the extender treats nodes whose NUMA state is unknown. last-resort lets them pass if no node "
        "is known to admit the pod, except nodes that have a running exporter but whose state has never "
        "been known; allow lets them pass; reject does not. Nodes that would reject the pod in their last "
        "known state, or that have rejected a similar pod since, never pass.",
        kind=click.Choice([choice.value for choice in UnknownNodes]),
    )
    rebalance: bool = setting(
        True,
        "Follow RebalancePolicies: search for plans, publish them, and run them if the policy allows it.",
    )
    rebalance_period: float = setting(
        1.0, "Time between two checks of policies and recommendations.", kind=DURATION
    )
    rebalance_patience: float = setting(
        300.0,
        "Time within which a replacement must appear in its node's NUMAZones; otherwise its plan fails.",
        kind=DURATION,
    )
    shapes: tuple[str, ...] = setting(
        _SHAPES,
        "Pod shapes, such as cpu=16,memory=32Gi, separated by spaces. Fragmentation is reported for them, "
        "and --placement shapes keeps room for them.",
        kind=_Texts("shapes", _shapes),
        metavar="SHAPE…",
    )
    page_size: int = setting(500, "Number of objects per page of a list request.")
    watch_duration: float = setting(300.0, "Maximum duration of a watch request.", kind=DURATION)
    watch_silence: float = setting(
        90.0, "Time without data after which a watch is considered dead.", kind=DURATION
    )
    log_level: str = setting(
        "info",
        "Minimum severity of messages to log.",
        kind=click.Choice(["debug", "info", "warning", "error"]),
    )
    log_format: str = setting("json", "Format of log messages.", kind=click.Choice(["json", "text"]))
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Field → ``default``, ``file PATH``, ``environment`` or ``flag``."""

    def __post_init__(self) -> None:
        if not self.leader_elect_retry_period < self.leader_elect_renew_deadline:
            raise InvalidSetting(
                "--leader-elect-retry-period must be shorter than --leader-elect-renew-deadline"
            )
        if not self.leader_elect_renew_deadline < self.leader_elect_lease_duration:
            raise InvalidSetting(
                "--leader-elect-renew-deadline must be shorter than --leader-elect-lease-duration"
            )
        for name in ("candidates", "write_rate", "event_rate", "page_size", "page_viewers"):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"--{name.replace('_', '-')} must be more than 0")
        if not self.lead and self.page_address:
            raise InvalidSetting(
                "--page-address needs a replica that predicts: omit either --no-lead or --page-address"
            )
        if self.page_usage not in ("", EXPORTERS) and not _is_url(self.page_usage):
            raise InvalidSetting(
                f"--page-usage: {self.page_usage!r:.60} is neither {EXPORTERS!r} nor the URL of a "
                "Prometheus, such as http://prometheus.monitoring:9090"
            )
        if len({file is None for file in self._certificate_files}) > 1:
            raise InvalidSetting(
                "--extender-certificate, --extender-key and --extender-client-ca must be set together: "
                "set all three, or none of them and a loopback address"
            )

    @property
    def target_shapes(self) -> tuple[Shape, ...]:
        """The shapes, parsed."""
        return tuple(Shape.parse(text) for text in self.shapes)

    @property
    def collects_shapes(self) -> bool:
        """Return whether the operator collects shapes that others name, to keep room for them."""
        given = self.origins.get("shapes", "default") != "default" or self.shapes != _SHAPES
        return self.placement == NodeChoice.SHAPES and not given

    @property
    def ranking(self) -> Ranking:
        """Return the sort order of nodes that would admit a pod."""
        return Ranking(NodeChoice(self.placement), self.target_shapes)

    @property
    def _certificate_files(self) -> tuple[Path | None, ...]:
        return (self.extender_certificate, self.extender_key, self.extender_client_ca)

    @property
    def extender_certificates(self) -> Certificates | None:
        """Return the extender's certificate and client CA; None: it serves loopback alone."""
        certificate, key, client_ca = self._certificate_files
        if certificate is None or key is None or client_ca is None:
            return None
        return Certificates(certificate, key, client_ca)

    @property
    def settings_of_models(self) -> dict[str, str]:
        """The settings of placement models, by MODEL.NAME."""
        return _settings(self.model_settings)
