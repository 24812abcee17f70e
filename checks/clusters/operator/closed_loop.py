"""A cluster in one process: API server, simulated kubelets, a NUMA-blind scheduler, and the operator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from numazones.api.meta import NODE_LABEL
from numazones.cluster.admission_gate import OPT_IN
from numazones_apiserver import ApiServer
from numazones_client import Client, ClusterConfig
from numazones_client.resources import ADMISSION_PREDICTIONS, LEASES, NAMESPACES, NUMAZONES, PODS
from numazones_operator.options import OperatorOptions
from numazones_operator.process import Operator
from numazones_simulator import exporters, node_kinds, placement_models
from numazones_simulator.control_plane import control_plane
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.recordings import NodeDirectories
from numazones_simulator.scheduler import SimulatedScheduler
from tests.operator.pods import pod_body
from tests.waiting import PATIENCE, eventually

OPTIONS = OperatorOptions(
    metrics_address="127.0.0.1:0",
    namespace="numazones-system",
    debounce=0.01,
    # No test waits for any of these. On a machine that stands still for seconds, zones are written one long
    # after the other, and that makes no node unknown; a leader is to go on leading.
    settle=PATIENCE,
    leader_elect_lease_duration=PATIENCE,
    leader_elect_renew_deadline=PATIENCE - 1,
    leader_elect_retry_period=0.2,
    log_level="warning",
)


class LatePublisher(SimulatedZonePublisher):
    """Publishes what has collected within a while."""

    def __init__(self, agent: Agent, client: Client, lag: float) -> None:
        super().__init__(agent, client)
        self._lag = lag

    async def publish(self) -> None:
        await asyncio.sleep(self._lag)
        await super().publish()


async def runs(client: Client, name: str) -> bool:
    """Return whether a pod of the namespace ``default`` runs."""
    body = await client.get(PODS, name, namespace="default")
    return bool((body.get("status") or {}).get("phase") == "Running")


@dataclass
class Loop:
    """The running cluster."""

    server: ApiServer
    client: Client
    kubeconfig: Path
    stack: AsyncExitStack
    tasks: asyncio.TaskGroup
    fleet: Fleet | None = None
    specs: Sequence[NodeSpec] = ()
    publishers: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def start_nodes(self, specs: Sequence[NodeSpec], *, lag: float = 0.0) -> None:
        """Start kubelets and what publishes their zones, ``lag`` seconds late; wait for the first zones."""
        await placement_models.install(self.client, specs)
        self.specs = specs
        fleet = self.fleet = Fleet(self.client, specs)
        self.tasks.create_task(fleet.run())
        for name, agent in fleet.agents.items():
            self.publishers[name] = self.tasks.create_task(LatePublisher(agent, self.client, lag).run())
        wanted = sum(len(spec.machine.numa_nodes) for spec in specs)
        await eventually(lambda: self._zones_are_published(wanted, len(fleet.agents)))

    async def _zones_are_published(self, zones: int, leases: int) -> bool:
        written = [zone for zone in await self.client.list(NUMAZONES) if zone.get("status")]
        beats = await self.client.list(
            LEASES, namespace=OPTIONS.exporter_namespace, label_selector=NODE_LABEL
        )
        return len(written) == zones and len(beats) == leases

    async def start_kubelet(self, directory: Path) -> list[str]:
        """Start a node, n1, with the files that an exporter reads; return the command of its exporter."""
        fleet = Fleet(self.client, [node_kinds.single_numa_node("n1", "10.0.0.1")], directory=directory)
        self.server.node_proxy = fleet.answer
        self.tasks.create_task(fleet.run())
        await fleet.agents["n1"].registered.wait()
        return exporters.command("n1", NodeDirectories.below(directory / "n1"), server=self.server.url)

    def start_scheduler(self) -> None:
        """Start binding pods."""
        self.tasks.create_task(SimulatedScheduler(self.client).run())
        for controller in placement_models.controllers(self.client, self.specs):
            self.tasks.create_task(controller)

    async def start_operator(
        self, options: OperatorOptions = OPTIONS, *, leads: bool = True, server: str = "", **changes: Any
    ) -> Operator:
        """Start an operator; wait until it has seen everything and, unless it is to stand by, leads.

        ``server``: by which URL it knows the API server.
        """
        operator = Operator(replace(options, **changes), ClusterConfig(server=server or self.server.url))
        running = asyncio.create_task(operator.run())
        self.stack.push_async_callback(_end, operator, running)

        def begun() -> bool:
            return operator.leadership.leading if leads else operator.ready.is_set()

        await eventually(lambda: begun() or running.done(), what="the operator has begun")
        assert not running.done(), operator.failed
        return operator

    async def create_pod(self, name: str, *, namespace: str = "default", **spec: Any) -> dict[str, Any]:
        """Create a pod of one Guaranteed container (``cpu``, ``memory``, ``limits``) and more of a spec."""
        return await self.client.create(
            PODS, pod_body(name, namespace=namespace, **spec), namespace=namespace
        )

    async def bind(self, name: str, node: str, *, namespace: str = "default") -> None:
        """Give a pod a node, as a scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.client.create(PODS, body, namespace=namespace, subresource="binding")

    async def runs(self, name: str) -> bool:
        """Return whether a pod runs."""
        return await runs(self.client, name)

    async def run_on(self, node: str, name: str) -> None:
        """Bind a pod, and wait until it runs."""
        await self.bind(name, node)
        await eventually(lambda: self.runs(name), what=f"{name} runs")

    async def opt_in(self) -> None:
        """Let the gate take the pods of the namespace ``default``."""
        await self.client.patch(NAMESPACES, "default", {"metadata": {"labels": dict([OPT_IN])}})

    async def predictions(self) -> dict[str, dict[str, Any]]:
        """All AdmissionPredictions' statuses by name."""
        found = await self.client.list(ADMISSION_PREDICTIONS)
        return {item["metadata"]["name"]: item.get("status") or {} for item in found}

    async def verdict(self, name: str) -> str:
        """Return what is published about a pod; empty if nothing is."""
        return str((await self.predictions()).get(name, {}).get("verdict", ""))


async def _end(operator: Operator, running: asyncio.Task[None]) -> None:
    operator.stop()
    await running
    assert not operator.failed


@asynccontextmanager
async def closed_loop(directory: Path) -> AsyncIterator[Loop]:
    """Serve an API with our definitions; what is started in the loop is stopped with it."""
    async with control_plane(directory) as plane, asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        loop = Loop(plane.server, plane.client, plane.kubeconfig, stack, tasks)
        try:
            yield loop
        finally:
            await stack.aclose()
            for task in asyncio.all_tasks():
                if task in tasks._tasks:
                    task.cancel()


async def metrics(operator: Operator) -> dict[str, float]:
    """Return the series of an operator's /metrics: series → value."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{operator.port}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }
