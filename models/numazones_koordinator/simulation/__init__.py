"""Koordinator's part of a simulated cluster: koordlet, koord-scheduler, nodes and pods for them."""

from collections.abc import Coroutine, Sequence
from typing import Any

from numazones.placement.models import ObjectKind
from numazones_client import Client, Resource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_koordinator.identity import DEVICE
from numazones_koordinator.simulation import koordlet, node_kinds, workload
from numazones_koordinator.simulation.koord_scheduler import KoordScheduler, books
from numazones_simulator.node_kinds import Kind
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.placement_models import Body, PodForm, PublishedObject, RuntimePlugin

_MANAGER = "koordlet"


class KoordinatorSimulation:
    """koordlet publishes nodes, koord-scheduler places pods on them."""

    node_kinds: Sequence[Kind] = (node_kinds.koordinator, node_kinds.koordinator_aligned)
    pod_forms: Sequence[PodForm] = workload.FORMS

    def installed(self) -> Sequence[tuple[ObjectKind, Body]]:
        """Return nothing: agents publish all that there is."""
        return ()

    def plugin(self, _spec: NodeSpec) -> RuntimePlugin | None:
        """Return None: nothing in the runtime decides."""
        return None

    def published(self, spec: NodeSpec, _plugin: RuntimePlugin | None) -> Sequence[PublishedObject]:
        """Return what koordlet publishes of a node."""
        topology = koordlet.topology_of(spec.name, spec.machine)
        return (
            PublishedObject(NODE_RESOURCE_TOPOLOGIES, topology, _MANAGER),
            PublishedObject(Resource.of_kind(DEVICE), koordlet.device_of(spec), _MANAGER),
        )

    def controllers(self, client: Client, specs: Sequence[NodeSpec]) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the scheduler."""
        return (KoordScheduler(client, books(specs)).run(),)


SIMULATION = KoordinatorSimulation()
