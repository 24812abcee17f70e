"""What has happened to the pods of a node since its zones were written, played over the zones' state.

A kubelet takes its pods in as their bindings arrive, lets them go as they end, and publishes the result a
little later. The events that the zones do not show yet are kept in the order of the watch, which is the order
in which the kubelet sees them, and replayed: pods are admitted by the model, ends are removals. A pod that
the model rejected when it was bound stays rejected, whatever has become free since: the kubelet does not ask
again. Once the zones show a pod, everything before its binding is settled, too.
"""

from dataclasses import dataclass, field

from numazones.cluster import ClusterPod
from numazones.demand import QOSClass
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones.pod import Pod

_STRAGGLING = 60.0
"""Seconds for which zones that still show an ended pod may arrive."""
_NEVER = (0, "", "")


@dataclass(slots=True)
class _Event:
    """A pod was bound, or one has ended."""

    order: tuple[int, str, str]
    """When it was seen; among pods found together, when they were created."""
    uid: str
    """As the kubelet knows the pod."""
    admission: Pod | None
    """None: the pod has ended."""
    at: float
    rejected: bool = False


@dataclass(slots=True)
class SinceSnapshot:
    """The events of one node that its zones may not show yet."""

    _events: list[_Event] = field(default_factory=list)

    def bound(self, pod: ClusterPod, *, sequence: int, rejected: bool, now: float) -> None:
        """Take in a pod's binding; ``rejected`` if the model rejected it then."""
        self._events = [event for event in self._events if event.uid != pod.kubelet_uid]
        if pod.admission is not None:
            order = (sequence, pod.created, pod.name)
            self._events.append(_Event(order, pod.kubelet_uid, pod.admission, now, rejected))
            self._events.sort(key=lambda event: event.order)

    def ended(self, pod: ClusterPod, *, sequence: int, now: float) -> None:
        """Take in a pod's end."""
        self._events.append(_Event((sequence, "", ""), pod.kubelet_uid, None, now))

    def admitted_after_all(self, pod: ClusterPod) -> None:
        """Believe the kubelet that it runs a pod which the model rejected."""
        for event in self._events:
            if event.uid == pod.kubelet_uid:
                event.rejected = False

    def settle(self, state: Node | None, now: float) -> None:
        """Drop what a snapshot shows, or cannot contradict any more; None while there is no snapshot."""
        events = self._events
        held = {event.uid for event in events if state is not None and state.holds(event.uid)}
        shown = [event.order for event in events if event.admission and event.uid in held]
        settled = max(shown, default=_NEVER)
        over = {
            event.uid
            for event in events
            if event.admission is None and event.uid not in held and now - event.at > _STRAGGLING
        }
        self._events = [
            event
            for event in events
            if event.uid not in over
            and not (event.admission is not None and event.order <= settled)
            and not (event.admission is None and event.order < settled and event.uid not in held)
        ]

    def __len__(self) -> int:
        return len(self._events)

    def replay(self, state: Node) -> Node:
        """Return the state after all events.

        Raises:
            NumazonesError: the model gives no verdict on one of the pods.
        """
        for event in self._events:
            if event.admission is None:
                state = remove(state, event.uid)
            elif not event.rejected and not state.holds(event.uid) and binds(event.admission, state):
                state = admit(state, event.admission).node
        return state


def binds(pod: Pod, node: Node) -> bool:
    """Whether the kubelet's managers would give the pod anything of its own."""
    kubelet = node.kubelet
    reading = kubelet.reading(pod)
    if reading.served and kubelet.cpus.static and any(one.cpus for one in (reading.total, *reading.demands)):
        return True
    if reading.served and kubelet.memory.static and reading.qos is QOSClass.GUARANTEED:
        return True
    return any(name in kubelet.devices.resources for name, _ in reading.total.limits)
