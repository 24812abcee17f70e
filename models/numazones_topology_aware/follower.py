"""A node of the topology-aware policy, followed through what happens to its pods.

The policy publishes only what its pools have left; who sits where follows from the order in which pods came
and went, and in which their rejected containers were tried again with success. What is heard of that has not
always the order in which it happened: a kubelet that hears of several pods at once lets go first and takes
the older ones before the younger, and it tells of another attempt at a container some time after it. So every
state that the policy publishes is held against what was heard; where they differ, other orders are played.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from numazones.errors import NumazonesError, UnmodelledFeature
from numazones.kubelet.pod import Pod
from numazones.placement.model import NodeObjects, PodEvent
from numazones_topology_aware.admission import create_missing, missing, remove
from numazones_topology_aware.live import PublishedPool, check_published, published_pools
from numazones_topology_aware.node import Node
from numazones_topology_aware.node_placement import TopologyAwarePlacement, read
from numazones_topology_aware.record import Record, record_of

_MAX_EVENTS = 256
"""So many are followed ahead of what the policy's pools show."""
_MAX_PLAYED = 300
"""So many events are played in other orders, in either way, before a contradiction counts as one."""
_MAX_AHEAD = 2
"""So many further attempts at a pod's missing containers may have been heard of too late."""

Body = Mapping[str, Any]
Settled = tuple[int, Node]
"""How many events the published pools show, and the state after them."""


