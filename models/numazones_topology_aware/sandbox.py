"""Pods and containers as the runtime describes them to the plugin.

An annotation holds for a container as ``KEY/container.NAME``, for the pod as ``KEY/pod`` or as the bare
``KEY``; the first that is present wins, usable or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from numazones.kubelet import go
from numazones.kubelet.demand import QOSClass

DOMAIN = "resource-policy.nri.io"


class Scope(IntEnum):
    """Scope of an annotation; more specific scopes are smaller."""

    CONTAINER = 0
    POD = 1
    BARE = 2


@dataclass(frozen=True, slots=True)
class PodDevice:
    """One entry of the kubelet's pod-resources service: devices of a resource in one place."""

    resource: str
    numas: tuple[int, ...] = ()
    """NUMA ids; empty: no topology."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod."""

    id: str
    name: str
    namespace: str
    uid: str = ""
    qos: QOSClass = QOSClass.BEST_EFFORT
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, tuple[PodDevice, ...]] = field(default_factory=dict)
    """Container name → what the pod-resources service lists."""

    def scoped(self, key: str, container: str) -> tuple[str, Scope] | None:
        """The annotation that holds for a container, and its scope."""
        annotations = self.annotations
        for suffix, scope in (
            (f"/container.{container}", Scope.CONTAINER), ("/pod", Scope.POD), ("", Scope.BARE)
        ):  # fmt: skip
            if (value := annotations.get(key + suffix)) is not None:
                return value, scope
        return None

    def preference(self, key: str, container: str) -> str | None:
        """The annotation ``KEY.resource-policy.nri.io`` that holds for a container."""
        found = self.scoped(f"{key}.{DOMAIN}", container) if self.annotations else None
        return None if found is None else found[0]

    def flag(self, key: str, container: str) -> bool | None:
        """A boolean preference; None where there is none or it is not a boolean."""
        value = self.preference(key, container)
        if value is None:
            return None
        try:
            return go.parse_bool(value)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """A device node in a container."""

    kind: str
    major: int
    minor: int
    access: str
    """Of its device-cgroup rule: ``r``, ``w``, ``m``."""


@dataclass(frozen=True, slots=True)
class CGroup:
    """Settings of the runtime for a container; 0: not set."""

    shares: int = 0
    quota: int = 0
    """µs per period."""
    period: int = 0
    memory_limit: int = 0
    """Bytes."""
    oom_score: int = 0

    def with_update(self, update: "CGroup") -> "CGroup":
        """Return the values with those of an update; what the update leaves at 0 stays."""
        return replace(
            self,
            shares=update.shares or self.shares,
            quota=update.quota or self.quota,
            period=update.period or self.period,
            memory_limit=update.memory_limit or self.memory_limit,
        )


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to be created."""

    id: str
    name: str
    cgroup: CGroup = CGroup()
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[ContainerDevice, ...] = ()
