"""Choose a node for a pod, with or without asking who will decide there.

kube-scheduler looks at whole nodes, so that the one that it chooses may reject the pod; a plugin that reads
amounts by zone rejects fewer. The other ways pass over every node that would, as ``prediction`` tells it, and
differ in how they rank the rest. Pods that name
their node themselves are not asked about.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from heapq import nsmallest
from typing import Any

from numazones.api.noderesourcetopology import NodeResourceTopology, from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster import scheduling, topology_match
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.placement.fragmentation import Shape
from numazones.prediction.device_answer import alignment_rank
from numazones.prediction.forecast import (
    Forecast,
    NodeAnswer,
    NodeVerdict,
    PodKind,
    alignment_of,
    place_beside,
    preference,
)
from numazones.prediction.pod_devices import pod_devices
from numazones.prediction.room import FittingPods

_PERCENT = 100
_COUNTED = 16
"""On so many nodes at most room for shapes is counted: each costs as much as a decision."""
_KINDS = 64
"""Of so many kinds of pods a chooser remembers verdicts."""
_REMEMBERED = 1024
"""States of nodes whose objects are remembered; one of them changes with each pod."""


class NodeChoice(StrEnum):
    """A way of choosing a node."""

    DEFAULT = "default"
    """kube-scheduler's filters, then the largest share of CPU and memory that is left (LeastAllocated)."""
    NRT = "nrt"
    """kube-scheduler's filters and NodeResourceTopologyMatch's, given objects that are exact at that moment;
    then the node whose CPU and memory are requested most (MostAllocated)."""
    EXACT = "exact"
    """The same among the nodes that would admit the pod."""
    PACK = "pack"
    """Of the nodes that would admit it, the one whose CPU and memory are requested most (MostAllocated)."""
    BEST_FIT = "best-fit"
    """Of the nodes that would admit it, the one that keeps large free blocks."""
    SCARCE = "scarce"
    """The same with points off for each idle device or huge page that loses CPUs or memory beside it."""
    SHAPES = "shapes"
    """Of the nodes that would admit it, the one on which the fewest further pods of given shapes fit less."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Sort order of the nodes that would admit a pod: one answer for gate, extender and what-ifs."""

    choice: NodeChoice = NodeChoice.SCARCE
    """One that asks first."""
    shapes: tuple[Shape, ...] = ()
    """What ``SHAPES`` keeps room for."""
    fitting: FittingPods = field(default_factory=FittingPods, compare=False)
    """Counts that room."""

    @property
    def by_node(self) -> bool:
        """Return whether a node's sort key depends on that node alone."""
        return self.choice is not NodeChoice.SHAPES

    def keys(
        self,
        pod: ClusterPod,
        verdicts: Mapping[str, NodeVerdict],
        node: Callable[[str], ClusterNode | None],
    ) -> dict[str, tuple[Any, ...]]:
        """Return name of a node → what it is sorted by, the best first; of nodes whose placement admits it.

        ``node`` looks a node up by its name; it is asked only where verdicts don't tell. Room for shapes is
        counted on the nodes that are best by their verdicts, the others come after them.
        """
        by_verdict = _BY_VERDICT.get(self.choice)
        if by_verdict is not None:
            return _keys_by_verdict(verdicts, by_verdict)
        admitting = {name: one for name, one in verdicts.items() if one.placement_admits}
        if self.choice is NodeChoice.SHAPES:
            best = set(nsmallest(_COUNTED, admitting, key=lambda name: _best_fit(admitting[name])))
            return {
                name: (
                    *_first(one),
                    name not in best,
                    self._lost(node(name), pod) if name in best else 0,
                    *_best_fit(one)[len(_first(one)) :],
                )
                for name, one in admitting.items()
            }
        share = _BY_NODE[self.choice]
        return {
            name: (*_first(one), -share(found, pod))
            for name, one in admitting.items()
            if (found := node(name)) is not None
        }

    def _lost(self, node: ClusterNode | None, pod: ClusterPod) -> int:
        """CPUs of further pods of the shapes that fit less beside the pod."""
        placed = None if node is None else place_beside(pod, node)
        if node is None or placed is None:
            return 0
        return sum(
            self.fitting.count(node, shape).usable - self.fitting.count(placed.node, shape).usable
            for shape in self.shapes
        )


def _keys_by_verdict(
    verdicts: Mapping[str, NodeVerdict], key: Callable[[NodeVerdict], tuple[Any, ...]]
) -> dict[str, tuple[Any, ...]]:
    """Return the keys, worked out once for each verdict: thousands of nodes share a few hundred."""
    distinct = {id(one): one for one in verdicts.values()}
    keys = {number: key(one) for number, one in distinct.items() if one.placement_admits}
    return {name: keys[number] for name, one in verdicts.items() if (number := id(one)) in keys}