class Follower:
    """The state that the policy published last, and what has happened since."""

    def __init__(self, objects: NodeObjects) -> None:
        """Read the node as it is published now.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        self._events: list[PodEvent] = []
        """What the published pools do not show."""
        self._states = [read(objects).node]
        """The published one, then that after each of the events."""
        self._published: Body | None = None
        self._contradicted: float | None = None
        self._tried: tuple[Body | None, int] = (None, 0)
        self._recorded: tuple[Node | None, Body | None] = (None, None)
        """The latest state and the pools of which ``_record`` is."""
        self._record: Record | None = None

    def take(self, event: PodEvent) -> None:
        """Take in what has happened to a pod.

        Raises:
            NumazonesError: what comes of it is not known.
        """
        if len(self._events) >= _MAX_EVENTS:
            raise UnmodelledFeature(f"the policy's pools do not show the last {_MAX_EVENTS} events")
        self._events.append(event)
        self._states.append(_after(self._states[-1], event))

    def agrees(self, topology: Body, now: float) -> bool:
        """Return whether the published pools are those after some of the events; settles those events."""
        if topology is self._published and self._contradicted is None:
            return True
        pools = published_pools(topology)
        if self._settle(pools) or self._settle_otherwise(topology, pools):
            self._published, self._contradicted = topology, None
            return True
        self._contradicted = now if self._contradicted is None else self._contradicted
        return False

    def _settle(self, pools: tuple[PublishedPool, ...]) -> bool:
        """Drop the events that the pools show, as many as can be."""
        for count, state in reversed(list(enumerate(self._states))):
            if _shows(pools, state):
                del self._states[:count]
                del self._events[:count]
                return True
        return False

    def _settle_otherwise(self, topology: Body, pools: tuple[PublishedPool, ...]) -> bool:
        """Settle events that may have happened in another order than they were seen."""
        attempt = (topology, len(self._events))
        if attempt == self._tried:
            return False
        self._tried = attempt
        found = _Search(self._events, pools).from_(self._states)
        if found is None:
            return False
        settled, state = found
        try:
            self._restart(state, self._events[settled:])
        except NumazonesError:
            return False
        return True

    def _restart(self, state: Node, events: list[PodEvent]) -> None:
        self._events, self._states = [], [state]
        for event in events:
            self.take(event)

    def contradicted_since(self, now: float) -> float:
        """Return since when pools contradict what was seen; ``now`` while they do not."""
        return now if self._contradicted is None else self._contradicted

    def placement(self, pods: Mapping[str, Pod]) -> TopologyAwarePlacement:
        """Return the node after all that has happened, without pods that are not among these (by uid)."""
        node = self._states[-1]
        for uid in node.sandboxes.keys() - pods.keys():
            node = remove(node, uid)
        return TopologyAwarePlacement(node)

    def record(self) -> Record | None:
        """Return who holds what in the last state that the published pools show; the same object while equal.

        Whoever reads it sees the published pools beside it, so what these do not show yet would not agree.
        """
        latest = (self._states[-1], self._published)
        if self._recorded[0] is not latest[0] or self._recorded[1] is not latest[1]:
            self._recorded = latest
            record = record_of(self._shown())
            if record != self._record:
                self._record = record
        return self._record

    def _shown(self) -> Node:
        """The last state that the published pools show: events that change no pool need no settling."""
        if len(self._states) > 1 and self._published is not None:
            pools = published_pools(self._published)
            return next((one for one in reversed(self._states) if _shows(pools, one)), self._states[0])
        return self._states[0]


class _GivenUp(Exception):
    """Enough orders were tried."""


class _Search:
    """Looks for an order in which events may have happened, so that pools come out as published."""

    def __init__(self, events: list[PodEvent], pools: tuple[PublishedPool, ...]) -> None:
        self._events = events
        self._pools = pools
        self._left = 0

    def from_(self, states: list[Node]) -> Settled | None:
        """Return what was found, or None; ``states`` are those before and after each event, as heard."""
        ways = [partial(self._at_once, 0, states[0])]
        ways += [partial(self._told_late, 0, states, attempts) for attempts in range(1, _MAX_AHEAD + 1)]
        for way in ways:
            self._left = _MAX_PLAYED
            try:
                found = way()
            except _GivenUp:
                continue
            if found is not None:
                return found
        return None

    def _at_once(self, start: int, state: Node) -> Settled | None:
        """Try that the node heard of some events at once."""
        for end in range(start + 1, len(self._events) + 1):
            batch = self._events[start:end]
            ordered = _as_heard(batch)
            if len(batch) > 1 and ordered == batch:
                continue  # no other than one by one
            after = state
            try:
                for event in ordered:
                    after = self._play(after, event)
            except NumazonesError:
                continue
            found = (end, after) if _shows(self._pools, after) else self._at_once(end, after)
            if found is not None:
                return found
        return None

    def _told_late(self, start: int, states: list[Node], more: int) -> Settled | None:
        """Try that so many missing containers were created before a status showed it, as late as possible.

        By the time a status shows it, there is nothing left to create.
        """
        for position, state in reversed(list(enumerate(states, start))):
            for ahead in self._attempts(position, state):
                after = [ahead, *self._states_after(position, ahead)]
                for settled, later in enumerate(after, position):
                    if _shows(self._pools, later):
                        return settled, later
                found = self._told_late(position, after, more - 1) if more > 1 else None
                if found is not None:
                    return found
        return None

    def _attempts(self, position: int, state: Node) -> Iterator[Node]:
        """Yield the node after one more attempt that a status shows only later."""
        for event in self._events[position + 1 :]:
            if event.pod is not None and event.uid in state.sandboxes and missing(state, event.pod):
                try:
                    ahead = self._play(state, event)
                except NumazonesError:
                    continue
                if ahead.grants.keys() != state.grants.keys():
                    yield ahead

    def _states_after(self, position: int, state: Node) -> Iterator[Node]:
        """The states after each of the events from a position on, as far as they can be played."""
        for event in self._events[position:]:
            try:
                state = self._play(state, event)
            except NumazonesError:
                return
            yield state

    def _play(self, state: Node, event: PodEvent) -> Node:
        self._count()
        return _after(state, event)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _GivenUp


def _as_heard(batch: list[PodEvent]) -> list[PodEvent]:
    """Order events as a kubelet does that hears of them at once: what is gone first, then by creation.

    What came and went meanwhile it never sees.
    """
    gone = {event.uid for event in batch if event.pod is None}
    came = [(event.pod.created, event) for event in batch if event.pod is not None and event.uid not in gone]
    return [
        *(event for event in batch if event.pod is None),
        *(event for _, event in sorted(came, key=itemgetter(0))),
    ]


def _after(state: Node, event: PodEvent) -> Node:
    if event.pod is None:
        return remove(state, event.uid)
    return create_missing(state, event.pod, uncreated=event.uncreated).node


def _shows(pools: tuple[PublishedPool, ...], state: Node) -> bool:
    try:
        check_published(state, pools)
    except NumazonesError:
        return False
    return True
