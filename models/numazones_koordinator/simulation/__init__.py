"""Koordinator's part of a simulated cluster: koordlet, koord-scheduler, nodes and pods for them."""

from collections.abc import Sequence

from numazones_client import Resource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_koordinator.identity import DEVICE
from numazones_koordinator.simulation import koordlet, node_kinds, workload
from numazones_koordinator.simulation.koord_scheduler import KoordScheduler, books
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.placement_models import PublishedObject, Simulation

_MANAGER = "koordlet"


def _published(spec: NodeSpec, _plugin: None) -> Sequence[PublishedObject]:
    """Return what koordlet publishes of a node."""
    topology = koordlet.topology_of(spec.name, spec.machine)
    return (
        PublishedObject(NODE_RESOURCE_TOPOLOGIES, topology, _MANAGER),
        PublishedObject(Resource.of_kind(DEVICE), koordlet.device_of(spec), _MANAGER),
    )


SIMULATION = Simulation(
    node_kinds=(node_kinds.koordinator, node_kinds.koordinator_aligned),
    pod_forms=workload.FORMS,
    published=_published,
    controllers=lambda client, specs: (KoordScheduler(client, books(specs)).run(),),
)
"""koordlet publishes nodes, koord-scheduler places pods on them."""
