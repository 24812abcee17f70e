"""Events of a node's pods since its zones were written, replayed over the zones' state.

A kubelet takes its pods in as their bindings arrive, lets them go as they end, and publishes the result a
little later. The events that the zones do not show yet are kept in the order of the watch, which is the order
in which the kubelet sees them, and replayed: pods are admitted by the model, ends are removals. A pod that
the model rejected when it was bound stays rejected, whatever has become free since: the kubelet does not ask
again. Once the zones show a pod, everything before its binding is settled, too.

Nothing records which pods came and went before this process looked, nor the order in which those it found
came, since pods wait for different times. So one that it found bound and that the zones lack may be on any
NUMA node, and so may those that came next to it (``guesses``), until newer zones come.

A pod that is being deleted holds what it has until its containers have stopped. The kubelet (1.36) then frees
it at once, but the pod's phase reaches the API server seconds later, and the zones some moments after. Who
asks what a kubelet will say now presumes that such a pod has ended (``presumed_gone``). Most containers stop
on the signal, so presuming so needs no evidence at first; later it holds only for pods that the zones
do not show. Zones that show a later pod beside it refute it.

Once such a pod has ended it is not known, until zones come, whether the pods that were bound meanwhile found
its room free or taken, and so where they are. The same goes for a pod that ended by itself, whose status came
just after others were bound. ``replay`` gives the likeliest state, ``possible_states`` all of them: who
promises room to others needs it in each.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod

_STRAGGLING = 60.0
"""Seconds for which zones that still show an ended pod may arrive."""
_REMEMBERED = 900.0
"""Seconds for which an ended pod is remembered because others were bound while it was there."""
_PROMPT = 5.0
"""Seconds for which a pod that the zones show is presumed to have ended once its deletion was asked for."""
_LATE = 5.0
"""Seconds by which the status of a pod that ended by itself may be late."""
_NEVER = (0, "", "")

MAX_STATES = 32
"""As many states of a node are told apart; of more nothing is promised."""


@dataclass(slots=True)
class _Event:
    """A pod was bound, one is being deleted, or one has ended."""

    order: tuple[int, str, str]
    """When it was seen; among pods found together, when they were created."""
    uid: str
    """As the kubelet knows the pod."""
    admission: Pod | None
    """None: the pod has ended, or leaves."""
    at: float
    rejected: bool = False
    leaves: bool = False
    """Its deletion was asked for."""
    refuted: bool = False
    """Whether zones have shown it beside a pod that was bound after its deletion was asked for."""
    asked: tuple[int, str, str] | None = None
    """Of an end: when the deletion was asked for; None where it was not."""
    left: tuple[int, str, str] | None = None
    """The same; None also where zones have refuted that the pod left at once."""
    guessed: bool = False
    """Whether it was bound before this process looked, or beside such a pod that the zones lack."""

    @property
    def ends(self) -> bool:
        """Return whether the pod certainly holds nothing any more."""
        return self.admission is None and not self.leaves


@dataclass(slots=True)
class SinceSnapshot:
    """The events of one node that its zones may not show yet."""

    _events: list[_Event] = field(init=False, default_factory=list)

    def bound(
        self, pod: ClusterPod, *, sequence: int, rejected: bool, now: float, state: Node | None = None
    ) -> None:
        """Take in a pod's binding; ``rejected`` if the model rejected it then; ``state`` is the zones'."""
        self._events = [event for event in self._events if event.uid != pod.kubelet_uid]
        if pod.admission is not None:
            order = (sequence, pod.created, pod.name)
            beside = state is not None and bool(self.guesses(state))
            admission = pod.admission
            self._events.append(_Event(order, pod.kubelet_uid, admission, now, rejected, guessed=beside))
            self._events.sort(key=lambda event: event.order)

    def found(self, now: float) -> bool:
        """Take all pods for bound before this process looked; return whether there are any."""
        for event in self._events:
            event.guessed, event.at = event.admission is not None, now
        return any(event.guessed for event in self._events)

    def renewed(self) -> None:
        """Take in that zones were written since: what they lack comes after them, in the order seen."""
        for event in self._events:
            event.guessed = False

    def leaves(self, pod: ClusterPod, *, sequence: int, now: float) -> None:
        """Take in that a pod's deletion was asked for."""
        self._events.append(_Event((sequence, "", ""), pod.kubelet_uid, None, now, leaves=True))

    def ended(self, pod: ClusterPod, *, sequence: int, now: float) -> None:
        """Take in a pod's end."""
        uid = pod.kubelet_uid
        leaving = [event for event in self._events if event.leaves and event.uid == uid]
        asked = next((event.order for event in leaving), None)
        left = next((event.order for event in leaving if not event.refuted), None)
        self.left(pod)
        self._events.append(_Event((sequence, "", ""), uid, None, now, asked=asked, left=left))

    def admitted_after_all(self, pod: ClusterPod) -> None:
        """Take in that the kubelet runs a pod that the model rejected."""
        for event in self._events:
            if event.uid == pod.kubelet_uid:
                event.rejected = False

    def settle(self, state: Node | None, now: float) -> None:
        """Drop what a snapshot shows, or cannot contradict any more; None while there is no snapshot."""
        events = self._events
        held = {event.uid for event in events if state is not None and state.holds(event.uid)}
        shown = [event.order for event in events if event.admission and event.uid in held]
        settled = max(shown, default=_NEVER)
        over = self._over(held, now)
        self._events = [
            event
            for event in events
            if event.uid not in over
            and not (event.admission is not None and (event.order[0] < settled[0] or event.uid in held))
            and not (event.ends and event.order < settled and event.uid not in held)
        ]
        for event in self._events:
            event.refuted = event.refuted or (event.leaves and event.order < settled and event.uid in held)
            if event.left is not None and event.left < settled and event.uid in held:
                event.left = None

    def _over(self, held: Collection[str], now: float) -> set[str]:
        """Return the pods whose coming and going changes nothing any more; ``held``: by the zones.

        A pod that others were bound beside has an influence on where those are, for as long as they are
        replayed; on a node whose exporter is silent that may be long.
        """
        ends = {event.uid: event for event in self._events if event.ends and event.uid not in held}
        over = {uid for uid, end in ends.items() if now - end.at > _STRAGGLING}
        bound = {event.uid: event for event in self._events if event.admission is not None}
        while True:
            kept = [event.order for uid, event in bound.items() if uid not in over]
            needed = {
                uid
                for uid in over & bound.keys()
                if now - ends[uid].at <= _REMEMBERED
                and any(bound[uid].order < order < ends[uid].order for order in kept)
            }
            if not needed:
                return over
            over -= needed

    def unshown(self, state: Node, running: Collection[str], *, before: float) -> tuple[str, ...]:
        """Return the pods bound before a moment that hold something, run, and are not in the zones.

        ``running``: UIDs, as the kubelet knows them, of the pods whose containers it reports. It gives a pod
        what it holds before that, so zones without it are out of date, and what was played over them is a
        guess that gets worse with each pod.
        """
        return tuple(
            event.uid for event in self._lacking(state) if event.at <= before and event.uid in running
        )

    def guesses(self, state: Node) -> dict[str, float]:
        """Return the pods that hold something on NUMA nodes that nobody knows: UID → when it was found.

        Those that have ended are none, nor are those that ``state``, the zones', shows.
        """
        ended = {event.uid for event in self._events if event.ends}
        return {
            event.uid: event.at for event in self._lacking(state) if event.guessed and event.uid not in ended
        }

    def _lacking(self, state: Node) -> Iterator[_Event]:
        """Yield the bindings of admitted pods that should hold something by the zones, and do not."""
        for event in self._events:
            if (
                event.admission is not None
                and not event.rejected
                and not state.holds(event.uid)
                and binds(event.admission, state)
            ):
                yield event

    def __len__(self) -> int:
        return len(self._events)

    def left(self, pod: ClusterPod) -> None:
        """Take in that a pod that was being deleted is gone."""
        uid = pod.kubelet_uid
        self._events = [event for event in self._events if not (event.leaves and event.uid == uid)]

    @property
    def may_be_ambiguous(self) -> bool:
        """Return whether pods leave, or have left just before or after others were admitted."""
        if any(event.leaves for event in self._events):
            return True
        bound = [event for event in self._events if event.admission is not None]
        return any(_may_precede(one, other) for one in self._events if one.ends for other in bound)

    def presumed_gone(self, state: Node | None, now: float) -> frozenset[str]:
        """UIDs, as the kubelet knows them, of pods presumed to have ended; ``state`` is that of the zones."""
        return frozenset(
            event.uid
            for event in self._events
            if event.leaves
            and (
                (now - event.at <= _PROMPT and not event.refuted)
                or (state is not None and not state.holds(event.uid))
            )
        )

    def replay(self, state: Node, *, gone: frozenset[str] | None = None) -> Node:
        """Return the state after all events.

        Args:
            state: that of the zones.
            gone: pods being deleted that have gone, and then pods that have ended did so as soon as
                their deletion was asked for; None: they held what they had until they were seen to end.

        Raises:
            NumazonesError: the model gives no verdict on one of the pods.
        """
        promptly = gone is not None
        for event in sorted(self._events, key=lambda each: (promptly and each.left) or each.order):
            if event.ends or (event.leaves and event.uid in (gone or ())):
                state = remove(state, event.uid)
            elif event.admission is None or event.rejected or state.holds(event.uid):
                continue
            elif binds(event.admission, state):
                # Zones will show it before its init containers have ended and given their memory back.
                state = admit(state, event.admission).fresh
        return state

    def possible_states(
        self, state: Node, *, running: Collection[str] = (), apart: bool = True
    ) -> tuple[Node, ...]:
        """Return every state that the node may be in after all events; none: there are too many.

        Args:
            state: that of the zones.
            running: UIDs, as the kubelet knows them, of pods that it runs, and so has admitted.
            apart: take any of the pods that have not ended for gone after the last event; else all or none.

        Raises:
            NumazonesError: the model gives no verdict on one of the pods.
        """
        states = [state]
        for event in self._events:
            if event.ends:
                states = _distinct(remove(one, event.uid) for one in states)
            elif event.admission is not None:
                before = (one.uid for one in self._events if _may_precede(one, event))
                states = [_admitted(one, event) for one in _with_and_without(states, before)]
                if event.uid in running:  # it was admitted, so what would have rejected it was not so
                    states = [one for one in states if _holds_its_share(one, event)] or states
                states = _distinct(states)
            if len(states) > MAX_STATES:
                return ()
        leaving = [event.uid for event in self._events if event.leaves]
        if apart:
            states = _with_and_without(states, leaving)
        else:
            states = _distinct([*states, *(reduce(remove, leaving, one) for one in states)])
        return () if len(states) > MAX_STATES else tuple(states)


