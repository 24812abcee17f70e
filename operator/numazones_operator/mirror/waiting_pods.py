"""Pods without a node, as the API server last told of them, and which of them have changed.

A pod that the gate has just released is asked about a few seconds later: as a rule it has a node by then.
Until then each would be of a kind of its own, by the few nodes that it may go to, for which all nodes would
have to be asked.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from numazones.cluster.admission_gate import RELEASED
from numazones.cluster.cluster import ClusterPod
from numazones.prediction import forecast as prediction

RELEASED_SECONDS = 5.0
"""Seconds after which a pod that the gate released, and that has no node, is asked about anew."""


class WaitingPods:
    """Keeps the pods that wait for a node."""

    def __init__(self, some_changed: asyncio.Event, *, clock: Callable[[], float]) -> None:
        """``some_changed`` is set with every change; ``clock`` tells when that is, in seconds."""
        self._some_changed = some_changed
        self._clock = clock
        self.pending: dict[str, ClusterPod] = {}
        """UID → pod without a node that NUMA placement concerns."""
        self.gated: dict[str, ClusterPod] = {}
        """UID → pod without a node that some scheduling gate holds back, whatever it asks for."""
        self.on_their_way: dict[str, ClusterPod] = {}
        """UID → pod without a node that the admission gate released, or that a scheduler nominated."""
        self.changed: dict[str, float] = {}
        """UID → when it first changed since somebody looked."""
        self._released: dict[str, float] = {}
        """UID of a pending pod that was released just now → when that was."""

    def take(self, old: ClusterPod | None, new: ClusterPod | None) -> None:
        """Keep a pod if it waits for a node, and note it if its prediction may change."""
        waits = new is not None and not new.node and not new.terminal and not new.deleting
        if new is not None and waits and new.constraints.scheduling_gates:
            self.gated[new.uid] = new
        elif (gone := new or old) is not None:
            self.gated.pop(gone.uid, None)
        if new is not None and waits and (new.nominated or RELEASED in new.annotations):
            self.on_their_way[new.uid] = new
        elif (gone := new or old) is not None:
            self.on_their_way.pop(gone.uid, None)
        if new is not None and waits and prediction.relevant(new):
            self._keep(old, new)
        elif (gone := new or old) is not None and self.pending.pop(gone.uid, None) is not None:
            self.note(gone.uid)

    def _keep(self, old: ClusterPod | None, new: ClusterPod) -> None:
        self.pending[new.uid] = new
        if old is not None and RELEASED in new.annotations and RELEASED not in old.annotations:
            self._released[new.uid] = self._clock()
        elif old is None or _asks_differently(old, new):
            self.note(new.uid)

    def released_long_ago(self) -> list[str]:
        """Return the UIDs of pods that were released a while ago, have no node, and are not noted yet."""
        now = self._clock()
        return [uid for uid, since in self._released.items() if now - since >= RELEASED_SECONDS]

    def note(self, uid: str) -> None:
        """Note that the prediction for a pod may change."""
        self._released.pop(uid, None)
        self.changed.setdefault(uid, self._clock())
        self._some_changed.set()


def _asks_differently(old: ClusterPod, new: ClusterPod) -> bool:
    return _asked(old) != _asked(new)


def _asked(pod: ClusterPod) -> tuple[Any, ...]:
    return pod.constraints, pod.admission, pod.requests, pod.problem, pod.node, pod.claims
