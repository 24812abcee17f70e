"""The topology-aware policy's part of a simulated cluster: its plugin, nodes and pods for it."""

from collections.abc import Coroutine, Sequence
from typing import Any

from numazones.placement.models import ObjectKind
from numazones_client import Client
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_simulator.node_kinds import Kind
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.placement_models import Body, PodForm, PublishedObject, RuntimePlugin
from numazones_topology_aware.identity import NAME, POLICIES
from numazones_topology_aware.publishing import topology_of
from numazones_topology_aware.simulation import node_kinds, workload
from numazones_topology_aware.simulation.plugin import CONFIGURATION, TopologyAwarePlugin

NAMESPACE = "kube-system"


class TopologyAwareSimulation:
    """The plugin places containers, and publishes what its pools have left."""

    node_kinds: Sequence[Kind] = (node_kinds.topology_aware,)
    pod_forms: Sequence[PodForm] = workload.FORMS

    def installed(self) -> Sequence[tuple[ObjectKind, Body]]:
        """Return the policy's configuration."""
        policy = {
            "apiVersion": f"{POLICIES.group}/{POLICIES.version}",
            "kind": POLICIES.kind,
            "metadata": {"name": "default", "namespace": NAMESPACE},
            "spec": dict(CONFIGURATION),
        }
        return ((POLICIES, policy),)

    def plugin(self, spec: NodeSpec) -> TopologyAwarePlugin:
        """Return the plugin of a node."""
        return TopologyAwarePlugin(spec)

    def published(self, spec: NodeSpec, plugin: RuntimePlugin | None) -> Sequence[PublishedObject]:
        """Return the pools as the plugin publishes them."""
        if not isinstance(plugin, TopologyAwarePlugin):
            return ()
        return (PublishedObject(NODE_RESOURCE_TOPOLOGIES, topology_of(plugin.node, spec.name), NAME),)

    def controllers(self, _client: Client, _specs: Sequence[NodeSpec]) -> Sequence[Coroutine[Any, Any, None]]:
        """Return nothing: the plugin runs on the nodes."""
        return ()


SIMULATION = TopologyAwareSimulation()