class Chooser:
    """Chooses nodes for one pod after the other, and remembers what nodes said of such pods."""

    def __init__(self, choice: NodeChoice, shapes: Sequence[Shape] = ()) -> None:
        self._ranking = Ranking(choice, tuple(shapes))
        self._kinds: OrderedDict[PodKind, _KindVerdicts] = OrderedDict()
        """The kind asked about last is at the end."""

    def choose(self, pod: ClusterPod, nodes: Iterable[ClusterNode]) -> ClusterNode | None:
        """Return the node that the pod goes to, the first of equal ones; None: no node suits it.

        ``nodes``: those whose placement is known.
        """
        choice = self._ranking.choice
        if choice is NodeChoice.DEFAULT:
            suitable = (node for node in nodes if _passes_filters(node, pod))
            return min(suitable, key=lambda node: -_least_allocated(node, pod), default=None)
        if choice is NodeChoice.NRT:
            matching = (node for node in nodes if _passes_filters(node, pod) and _matches(node, pod))
            return min(matching, key=lambda node: -_most_allocated(node, pod), default=None)
        # Verdicts are shared, so pods of one kind must be alike to every placement model.
        kind = PodKind.of(pod, by_namespace=True)
        if kind is None:
            return None
        by_name = {node.name: node for node in nodes}
        verdicts = self._verdicts_on(kind).verdicts(by_name)
        admitting = {name: one for name, one in verdicts.items() if one.answer is NodeAnswer.ADMITS}
        keys = self._ranking.keys(pod, admitting, by_name.get)
        best = min(keys, key=keys.__getitem__, default=None)
        return None if best is None else by_name[best]

    def _verdicts_on(self, kind: PodKind) -> "_KindVerdicts":
        verdicts = self._kinds.pop(kind, None) or _KindVerdicts(kind)
        if len(self._kinds) >= _KINDS:
            self._kinds.popitem(last=False)
        self._kinds[kind] = verdicts
        return verdicts


class _KindVerdicts:
    """The verdicts on one kind of pod."""

    def __init__(self, kind: PodKind) -> None:
        self._forecast = Forecast(kind)
        self._nodes: dict[str, ClusterNode] = {}
        """As they were when they were asked."""

    def verdicts(self, nodes: Mapping[str, ClusterNode]) -> dict[str, NodeVerdict]:
        """Return name of a node → its verdict, in the order of the nodes; those that changed are asked."""
        for name in self._nodes.keys() - nodes.keys():
            self._forecast.forget(name)
        self._forecast.renew(node for name, node in nodes.items() if self._nodes.get(name) is not node)
        self._nodes = dict(nodes)
        return {name: self._forecast.verdicts[name] for name in nodes}


def _passes_filters(node: ClusterNode, pod: ClusterPod) -> bool:
    """Return whether the node passes the default filters, and those of a placement model's own scheduler."""
    if scheduling.placement_obstacles(pod.constraints, node) or scheduling.lacks(pod.requests, node):
        return False
    devices = pod_devices(pod, node)
    if devices is not None and not devices.fits:
        return False
    placement = node.known
    if placement is None or pod.admission is None or not placement.model.filtered_by_scheduler:
        return True
    try:
        return placement.admit(pod.admission).admitted
    except NumazonesError:  # no verdict is no admission
        return False


def _matches(node: ClusterNode, pod: ClusterPod) -> bool:
    """Return whether NodeResourceTopologyMatch passes the pod, given what our exporter would publish."""
    placement = node.known
    if placement is None or placement.kubelet is None or pod.admission is None:
        return True  # without an object it looks no further
    published = _published(_State(placement.key, placement.kubelet))
    return topology_match.matches(pod.admission, published, node.allocatable)


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a node, by a key that equal states share."""

    key: Hashable
    node: Node = field(compare=False)


@lru_cache(maxsize=_REMEMBERED)
def _published(state: _State) -> NodeResourceTopology:
    """Return the NodeResourceTopology of a node in a state."""
    return from_zones(zones_from_node(state.node, node_name="node", pods={}))


def _least_allocated(node: ClusterNode, pod: ClusterPod) -> int:
    """Percent of CPU and memory that nobody would have requested, each with the same weight."""
    return _mean_percent((max(0, have - wanted), have) for have, wanted in _amounts(node, pod))


def _most_allocated(node: ClusterNode, pod: ClusterPod) -> int:
    """Percent of CPU and memory that would be requested, each with the same weight."""
    return _mean_percent((min(have, wanted), have) for have, wanted in _amounts(node, pod))


def _amounts(node: ClusterNode, pod: ClusterPod) -> Iterator[tuple[int, int]]:
    """Yield (allocatable, requested with the pod) of CPU and memory, where the node has any."""
    for name in (CPU, MEMORY):
        if have := node.allocatable.get(name, 0):
            yield have, node.requested.get(name, 0) + pod.requests.get(name, 0)


def _mean_percent(parts: Iterable[tuple[int, int]]) -> int:
    """Return the mean of what (part, whole) are in percent, rounded down as kube-scheduler does."""
    shares = [part * _PERCENT // whole for part, whole in parts]
    return sum(shares) // len(shares) if shares else 0


def _best_fit(said: NodeVerdict) -> tuple[bool, int, int, int]:
    return (*_first(said), -said.score, -said.free_block)


def _first(said: NodeVerdict) -> tuple[bool, int]:
    """Return the first parts of every sort key: exact answers, and devices near the CPUs."""
    return (said.approximate, alignment_rank(alignment_of(said)))


_BY_VERDICT: dict[NodeChoice, Callable[[NodeVerdict], tuple[Any, ...]]] = {
    NodeChoice.SCARCE: preference,
    NodeChoice.BEST_FIT: _best_fit,
}
_BY_NODE: dict[NodeChoice, Callable[[ClusterNode, ClusterPod], int]] = {
    NodeChoice.EXACT: _least_allocated,
    NodeChoice.PACK: _most_allocated,
}
ASKING = (NodeChoice.SCARCE, NodeChoice.BEST_FIT, NodeChoice.SHAPES, NodeChoice.PACK, NodeChoice.EXACT)
"""The ways that pass over nodes which would reject the pod; the first is the default."""
