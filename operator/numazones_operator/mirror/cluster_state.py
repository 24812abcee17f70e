"""The one in-memory cluster: reflectors keep it up to date, everything else reads it.

Tables hold what was read; this module keeps, per node, what it means (``MirroredNode``), and remembers which
nodes and pods have changed and since when, for those who make predictions of it. It runs on one event loop
and waits for nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from numazones.cluster.cluster import UNDECIDED, Cluster, ClusterNode, ClusterPod
from numazones.cluster.sharing import Sharing
from numazones.placement import Unknown, models
from numazones.placement.model import ObjectKind, rejected_by_kubelet
from numazones.prediction.forecast import relevant
from numazones_client.table import Table, TableChange
from numazones_operator.faults import ObjectFaults, of_node
from numazones_operator.mirror.decoding import (
    Heartbeat,
    ModelObject,
    TopologyReport,
    ZoneReport,
    tells_namespaces_apart,
)
from numazones_operator.mirror.device_objects import DeviceObjects
from numazones_operator.mirror.mirrored_node import MirroredNode
from numazones_operator.mirror.node_placement import ModelInputs
from numazones_operator.mirror.pod_outcomes import PodOutcomes
from numazones_operator.mirror.waiting_pods import WaitingPods

Clock = Callable[[], float]


_REMEMBERED_CHANGES = 10_000
_AT_ONCE = 100
"""So many nodes are looked at in less than a millisecond."""


class _Alternatives(NamedTuple):
    """A node in every state that its kubelet may have, and what they were made from."""

    current: ClusterNode
    gone: frozenset[str]
    nodes: tuple[ClusterNode, ...] | None


class ClusterState:
    """Nodes and pods as the API server last told of them."""

    def __init__(
        self,
        *,
        settle: float,
        pod_changed: TableChange[ClusterPod],
        settings: Mapping[str, str] | None = None,
        faults: ObjectFaults | None = None,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        """Know nothing yet.

        ``settle``: how long zones may contradict each other, seconds; ``pod_changed`` is told of pods;
        ``settings``: those of placement models, by MODEL.NAME.
        """
        self._settle = settle
        self.faults = faults or ObjectFaults()
        self._clock = clock
        self._wall = wall
        self.sharing = Sharing()
        self._telling_namespaces_apart: set[str] = set()
        """Names of the nodes whose model treats namespaces differently."""
        self._beyond = ModelInputs(settings=settings or {})
        self._records: dict[str, MirroredNode] = {}
        self._current: dict[str, ClusterNode] = {}
        self._alternatives: dict[tuple[str, bool], _Alternatives] = {}
        """By name, and whether pods that leave are told apart."""
        self.left_by_pods: set[str] = set()
        """Nodes that pods leave, or have left while others may have come: these have ``alternatives``."""
        self._elsewhere: set[str] = set()
        """Nodes that show another model than the kubelet's."""
        self._sequence = 0
        self.version = 0
        """Grows with every change of a node."""
        self.bound_pod_changes = 0
        """How many changes of bound pods there have been: each has a scheduler try those that wait again."""
        self._touched: deque[str] = deque(maxlen=_REMEMBERED_CHANGES)
        """The nodes that changed last, the latest at the end."""
        self.changed_nodes: dict[str, float] = {}
        """Name → when it first changed since somebody looked; monotonic seconds."""
        self.changed_placements: set[str] = set()
        """Nodes whose zones may have to say something else of their placement; for who writes that."""
        self.changed = asyncio.Event()
        """Set with every change of a node or of a pod without one; cleared by who looks at them."""
        self._waiting = WaitingPods(self.changed, clock=clock)
        self.pending: Mapping[str, ClusterPod] = self._waiting.pending
        """UID → pod without a node that NUMA placement concerns."""
        self.gated: Mapping[str, ClusterPod] = self._waiting.gated
        """UID → pod without a node that some scheduling gate holds back, whatever it asks for."""
        self.on_their_way: Mapping[str, ClusterPod] = self._waiting.on_their_way
        """UID → pod without a node that the admission gate released, or that a scheduler nominated."""
        self.changed_pods = self._waiting.changed
        """UID → when a pod without a node first changed since somebody looked, who clears it."""
        self.pods: Table[ClusterPod] = Table(lambda pod: pod.uid, pod_changed)
        self.nodes: Table[ClusterNode] = Table(lambda node: node.name, self._node_changed)
        self.zones: Table[ZoneReport] = Table(
            lambda zone: zone.name, self._zone_changed, kept=lambda zone: replace(zone, body=None)
        )
        self.heartbeats: Table[Heartbeat] = Table(lambda beat: beat.node, self._heartbeat_changed)
        self.topologies: Table[TopologyReport] = Table(
            lambda report: report.node, self._topology_changed, kept=lambda report: replace(report, body={})
        )
        self.devices = DeviceObjects(
            self._devices_changed, self._claim_changed, tell=partial(self.faults.take, {})
        )
        self.model_objects: dict[ObjectKind, Table[ModelObject]] = {
            kind: Table(lambda item: item.key, partial(self._model_object_changed, kind))
            for kind in models.object_kinds()
        }

    # Asking

    def node(self, name: str) -> ClusterNode | None:
        """Return a node as predictions take it; None if there is no such Node."""
        known = self._current.get(name)
        if known is None:
            record = self._records.get(name)
            if record is not None:
                known = self._known(record, record.current)
            if record is not None and known is not None:
                self._current[name] = known
        return known

    def as_found(self, name: str) -> ClusterNode | None:
        """Return a node as its kubelet most likely finds it now; None if there is no such Node.

        Unlike ``node``, what pods that are being deleted hold is taken to be free again: no promise to
        others may rest on that.
        """
        record = self._records.get(name)
        return None if record is None else self._known(record, record.as_found, devices=False)

    def _known(
        self, record: MirroredNode, read: Callable[..., ClusterNode | None], *, devices: bool = True
    ) -> ClusterNode | None:
        """Return a node as its record has it; one about which something raises is Unknown."""
        try:
            known = read(self._clock(), settle=self._settle, beyond=self._beyond)
            if known is None or not devices:
                return known
            return replace(
                known,
                device_classes=self.devices.resources,
                device_selectors=self.devices.selectors,
                dra=self.devices.of(record.name),
                cluster_devices=self.devices.current,
                claimed=record.claimed,
            )
        except Exception as error:  # noqa: BLE001 - it concerns this node alone
            problem = self.faults.take(of_node(record.name), error)
            node = record.node
            if node is None:
                return None
            return replace(node, pods=dict(record.pods), placement=Unknown(UNDECIDED, problem))

    def alternatives(self, name: str, *, apart: bool) -> tuple[ClusterNode, ...] | None:
        """Return a node in every state that its kubelet may have; none: ``node`` alone; None: too many.

        Pods that are being deleted may have gone or not, and pods that came meanwhile may have found their
        room or not. ``apart``: take any of those that have not ended for gone; else all or none.
        """
        record, current, now = self._records.get(name), self.node(name), self._clock()
        if record is None or current is None or name not in self.left_by_pods:
            return ()
        try:
            gone = record.gone(now)
        except Exception as error:  # noqa: BLE001 - it concerns this node alone
            self.faults.take(of_node(name), error)
            return None
        known = self._alternatives.get((name, apart))
        if known is None or known.current is not current or known.gone != gone:
            nodes = None
            try:
                nodes = record.alternatives(
                    current, now, settle=self._settle, beyond=self._beyond, apart=apart
                )
            except Exception as error:  # noqa: BLE001 - it concerns this node alone
                self.faults.take(of_node(name), error)
            known = self._alternatives[name, apart] = _Alternatives(current, gone, nodes)
        return known.nodes

    @property
    def placing_every_pod(self) -> frozenset[str]:
        """Nodes on which a model decides about all pods, whatever they ask for."""
        found = (name for name in self._elsewhere if self.node(name) is not None)
        return frozenset(name for name in found if self._records[name].other.places_every_pod)

    def nodes_to_ask(self, pod: ClusterPod, names: Collection[str]) -> Collection[str]:
        """Return those of the nodes named that may reject a pod for its NUMA placement.

        All may, if that concerns the pod; if not, those may whose model decides about all pods.
        """
        if relevant(pod):
            return names
        placing = self.placing_every_pod
        return [name for name in names if name in placing]

    def fates(self, node: str, uids: Iterable[str]) -> PodOutcomes:
        """Return what is known now of pods that were on a node, by their UIDs as the kubelet knows them."""
        record = self._records.get(node)
        return PodOutcomes(gone=frozenset(uids)) if record is None else record.fates(uids)

    def all_nodes(self) -> Iterator[ClusterNode]:
        """Yield every node."""
        for _, node in self.faults.over(list(self._records), self.node, of_node):
            if node is not None:
                yield node

    def cluster(self) -> Cluster:
        """Return everything as one value."""
        unbound = [pod for pod in self.pods if not pod.node]
        return Cluster(
            nodes={node.name: node for node in self.all_nodes()},
            pending={
                pod.uid: pod
                for pod, ended in self.faults.over(unbound, lambda pod: pod.terminal)
                if not ended
            },
        )

    def name_of(self, node: str, uid: str) -> str:
        """Return namespace/name of a pod on a node by the UID that its kubelet knows; empty if it is gone."""
        record = self._records.get(node)
        return "" if record is None else record.name_of(uid)

    def silent(self, name: str) -> bool:
        """Return whether the exporter on a node has no Lease, or has not renewed it in time."""
        record = self._records.get(name)
        return record is None or record.is_silent(self._clock())

    @property
    def namespaces_matter(self) -> bool:
        """Return whether a node's model treats pods of different namespaces differently."""
        return bool(self._telling_namespaces_apart)

    def changed_since(self, version: int) -> Iterable[str]:
        """Return the nodes that have changed since a version; all that are there if that is long ago."""
        number = self.version - version
        if number > len(self._touched):
            return list(self._records)
        return dict.fromkeys(islice(reversed(self._touched), number))

    def record(self, name: str) -> MirroredNode | None:
        """Return what is known about a node."""
        return self._records.get(name)

    def expiring(self) -> Iterator[None]:
        """Notice what time alone has changed: Leases that ran out, contradictions that lasted too long.

        By and by, so that who is asked meanwhile need not wait for thousands of nodes.
        """
        for number, (name, record) in enumerate(list(self._records.items()), 1):
            with self.faults.of(of_node(name)):
                known = self._records.get(name) is record
                if known and record.has_expired(self._current.get(name), self._clock(), settle=self._settle):
                    self._touch(name)
            if number % _AT_ONCE == 0:
                yield
        for uid in self._waiting.released_long_ago():
            with self.faults.of({"apiVersion": "v1", "kind": "Pod", "name": "", "uid": uid}):
                self._waiting.note(uid)

    # Taking in

    def all_found(self) -> None:
        """Take in that everything was listed; nobody tells in which order what came and went before."""
        now = self._clock()
        for name, record in list(self._records.items()):
            with self.faults.of(of_node(name)):
                if record.since.found(now):
                    self._touch(name)

    def _record_of(self, name: str) -> MirroredNode:
        record = self._records.get(name)
        if record is None:
            tell = partial(self.faults.take, of_node(name))
            record = self._records[name] = MirroredNode(name, tell)
        return record

    def _touch(self, name: str) -> None:
        self._current.pop(name, None)
        for apart in (False, True):
            self._alternatives.pop((name, apart), None)
        self.version += 1
        self._touched.append(name)
        self._note_departures(name)
        record = self._records.get(name)
        if record is not None and record.other.known:
            self._elsewhere.add(name)
        else:
            self._elsewhere.discard(name)
        if record is not None and not record.known:
            del self._records[name]
            self.changed_placements.discard(name)
        elif record is not None:
            self.changed_placements.add(name)
        self.changed_nodes.setdefault(name, self._clock())
        self.changed.set()

    def _note_departures(self, name: str) -> None:
        """Note whether pods leave a node; whoever asks about thousands looks at these nodes only."""
        record = self._records.get(name)
        ambiguous = record is not None
        with self.faults.of(of_node(name)):
            ambiguous = record is not None and record.since.may_be_ambiguous
        if ambiguous:
            self.left_by_pods.add(name)
        else:
            self.left_by_pods.discard(name)

    def _node_changed(self, old: ClusterNode | None, new: ClusterNode | None) -> None:
        if new is None:
            if old is not None:
                self.devices.take_version(old.name, "")
                self._record_of(old.name).take_node(None)
                self._touch(old.name)
            return
        self._record_of(new.name).take_node(new)
        self.devices.take_version(new.name, new.kubelet_version)
        if old != new:  # a node's heartbeat changes nothing that is kept
            self._touch(new.name)

    def _zone_changed(self, old: ZoneReport | None, new: ZoneReport | None) -> None:
        now = self._clock()
        if old is not None and (new is None or new.node != old.node):
            record = self._record_of(old.node)
            if record.drop_zone(old, now, self.sharing):
                self._touch(record.name)
        if new is not None:
            written = (new.placement, new.dynamic_resources)
            if old is None or (old.placement, old.dynamic_resources) != written:
                self.changed_placements.add(new.node)
            record = self._record_of(new.node)
            if record.take_zone(old, new, now, self.sharing):
                self._touch(record.name)

    def _heartbeat_changed(self, old: Heartbeat | None, new: Heartbeat | None) -> None:
        if new is not None:
            record = self._record_of(new.node)
            if record.take_heartbeat(new, now=self._clock(), wall=self._wall()):
                self._touch(new.node)
        elif old is not None:
            self._record_of(old.node).pulse = None
            self._touch(old.node)

    def _topology_changed(self, old: TopologyReport | None, new: TopologyReport | None) -> None:
        report = new or old
        if report is None:
            return
        if self._record_of(report.node).take_topology(new):
            self._touch(report.node)
        if new is not None and tells_namespaces_apart(new.body):
            self._telling_namespaces_apart.add(report.node)
        else:
            self._telling_namespaces_apart.discard(report.node)

    def _model_object_changed(
        self, kind: ObjectKind, old: ModelObject | None, new: ModelObject | None
    ) -> None:
        if kind.of_node:
            self._object_of_node_changed(kind, old, new)
            return
        others = {kind.kind: tuple(item.body for item in self.model_objects[kind])}
        self._beyond = replace(self._beyond, others={**self._beyond.others, **others})
        for name, record in list(self._records.items()):
            if record.other.topology is not None:
                self._touch(name)

    def _devices_changed(self, nodes: Iterable[str] | None) -> None:
        for name in sorted(self._records if nodes is None else nodes):
            if name in self._records:
                self._touch(name)

    def _claim_changed(self, name: str) -> None:
        """Note the pods without a node that use a claim, or make theirs from a template."""
        for uid, pod in self._waiting.pending.items():
            if pod.claims and any(name in (one.claim, one.template) for one in pod.claims):
                self._waiting.note(uid)

    def _object_of_node_changed(
        self, kind: ObjectKind, old: ModelObject | None, new: ModelObject | None
    ) -> None:
        item = new or old
        if item is None:
            return
        self._record_of(item.name).other.take_object(kind, None if new is None else new.body)
        self._touch(item.name)

    # Taking in pods, in this order (``pipeline``)

    def let_go(self, old: ClusterPod | None, new: ClusterPod | None) -> None:
        """Take a pod off the node that it ended on or vanished from.

        A mirror pod that somebody deletes changes nothing for its kubelet, which creates another one.
        """
        if old is not None and old.active and (new is None or not new.active or new.node != old.node):
            if new is not None or not self._record_of(old.node).keep_unmirrored(old):
                self._leave(old, refused=new is not None and bool(rejected_by_kubelet(new)))
        elif old is None and new is not None and new.active:
            self._record_of(new.node).mirrored_anew(new)

    def is_binding(self, pod: ClusterPod) -> bool:
        """Return whether a pod has a node that does not count it yet."""
        return pod.active and not self._record_of(pod.node).has(pod)

    def record_pod(self, old: ClusterPod | None, new: ClusterPod | None, *, rejected: bool) -> None:
        """Count a pod on its node, or among those that wait; ``rejected`` by the model when it was bound."""
        pod = new or old
        self.bound_pod_changes += pod is not None and bool(pod.node)
        if new is not None and new.active:
            self._enter(old, new, rejected=rejected)
        self._waiting.take(old, new)

    def _leave(self, pod: ClusterPod, *, refused: bool) -> None:
        record = self._record_of(pod.node)
        record.take_end(pod, sequence=self._next_sequence, now=self._clock(), refused=refused)
        self._touch(pod.node)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _enter(self, old: ClusterPod | None, new: ClusterPod, *, rejected: bool) -> None:
        record, now = self._record_of(new.node), self._clock()
        if record.has(new):
            changed = record.take_update(new, sequence=self._next_sequence, now=now)
        else:
            # Pods found together, as in a list, count as bound together: creation time decides among them.
            self._sequence += old is not None
            try:
                record.take_binding(new, sequence=self._sequence, rejected=rejected, now=now)
            finally:
                self._touch(new.node)
            return
        if changed:
            self._touch(new.node)
        else:
            self._current.pop(new.node, None)
            self._note_departures(new.node)
