"""The operator's settings: one frozen value, whatever mixture of file, environment and flags it came from.

Precedence: defaults < YAML file (``--config``) < environment < flags. Each field carries its help text;
``command`` makes the flags of them, click merges the layers, and ``--dump-config`` shows the result with the
origin of each value. Keys of the YAML file are the fields' names in camelCase, as in Kubernetes' own files.
"""

# ruff: noqa: RUF009 - a setting is declared by a call, as with dataclasses.field itself

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from numazones.fragmentation import Shape
from numazones_koordinator.scheduler import SCHEDULER_NAME
from numazones_program.settings import InvalidSetting


def _setting(default: Any, text: str, *, kind: str = "", metavar: str | None = None) -> Any:
    """Declare a setting: its default, its help, and how it is written (``kind``)."""
    return field(default=default, metadata={"help": text, "kind": kind, "metavar": metavar})


@dataclass(frozen=True, slots=True)
class Options:
    """Every setting of the operator; durations in seconds."""

    kubeconfig: Path | None = _setting(
        None,
        "How to reach the API server.  [default: $KUBECONFIG, the pod's service account, ~/.kube/config]",
        kind="path",
        metavar="FILE",
    )
    namespace: str = _setting(
        "numazones-operator",
        "The operator's own namespace, with the Lease that replicas elect their leader with.",
        metavar="NAMESPACE",
    )
    exporter_namespace: str = _setting(
        "numazones-system", "Namespace of the exporters' Leases.", metavar="NAMESPACE"
    )
    metrics_address: str = _setting(
        ":9407", "Where to serve /metrics, /healthz and /readyz.", kind="address", metavar="HOST:PORT"
    )
    page_address: str = _setting(
        "",
        "Where to serve the live page, such as 127.0.0.1:9408. It changes nothing and asks for no password: "
        "keep it on loopback unless only those who may see the whole cluster reach it.  [default: nowhere]",
        kind="address or none",
        metavar="HOST:PORT",
    )
    page_viewers: int = _setting(50, "How many may look at the live page at a time.")
    identity: str = _setting(
        "", "Name of this replica in the leader's Lease.  [default: host name and a random part]"
    )
    leader_elect: bool = _setting(True, "Let one of several replicas write, and the others stand by.")
    leader_elect_lease_duration: float = _setting(
        9.0, "How long a silent leader is waited for before another replica takes over.", kind="duration"
    )
    leader_elect_renew_deadline: float = _setting(
        6.0, "How long a leader that cannot renew its Lease goes on before it steps down.", kind="duration"
    )
    leader_elect_retry_period: float = _setting(
        1.5, "Time between attempts to renew or to acquire the Lease.", kind="duration"
    )
    debounce: float = _setting(
        0.05, "How long changes are collected before predictions are made anew.", kind="duration"
    )
    settle: float = _setting(
        10.0,
        "How long zones of a node may contradict each other, as they do while they are being written, "
        "before the node counts as stale.",
        kind="duration",
    )
    candidates: int = _setting(5, "How many of the best nodes a prediction names.")
    koordinator_scheduler: str = _setting(
        SCHEDULER_NAME,
        "spec.schedulerName of the pods that Koordinator's scheduler places; about others its nodes' "
        "kubelets are asked.",
        metavar="NAME",
    )
    write_rate: float = _setting(
        100.0, "Most writes to the API server per second; a burst of twice as many is let through."
    )
    event_rate: float = _setting(5.0, "Most events per second; a burst of ten times as many is let through.")
    event_interval: float = _setting(
        60.0, "Least time between two events about the verdict on one pod.", kind="duration"
    )
    admission_gate: bool = _setting(
        False,
        "Release pods that carry the scheduling gate numazones.io/admission, in namespaces labelled "
        "numazones.io/admission-gate=enabled, as soon as a node would admit them.",
    )
    admission_gate_timeout: float = _setting(
        300.0,
        "When a gated pod is released of which nobody knows whether a node would admit it, as when exporters "
        "are down; 0s: never. Pods that are known to be inadmissible wait.",
        kind="duration",
    )
    rebalance: bool = _setting(
        True, "Follow RebalancePolicies: find plans, publish them, carry them out where a policy says so."
    )
    rebalance_period: float = _setting(
        1.0, "Time between two looks at policies and recommendations.", kind="duration"
    )
    rebalance_patience: float = _setting(
        300.0,
        "How long a replacement may take to appear in its node's zones before its plan counts as failed.",
        kind="duration",
    )
    shapes: tuple[str, ...] = _setting(
        ("cpu=4", "cpu=8", "cpu=16"),
        "Shapes of pods to report the cluster's fragmentation for, such as cpu=16,memory=32Gi; several are "
        "separated by blanks.",
        kind="shapes",
        metavar="SHAPE…",
    )
    page_size: int = _setting(500, "Objects per page when listing.")
    watch_duration: float = _setting(300.0, "How long one watch lasts.", kind="duration")
    watch_silence: float = _setting(
        90.0, "How long a watch may say nothing before it counts as dead.", kind="duration"
    )
    log_level: str = _setting("info", "What to log.", kind="debug|info|warning|error")
    log_format: str = _setting("json", "How to log.", kind="json|text")
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

    @property
    def target_shapes(self) -> tuple[Shape, ...]:
        """The shapes, read."""
        return tuple(Shape.parse(text) for text in self.shapes)


def setting_fields() -> list[Any]:
    """Return the fields that are settings, in order."""
    return [item for item in fields(Options) if item.name != "origins"]
