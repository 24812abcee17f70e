"""Compares devices that were foreseen for a pod with those that the scheduler allocated to its claims.

The devices are foreseen when the first of a pod's claims is seen to get an allocation, from the objects as
they were before; the outcome is what the claims' status says. The scheduler decides a moment before it
writes, from what it holds in memory. So it is a race where a foreseen device has gone to another claim, or
was given back or published again a moment before. What nothing explains is held against the model.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.dra.claims import Allocation, DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices
from numazones.dra.devices import Key, Slice
from numazones.prediction.device_answer import DeviceAnswer
from numazones.prediction.pod_devices import device_answer
from numazones_operator.faults import ObjectFaults, of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.verification.causes import Accuracy

MODEL = "dra"
"""Label of the scheduler's allocator in metrics."""
_PATIENCE = 30.0
"""Seconds for which other allocations that explain a wrong prediction may arrive, or may have."""
_MOST = 10_000
"""So many moments at which devices changed are remembered."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Expectation:
    """Devices foreseen for a pod, and what its claims have got of them so far."""

    pod: ClusterPod
    found: DeviceAnswer
    until: float
    got: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    """NAMESPACE/NAME of a claim → its allocations."""

    @property
    def missed(self) -> Counter[tuple[str, Key]]:
        """Return (request, device) that were foreseen and are not among those that the pod has got."""
        foreseen = Counter((one.request, (one.driver, one.pool, one.device)) for one in self.found.devices)
        return foreseen - self._given()

    @property
    def right(self) -> bool:
        """Return whether exactly these devices were foreseen."""
        return not self.missed and self._given().total() == len(self.found.devices)

    @property
    def complete(self) -> bool:
        """Return whether its claims have got as many devices as were foreseen."""
        return self._given().total() >= len(self.found.devices)

    def _given(self) -> Counter[tuple[str, Key]]:
        return Counter((one.request, one.device) for all_of in self.got.values() for one in all_of)


@dataclass
class DeviceVerifier:
    """Holds expectations until claims are allocated."""

    _: KW_ONLY
    metrics: Metrics
    devices: Callable[[], ClusterDevices | None]
    """The cluster's, as they are now."""
    pod: Callable[[str], ClusterPod | None]
    """Finds a pod by its UID."""
    node: Callable[[str], ClusterNode | None]
    """Finds a node by its name."""
    counts: Callable[[], bool] = lambda: True
    """Returns whether this replica is the one that counts; all of them expect."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    clock: Callable[[], float] = time.monotonic
    _expected: dict[str, _Expectation] = field(init=False, default_factory=dict)
    _wrong: list[_Expectation] = field(init=False, default_factory=list)
    _compared: dict[str, float] = field(init=False, default_factory=dict)
    """UID of a pod that was compared → until when further claims of it are left alone."""
    _changed: dict[Key | tuple[str, str], float] = field(init=False, default_factory=dict)
    """Device that was given back, or pool with a slice that changed → when."""

    def claim_changes(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        """Take in a change of a claim, before anything else of it is known."""
        if new is None or not new.allocated:
            self._note_change(one.device for one in (old.allocations if old is not None else ()))
            return
        if old is not None and old.allocated:
            return
        for uid in new.pods:
            if (expected := self._expectation(uid, new)) is not None:
                expected.got[new.full_name] = new.allocations
                if expected.complete:
                    self._compare(uid, expected)

    def slice_changes(self, old: Slice | None, new: Slice | None) -> None:
        """Take in a change of a slice."""
        self._note_change(one.key for one in (old, new) if one is not None)

    def judge(self) -> None:
        """Count wrong predictions whose reason has become known, or never will; call it now and then."""
        now = self.clock()
        for uid, one in list(self._expected.items()):
            if now >= one.until:
                with self.faults.of(of_pod(one.pod)):
                    self._compare(uid, one)
        self._compared = {uid: until for uid, until in self._compared.items() if now < until}
        waiting, self._wrong = self._wrong, []
        for one in waiting:
            with self.faults.of(of_pod(one.pod)):
                raced = self._raced(one)
                if raced or now >= one.until:
                    self._count(one, Accuracy.RACE if raced else Accuracy.MODEL)
                else:
                    self._wrong.append(one)

    def _note_change(self, keys: Iterable[Key | tuple[str, str]]) -> None:
        now = self.clock()
        if len(self._changed) > _MOST:
            self._changed = {key: at for key, at in self._changed.items() if now - at < _PATIENCE}
        for key in keys:
            self._changed[key] = now

    def _expectation(self, uid: str, claim: DeviceClaim) -> _Expectation | None:
        """Return what is expected of a pod whose claim is being allocated; None: it is not known here."""
        if uid in self._compared:
            return None
        expected = self._expected.get(uid)
        pod, known = self.pod(uid), self.devices()
        if expected is not None or pod is None or known is None:
            return expected
        nodes = (known.published.get(one.device) for one in claim.allocations)
        name = pod.node or next((one.node for one in nodes if one is not None and one.node), "")
        node, kind = self.node(name), PodKind.of(pod)
        found = None if node is None or kind is None else device_answer(kind, node, ())
        if found is None:
            return None
        expected = self._expected[uid] = _Expectation(pod, found, self.clock() + _PATIENCE)
        return expected

    def _compare(self, uid: str, expected: _Expectation) -> None:
        del self._expected[uid]
        self._compared[uid] = self.clock() + _PATIENCE
        if expected.found.fits is None:
            self._count(expected, Accuracy.UNKNOWN)
        elif expected.right:
            self._count(expected, Accuracy.RIGHT)
        else:
            expected.until = self.clock() + _PATIENCE
            self._wrong.append(expected)

    def _raced(self, one: _Expectation) -> bool:
        """Return whether another change explains that a pod got other devices."""
        known = self.devices()
        if known is None:
            return True
        begun = one.until - 2 * _PATIENCE
        own = {given.device for all_of in one.got.values() for given in all_of}
        missed = {device for _, device in one.missed}
        pools = {(driver, pool) for driver, pool, _ in missed | own}
        keys: set[Key | tuple[str, str]] = {*missed, *own, *pools}
        if any(self._changed.get(key, begun - 1) >= begun for key in keys):
            return True
        return any(key in known.allocated.devices for key in missed - own)

    def _count(self, one: _Expectation, accuracy: Accuracy) -> None:
        if not self.counts():
            return
        self.metrics.count_accuracy(accuracy, MODEL)
        if accuracy in (Accuracy.RACE, Accuracy.MODEL):
            level = logging.WARNING if accuracy is Accuracy.MODEL else logging.INFO
            fields = {"miss": True, "accuracy": accuracy.value, "pod": one.pod.full_name}
            _log.log(level, "%s", "; ".join(_report(one, accuracy)), extra={"fields": fields})


def _report(one: _Expectation, accuracy: Accuracy) -> Iterator[str]:
    foreseen = [f"{found.pool}/{found.full_name}" for found in one.found.devices]
    yield f"devices of pod {one.pod.full_name}: predicted {', '.join(foreseen) or one.found.reason}"
    given = ["/".join(found.device) for all_of in one.got.values() for found in all_of]
    yield f"allocated {', '.join(given) or 'none'}; cause: {accuracy.lower()}"
