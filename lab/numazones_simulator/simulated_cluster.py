"""A whole cluster on this machine: API server, kubelets, scheduler, controllers, and numazones itself.

What numazones brings to a cluster runs as it would there: real exporter processes read the simulated nodes'
files and sockets, a real operator process watches the API server. Only where there are too many nodes for a
process each, the simulated kubelets publish their zones themselves (``zone_publisher``).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from numazones.placement.kubelet import KUBELET
from numazones.wording import pluralize
from numazones_client.resources import NODES
from numazones_simulator import exporters, operators, placement_models, prevention, prometheus
from numazones_simulator.addresses import free_address
from numazones_simulator.background import background
from numazones_simulator.control_plane import ControlPlane, control_plane
from numazones_simulator.deployments import Deployments
from numazones_simulator.kube_scheduler.configuration import Configuration
from numazones_simulator.kube_scheduler.scheduler import KubeScheduler
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.prevention import Prevention
from numazones_simulator.programs import Programs
from numazones_simulator.recordings import NodeDirectories
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import SimulatedScheduler
from numazones_simulator.screen import Screen

_POLL = 0.1
MAX_EXPORTERS = 6
"""Up to so many nodes, each gets an exporter process unless told otherwise."""


class Publishing(StrEnum):
    """Publisher of the zones of simulated nodes."""

    EXPORTERS = "exporters"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """A running cluster."""

    plane: ControlPlane
    fleet: Fleet
    programs: Programs
    operator: str = ""
    """Where the operator serves its metrics, ``http://127.0.0.1:PORT``; empty where none runs."""
    exporters: Mapping[str, str] = field(default_factory=dict)
    """Node → where its exporter serves its metrics; empty where none run."""

    async def start_prometheus(self, directory: Path, *, rules: Sequence[Path] = ()) -> str:
        """Start a Prometheus that scrapes operator and exporters; return its URL.

        Raises:
            ProgramFailed: there is none on the path.
        """
        return await prometheus.start(
            self.programs, directory, operator=self.operator, exporters=self.exporters, rules=rules
        )


@asynccontextmanager
async def running(
    specs: Sequence[NodeSpec],
    directory: Path,
    screen: Screen,
    *,
    port: int = 0,
    publishing: Publishing | None = None,
    operator: Sequence[str] | None = (),
    recreate_pause: float = 1.0,
    prevent: Collection[Prevention] = (),
    second_scheduler: Configuration | None = None,
) -> AsyncIterator[SimulatedCluster]:
    """Run a cluster while the context is open; then all zones are published and the operator is ready.

    Args:
        specs: the nodes.
        directory: for the nodes' files, logs and the kubeconfig.
        screen: told about progress.
        port: of the API server; 0 takes a free one.
        publishing: who publishes zones; None: exporter processes for up to ``MAX_EXPORTERS`` nodes.
        operator: further arguments for the operator; None: run none.
        recreate_pause: seconds between two rounds of replacing failed replicas.
        prevent: what keeps pods from nodes that would reject them; needs the project's manifests. The gate
            is for pods of the namespace ``default``, the extender for those of the scheduler numazones.
        second_scheduler: a further scheduler, whose extenders are somebody else's business.

    Raises:
        NotPublished, NotReady, ProgramFailed: a program did not do its part; the message quotes its log.
    """
    publishing = publishing or (Publishing.EXPORTERS if len(specs) <= MAX_EXPORTERS else Publishing.DIRECT)
    with_files = publishing is Publishing.EXPORTERS
    async with (
        control_plane(directory, port=port) as plane,
        Programs(directory / "logs") as programs,
    ):
        await placement_models.install(plane.client, specs)
        fleet = Fleet(plane.client, specs, directory=directory if with_files else None)
        plane.server.node_proxy = fleet.answer
        screen.say(f"API server on {plane.server.url}")
        parts: list[Coroutine[Any, Any, None]] = [
            fleet.run(),
            SimulatedScheduler(plane.client).run(),
            *placement_models.controllers(plane.client, specs),
            ReplicaSets(plane.client, pause=recreate_pause).run(),
            Deployments(plane.client).run(),
        ]
        parts += [
            SimulatedZonePublisher(agent, plane.client, zones=not with_files).run()
            for agent in fleet.agents.values()
            if not with_files or agent.kubelet.spec.model != KUBELET
        ]
        async with background(*parts):
            screen.progress(f"starting {pluralize(len(specs), 'kubelet')}")
            await _until_registered(plane, len(specs))
            scraped: dict[str, str] = {}
            if with_files:
                for spec in specs:
                    screen.progress("starting an exporter for each node", spec.name)
                    scraped[spec.name] = await _start_exporter(
                        spec.name, directory / spec.name, plane, programs
                    )
            metrics = ""
            if operator is not None:
                screen.progress("starting the operator")
                arguments = (*operator, *(prevention.GATE_ARGUMENTS if Prevention.GATE in prevent else ()))
                metrics = await operators.start(plane.kubeconfig, programs, further=arguments)
                await operators.show_pod(plane.client, arguments, node=specs[0].name)
            screen.progress("waiting for the NUMAZones")
            await exporters.wait_for_zones(plane.client, {spec.name for spec in specs}, programs)
            if metrics:
                screen.progress("waiting for the operator")
                await operators.wait_until_ready(metrics, len(specs), programs)
            schedulers = [] if second_scheduler is None else [second_scheduler]
            if Prevention.GATE in prevent:
                await prevention.install_gate(plane.client, namespace="default")
            if Prevention.EXTENDER in prevent:
                screen.progress("starting the scheduler numazones")
                address = await prevention.start_extender(plane.kubeconfig, programs)
                schedulers.append(prevention.shipped_configuration(address))
            async with background(*(KubeScheduler(plane.client, one).run() for one in schedulers)):
                yield SimulatedCluster(plane, fleet, programs, operator=metrics, exporters=scraped)


async def _until_registered(plane: ControlPlane, count: int) -> None:
    while len(await plane.client.list(NODES)) < count:  # noqa: ASYNC110 - any kubelet may be the last
        await asyncio.sleep(_POLL)


async def _start_exporter(name: str, directory: Path, plane: ControlPlane, programs: Programs) -> str:
    directories = NodeDirectories.below(directory)
    metrics = free_address()
    command = exporters.command(name, directories, server=plane.server.url, metrics=metrics)
    await programs.start(f"exporter-{name}", command)
    return f"http://{metrics}"
