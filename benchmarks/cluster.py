"""How the operator copes with a large cluster: time to sync, memory, time per prediction, lag under load.

An API server that only lists, watches and accepts writes runs in a process of its own and feeds the operator,
which runs here through its real entry points: reflectors, forecasts, publisher. With --viewers the load is
applied in turns with nobody and with so many looking at the live page, from a third process.

    .venv/bin/python benchmarks/cluster.py --nodes 5000 --pods 50000 --json
    .venv/bin/python benchmarks/cluster.py --nodes 5000 --pods 50000 --viewers 20 --json
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import random
import sys
import time
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutine
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import psutil
from aiohttp import web, web_protocol

from numazones import cpuset
from numazones.api.zones import zones_from_node
from numazones.cluster import ClusterPod
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.node import Node
from numazones.kubelet.startup import Kubelet
from numazones.machine import CPU, Machine, NUMANode
from numazones.prediction import Forecast, Kind
from numazones_client import ClusterConfig
from numazones_operator.options import Options
from numazones_operator.page import updater
from numazones_operator.process import Operator

GIB = 1 << 30
ZONES = 2
CORES = 16  # per zone, two threads each
DISTINCT = 200
"""Different fillings of nodes, as long as states are not asked to be all distinct."""
WAITING_KINDS = 10
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
GOALS = {
    "sync_seconds": 15.0,
    "rss_mib": 600.0,
    "cold_seconds": 1.0,
    "one_change_seconds": 0.010,
    "lag_p99_seconds": 1.0,
}
VIEWED_GOALS = {"rss_ratio": 1.1, "lag_p99_ratio": 1.1, "page_longest_hold_seconds": 0.005}
"""What looking may cost: with viewers against without."""
TURNS = 3
"""How often the load is applied without and with viewers."""


def machine() -> Machine:
    """Two sockets of 16 cores with two threads."""
    cpus = tuple(
        CPU(thread * ZONES * CORES + core, core, core // CORES, 0, core // CORES)
        for core in range(ZONES * CORES)
        for thread in range(2)
    )
    return Machine(cpus, tuple(NUMANode(zone, 128 * GIB) for zone in range(ZONES)))


class Cluster:
    """Objects as an API server would have them."""

    def __init__(self, *, nodes: int, pods: int, distinct: bool) -> None:
        self.machine = machine()
        self.config = KubeletConfiguration.from_api(
            {
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0,16,32,48",
                "memoryManagerPolicy": "Static",
                "systemReserved": {"memory": "1948Mi"},
                "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in range(ZONES)],
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
        draw = random.Random(filling)
        spare = [cpu.id for cpu in self.machine.cpus if cpu.id not in {0, 16, 32, 48}]
        held: dict[str, dict[str, int]] = {}
        for number in range(4):
            taken = draw.sample(spare, draw.randrange(2, 12))
            spare = [cpu for cpu in spare if cpu not in taken]
            held[f"uid-{name}-{number}"] = {"main": cpuset.of(taken)}
        node = Node.restore(Kubelet.start(self.config, self.machine, {}), cpu_assignments=held)
        return [zone.to_api() for zone in zones_from_node(node, node_name=name, pods={})]

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
                "allocatable": {"cpu": "60", "memory": "250Gi", "pods": "110"},
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
        self.watchers: dict[str, list[asyncio.Queue[bytes]]] = {}
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
            return web.json_response(body, status=201 if request.method == "POST" else 200)
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
                await response.write(await queue.get())
        finally:
            self.watchers[resource].remove(queue)

    def next_version(self) -> int:
        """A version newer than all before."""
        self.cluster.version += 1
        return self.cluster.version

    def send(self, resource: str, kind: str, body: dict[str, Any]) -> None:
        """Tell the watchers."""
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
        started = time.monotonic()
        rate, seconds = order["rate"], order["seconds"]
        changes = [
            (name, self.cluster.zones(name, 10_000_000 + number))
            for number, name in enumerate(
                self.cluster.draw.choices(self.cluster.names, k=int(rate * seconds / ZONES))
            )
        ]
        prepared, sent = time.monotonic() - started, 0
        started = time.monotonic()
        for _, bodies in changes:
            await asyncio.sleep(max(0.0, started + sent / rate - time.monotonic()))
            for body in bodies:
                self.send("numazones", "MODIFIED", body)
                sent += 1
        return web.json_response(
            {"events": sent, "seconds": time.monotonic() - started, "prepared": prepared}
        )


async def view(page: str, expected: int, caught_up: asyncio.Event) -> None:
    """Read what the page sends until cancelled, as a browser's EventSource does; so many nodes are all."""
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 24, timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.get(f"{page}/events") as answer,
    ):
        answer.raise_for_status()
        nodes = 0
        async for line in answer.content:
            nodes += line.count(b'"node/')
            if nodes >= expected:
                caught_up.set()


