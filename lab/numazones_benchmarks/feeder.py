"""An API server that only lists, watches and takes writes, in a process of its own, for the benchmarks."""

import asyncio
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
from aiohttp import web

from numazones import cpuset
from numazones.api.zones import zones_from_node
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.startup import Kubelet
from numazones_client import ClusterConfig
from numazones_operator.options import Options
from numazones_operator.process import Operator

GIB = 1 << 30
ZONES = 2  # per node, unless told otherwise
CORES = 16  # per zone, two threads each
DISTINCT = 200
"""Different fillings of nodes, as long as states are not asked to be all distinct."""
PREPARED = 5000
"""So many changes are made before the first is sent; a longer load repeats them."""
LATER = 10_000_000
"""The first of the fillings that nodes get later: one for each change that is prepared."""
NAME = "name-of-the-node"
FOLLOWED = {
    "/api/v1": ("namespaces", "Namespace"),
    "/apis/numazones.io/v1alpha1": ("rebalancepolicies", "RebalancePolicy"),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions", "CustomResourceDefinition"),
}
"""What kopf follows, by the path of its group."""


def group_of(path: str) -> dict[str, Any]:
    """A group of the API, as discovery tells of it."""
    _, _, name, version = path.split("/")
    versions = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [versions], "preferredVersion": versions}


DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1"},
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": [group_of(path) for path in FOLLOWED if path.startswith("/apis/")]},
} | {
    path: {
        "resources": [
            {
                "name": plural,
                "singularName": "",
                "kind": kind,
                "namespaced": False,
                "verbs": ["list", "watch", "patch"],
            }
        ]
    }
    for path, (plural, kind) in FOLLOWED.items()
}
"""What kopf asks for when it starts."""


