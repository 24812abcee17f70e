"""Gauges of the cluster's NUMA nodes: amounts, headroom, spread, fragmentation, stale nodes.

What is shown of a node is worked out once after it has changed, when Prometheus asks, and kept.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily

from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import UNDECIDED, ClusterNode
from numazones.kubelet.node import Node
from numazones.placement import fragmentation
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.prediction.room import FittingPods
from numazones_operator.faults import of_node
from numazones_operator.mirror.alignment_gauges import NodeAlignment, alignment_families
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_program.gauges import gauge, zone_gauges

AMOUNTS = {
    "capacity": "Amount that the hardware of the NUMA node provides.",
    "reserved": "Amount that the kubelet reserves on the NUMA node.",
    "allocatable": "Amount that pods can hold exclusively on the NUMA node.",
    "assigned": "Amount that pods hold exclusively on the NUMA node, including pods that were just bound.",
    "available": "Amount still available on the NUMA node.",
}
_OF_ZONES = {
    "cpu_manager_numa_allocation_spread": "CPUs that pods hold exclusively, by NUMA node (KEP-2902).",
    "numazones_zone_largest_request_cpus": (
        "Largest number of exclusive CPUs that one container could still get on the NUMA node."
    ),
    "numazones_zone_largest_request_full_core_cpus": (
        "Largest number of exclusive CPUs that one container could still get as whole physical cores on the "
        "NUMA node."
    ),
}


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """Amounts of one resource in one zone, in base units."""

    numa_id: int
    resource: str
    capacity: int
    reserved: int
    allocatable: int
    assigned: int

    @property
    def available(self) -> int:
        """Return what the NUMA node has left."""
        return self.allocatable - self.assigned


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """Gauges of one node."""

    zones: tuple[ZoneAmounts, ...] = ()
    of_zones: tuple[Mapping[int, int], ...] = ()
    """NUMA id → CPUs, for each of ``_OF_ZONES``."""
    shapes: tuple[Fragmentation, ...] = ()
    alignment: NodeAlignment = field(default_factory=NodeAlignment)
    stale: str = ""
    """Why the state is unknown; empty where it is known."""


class ClusterGauges:
    """Gauges of the cluster, renewed node by node."""

    def __init__(self, state: ClusterState, shapes: tuple[Shape, ...]) -> None:
        self._state = state
        self._shapes = shapes
        self._fitting = FittingPods()
        self._nodes: Mapping[str, ClusterNode] = {}
        self._lock = threading.Lock()
        self._known: dict[str, tuple[ClusterNode, NodeGauges]] = {}
        """Name → the node and what is shown of it."""

    def families(self) -> Iterable[GaugeMetricFamily]:
        """Take the nodes as they are now; what is shown of them is worked out by who iterates over it."""
        self._nodes = {node.name: node for node in self._state.all_nodes()}
        return self

    def _current(self) -> dict[str, NodeGauges]:
        """Name → what is shown of the node, worked out anew for nodes that have changed.

        In a thread of the metrics' server: nodes are values, and counting the pods that fit on thousands of
        changed nodes would hold up the event loop.
        """
        with self._lock:
            nodes, known = self._nodes, self._known
            self._known = {}
            for name, node in nodes.items():
                found = known.get(name)
                if found is None or found[0] is not node:
                    found = (node, self._gauges_of(node))
                self._known[name] = found
            return {name: gauges for name, (_, gauges) in self._known.items()}

    def _gauges_of(self, node: ClusterNode) -> NodeGauges:
        try:
            return node_gauges(node, self._shapes, self._fitting)
        except Exception as error:  # noqa: BLE001 - it concerns this node alone
            self._state.faults.take(of_node(node.name), error)
            return NodeGauges(stale=UNDECIDED)

    def __iter__(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the nodes that were taken last."""
        nodes = self._current()
        zones = (
            (name, zone.numa_id, zone.resource, zone) for name, node in nodes.items() for zone in node.zones
        )
        yield from zone_gauges("numazones_cluster_zone", AMOUNTS, zones)
        for position, (metric, text) in enumerate(_OF_ZONES.items()):
            cpus_of_zones = (
                ((name, str(numa)), cpus)
                for name, node in nodes.items()
                if node.of_zones
                for numa, cpus in node.of_zones[position].items()
            )
            yield gauge(metric, text, ("node", "numa_node"), cpus_of_zones)
        yield from self._shape_families(nodes)
        yield from alignment_families({name: node.alignment for name, node in nodes.items()})
        yield gauge("numazones_nodes", "Nodes in the cluster.", (), [((), len(nodes))])
        stale = {"NoZones": 0} | Counter(node.stale for node in nodes.values() if node.stale)
        yield gauge(
            "numazones_stale_nodes",
            "Nodes whose admission state is unknown, by reason.",
            ("reason",),
            (((reason,), count) for reason, count in sorted(stale.items())),
        )

    def _shape_families(self, nodes: Mapping[str, NodeGauges]) -> Iterator[GaugeMetricFamily]:
        whole = {
            (str(shape),): fragmentation.total(
                node.shapes[position] for node in nodes.values() if node.shapes
            )
            for position, shape in enumerate(self._shapes)
        }
        yield gauge(
            "numazones_fragmentation_ratio",
            "Share of the cluster's free exclusive CPUs that additional pods of this shape could not use.",
            ("shape",),
            ((shape, found.share) for shape, found in whole.items()),
        )
        yield gauge(
            "numazones_shape_fitting_pods",
            "Number of additional pods of this shape that would be admitted, counted node by node.",
            ("shape",),
            ((shape, found.fitting) for shape, found in whole.items()),
        )


