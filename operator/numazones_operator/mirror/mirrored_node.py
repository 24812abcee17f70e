"""State of one node in the operator, and the admission state that follows from it.

Zones are written one after another, pods are bound before any zone shows them, and end before the zones let
them go. The state of a node is therefore the last complete and agreeing snapshot of its zones, with what has
happened since (``since_snapshot``) played over it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from numazones.api.claimed_devices import ClaimedDevices, claimed_devices
from numazones.api.noderesourcetopology import node_from_topology
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.apimachinery import timestamp
from numazones.cluster.cluster import NO_ZONES, UNDECIDED, ClusterNode, ClusterPod, why_undecided
from numazones.cluster.dump import zones_unreadable
from numazones.cluster.sharing import Sharing
from numazones.errors import NumazonesError
from numazones.kubelet.admission import remove
from numazones.kubelet.node import Node
from numazones.placement import Unknown
from numazones.placement.kubelet import KubeletPlacement
from numazones.prediction import forecast as prediction
from numazones.wording import pluralize
from numazones_operator.faults import in_words
from numazones_operator.mirror.decoding import (
    Heartbeat,
    TopologyReport,
    ZoneReport,
    shows_another_model,
)
from numazones_operator.mirror.node_placement import ModelInputs, NodePlacement
from numazones_operator.mirror.pod_outcomes import PodOutcomes
from numazones_operator.mirror.since_snapshot import SinceSnapshot

ZONES_DISAGREE = "ZonesDisagree"
LEASE_EXPIRED = "LeaseExpired"
ZONES_BEHIND = "ZonesBehind"
NO_LEASE = "NoLease"
TOPOLOGY_UNREADABLE = "TopologyUnreadable"

NAME_LABEL, EXPORTER = "app.kubernetes.io/name", "numazones-exporter"
"""Label of the exporter's pods."""
_START_SECONDS = 300.0
"""For so long an exporter whose pod has come is expected to publish zones."""


@dataclass(slots=True)
class LeaseState:
    """State of the node's exporter, by its Lease and our own clock."""

    heartbeat: Heartbeat
    until: float
    """Monotonic time up to which the zones hold."""

    @classmethod
    def first(cls, heartbeat: Heartbeat, *, now: float, wall: float) -> "LeaseState":
        """Judge a Lease seen for the first time by the wall clock; it cannot have longer than it lasts."""
        age = max(0.0, wall - _timestamp(heartbeat.renewed))
        return cls(heartbeat, now + heartbeat.duration - min(age, heartbeat.duration))

    def next(self, heartbeat: Heartbeat, *, now: float) -> "LeaseState":
        """Take in a later Lease: a renewal counts from when it is seen, so clocks need not agree."""
        if heartbeat == self.heartbeat:
            return self
        return LeaseState(heartbeat, now + heartbeat.duration)