def look(pipe: Connection) -> None:
    """Have so many look at a page as the pipe says, and say when each has seen everything; until killed."""

    async def forever() -> None:
        viewers: list[asyncio.Task[None]] = []
        while True:
            page, count, nodes = await asyncio.to_thread(pipe.recv)
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
            caught_up = [asyncio.Event() for _ in range(count)]
            viewers = [asyncio.create_task(view(page, nodes, event)) for event in caught_up]
            for event in caught_up:
                await event.wait()
            pipe.send(count)

    asyncio.run(forever())


def serve(pipe: Connection, nodes: int, pods: int, distinct: bool) -> None:  # noqa: FBT001 - a process' target
    """Run the feeder until killed; tell the port through the pipe."""

    async def forever() -> None:
        feeder = Feeder(Cluster(nodes=nodes, pods=pods, distinct=distinct))
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", feeder.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(forever())


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


async def measure(port: int, options: argparse.Namespace, viewers: Connection) -> dict[str, Any]:
    """Run the operator against the feeder and take the figures."""
    process = psutil.Process()
    before = process.memory_info().rss
    holds = Holds()
    asyncio.get_running_loop().set_task_factory(holds.task)
    gc.callbacks.append(holds.collection)
    operator = Operator(
        Options(
            metrics_address="127.0.0.1:0",
            page_address="127.0.0.1:0" if options.viewers else "",
            leader_elect=False,
            log_level="warning",
        ),
        ClusterConfig(server=f"http://127.0.0.1:{port}"),
    )
    started, idle = time.monotonic(), process.cpu_times()
    running = asyncio.create_task(operator.run())
    await operator.ready.wait()
    used = process.cpu_times()
    figures: dict[str, Any] = {
        "sync_seconds": time.monotonic() - started,
        "sync_cpu_seconds": used.user + used.system - idle.user - idle.system,
    }
    await asyncio.sleep(1)
    figures["rss_mib"] = process.memory_info().rss / 2**20
    figures["rss_before_mib"] = before / 2**20
    figures |= cold(operator)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        pods = [waiting_pod(number, 2 + 3 * (number % WAITING_KINDS)) for number in range(options.waiting)]
        await post(session, {"pods": pods})
        await until(lambda: sum(operator.pipeline.forecasts.verdicts().values()) >= options.waiting)
        await until(lambda: not operator.pipeline.publisher.depth)
        turns = TURNS if options.viewers else 1
        plain, arriving, viewed = Load(), Load(), Load()
        for _ in range(turns):
            holds.load = plain
            await apply_load(operator, session, options, plain)
            if options.viewers:
                page = f"http://127.0.0.1:{operator.page_port}"
                holds.load = arriving
                await asyncio.to_thread(exchange, viewers, (page, options.viewers, options.nodes))
                holds.load = viewed
                await apply_load(operator, session, options, viewed)
                await asyncio.to_thread(exchange, viewers, ("", 0, 0))
    figures |= plain.figures()
    if options.viewers:
        with_viewers = viewed.figures()
        figures |= {f"{name}_with_viewers": value for name, value in with_viewers.items()}
        for name in ("rss_after_load_mib", "lag_p50_seconds", "lag_p99_seconds"):
            ratio = name.removesuffix("_after_load_mib").removesuffix("_seconds")
            figures[f"{ratio}_ratio"] = with_viewers[name] / figures[name]
        figures["page_cpu_share"] = viewed.page_busy / viewed.seconds
        figures["page_longest_hold_seconds"] = max(arriving.page_hold, viewed.page_hold)
    operator.stop()
    await running
    return figures


