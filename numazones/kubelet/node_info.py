"""A node and its pods as the kubelet's checks of the node as a whole see them.

After ``NodeInfo`` and ``PodInfo`` of the scheduler's framework, which the kubelet uses for them
(``pkg/kubelet/lifecycle/predicate``); which pods are critical is said in ``pkg/kubelet/types``, both of 1.36.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from numazones.apimachinery.taints import Taint
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod

OS_LABEL = "kubernetes.io/os"
"""Label of a pod that has to name the node's operating system."""

_SOURCE = "kubernetes.io/config.source"
_MIRROR = "kubernetes.io/config.mirror"
_CRITICAL = 2_000_000_000


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod as the checks of the node see it."""

    pod: Pod
    constraints: Constraints = field(default_factory=Constraints)
    requests: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """What it counts for while it runs here; cpu in milli-CPUs, others in whole units.

    A resize in progress is part of it. What a pod that is yet to be admitted asks for is read from ``pod``.
    """

    @property
    def static(self) -> bool:
        """Return whether it comes from the node itself and not from the API server."""
        return dict(self.pod.annotations).get(_SOURCE, "api") != "api"

    @property
    def critical(self) -> bool:
        """Return whether the kubelet preempts others for it."""
        mirrored = any(name == _MIRROR for name, _ in self.pod.annotations)
        return self.static or mirrored or (self.pod.priority or 0) >= _CRITICAL

    def outranks(self, other: "PodInfo") -> bool:
        """Return whether the other pod may be preempted for this one."""
        if self.critical and not other.critical:
            return True
        ours, theirs = self.pod.priority, other.pod.priority
        return ours is not None and theirs is not None and ours > theirs


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as its kubelet sees it: the managers' state, and what its other checks look at."""

    state: Node
    allocatable: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Amounts for pods; cpu in milli-CPUs, others in whole units."""
    pod_slots: int = 110
    pods: Mapping[str, PodInfo] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Uid → the active pods: all that were admitted and whose containers have not all stopped."""
    ended: frozenset[str] = frozenset()
    """Uids of pods that are active no more though the state still shows their share."""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    taints: tuple[Taint, ...] = ()
    pressures: tuple[str, ...] = ()
    """Conditions of pressure that hold: MemoryPressure, DiskPressure, PIDPressure."""
    os: str = "linux"