def node_gauges(node: ClusterNode, shapes: tuple[Shape, ...], fitting: FittingPods) -> NodeGauges:
    """Return the gauges of a node."""
    state = node.state
    if node.known is None:
        return NodeGauges(stale=node.unknown.reason if node.unknown is not None else "Unknown")
    lying = NodeAlignment.of(node)
    counted = tuple(fitting.count(node, shape) for shape in shapes)
    if state is None:
        # Known, but not as amounts that the kubelet binds.
        return NodeGauges(shapes=counted, alignment=lying)
    cores = fragmentation.full_core_cpus(state)
    cpus = fragmentation.room(state).get(CPU, {})
    return NodeGauges(
        zones=tuple(_zones(state)),
        of_zones=(fragmentation.exclusive_cpus(state), cpus, {numa: cores[numa] for numa in cpus}),
        shapes=counted,
        alignment=lying,
    )


def _zones(node: Node) -> Iterator[ZoneAmounts]:
    kubelet = node.kubelet
    assigned = node.cpus.exclusive_cpus()
    for numa, cpus in node.machine.cpus_of_numa.items():
        reserved = kubelet.cpus.reserved & cpus
        yield ZoneAmounts(
            numa,
            "cpu",
            capacity=cpus.bit_count(),
            reserved=reserved.bit_count(),
            allocatable=(cpus & ~reserved).bit_count(),
            assigned=(assigned & cpus).bit_count(),
        )
    for position, numa in enumerate(kubelet.memory.numas):
        for kind, column in kubelet.memory.allocatable.items():
            yield ZoneAmounts(
                numa,
                kind,
                capacity=kubelet.memory.capacity[kind][position],
                reserved=kubelet.memory.system_reserved[kind][position],
                allocatable=column[position],
                assigned=column[position] - node.memory.free[kind][position],
            )
    for name, resource in kubelet.devices.resources.items():
        held = node.devices.allocated.get(name, 0)
        for numa in node.machine.by_numa:
            here = resource.devices_near(1 << numa)
            if here:
                yield ZoneAmounts(
                    numa,
                    name,
                    capacity=here.bit_count(),
                    reserved=0,
                    allocatable=(here & resource.healthy).bit_count(),
                    assigned=(here & resource.healthy & held).bit_count(),
                )