@dataclass
class Load:
    """What was seen while load was applied, over all turns."""

    lags: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    busy: float = 0.0
    seconds: float = 0.0
    fed_seconds: float = 0.0
    events: int = 0
    hold: float = 0.0
    """The longest that a task held the loop at a time."""
    collection: float = 0.0
    """The longest that collecting garbage took, whoever it befell."""
    page_hold: float = 0.0
    page_busy: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Sum up."""
        lags = sorted(self.lags)
        return {
            "events_per_second": self.events / self.fed_seconds,
            "cpu_share": self.busy / self.seconds,
            "published": len(lags),
            "lag_p50_seconds": lags[len(lags) // 2] if lags else None,
            "lag_p99_seconds": lags[int(len(lags) * 0.99)] if lags else None,
            "longest_hold_seconds": self.hold,
            "longest_collection_seconds": self.collection,
            "rss_after_load_mib": sum(self.rss) / len(self.rss),
        }


class Holds:
    """Times each step of each task, in processor time, which other load on the machine does not lengthen."""

    def __init__(self) -> None:
        self.load = Load()
        """What the steps belong to."""
        self.collecting = 0.0
        self.collection_started = 0.0

    def collection(self, phase: str, _info: dict[str, int]) -> None:
        """Hear of garbage collections; a task in which one falls is not to blame for it."""
        now = time.thread_time()
        if phase == "start":
            self.collection_started = now
        else:
            took = now - self.collection_started
            self.collecting += took
            self.load.collection = max(self.load.collection, took)

    def task(self, loop: asyncio.AbstractEventLoop, work: Any, **settings: Any) -> asyncio.Task[Any]:
        """Make a task, as the loop asks for."""
        return asyncio.Task(self.timed(work) if iscoroutine(work) else work, loop=loop, **settings)

    async def timed(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do some work, one step after the other."""
        # Nothing else in this process serves HTTP by aiohttp.
        page = work.cr_code.co_filename in {updater.__file__, web_protocol.__file__}  # type: ignore[attr-defined]
        return await self.steps(work, page=page)

    @types.coroutine
    def steps(self, work: Coroutine[Any, Any, Any], *, page: bool) -> Generator[Any, None, Any]:
        """Do what a task does with a coroutine."""
        step = partial(work.send, None)
        while True:
            started = time.thread_time() - self.collecting
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            finally:
                took = time.thread_time() - self.collecting - started
                self.load.hold = max(self.load.hold, took)
                if page:
                    self.load.page_hold = max(self.load.page_hold, took)
                    self.load.page_busy += took
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the work is told, and decides
                step = partial(work.throw, error)
            else:
                step = partial(work.send, None)


async def apply_load(
    operator: Operator, session: aiohttp.ClientSession, options: argparse.Namespace, load: Load
) -> None:
    """Change zones at a rate, and watch the operator cope."""
    process = psutil.Process()
    operator.metrics.lag_seconds.observe = load.lags.append  # type: ignore[method-assign, assignment]
    used = process.cpu_times()
    fed = await post(session, {"rate": options.rate, "seconds": options.seconds})
    busy = process.cpu_times()
    await until(lambda: not operator.pipeline.forecasts.backlog and not operator.pipeline.publisher.depth)
    load.busy += busy.user + busy.system - used.user - used.system
    load.seconds += fed["seconds"] + fed["prepared"]
    load.fed_seconds += fed["seconds"]
    load.events += fed["events"]
    load.rss.append(process.memory_info().rss / 2**20)


def exchange(pipe: Connection, order: object) -> None:
    """Send an order, and wait until it is done."""
    pipe.send(order)
    pipe.recv()


async def until(done: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def post(session: aiohttp.ClientSession, order: dict[str, Any]) -> dict[str, Any]:
    """Tell the feeder what to do and wait until it is done."""
    async with session.post("/feed", json=order, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        result: dict[str, Any] = await answer.json()
    return result


def cold(operator: Operator) -> dict[str, Any]:
    """Time one new pod on all nodes, and the same again after one node has changed."""
    kind = Kind.of(ClusterPod.from_api(waiting_pod(0, 14)))
    if kind is None:
        raise ValueError("the benchmark's own pod cannot be read")
    nodes = list(operator.pipeline.state.all_nodes())
    forecast = Forecast(kind)
    started = time.perf_counter()
    forecast.renew(nodes)
    prediction = forecast.prediction()
    took = time.perf_counter() - started
    one_change = []
    for node in nodes[:50]:
        changed = node.with_placement(nodes[(nodes.index(node) + 77) % len(nodes)].placement)
        started = time.perf_counter()
        forecast.renew((changed,))
        forecast.prediction()
        one_change.append(time.perf_counter() - started)
    one_change.sort()
    return {
        "cold_seconds": took,
        "one_change_seconds": one_change[len(one_change) // 2],
        "one_change_max_seconds": one_change[-1],
        "evaluated": prediction.evaluated,
        "admissible": prediction.admissible,
    }


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--distinct", action="store_true", help="no two nodes are in the same state")
    parser.add_argument("--waiting", type=int, default=10, help="pods without a node while load is applied")
    parser.add_argument("--rate", type=float, default=200.0, help="zone events per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the load lasts")
    parser.add_argument("--viewers", type=int, default=0, help="how many look at the live page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    viewers, looking = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    helpers = [
        context.Process(
            target=serve, args=(there, options.nodes, options.pods, options.distinct), daemon=True
        ),
        context.Process(target=look, args=(looking,), daemon=True),
    ]
    for helper in helpers:
        helper.start()
    try:
        figures = asyncio.run(measure(here.recv(), options, viewers))
    finally:
        for helper in helpers:
            helper.kill()
    figures = {"nodes": options.nodes, "pods": options.pods, "distinct": options.distinct, **figures}
    goals = GOALS | VIEWED_GOALS if options.viewers else GOALS
    missed = [name for name, goal in goals.items() if figures.get(name) is None or figures[name] > goal]
    figures |= {"goals": goals, "missed": missed}
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