@dataclass(slots=True)
class MirroredNode:
    """Everything known about one node."""

    name: str
    tell: Callable[[Exception], object] = lambda _error: None
    """Is told what reading zones raises that no rule foresees."""
    node: ClusterNode | None = None
    """Labels, taints, allocatable; None while there is no such Node object."""
    reports: dict[int, ZoneReport] = field(default_factory=dict)
    state: Node | None = None
    """From the last complete and agreeing snapshot that could be read, also where ``outdated``."""
    outdated: bool = False
    """Whether all zones were deleted since that snapshot, or later ones cannot be read."""
    claimed: ClaimedDevices = field(default_factory=dict)
    """What the pods of that snapshot hold through claims (DRA)."""
    snapshot: str = ""
    trouble: Unknown | None = NO_ZONES
    """Why the current zones give no state."""
    judgement: Unknown | None = None
    """Why the last complete snapshot gave no state."""
    troubled_since: float | None = None
    topology: Node | None = None
    """Approximation from a NodeResourceTopology."""
    topology_trouble: Unknown | None = None
    other: NodePlacement = field(default_factory=NodePlacement)
    """Where another model than the kubelet places pods: what is known of that."""
    pulse: LeaseState | None = None
    pods: dict[str, ClusterPod] = field(default_factory=dict)
    """UID → pod that is bound here and has not ended."""
    exporters: dict[str, float] = field(default_factory=dict)
    """UID of a pod of the exporter that is bound here → since when that is known, monotonic seconds."""
    rejected: set[str] = field(default_factory=set)
    """UIDs, as the kubelet knows them, of pods that the model rejected and whose status is silent yet."""
    vanished: set[str] = field(default_factory=set)
    """UIDs, as the kubelet knows them, of pods that zones have shown and show no more: they have ended."""
    unmirrored: set[str] = field(default_factory=set)
    """UIDs of deleted mirror pods of static pods that zones still show: these run, and are mirrored anew."""
    since: SinceSnapshot = field(default_factory=SinceSnapshot)
    """What the snapshot may not show yet."""
    _of_another: bool = field(init=False, default=False)
    """Whether the Node is gone, or was made anew, since the last zones were read."""
    refused: set[Hashable] = field(default_factory=set)
    """The needs of pods that the kubelet rejected since a pod ended, new zones came, or the Node changed."""

    @property
    def known(self) -> bool:
        """Return whether anything is known about the node."""
        return bool(self.node or self.reports or self.topology or self.other.known or self.pods or self.pulse)

    def has(self, pod: ClusterPod) -> bool:
        """Return whether a pod is counted here."""
        return pod.uid in self.pods

    def name_of(self, uid: str) -> str:
        """Return NAMESPACE/NAME of a pod by its UID, also as the kubelet knows it; empty if it is gone."""
        found = self.pods.get(uid) or next((it for it in self.pods.values() if it.kubelet_uid == uid), None)
        return "" if found is None else found.full_name

    def fates(self, uids: Iterable[str]) -> PodOutcomes:
        """Return what is known now of pods that were here, by their UIDs as the kubelet knows them."""
        here = {pod.kubelet_uid: pod for pod in self.pods.values()}
        return PodOutcomes(
            gone=frozenset(uid for uid in uids if uid not in here or here[uid].deleting),
            running=frozenset(uid for uid in uids if uid in here and here[uid].acknowledged),
            zones=self.state,
            placements=tuple(self.other.recent),
        )

    def is_silent(self, now: float) -> bool:
        """Return whether the exporter gives no sign of life."""
        return self.pulse is None or now >= self.pulse.until

    def has_expired(self, current: ClusterNode | None, now: float, *, settle: float) -> bool:
        """Return whether time alone has changed what ``current`` says of the node; None: it said nothing."""
        if self.other.contradicted(now, settle=settle):
            return True
        if current is not None and isinstance(current.placement, Unknown) and current.placement.awaited:
            why_unknown = self.why_unknown(now, settle=settle)
            return why_unknown is None or not why_unknown.awaited
        if current is not None and isinstance(current.placement, Unknown) and current.placement.unseen:
            return not self._exporter_is_expected(now)
        if current is None or current.state is None or current.approximate:
            return False
        return self.why_unknown(now, settle=settle) is not None

    # Taking in; each returns whether what the node says may have changed

    def take_node(self, node: ClusterNode | None) -> None:
        """Take in the Node object; None: it is gone."""
        if self.node != node:  # a node's heartbeat changes nothing that is kept
            self.refused.clear()
        if node is None or (self.node is not None and self.node.uid != node.uid):
            self._of_another = True
            self._forget_another()
        self.node = node

    def _forget_another(self) -> None:
        """Forget the state of a Node that is gone, or was made anew, once its zones are gone."""
        if self._of_another and not self.reports:
            self.state, self.claimed, self.outdated = None, {}, False

    def take_zone(self, old: ZoneReport | None, new: ZoneReport, now: float, sharing: Sharing) -> bool:
        """Take in a zone."""
        judged = old is not None and old.snapshot == new.snapshot == self.snapshot
        if judged and new.numa_id in self.reports:
            # Listed again, or rewritten for reasons that do not concern admission.
            self.reports[new.numa_id] = replace(new, body=None)
            return False
        self.reports[new.numa_id] = new
        return self._judge(now, sharing)

    def drop_zone(self, old: ZoneReport, now: float, sharing: Sharing) -> bool:
        """Take in that a zone is gone."""
        self.reports.pop(old.numa_id, None)
        return self._judge(now, sharing)

    def _judge(self, now: float, sharing: Sharing) -> bool:
        state, outdated, trouble = self.state, self.outdated, self.trouble
        self.read_zones(now, sharing)
        if self.state is not state or self.outdated != outdated:
            return True  # also where zones say the same as before: they may have been unusable between
        return (self.state is None or self.outdated) and self.trouble != trouble

    def take_heartbeat(self, heartbeat: Heartbeat, *, now: float, wall: float) -> bool:
        """Take in a Lease of the exporter."""
        silent = self.is_silent(now)
        if self.pulse is None:
            self.pulse = LeaseState.first(heartbeat, now=now, wall=wall)
        else:
            self.pulse = self.pulse.next(heartbeat, now=now)
        return silent and now < self.pulse.until

    def take_topology(self, report: TopologyReport | None) -> bool:
        """Take in the node's NodeResourceTopology; None: it is gone."""
        before = self.other.topology
        self.topology = self.topology_trouble = self.other.topology = None
        if report is not None and shows_another_model(report.body):
            self.other.topology = report.body
        elif report is not None:
            self.topology, self.topology_trouble = _approximate(report.body)
        return self.state is None or before is not None or self.other.topology is not None

    def take_binding(self, pod: ClusterPod, *, sequence: int, rejected: bool, now: float) -> None:
        """Take in a pod's binding; ``rejected`` by the model when it was bound."""
        self.pods[pod.uid] = pod  # first: it is here, whatever the rest makes of it
        if rejected:
            self.rejected.add(pod.kubelet_uid)
        else:
            self.other.take_bound(pod)
        if pod.labels.get(NAME_LABEL) == EXPORTER:
            self.exporters.setdefault(pod.uid, now)
        if prediction.relevant(pod):
            self.since.bound(pod, sequence=sequence, rejected=rejected, now=now, state=self.state)

    def take_update(self, pod: ClusterPod, *, sequence: Callable[[], int], now: float) -> bool:
        """Take in how a pod that is counted here is now; ``sequence`` gives the number of an event."""
        known = self.pods[pod.uid]
        # Of a pod that is being deleted, containers that never were end up as terminated.
        created = not pod.deleting and not set(known.uncreated) <= set(pod.uncreated)
        if created:
            self.other.take_bound(pod)
        elif pod.acknowledged and not known.acknowledged:
            if pod.kubelet_uid in self.rejected:
                self.other.take_bound(pod)
            self.since.admitted_after_all(pod)
            self.rejected.discard(pod.kubelet_uid)
        if pod.deleting and not known.deleting and not pod.mirrors:
            self.since.leaves(pod, sequence=sequence(), now=now)
        self.pods[pod.uid] = pod
        return created or known.requests != pod.requests or known.admission != pod.admission

    def take_end(
        self, pod: ClusterPod, *, sequence: Callable[[], int], now: float, refused: bool = False
    ) -> None:
        """Take in that a pod has ended, or vanished; ``sequence`` gives the number of an event.

        ``refused``: it never ran, since the kubelet rejected it.
        """
        self.pods.pop(pod.uid, None)
        self.exporters.pop(pod.uid, None)
        kind = prediction.PodKind.of(pod) if refused else None
        if kind is not None:
            self.refused.add(kind.needs)
        elif not refused:
            self.refused.clear()
        self.other.take_ended(pod.kubelet_uid)
        self.rejected.discard(pod.kubelet_uid)
        self.vanished.discard(pod.kubelet_uid)
        if prediction.relevant(pod):
            self.since.ended(pod, sequence=sequence(), now=now)
            self.since.settle(self.state, now)
        else:
            self.since.left(pod)

    @property
    def published_record(self) -> str:
        """Return the zones' record of a state that cannot be rebuilt from objects, as JSON; may be empty."""
        return next((found for _, report in sorted(self.reports.items()) if (found := report.record)), "")

    def read_zones(self, now: float, sharing: Sharing) -> None:
        """Judge the zones as they are now; an earlier state stays while they contradict each other."""
        reports = list(self.reports.values())
        if not reports:
            self.snapshot, self.trouble, self.troubled_since = "", NO_ZONES, None
            self.outdated = self.state is not None
            self._forget_another()
            self._forget_unmirrored(lambda _uid: True)
            return
        snapshots = {report.snapshot for report in reports}
        if len(snapshots) > 1 or len(reports) != reports[0].zones:
            self.trouble = Unknown(
                ZONES_DISAGREE,
                f"the NUMAZones of {self.name} are inconsistent: {len(reports)} of "
                f"{pluralize(reports[0].zones, 'NUMAZone')} published, from "
                f"{pluralize(len(snapshots), 'snapshot')}; if this persists, check the log of the exporter "
                "on that node",
            )
            self.troubled_since = now if self.troubled_since is None else self.troubled_since
            return
        self.troubled_since = None
        if self.snapshot != reports[0].snapshot:
            self._take(reports, now, sharing)
        self.trouble = self.judgement

    def _take(self, reports: list[ZoneReport], now: float, sharing: Sharing) -> None:
        before = self.state
        self.claimed = {}
        try:
            zones = [NUMAZone.from_api(report.body) for report in reports if report.body is not None]
            self.state = node_from_zones(zones, remember=sharing.remember)
            self.claimed = claimed_devices(zones)
            self.judgement = None
        except NumazonesError as error:
            self.judgement = zones_unreadable(error)
        except Exception as error:  # noqa: BLE001 - it concerns this node alone
            self.tell(error)
            self.judgement = zones_unreadable(NumazonesError(in_words(error)))
        self.outdated = self.judgement is not None and self.state is not None
        self._of_another = False
        self.snapshot = reports[0].snapshot
        self.refused.clear()
        for numa, report in self.reports.items():
            self.reports[numa] = replace(report, body=None)
        if self.state is not None and not self.outdated:
            if before is not None:
                self.since.renewed()
            self.since.settle(self.state, now)
            # Zones show what the kubelet runs, and what it has let go, long before its statuses do.
            self.rejected = {uid for uid in self.rejected if not self.state.holds(uid)}
            uids = [pod.kubelet_uid for pod in self.pods.values()]
            shown = {uid for uid in uids if before is not None and before.holds(uid)} | self.vanished
            self.vanished = {uid for uid in shown if not self.state.holds(uid)}
            self._drop_unmirrored()

    def keep_unmirrored(self, pod: ClusterPod) -> bool:
        """Go on counting a deleted mirror pod's static pod where zones show it; return whether they do."""
        if not pod.mirrors or self.state is None or not self.state.holds(pod.kubelet_uid):
            return False
        self.unmirrored.add(pod.uid)
        return True

    def mirrored_anew(self, pod: ClusterPod) -> None:
        """Count a new mirror pod in place of the one that was deleted."""
        self._forget_unmirrored(lambda uid: uid == pod.kubelet_uid)

    def _drop_unmirrored(self) -> None:
        """Forget the static pods without mirror that zones no longer show: their files are gone."""
        state = self.state
        self._forget_unmirrored(lambda uid: state is None or not state.holds(uid))

    def _forget_unmirrored(self, is_meant: Callable[[str], bool]) -> None:
        """Forget the static pods without mirror that are meant, by their UIDs as the kubelet knows them."""
        for uid in [uid for uid in self.unmirrored if is_meant(self.pods[uid].kubelet_uid)]:
            self.unmirrored.remove(uid)
            del self.pods[uid]

    def why_unknown(self, now: float, *, settle: float) -> Unknown | None:
        """Return why the zones cannot be relied on at this moment, or None; ``settle`` in seconds."""
        if self.trouble is not None:
            settling = self.troubled_since is not None and now - self.troubled_since < settle
            if self.state is None or self.outdated or not settling:
                return replace(self.trouble, awaited=True) if settling else self.trouble
        if self.pulse is None:
            return Unknown(
                NO_LEASE,
                f"the exporter on {self.name} has no Lease, so its NUMAZones may be out of date; check "
                "that the exporter is running there",
            )
        if now >= self.pulse.until:
            return Unknown(
                LEASE_EXPIRED,
                f"the exporter on {self.name} has not renewed its Lease since "
                f"{self.pulse.heartbeat.renewed}; check that it is running",
            )
        return self._lag(now, settle=settle)

    def _lag(self, now: float, *, settle: float) -> Unknown | None:
        """Return that the zones are behind what the kubelet reports, or None."""
        if self.state is None or not len(self.since):
            return None
        if guess := self._guess(self.state, now, settle=settle):
            return guess
        running = {pod.kubelet_uid for pod in self.pods.values() if pod.acknowledged and not pod.deleting}
        unshown = self.since.unshown(self.state, running, before=now - settle)
        if not unshown:
            return None
        return Unknown(
            ZONES_BEHIND,
            f"the NUMAZones of {self.name} do not show pod {self.name_of(unshown[0])}, which was bound "
            f"more than {settle:g} s ago and is running; check that the exporter on that node is running",
        )

    def _guess(self, state: Node, now: float, *, settle: float) -> Unknown | None:
        """Return that nobody knows on which NUMA nodes some pods are, or None.

        A pod that the kubelet has not acknowledged after ``settle`` seconds will be placed after these zones.
        """
        acknowledged = {pod.kubelet_uid for pod in self.pods.values() if pod.acknowledged}
        guesses = self.since.guesses(state)
        found = next((uid for uid, at in guesses.items() if now - at < settle or uid in acknowledged), None)
        if found is None:
            return None
        return Unknown(
            ZONES_BEHIND,
            f"the NUMAZones of {self.name} do not show pod {self.name_of(found)}, so its NUMA nodes are "
            "unknown: the operator did not see it being bound, or did not know the NUMA nodes of another pod "
            "at that moment. The next update of the NUMAZones will show the pod; if it does not, check that "
            "the exporter on that node is running",
            awaited=True,
        )

    def gone(self, now: float) -> frozenset[str]:
        """UIDs, as the kubelet knows them, of pods being deleted that are presumed to have ended."""
        return self.since.presumed_gone(self.state, now) if len(self.since) else frozenset()

    def current(self, now: float, *, settle: float, beyond: ModelInputs) -> ClusterNode | None:
        """Return the node as predictions take it; None while there is no Node object."""
        return self._as_known(now, settle=settle, beyond=beyond, gone=None)

    def as_found(self, now: float, *, settle: float, beyond: ModelInputs) -> ClusterNode | None:
        """Return the node as its kubelet most likely finds it now.

        That is without pods that leave, that zones show no more, or that are rejected. What a rejected pod
        was given stays in zones until the next admission, which frees it first.
        """
        gone = self.gone(now) | self.vanished | self.rejected
        return self._as_known(now, settle=settle, beyond=beyond, gone=gone)

    def alternatives(
        self, current: ClusterNode, now: float, *, settle: float, beyond: ModelInputs, apart: bool
    ) -> tuple[ClusterNode, ...] | None:
        """Return the node in every state that its kubelet may have; none: ``current`` alone; None: too many.

        ``apart``: as for ``SinceSnapshot.possible_states``.
        """
        if not self.since.may_be_ambiguous:
            return ()
        if self.other.shown_by(current):
            found = self.as_found(now, settle=settle, beyond=beyond)
            return () if found is None else (found,)
        why_unknown = self.why_unknown(now, settle=settle)
        approximate = self.topology is not None and (why_unknown is not None or self.state is None)
        base = self.topology if approximate else self.state
        if base is None:
            return ()
        running = {pod.kubelet_uid for pod in self.pods.values() if pod.acknowledged}
        try:
            states = self.since.possible_states(
                reduce(remove, sorted(self.rejected), base), running=running, apart=apart
            )
        except NumazonesError as error:
            return (current.with_placement(Unknown(UNDECIDED, str(error))),)
        placements = [KubeletPlacement(state, approximate) for state in states]
        known = current.placement
        if isinstance(known, Unknown):
            return tuple(current.with_placement(replace(known, last_known=one)) for one in placements) or None
        return tuple(map(current.with_placement, placements)) or None

    def _as_known(
        self, now: float, *, settle: float, beyond: ModelInputs, gone: frozenset[str] | None
    ) -> ClusterNode | None:
        if self.node is None:
            return None
        node = self.node.with_pods(pod for pod in self.pods.values() if pod.kubelet_uid not in (gone or ()))
        why_unknown = self.why_unknown(now, settle=settle)
        if self.other.shown_by(node):
            beneath = None
            if why_unknown is None and self.state is not None:
                beneath = self._placement(self.state, gone, approximate=False)
            return self._with_other_model(node, beneath, now, settle=settle, beyond=beyond)
        if why_unknown is None and self.state is not None:
            return node.with_placement(self._placement(self.state, gone, approximate=False))
        if self.topology is not None:
            return node.with_placement(self._placement(self.topology, gone, approximate=True))
        if not self.reports and self.topology_trouble is not None:
            why_unknown = self.topology_trouble
        return node.with_placement(self._unknown(why_unknown or NO_ZONES, gone, now))

    def _with_other_model(
        self,
        node: ClusterNode,
        kubelet: KubeletPlacement | Unknown | None,
        now: float,
        *,
        settle: float,
        beyond: ModelInputs,
    ) -> ClusterNode:
        """The node where another model than the kubelet's decides.

        The machine, and that the kubelet leaves placement alone, are taken from old zones as well.
        """
        known = None if isinstance(kubelet, Unknown) else kubelet
        try:
            return node.with_placement(
                self.other.read(
                    node, self.state, known, beyond, self.published_record, now=now, settle=settle
                )
            )
        except NumazonesError as error:
            return node.with_placement(Unknown(UNDECIDED, str(error)))

    def _unknown(self, why_unknown: Unknown, gone: frozenset[str] | None, now: float) -> Unknown:
        """The reason, with what the kubelet would say if the last zones were right."""
        last_known = None if self.state is None else self._placement(self.state, gone, approximate=False)
        return replace(
            why_unknown,
            last_known=None if isinstance(last_known, Unknown) else last_known,
            refused=frozenset(self.refused),
            unseen=self.state is None and self._exporter_is_expected(now),
        )

    def _exporter_is_expected(self, now: float) -> bool:
        """Whether the node's exporter gives signs of life, or may soon."""
        started = any(now - since < _START_SECONDS for since in self.exporters.values())
        return started or not self.is_silent(now)

    def _placement(
        self, state: Node, gone: frozenset[str] | None, *, approximate: bool
    ) -> KubeletPlacement | Unknown:
        """Return what the kubelet decides from after the events since its zones were written."""
        try:
            state = self.since.replay(state, gone=gone)
            for uid in sorted(self.rejected):
                state = remove(state, uid)
            return KubeletPlacement(state, approximate)
        except NumazonesError as error:
            return Unknown(why_undecided(error), str(error))


def _timestamp(text: str) -> float:
    """Read a MicroTime; one that cannot be read is as old as can be."""
    try:
        return timestamp.parse(text).timestamp()
    except timestamp.InvalidTimestamp:
        return 0.0


def _approximate(body: Mapping[str, Any]) -> tuple[Node | None, Unknown | None]:
    """Return the state of a node that has a NodeResourceTopology and no zones, or why there is none.

    Other exporters publish per NUMA zone how much of each resource is allocatable and available, and the
    topology manager's policy, but neither CPUs nor who holds them. A machine of that size is imagined, with
    what is not available given away; answers from it are marked approximate.
    """
    try:
        return node_from_topology(body), None
    except NumazonesError as error:
        return None, Unknown(TOPOLOGY_UNREADABLE, str(error))
