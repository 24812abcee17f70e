"""What the operator knows about one node, and the admission state that follows from it.

Zones are written one after another, pods are bound before any zone shows them, and deleted before the zones
let them go. The state of a node is therefore the last complete and agreeing snapshot of its zones, minus
what has ended since, plus the pods that were bound since, admitted by the model in the order in which the
kubelet would take them in: as they were bound, and those found together by creation time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from numazones import prediction
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.cluster import NO_ZONES, ClusterNode, ClusterPod, Unknown
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.node import Node
from numazones.pod import Pod, QOSClass
from numazones_operator.decoding import Heartbeat, ZoneReport

ZONES_DISAGREE = "ZonesDisagree"
ZONES_UNREADABLE = "ZonesUnreadable"
LEASE_EXPIRED = "LeaseExpired"
NO_LEASE = "NoLease"

_STRAGGLING = 300.0
"""Seconds for which a snapshot from before a pod's end may still arrive."""


@dataclass(slots=True)
class Pulse:
    """Whether the node's exporter is alive, by its Lease and our own clock."""

    heartbeat: Heartbeat
    until: float
    """Monotonic time up to which the zones hold."""

    @classmethod
    def first(cls, heartbeat: Heartbeat, *, now: float, wall: float) -> "Pulse":
        """Judge a Lease seen for the first time by the wall clock; it cannot have longer than it lasts."""
        age = max(0.0, wall - _timestamp(heartbeat.renewed))
        return cls(heartbeat, now + heartbeat.duration - min(age, heartbeat.duration))

    def next(self, heartbeat: Heartbeat, *, now: float) -> "Pulse":
        """Take in a later Lease: a renewal counts from when it is seen, so clocks need not agree."""
        if heartbeat == self.heartbeat:
            return self
        return Pulse(heartbeat, now + heartbeat.duration)


@dataclass(slots=True)
class NodeRecord:
    """Everything known about one node."""

    name: str
    node: ClusterNode | None = None
    """Labels, taints, allocatable; None while there is no such Node object."""
    reports: dict[int, ZoneReport] = field(default_factory=dict)
    state: Node | None = None
    """From the last complete and agreeing snapshot."""
    snapshot: str = ""
    trouble: Unknown | None = NO_ZONES
    """Why the current zones give no state."""
    troubled_since: float | None = None
    topology: Node | None = None
    """Approximation from a NodeResourceTopology."""
    topology_trouble: Unknown | None = None
    pulse: Pulse | None = None
    pods: dict[str, ClusterPod] = field(default_factory=dict)
    """UID → pod that is bound here and has not ended."""
    order: dict[str, int] = field(default_factory=dict)
    """UID → when it was seen bound."""
    gone: dict[str, float] = field(default_factory=dict)
    """UID, as the kubelet knows it → when its pod ended; snapshots may still show it for a while."""

    @property
    def known(self) -> bool:
        """Whether anything about the node is left."""
        return bool(self.node or self.reports or self.topology or self.pods or self.pulse)

    def read_zones(self, now: float) -> None:
        """Judge the zones as they are now; an earlier state stays while they contradict each other."""
        reports = list(self.reports.values())
        if not reports:
            self.state, self.snapshot, self.trouble = None, "", NO_ZONES
            return
        snapshots = {report.snapshot for report in reports}
        if len(snapshots) > 1 or len(reports) != reports[0].zones:
            self.trouble = Unknown(
                ZONES_DISAGREE,
                f"{len(reports)} zones of {reports[0].zones} are published, in {len(snapshots)} different "
                f"snapshots; if this lasts, see the log of the exporter on {self.name}",
            )
            self.troubled_since = now if self.troubled_since is None else self.troubled_since
            return
        self.troubled_since = None
        if self.state is not None and self.snapshot == reports[0].snapshot:
            self.trouble = None
            return
        self._take(reports, now)

    def _take(self, reports: list[ZoneReport], now: float) -> None:
        try:
            self.state = node_from_zones(
                [NUMAZone.from_api(report.body) for report in reports if report.body is not None]
            )
            self.trouble = None
        except NumazonesError as error:
            self.state = None
            self.trouble = Unknown(ZONES_UNREADABLE, str(error))
        self.snapshot = reports[0].snapshot
        for numa, report in self.reports.items():
            self.reports[numa] = replace(report, body=None)
        state = self.state
        if state is not None:
            self.gone = {
                uid: ended
                for uid, ended in self.gone.items()
                if state.holds(uid) or now - ended < _STRAGGLING
            }

    def doubt(self, now: float, *, settle: float) -> Unknown | None:
        """Return why the zones cannot be relied on at this moment, or None; ``settle`` in seconds."""
        if self.trouble is not None:
            settling = self.troubled_since is not None and now - self.troubled_since < settle
            if self.state is None or not settling:
                return self.trouble
        if self.pulse is None:
            return Unknown(
                NO_LEASE, f"there is no Lease of the exporter on {self.name}, so nobody vouches for its zones"
            )
        if now >= self.pulse.until:
            return Unknown(
                LEASE_EXPIRED,
                f"the exporter on {self.name} has not renewed its Lease since "
                f"{self.pulse.heartbeat.renewed}; see whether it runs",
            )
        return None

    def current(self, now: float, *, settle: float) -> ClusterNode | None:
        """Return the node as predictions take it; None while there is no Node object."""
        if self.node is None:
            return None
        node = self.node.with_pods(self.pods.values())
        doubt = self.doubt(now, settle=settle)
        if doubt is None and self.state is not None:
            return self._with_overlay(node, self.state, approximate=False)
        if self.topology is not None:
            return self._with_overlay(node, self.topology, approximate=True)
        return node.with_unknown_state(doubt or self.topology_trouble or NO_ZONES)

    def state_before(self, pod: ClusterPod, now: float, *, settle: float) -> Node | Unknown:
        """Return the state in which the kubelet finds the node when it takes in a pod just bound to it."""
        if self.state is None or self.node is None:
            return self.doubt(now, settle=settle) or NO_ZONES
        doubt = self.doubt(now, settle=settle)
        if doubt is not None:
            return doubt
        earlier = [other for other in self.pods.values() if other.uid != pod.uid]
        try:
            return remove(self._overlaid(self.state, earlier), pod.kubelet_uid)
        except NumazonesError as error:
            return Unknown(prediction.UNDECIDED, str(error))

    def _with_overlay(self, node: ClusterNode, state: Node, *, approximate: bool) -> ClusterNode:
        try:
            return node.with_state(self._overlaid(state, self.pods.values()), approximate=approximate)
        except NumazonesError as error:
            return node.with_unknown_state(Unknown(prediction.UNDECIDED, str(error)))

    def _overlaid(self, state: Node, pods: Iterable[ClusterPod]) -> Node:
        for uid in self.gone:
            state = remove(state, uid)
        unseen = [pod for pod in pods if not state.holds(pod.kubelet_uid)]
        for pod in sorted(unseen, key=lambda pod: (self.order.get(pod.uid, 0), pod.created, pod.name)):
            if pod.admission is not None and _binds(pod.admission, state):
                state = admit(state, pod.admission).node
        return state


def _binds(pod: Pod, node: Node) -> bool:
    """Whether the kubelet's managers would give the pod anything of its own."""
    kubelet = node.kubelet
    if kubelet.cpus.static and pod.total.cpus:
        return True
    if kubelet.memory.static and pod.qos is QOSClass.GUARANTEED:
        return True
    return any(name in kubelet.devices.resources for name, _ in pod.total.limits)


def _timestamp(text: str) -> float:
    """Read a MicroTime; one that cannot be read is as old as can be."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