def _may_precede(leaving: _Event, bound: _Event) -> bool:
    """Return whether a pod may have left before another was admitted, though its end was not seen by then."""
    if leaving.leaves or leaving.asked is not None:
        asked = leaving.asked or leaving.order
        return asked < bound.order and (leaving.leaves or bound.order < leaving.order)
    return leaving.ends and bound.order < leaving.order and leaving.at - bound.at <= _LATE


def _admitted(state: Node, event: _Event) -> Node:
    """Return a state after the kubelet decided on a pod that was bound."""
    if event.admission is None or state.holds(event.uid) or not binds(event.admission, state):
        return state
    return admit(state, event.admission).fresh


def _holds_its_share(state: Node, event: _Event) -> bool:
    return event.admission is None or state.holds(event.uid) or not binds(event.admission, state)


def _with_and_without(states: list[Node], uids: Iterable[str]) -> list[Node]:
    """Return the states with any of the pods gone; more than ``MAX_STATES`` of them are not all."""
    for uid in uids:
        if len(states) > MAX_STATES:
            break
        states = _distinct([*states, *(remove(one, uid) for one in states)])
    return states


def _distinct(states: Iterable[Node]) -> list[Node]:
    found: list[Node] = []
    for state in states:
        if state not in found:
            found.append(state)
    return found


def binds(pod: Pod, node: Node) -> bool:
    """Return whether the kubelet's managers would give the pod anything exclusive."""
    kubelet = node.kubelet
    demand = kubelet.demand_of(pod)
    if demand.served and kubelet.cpus.static and any(one.cpus for one in (demand.total, *demand.demands)):
        return True
    if demand.served and kubelet.memory.static and demand.qos is QOSClass.GUARANTEED:
        return True
    return any(name in kubelet.devices.resources for name, _ in demand.total.limits)