def machine(zones: int = ZONES) -> Machine:
    """Two sockets, and so many NUMA nodes of 16 cores with two threads."""
    cpus = tuple(
        CPU(thread * zones * CORES + core, core, core * 2 // (zones * CORES), 0, core // CORES)
        for core in range(zones * CORES)
        for thread in range(2)
    )
    return Machine(cpus, tuple(NUMANode(zone, 128 * GIB) for zone in range(zones)))


class Cluster:
    """Objects as an API server would have them."""

    def __init__(self, *, nodes: int, pods: int, distinct: bool, zones: int = ZONES) -> None:
        self.zone_count = zones
        self.machine = machine(zones)
        self.reserved = {cpu.id for cpu in self.machine.cpus if cpu.core % CORES == 0}
        self.config = KubeletConfiguration.from_api(
            {
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": ",".join(map(str, sorted(self.reserved))),
                "memoryManagerPolicy": "Static",
                # With the 100 MiB of the kubelet's threshold for evictions.
                "systemReserved": {"memory": f"{zones * 1024 - 100}Mi"},
                "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in range(zones)],
                "topologyManagerPolicy": "single-numa-node",
            }
        )
        self.names = [f"worker-{number:04}" for number in range(nodes)]
        self.fillings = nodes if distinct else DISTINCT
        self.draw = random.Random(1)
        self.version = 1
        self.zone_bodies = {
            body["metadata"]["name"]: body
            for number, name in enumerate(self.names)
            for body in self.zones(name, number % self.fillings)
        }
        self.pods = {f"pod-{number:05}": self.pod(number) for number in range(pods)}

    def zones(self, name: str, filling: int) -> list[dict[str, Any]]:
        """The zones of a node of which some CPUs are held."""
        zones: list[dict[str, Any]] = json.loads(self.filled(filling).replace(NAME, name))
        return zones

    @cache  # noqa: B019 - there is one cluster, for as long as the process lives
    def filled(self, filling: int) -> str:
        """JSON of the zones of a node that has NAME for its name."""
        draw = random.Random(filling)
        spare = [cpu.id for cpu in self.machine.cpus if cpu.id not in self.reserved]
        held: dict[str, dict[str, int]] = {}
        for number in range(2 * self.zone_count):
            taken = draw.sample(spare, draw.randrange(2, 12))
            spare = [cpu for cpu in spare if cpu not in taken]
            held[f"uid-{NAME}-{number}"] = {"main": cpuset.of(taken)}
        node = Node.restore(Kubelet.start(self.config, self.machine, {}), cpu_assignments=held)
        return json.dumps([zone.to_api() for zone in zones_from_node(node, node_name=NAME, pods={})])

    def pod(self, number: int) -> dict[str, Any]:
        """A running pod of some 4 KB; every tenth is Guaranteed and of a size that holds nothing."""
        amounts = {"cpu": f"{100 + number % 7 * 100}m", "memory": f"{1 + number % 5}Gi"}
        limits = amounts if number % 10 == 0 else {"memory": amounts["memory"]}
        deployment = f"deployment-{number % 300}"
        filler = {f"annotation.example/{key}": "x" * 120 for key in range(8)}
        return {
            "metadata": {
                "namespace": f"team-{number % 40}",
                "name": f"pod-{number:05}",
                "uid": f"uid-pod-{number:05}",
                "creationTimestamp": "2026-01-31T08:00:00Z",
                "resourceVersion": "1",
                "labels": {"app": deployment, "pod-template-hash": "5d4f8c7b9"},
                "annotations": filler,
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": deployment,
                        "uid": deployment,
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "nodeName": self.names[number % len(self.names)],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/app:1.0",
                        "env": [{"name": f"VARIABLE_{key}", "value": "y" * 40} for key in range(20)],
                        "resources": {"requests": amounts, "limits": limits},
                    }
                ],
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
                ],
            },
            "status": {
                "phase": "Running",
                "qosClass": "Guaranteed" if number % 10 == 0 else "Burstable",
                "startTime": "2026-01-31T08:00:10Z",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "main", "ready": True}],
            },
        }

    def node(self, name: str) -> dict[str, Any]:
        """A Node."""
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {
                    "cpu": str(self.zone_count * (2 * CORES - 2)),
                    "memory": f"{125 * self.zone_count}Gi",
                    "pods": "110",
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def lease(self, name: str) -> dict[str, Any]:
        """The Lease of an exporter."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        return {
            "metadata": {"name": f"numazones-exporter-{name}", "labels": {"numazones.io/node": name}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": now},
        }


class Feeder:
    """Just as much of an API server as the operator talks to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.waiting: dict[str, dict[str, Any]] = {}
        """Name → pod that came without a node."""
        self.sent_bytes = 0
        """Of lists and watches, before compression."""
        self.written: Counter[str] = Counter()
        """Requests that write, and their bytes with those of the answers."""
        self.watchers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self.pods_of: dict[str, list[dict[str, Any]]] = {}
        for pod in cluster.pods.values():
            self.pods_of.setdefault(pod["spec"]["nodeName"], []).append(pod)
        self.objects = {
            "nodes": [json.dumps(cluster.node(name)) for name in cluster.names],
            "leases": [json.dumps(cluster.lease(name)) for name in cluster.names],
            "numazones": [json.dumps(body) for body in cluster.zone_bodies.values()],
            "pods": [json.dumps(body) for body in cluster.pods.values()],
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        parts = request.path.strip("/").split("/")
        if parts[0] == "feed":
            return await self.feed(request)
        resource = parts[-1]
        if request.method != "GET":
            body = await request.json()
            body.setdefault("metadata", {})["resourceVersion"] = str(self.next_version())
            answer = web.json_response(body, status=201 if request.method == "POST" else 200)
            self.written["requests"] += 1
            self.written["bytes"] += (request.content_length or 0) + len(answer.body or b"")  # type: ignore[arg-type]
            return answer
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        if request.query.get("watch"):
            return await self.watch(request, resource)
        return self.list(request, resource)

    def list(self, request: web.Request, resource: str) -> web.Response:
        """One page of a list."""
        items = self.objects.get(resource, [])
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 500)
        following = start + limit if start + limit < len(items) else ""
        head = json.dumps({"resourceVersion": "1", "continue": str(following)})
        body = f'{{"kind":"List","metadata":{head},"items":[{",".join(items[start : start + limit])}]}}'
        self.sent_bytes += len(body)
        return web.Response(text=body, content_type="application/json")

    async def watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        """Events, until the operator goes."""
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.watchers.setdefault(resource, []).append(queue)
        try:
            while True:
                line = await queue.get()
                self.sent_bytes += len(line)
                await response.write(line)
        finally:
            self.watchers[resource].remove(queue)

    def next_version(self) -> int:
        """A version newer than all before."""
        self.cluster.version += 1
        return self.cluster.version

    def send(self, resource: str, kind: str, body: dict[str, Any]) -> None:
        """Tell the watchers."""
        if resource == "pods" and kind == "ADDED":
            self.waiting[body["metadata"]["name"]] = body
        body["metadata"]["resourceVersion"] = str(self.next_version())
        line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
        for queue in self.watchers.get(resource, []):
            queue.put_nowait(line)

    async def feed(self, request: web.Request) -> web.Response:
        """Do what the benchmark asks: pods that wait, or changes of zones at a rate."""
        order = await request.json()
        if "pods" in order:
            for body in order["pods"]:
                self.send("pods", "ADDED", body)
            return web.json_response({})
        return web.json_response(
            await self.change_zones(order["rate"], order["seconds"], pods_too=order.get("pods_too", False))
        )

    async def change_zones(self, rate: float, seconds: float, *, pods_too: bool) -> dict[str, float]:
        """Change nodes so that so many zones change a second; on each node a pod may make way for another."""
        started = time.monotonic()
        count = int(rate * seconds / self.cluster.zone_count)
        names = self.cluster.draw.choices(self.cluster.names, k=min(count, PREPARED))
        changes = [(name, self.cluster.zones(name, LATER + number)) for number, name in enumerate(names)]
        prepared, zones, pods = time.monotonic() - started, 0, 0
        sent, written = self.sent_bytes, self.written.copy()
        started = time.monotonic()
        for number, (name, bodies) in enumerate(islice(cycle(changes), count)):
            await asyncio.sleep(max(0.0, started + zones / rate - time.monotonic()))
            if pods_too:
                pods += self.replace_pod(name, number)
            for body in bodies:
                self.send("numazones", "MODIFIED", body)
                zones += 1
        took = time.monotonic() - started
        return {
            "events": zones + pods,
            "node_changes": count,
            "seconds": took,
            "prepared": prepared,
            "sent_bytes": self.sent_bytes - sent,
            "writes": self.written["requests"] - written["requests"],
            "written_bytes": self.written["bytes"] - written["bytes"],
        }

    def replace_pod(self, node: str, number: int) -> int:
        """Delete a pod of a node, create another, bind it and have it run; return the number of events."""
        events = 3
        if there := self.pods_of.get(node):
            self.send("pods", "DELETED", there.pop(0))
            events += 1
        # Not Guaranteed: the zones would have to show it.
        body = self.cluster.pod(10 * number + 1)
        name = f"later-{self.next_version()}"
        body["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        spec, status = body["spec"] | {"nodeName": node}, body.pop("status")
        del body["spec"]["nodeName"]
        self.send("pods", "ADDED", body | {"status": {"phase": "Pending"}})
        self.send("pods", "MODIFIED", body | {"spec": spec, "status": {"phase": "Pending"}})
        running = body | {"spec": spec, "status": status}
        self.send("pods", "MODIFIED", running)
        self.waiting.pop(name, None)
        self.pods_of.setdefault(node, []).append(running)
        return events


def serve(pipe: Connection, kind: type[Feeder], size: dict[str, Any]) -> None:
    """Run a feeder until killed; tell the port through the pipe."""

    async def forever() -> None:
        feeder = kind(Cluster(**size))
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", feeder.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(forever())


@contextmanager
def feeding(
    *,
    nodes: int,
    pods: int,
    distinct: bool,
    zones: int = ZONES,
    kind: type[Feeder] = Feeder,
    helper: Callable[[Connection], None] | None = None,
) -> Iterator[tuple[int, Connection]]:
    """Run a feeder, and a helper, in processes of their own; give the port and a pipe to the helper."""
    here, there = multiprocessing.Pipe()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    arguments = (there, kind, {"nodes": nodes, "pods": pods, "distinct": distinct, "zones": zones})
    processes = [context.Process(target=serve, args=arguments, daemon=True)]
    if helper is not None:
        processes.append(context.Process(target=helper, args=(theirs,), daemon=True))
    for process in processes:
        process.start()
    try:
        yield here.recv(), ours
    finally:
        for process in processes:
            process.kill()


@asynccontextmanager
async def operator_on(port: int, **settings: Any) -> AsyncIterator[Operator]:
    """Run an operator in this process, which has read everything that a feeder has."""
    options = Options(metrics_address="127.0.0.1:0", log_level="warning", **settings)
    operator = Operator(options, ClusterConfig(server=f"http://127.0.0.1:{port}"))
    running = asyncio.create_task(operator.run())
    await operator.ready.wait()
    yield operator
    operator.stop()
    await running


def waiting_pod(number: int, cpus: int) -> dict[str, Any]:
    """A Guaranteed pod without a node."""
    amounts = {"cpu": str(cpus), "memory": "4Gi"}
    return {
        "metadata": {
            "namespace": "default",
            "name": f"waiting-{number}",
            "uid": f"uid-waiting-{number}",
            "creationTimestamp": "2026-01-31T09:00:00Z",
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Pending"},
    }


def pods_of_ten_kinds(name: str, count: int) -> list[dict[str, Any]]:
    """Pods without a node, of ten sizes."""
    pods = []
    for number in range(count):
        pod = waiting_pod(number, 2 + number % 10)
        pod["metadata"] |= {"name": f"{name}-{number}", "uid": f"uid-{name}-{number}"}
        pods.append(pod)
    return pods


async def until(done: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def post(session: aiohttp.ClientSession, order: dict[str, Any]) -> dict[str, Any]:
    """Tell the feeder what to do and wait until it is done."""
    async with session.post("/feed", json=order, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        result: dict[str, Any] = await answer.json()
    return result


def report(figures: dict[str, Any], missed: list[str], goals: dict[str, float], *, as_json: bool) -> int:
    """Print the figures; return the exit code: 1 if goals were missed."""
    figures = figures | {"goals": goals, "missed": missed}
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    return 1 if missed else 0
