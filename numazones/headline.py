"""What stands in a pod's way first of all: one choice, for whoever says it in one sentence.

Several things keep a pod from several nodes, and people can change one at a time. What is said first is what
has to change for the pod to run: a reason that holds on every node; otherwise that of the nodes which come
nearest. Nodes that are closed to the pod by a cordon or a taint, or that it does not select, come last, for
fences are there on purpose: a control plane would often take a pod that its workers cannot. Of the others, a
node that could take the pod if others left is nearer than one that never could, and one that the scheduler
may choose nearer than one that lacks amounts. After that, the fewer things are in the way the better, and
what keeps the pod from more nodes counts more.

Every node counts once, for one reason: the reason that all have in common, else the highest fence. The
sentence about a reason names everything that is in the way on its nearest node.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones import scheduling
from numazones.placement.kubelet import SOURCE
from numazones.verdict import SCHEDULER_SOURCE, UNKNOWN_SOURCE, NodeVerdict, Standing

Key = tuple[str, str, str | None]
"""(source, reason, model)"""

_REJECTED, _UNKNOWN, _LACKING, _CLOSED, _NOT_SELECTED = range(5)
"""How far a node is from taking the pod, by what stands in its way."""
_FENCES = {
    scheduling.UNSCHEDULABLE: _CLOSED,
    scheduling.UNTOLERATED: _CLOSED,
    scheduling.NOT_SELECTED: _NOT_SELECTED,
}


@dataclass(slots=True)
class Group:
    """Nodes that count for one reason."""

    key: Key
    nearest: NodeVerdict
    node: str
    """The nearest node, of several the first by name."""
    count: int = 0
    verdicts: list[NodeVerdict] = field(default_factory=list)

    @property
    def fenced(self) -> bool:
        """Whether the scheduler is kept from the nodes, whatever they have."""
        return _distance(self.key) >= _CLOSED

    def add(self, verdict: NodeVerdict, names: Collection[str]) -> None:
        """Count the nodes that gave a verdict."""
        self.verdicts.append(verdict)
        self.count += len(names)
        here, best = nearness(verdict), nearness(self.nearest)
        if here <= best:
            first = min(names)
            if here < best or first < self.node:
                self.nearest, self.node = verdict, first


def nearness(verdict: NodeVerdict) -> tuple[bool, bool, int, int, float]:
    """Return what nodes that do not take a pod are sorted by, the nearest first."""
    distance = max(map(_distance, _keys(verdict)), default=0)
    return (distance >= _CLOSED, not verdict.possible, distance, len(verdict.obstacles), -verdict.closeness)


def groups(verdicts: Mapping[NodeVerdict, Collection[str]], *, unknown_first: bool) -> list[Group]:
    """Group the nodes that do not admit a pod by reason; the first reason is the headline.

    Args:
        verdicts: verdict → the nodes that give it.
        unknown_first: whether the answer hangs on the nodes whose state is not known.
    """
    found: dict[Key, Group] = {}
    negative = [one for one in verdicts if one.standing is not Standing.ADMITS]
    common = set() if len(negative) < len(verdicts) else _common(negative)
    for one in negative:
        keys = _keys(one)
        key = max([key for key in keys if key in common] or keys, key=_distance)
        if key not in found:
            found[key] = Group(key, one, min(verdicts[one]))
        found[key].add(one, verdicts[one])

    def importance(group: Group) -> tuple[Any, ...]:
        *near, gap = nearness(group.nearest)
        source, reason, model = group.key
        hanging = unknown_first and source == UNKNOWN_SOURCE
        order = (not hanging, *near, -group.count, gap)
        return (*order, source != SOURCE, source, reason, model or "")

    return sorted(found.values(), key=importance)


def _common(verdicts: Iterable[NodeVerdict]) -> set[Key]:
    """Return what stands in the way on all nodes."""
    common: set[Key] | None = None
    for one in verdicts:
        common = set(_keys(one)) if common is None else common & set(_keys(one))
        if not common:
            break
    return common or set()


def _keys(verdict: NodeVerdict) -> list[Key]:
    return [(verdict.source, reason, verdict.model) for reason, _ in verdict.obstacles]


def _distance(key: Key) -> int:
    source, reason, _ = key
    if source == UNKNOWN_SOURCE:
        return _UNKNOWN
    return _FENCES.get(reason, _LACKING) if source == SCHEDULER_SOURCE else _REJECTED
