"""A cluster whose every event is written down: real exporters and operators, simulated kubelets.

Programs run as processes, so that they can be killed and stopped. API server, kubelets, scheduler and
controllers run in this process, and so the history has one order.
"""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from http import HTTPStatus
from pathlib import Path
from typing import Any

from checks.clusters import shipped_rights
from checks.clusters.chaos import tenant
from checks.clusters.chaos.checker import Event
from numazones.cluster.admission_gate import OPT_IN
from numazones_apiserver import ApiServer, DeleteOptions, kubeconfig
from numazones_apiserver.errors import StatusError
from numazones_apiserver.requests import HTTPRequest, RequestInfo
from numazones_apiserver.responses import HTTPResponse
from numazones_apiserver.store import Collection, Record
from numazones_client import Client, ClusterConfig
from numazones_client.resources import NAMESPACES
from numazones_simulated_models.topology_aware.node_kinds import topology_aware
from numazones_simulator import control_plane, exporters, node_kinds, placement_models
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from numazones_simulator.recordings import NodeDirectories
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import SimulatedScheduler
from tests.places import ROOT

NODES = ("n1", "n2")
_SEPARATOR = "@"
_POOL = "pool"
"""A node of another model, which reads annotations; only hostile pods tolerate its taint."""
REPLICAS = ("first", "second")
RESERVING = "numazones-reserved-annotations"
"""The policy, and its binding, that keeps others from writing our programs' annotations."""
_PARTS = (
    "exporter",
    "operator",
    "components/operator-admission-gate",
    "components/operator-eviction",
)
_READS = ("get", "list", "watch")
_TOLD = (
    "pods",
    "numazones",
    "admissionpredictions",
    "rebalancepolicies",
    "rebalancerecommendations",
    "poddisruptionbudgets",
)


