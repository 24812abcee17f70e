"""Placements of every model, made of the models' own states."""

from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import Placement
from numazones.placement.kubelet import KubeletPlacement
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement


def placement_of(
    state: KubeletNode | KoordinatorNode | TopologyAwareNode, *, beneath: KubeletNode | None = None
) -> Placement:
    """The placement of a node in this state; ``beneath``: its kubelet's, where another model decides."""
    kubelet = None if beneath is None else KubeletPlacement(beneath)
    if isinstance(state, KubeletNode):
        return KubeletPlacement(state)
    if isinstance(state, KoordinatorNode):
        return KoordinatorPlacement(state, kubelet)
    return TopologyAwarePlacement(state, kubelet)
