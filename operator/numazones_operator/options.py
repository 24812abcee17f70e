"""The operator's settings: one frozen value, read from file, environment and flags.

``numazones_program.settings`` makes the flags of the fields: each carries its help and how it is written.
"""

# ruff: noqa: RUF009 - a setting is declared by a call, as with dataclasses.field itself

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from numazones.errors import NumazonesError
from numazones.placement import models
from numazones.placement.fragmentation import InvalidShape, Shape
from numazones.prediction.node_choice import ASKING, NodeChoice, Ranking
from numazones_operator.prevention.extender.certificates import Certificates
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_program.addresses import Address
from numazones_program.settings import DURATION, PATH, Duration, InvalidSetting, SettingKind, setting

_SHAPES = ("cpu=4", "cpu=8", "cpu=16")
EXPORTERS = "exporters"
"""Value of ``--page-usage``: the exporters' pods."""


class _Shapes(SettingKind):
    """Shapes separated by blanks, or a list in the file."""

    name = "shapes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        texts = value.split() if isinstance(value, str) else [str(item) for item in value]
        try:
            return tuple(str(Shape.parse(text)) for text in texts)
        except InvalidShape as error:
            self.fail(str(error), param, ctx)

    def text(self, value: Any) -> str:
        return " ".join(value)


class _ModelSettings(SettingKind):
    """MODEL.NAME=VALUE, separated by blanks, or a list in the file."""

    name = "settings"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        texts = value.split() if isinstance(value, str) else [str(item) for item in value]
        try:
            _settings(texts)
        except NumazonesError as error:
            self.fail(str(error), param, ctx)
        return tuple(texts)

    def text(self, value: Any) -> str:
        return " ".join(value)