class History:
    """Events, with the time since the beginning."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._began = time.monotonic()

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def add(self, kind: str, **what: Any) -> None:
        """Write an event down."""
        self.events.append({"t": self.now(), "kind": kind, **what})

    def add_fault(self, name: str, began: float) -> None:
        """Write down a fault that is over."""
        event = {"t": began, "kind": "fault", "name": name, "until": self.now()}
        self.events.append(event)
        self.events.sort(key=lambda one: one["t"])

    def write(self, path: Path) -> None:
        """Write all events to a file, one a line."""
        path.write_text("".join(json.dumps(event) + "\n" for event in self.events))


_REQUEST: ContextVar[dict[str, Any] | None] = ContextVar("the request that is being answered", default=None)


class WatchedServer(ApiServer):
    """An API server that writes down every change, and which request it was."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.store.listeners.append(self._note)

    async def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Answer a request, and write down what was denied."""
        answered = await super().answer(request)
        if answered.status == HTTPStatus.FORBIDDEN:
            message = json.loads(answered.body)["message"]
            self.history.add("denied", client=request.headers.get("User-Agent", ""), message=message)
        return answered

    async def _answer(self, request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        text = "" if info.verb in _READS or info.resource not in _TOLD else request.body.decode()
        _REQUEST.set(
            {
                "client": request.headers.get("User-Agent", ""),
                "verb": info.verb,
                "sub": info.subresource,
                "body": json.loads(text) if text.startswith(("{", "[")) else None,
            }
        )
        if (info.verb, info.resource) == ("patch", "pods") and info.name.startswith(tenant.POISON):
            raise StatusError(500, "InternalError", "etcdserver: request is too large")
        return await super()._answer(request, info)

    def _note(self, collection: Collection, record: Record) -> None:
        if collection.plural in _TOLD:
            after = {**record.after.object}
            after["metadata"] = {k: v for k, v in after["metadata"].items() if k != "managedFields"}
            request = _REQUEST.get() or {"client": "", "verb": "", "sub": "", "body": None}
            self.history.add(
                "object",
                resource=collection.plural,
                name=record.key[1],
                type=record.type,
                after=after,
                **request,
            )


class Cluster:
    """The cluster as the driver acts on it."""

    def __init__(
        self,
        directory: Path,
        server: WatchedServer,
        client: Client,
        fleet: Fleet,
        tasks: asyncio.TaskGroup,
        *,
        defect: str,
    ) -> None:
        """Act on what is given.

        Args:
            directory: of nodes, of programs' logs.
            server: the API server.
            client: of the driver.
            fleet: the kubelets.
            tasks: fails when a program ends by itself.
            defect: what is put into every replica of the operator; empty: none.
        """
        self._defect = defect
        self._tasks = tasks
        self.directory = directory
        self.server = server
        self.client = client
        self.fleet = fleet
        self.history = server.history
        self.processes: dict[str, Process] = {}
        (self._binding,) = (
            body
            for body in _shipped()
            if (body["kind"], body["metadata"]["name"]) == ("ValidatingAdmissionPolicyBinding", RESERVING)
        )

    async def bind_reservation(self, *, bound: bool) -> None:
        """Put the policy that reserves our programs' annotations to work, or out of it."""
        if bound:
            shipped_rights.create(self.server, self._binding)
        else:
            kind = self.server.kind("validatingadmissionpolicybindings", "admissionregistration.k8s.io")
            self.server.writes.delete(kind, "", RESERVING, DeleteOptions())

    async def start_operator(self, name: str) -> None:
        """Start a replica of the operator, with the defect if there is one."""
        arguments = [
            f"--kubeconfig={self._kubeconfig(name, shipped_rights.OPERATOR, '')}",
            f"--identity={name}",
            f"--namespace={control_plane.NAMESPACE}",
            "--metrics-address=127.0.0.1:0",
            "--admission-gate",
            "--admission-gate-timeout=0s",
            "--rebalance-period=300ms",
            "--rebalance-patience=20s",
            "--watch-silence=5s",
            "--log-format=text",
        ]
        await self._start(
            name, [sys.executable, "-m", "checks.clusters.chaos.defects", self._defect, *arguments]
        )

    async def start_exporter(self, node: str) -> None:
        """Start the exporter of a node."""
        place = self.directory / node
        directories = NodeDirectories.below(place)
        command = exporters.command(node, directories, server="")
        program = str(Path(sys.executable).with_name(command[0]))
        access = f"--kubeconfig={self._kubeconfig(node, shipped_rights.EXPORTER, node)}"
        await self._start(node, [program, *(one for one in command[1:] if one != "--server="), access])

    def _kubeconfig(self, name: str, user: str, node: str) -> Path:
        """Write a kubeconfig with a token that names a service account, and the node it is bound to."""
        path = self.directory / f"{name}.kubeconfig"
        return kubeconfig.write(path, self.server.url, _SEPARATOR.join((user, node)))

    async def _start(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        self.processes[name] = process
        self._tasks.create_task(self._runs_until_killed(name, process))

    async def _runs_until_killed(self, name: str, process: Process) -> None:
        status = await process.wait()
        if self.processes.get(name) is process:
            log = (self.directory / f"{name}.log").read_text(errors="replace")
            raise AssertionError(f"{name} ended by itself with {status}:\n{log[-4000:]}")

    async def kill(self, name: str) -> None:
        """Kill a program as a lack of memory does."""
        process = self.processes.pop(name)
        if process.returncode is None:
            process.kill()
        await process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program."""
        if self.processes[name].returncode is None:
            self.processes[name].send_signal(number)


def _shipped() -> list[dict[str, Any]]:
    """Return the roles and admission policies as they are shipped."""
    return shipped_rights.manifests(ROOT, *_PARTS)


def _account_of(request: HTTPRequest) -> shipped_rights.Account | None:
    """Return whose token a request carries; None: the administrator's, or that of a part of the cluster."""
    user, separator, node = (
        request.headers.get("Authorization", "").removeprefix("Bearer ").partition(_SEPARATOR)
    )
    return (user, node) if separator else None


def _mask(ids: Iterable[int]) -> int:
    return sum(1 << number for number in ids)


def _watch(agent: Agent, history: History) -> None:
    """Write down what a kubelet does."""
    kubelet = agent.kubelet
    machine = kubelet.spec.machine
    usable = kubelet.node.kubelet.cpus.allocatable()
    of_zone = {
        str(zone.id): usable & _mask(cpu.id for cpu in machine.cpus if cpu.numa == zone.id)
        for zone in machine.numa_nodes
    }
    admit, remove = kubelet.admit, kubelet.remove

    def note(uid: str, what: str, reason: str = "") -> None:
        held = {
            pod: cpus for pod, cpus in kubelet.node.cpus.exclusive_cpus_by_pod().items() if kubelet.runs(pod)
        }
        taken = 0
        for cpus in held.values():
            taken |= cpus
        pods = {
            pod: [zone, (cpus & mask).bit_count()]
            for pod, cpus in held.items()
            for zone, mask in of_zone.items()
            if cpus & mask
        }
        free = {zone: (mask & ~taken).bit_count() for zone, mask in of_zone.items()}
        history.add("kubelet", node=agent.name, uid=uid, what=what, reason=reason, free=free, pods=pods)

    def noted_admit(body: Mapping[str, Any]) -> Any:
        verdict = admit(body)
        what = "admitted" if verdict.rejection is None else "rejected"
        reason = "" if verdict.rejection is None else verdict.rejection.reason
        note(body["metadata"]["uid"], what, reason)
        return verdict

    def noted_remove(uid: str) -> bool:
        removed = remove(uid)
        if removed:
            note(uid, "removed")
        return removed

    kubelet.admit, kubelet.remove = noted_admit, noted_remove  # type: ignore[method-assign]
    note("", "started")


@asynccontextmanager
async def running(directory: Path, *, defect: str = "") -> AsyncIterator[Cluster]:
    """Run the cluster; then zones are published and an operator leads."""
    history = History()
    async with (
        WatchedServer(history) as server,
        Client(ClusterConfig(server=server.url), user_agent="driver") as client,
    ):
        await control_plane.install(client)
        shipped_rights.guard(server, _shipped(), _account_of)
        opt_in = {"metadata": {"labels": {OPT_IN[0]: OPT_IN[1]}}}
        await client.patch(NAMESPACES, "default", opt_in)
        await tenant.prepare(client)
        specs = [node_kinds.single_numa_node(name, f"10.0.0.{n}") for n, name in enumerate(NODES, 1)]
        specs.append(topology_aware(_POOL, "10.0.0.9"))
        await placement_models.install(client, specs)
        fleet = Fleet(client, specs, directory=directory)
        server.node_proxy = fleet.answer
        for name in NODES:
            _watch(fleet.agents[name], history)
        parts = [
            fleet.run(),
            SimulatedScheduler(client).run(),
            ReplicaSets(client, pause=0.2).run(),
            SimulatedZonePublisher(fleet.agents[_POOL], client).run(),
        ]
        async with asyncio.TaskGroup() as tasks:
            cluster = Cluster(directory, server, client, fleet, tasks, defect=defect)
            running_parts = [tasks.create_task(part) for part in parts]
            try:
                for agent in fleet.agents.values():
                    await agent.registered.wait()
                for name in NODES:
                    await cluster.start_exporter(name)
                for name in REPLICAS:
                    await cluster.start_operator(name)
                yield cluster
            finally:
                for name in list(cluster.processes):
                    cluster.signal(name, signal.SIGCONT)
                    await cluster.kill(name)
                for part in running_parts:
                    part.cancel()
