"""The topology-aware policy's part of a simulated cluster: its plugin, nodes and pods for it."""

from collections.abc import Sequence

from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.placement_models import PublishedObject, Simulation, body_of
from numazones_topology_aware.identity import NAME, POLICIES
from numazones_topology_aware.publishing import topology_of
from numazones_topology_aware.simulation import node_kinds, workload
from numazones_topology_aware.simulation.plugin import CONFIGURATION, TopologyAwarePlugin

NAMESPACE = "kube-system"


_POLICY = body_of(POLICIES, {"name": "default", "namespace": NAMESPACE}, CONFIGURATION)


def _published(spec: NodeSpec, plugin: TopologyAwarePlugin) -> Sequence[PublishedObject]:
    """Return the pools as the plugin publishes them."""
    return (PublishedObject(NODE_RESOURCE_TOPOLOGIES, topology_of(plugin.node, spec.name), NAME),)


SIMULATION = Simulation(
    node_kinds=(node_kinds.topology_aware,),
    pod_forms=workload.FORMS,
    installed=((POLICIES, _POLICY),),
    plugin=TopologyAwarePlugin,
    published=_published,
)
"""The plugin places containers, and publishes what its pools have left."""