def _settings(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        found = models.with_setting(found, text)
    return found


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
        "How to reach the API server.  [default: $KUBECONFIG, the pod's service account, ~/.kube/config]",
        kind=PATH,
        metavar="FILE",
    )
    namespace: str = setting(
        "numazones-operator",
        "The operator's own namespace, with the Lease that replicas elect their leader with.",
        metavar="NAMESPACE",
        variable="KUBERNETES_NAMESPACE",
    )
    exporter_namespace: str = setting(
        "numazones-system", "Namespace of the exporters' Leases.", metavar="NAMESPACE"
    )
    metrics_address: str = setting(
        ":9407", "Where to serve /metrics, /healthz and /readyz.", kind=Address(), metavar="HOST:PORT"
    )
    probe_address: str = setting(
        "",
        "Where to serve /healthz and /readyz on a port of their own, such as :9417, so that clients of the "
        "metrics port cannot keep the kubelet from an answer.  [default: only with the metrics]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    page_address: str = setting(
        "",
        "Where to serve the live page, such as 127.0.0.1:9408. It changes nothing and asks for no password: "
        "keep it on loopback unless only those who may see the whole cluster reach it.  [default: nowhere]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    page_viewers: int = setting(50, "How many may look at the live page at a time.")
    page_usage: str = setting(
        "",
        "Where the live page gets the measured use of CPUs and memory from, while it has viewers: the URL "
        "of a Prometheus that scrapes the exporters, or exporters, which asks these through the API server "
        "and needs the right to get pods/proxy in their namespace.  [default: nowhere]",
        metavar="URL|exporters",
    )
    identity: str = setting(
        "", "Name of this replica in the leader's Lease.  [default: host name and a random part]"
    )
    lead: bool = setting(
        True,
        "Predict, release pods, rebalance. Off, this replica only mirrors the cluster, for the extender that "
        "it serves, and never stands for election.",
    )
    leader_elect: bool = setting(True, "Let one of several replicas write, and the others stand by.")
    leader_elect_lease_duration: float = setting(
        9.0, "How long a silent leader is waited for before another replica takes over.", kind=DURATION
    )
    leader_elect_renew_deadline: float = setting(
        7.5, "How long a leader that cannot renew its Lease goes on before it steps down.", kind=DURATION
    )
    leader_elect_retry_period: float = setting(
        1.5,
        "Time between attempts to acquire the Lease, or to renew it after one that failed; a leader renews "
        "it at every other.",
        kind=DURATION,
    )
    debounce: float = setting(
        0.05, "How long changes are collected before predictions are made anew.", kind=DURATION
    )
    settle: float = setting(
        10.0,
        "How long zones of a node may contradict each other, as they do while they are being written, or "
        "lack a pod that runs there, before the node counts as stale.",
        kind=DURATION,
    )
    candidates: int = setting(5, "How many of the best nodes a prediction names.")
    model_settings: tuple[str, ...] = setting(
        (),
        "What placement models other than the kubelet's have to be told, as MODEL.NAME=VALUE; several are "
        "separated by blanks.  " + _known_settings(),
        kind=_ModelSettings(),
        metavar="NAME=VALUE…",
    )
    write_rate: float = setting(
        100.0, "Most writes to the API server per second; a burst of twice as many is let through."
    )
    event_rate: float = setting(5.0, "Most events per second; a burst of ten times as many is let through.")
    event_interval: float = setting(
        60.0, "Least time between two events about the verdict on one pod.", kind=DURATION
    )
    admission_gate: bool = setting(
        False,
        "Release pods that carry the scheduling gate numazones.io/admission, in namespaces labelled "
        "numazones.io/admission-gate=enabled, as soon as a node would admit them.",
    )
    admission_gate_timeout: float = setting(
        300.0,
        "When a gated pod is released of which nobody knows whether a node would admit it, as when exporters "
        "are down; 0s: never. Pods that are known to be inadmissible wait.",
        kind=Duration(zero=True),
    )
    admission_gate_replace: bool = setting(
        False,
        "Evict a released pod that has never had a node once all nodes that it was released to have been "
        "gone, cordoned or tainted for a minute, if a ReplicaSet, ReplicationController or StatefulSet makes "
        "another one; else an event says what to do.",
    )
    placement: str = setting(
        ASKING[0].value,
        "Which of the nodes that would admit a pod predictions, gate and extender prefer: scarce: "
        "those that keep large free blocks, with points off beside idle devices or huge pages that the pod "
        "does not ask for; best-fit: the same without points off; shapes: those that keep room for further "
        "pods of --shapes, or, where these are not given, of the shapes that RebalancePolicies and waiting "
        "pods name; pack: those whose CPU and memory are requested most; exact: least.",
        kind=click.Choice([choice.value for choice in ASKING]),
    )
    extender_address: str = setting(
        "",
        "Where to answer a kube-scheduler as its extender, such as 127.0.0.1:9409. Who reaches it binds "
        "pods: on any other address than loopback, client certificates are demanded.  [default: nowhere]",
        kind=Address(optional=True),
        metavar="HOST:PORT",
    )
    extender_certificate: Path | None = setting(
        None, "The extender's certificate, a PEM file; read again when it changes.", kind=PATH, metavar="FILE"
    )
    extender_key: Path | None = setting(
        None, "The private key of that certificate, a PEM file.", kind=PATH, metavar="FILE"
    )
    extender_client_ca: Path | None = setting(
        None,
        "The CA of the schedulers' client certificates, a PEM file; it should sign nobody else's.",
        kind=PATH,
        metavar="FILE",
    )
    extender_unknown_nodes: str = setting(
        UnknownNodes.LAST_RESORT.value,
        "What the extender says of nodes whose NUMA state is not known: last-resort: they pass if no node is "
        "known to admit the pod, unless nothing was ever known of them and their exporters run; allow: they "
        "pass; reject: they never pass. None passes that would reject the pod by what was known of it last, "
        "or has rejected one like it since.",
        kind=click.Choice([choice.value for choice in UnknownNodes]),
    )
    rebalance: bool = setting(
        True, "Follow RebalancePolicies: find plans, publish them, carry them out where a policy says so."
    )
    rebalance_period: float = setting(
        1.0, "Time between two looks at policies and recommendations.", kind=DURATION
    )
    rebalance_patience: float = setting(
        300.0,
        "How long a replacement may take to appear in its node's zones before its plan counts as failed.",
        kind=DURATION,
    )
    shapes: tuple[str, ...] = setting(
        _SHAPES,
        "Shapes of pods to report the cluster's fragmentation for, and to keep room for under --placement "
        "shapes, such as cpu=16,memory=32Gi; several are separated by blanks.",
        kind=_Shapes(),
        metavar="SHAPE…",
    )
    page_size: int = setting(500, "Objects per page when listing.")
    watch_duration: float = setting(300.0, "How long one watch lasts.", kind=DURATION)
    watch_silence: float = setting(
        90.0, "How long a watch may say nothing before it counts as dead.", kind=DURATION
    )
    log_level: str = setting("info", "What to log.", kind=click.Choice(["debug", "info", "warning", "error"]))
    log_format: str = setting("json", "How to log.", kind=click.Choice(["json", "text"]))
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
                "--page-address needs a replica that predicts: leave --no-lead or --page-address out"
            )
        if self.page_usage not in ("", EXPORTERS) and not _is_url(self.page_usage):
            raise InvalidSetting(
                f"--page-usage: {self.page_usage!r:.60} is neither {EXPORTERS!r} nor a URL of a Prometheus "
                "such as http://prometheus.monitoring:9090"
            )
        if len({file is None for file in self._certificate_files}) > 1:
            raise InvalidSetting(
                "--extender-certificate, --extender-key and --extender-client-ca belong together: "
                "give all three, or none and a loopback address"
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
