"""Choose a pod's main obstacle: one choice for every surface that says it in one sentence.

Several things keep a pod from several nodes, and people can change one at a time. What is said first is what
has to change for the pod to run: a reason that holds on every node; otherwise that of the nodes which come
nearest. Nodes that are closed to the pod by a cordon or a taint, or that it does not select, come last, as
they are closed on purpose: a control plane would often take a pod that its workers cannot. Of the others, a
node that would admit the pod now with its CPUs rounded up to whole cores is the nearest. One that could take
the pod if others left is nearer than one that never could, and one that the scheduler may choose nearer than
one that lacks amounts. After that, the fewer things are in the way the better, and what keeps the pod from
more nodes counts more.

Every node counts once, for one reason: the reason that all have in common, else the one that keeps it
farthest from taking the pod. The sentence about a reason names everything that is in the way on its nearest
node.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numazones.cluster import scheduling
from numazones.placement.kubelet import SOURCE
from numazones.prediction.verdict import SCHEDULER_SOURCE, UNKNOWN_SOURCE, NodeAnswer, NodeVerdict

Key = tuple[str, str, str | None]
"""(source, reason, model)"""
Nearness = tuple[bool, int, int, int, float]
"""Sort key of nodes that do not take a pod, the nearest first."""
NodePreference = tuple[bool, int, int, int]
"""Sort key of nodes that would admit a pod, the best first."""

_ROUNDING, _POSSIBLE, _IMPOSSIBLE = range(3)
"""How a node could take the pod: with CPUs in whole cores, if other pods left, or not at all."""
_REJECTED, _UNKNOWN, _LACKING, _CLOSED, _NOT_SELECTED = range(5)
"""How far a node is from taking the pod, by what stands in its way."""
_CLOSED_BY = {
    scheduling.UNSCHEDULABLE: _CLOSED,
    scheduling.UNTOLERATED: _CLOSED,
    scheduling.NOT_SELECTED: _NOT_SELECTED,
}


@dataclass(frozen=True, slots=True)
class SameVerdict:
    """The nodes that give one verdict; what is needed of it each time they are grouped is worked out once."""

    verdict: NodeVerdict
    keys: tuple[Key, ...]
    """Keys of everything in the way."""
    farthest: Key | None
    """That of them with the greatest distance; None: nothing is in the way."""
    nearness: Nearness
    named_first: Nearness
    """Sort key of the nodes of a group, to name one."""
    preference: NodePreference
    names: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, verdict: NodeVerdict, preference: NodePreference) -> "SameVerdict":
        """Return no nodes yet, of a verdict."""
        keys, near = tuple(_keys(verdict)), nearness(verdict)
        farthest = max(keys, key=_distance, default=None)
        return cls(verdict, keys, farthest, near, _named_first(verdict, near), preference)


@dataclass(slots=True)
class ReasonGroup:
    """Nodes that count for one reason."""

    key: Key
    nearest: NodeVerdict
    named_first: Nearness
    node: str
    """The node that the sentence names: the nearest by ``_named_first``, of several the first by name."""
    nearness: Nearness
    """The least of its nodes, by which groups are sorted."""
    count: int = 0
    alike: list[SameVerdict] = field(default_factory=list)

    @property
    def possible(self) -> bool:
        """Return whether one of the nearest could take the pod if others left."""
        closed = self.nearness[0]
        return any(one.verdict.possible for one in self.alike if one.nearness[0] == closed)

    @property
    def closed(self) -> bool:
        """Return whether constraints keep the scheduler off the nodes, whatever amounts they have."""
        return _distance(self.key) >= _CLOSED

    def add(self, nodes: SameVerdict) -> None:
        """Count the nodes that gave a verdict."""
        self.alike.append(nodes)
        self.count += len(nodes.names)
        if nodes.nearness < self.nearness:  # noqa: PLR1730 - min() takes longer, for every verdict
            self.nearness = nodes.nearness
        if nodes.named_first <= self.named_first:
            first = min(nodes.names)
            if nodes.named_first < self.named_first or first < self.node:
                self.nearest, self.named_first, self.node = nodes.verdict, nodes.named_first, first


def nearness(verdict: NodeVerdict) -> Nearness:
    """Return what nodes that do not take a pod are sorted by, the nearest first."""
    distance = max(map(_distance, _keys(verdict)), default=0)
    after = _ROUNDING if verdict.in_whole_cores else _POSSIBLE if verdict.possible else _IMPOSSIBLE
    return (distance >= _CLOSED, after, distance, len(verdict.obstacles), -verdict.closeness)


def _named_first(verdict: NodeVerdict, near: Nearness) -> Nearness:
    """Return what the nodes of a group are sorted by, to name one.

    A sentence about what the scheduler lacks names the node with the most of it free, whatever its kubelet
    would say: that is what the amounts are about, and where a smaller request fits first.
    """
    closed, after, distance, obstacles, gap = near
    return (closed, min(after, _POSSIBLE) if verdict.lacks else after, distance, obstacles, gap)


def groups(nodes: Collection[SameVerdict], *, unknown_first: bool) -> list[ReasonGroup]:
    """Group the nodes that do not admit a pod by reason; the first reason is the headline.

    ``unknown_first``: whether the answer hangs on the nodes whose state is not known.
    """
    found: dict[Key, ReasonGroup] = {}
    negative = [one for one in nodes if one.verdict.answer is not NodeAnswer.ADMITS]
    common = set() if len(negative) < len(nodes) else _common(negative)
    for one in negative:
        key = max((key for key in one.keys if key in common), key=_distance) if common else one.farthest
        if key is None:
            raise ValueError(f"a negative verdict gives no reason: {one.verdict}")
        group = found.get(key)
        if group is None:
            group = found[key] = ReasonGroup(key, one.verdict, one.named_first, min(one.names), one.nearness)
        group.add(one)

    def importance(group: ReasonGroup) -> tuple[Any, ...]:
        *near, gap = group.nearness
        source, reason, model = group.key
        hanging = unknown_first and source == UNKNOWN_SOURCE
        order = (not hanging, *near, -group.count, gap)
        return (*order, source != SOURCE, source, reason, model or "")

    return sorted(found.values(), key=importance)


def possible(found: Sequence[ReasonGroup]) -> bool:
    """Return whether a node could take the pod if others left, of those as open to it as the headline's."""
    return any(group.possible for group in found if group.nearness[0] == found[0].nearness[0])


def _common(nodes: Iterable[SameVerdict]) -> set[Key]:
    """Return what stands in the way on all nodes."""
    common: set[Key] | None = None
    for one in nodes:
        common = set(one.keys) if common is None else common.intersection(one.keys)
        if not common:
            break
    return common or set()


def _keys(verdict: NodeVerdict) -> list[Key]:
    return [(verdict.source, reason, verdict.model) for reason, _ in verdict.obstacles]


def _distance(key: Key) -> int:
    source, reason, _ = key
    if source == UNKNOWN_SOURCE:
        return _UNKNOWN
    return _CLOSED_BY.get(reason, _LACKING) if source == SCHEDULER_SOURCE else _REJECTED
