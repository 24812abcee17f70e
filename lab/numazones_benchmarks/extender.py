"""Measure how fast the scheduler extender responds, over real HTTP, on a large cluster.

The embedded API server runs in a process of its own and feeds the operator,
which serves its extender here as in the scheduler's pod. A third process asks as kube-scheduler does: one pod
after the other through filter and prioritize, bindings beside.

    .venv/bin/python -m numazones_benchmarks.extender --nodes 5000 --pods 50000 --json
"""

import argparse
import asyncio
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import msgspec
import psutil

from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import Forecast, PodKind
from numazones_benchmarks.large_cluster import (
    feeding,
    operator_on,
    pods_of_ten_kinds,
    post,
    report,
    until,
    waiting_pod,
)
from numazones_operator.process import Operator

GOALS = {
    "filter_500_p99_seconds": 0.005,
    "filter_5000_p99_seconds": 0.025,
    "verdict_seconds": 20e-6,
}
LEAST = {"pods_per_second": 150.0}
"""Goals that are to be exceeded."""


class Scheduler:
    """Asks an extender as kube-scheduler does."""

    def __init__(self, session: aiohttp.ClientSession, names: list[str]) -> None:
        self.session = session
        self.names = names
        self.bindings: list[asyncio.Task[bool]] = []

    async def ask(self, verb: str, body: dict[str, Any], answer_type: Any = Any) -> Any:
        """Ask, and decode the answer."""
        async with self.session.post(f"/{verb}", data=msgspec.json.encode(body)) as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read(), type=answer_type)

    async def latencies(self, pods: list[dict[str, Any]], names: list[str]) -> list[float]:
        """Filter each pod; return how long each took, sorted."""
        found = []
        for pod in pods:
            started = time.perf_counter()
            await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
            found.append(time.perf_counter() - started)
        return sorted(found)

    async def place(self, pods: list[dict[str, Any]]) -> tuple[float, int]:
        """Take pods through filter, prioritize and bind; return the seconds and how many were bound."""
        started = time.perf_counter()
        for pod in pods:
            passing = (await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": self.names}))[
                "NodeNames"
            ]
            if len(passing) > 1:
                scores = await self.ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": passing})
                passing = [max(scores, key=lambda item: item["Score"])["Host"]]
            if passing:
                self.bindings.append(asyncio.create_task(self.bind(pod, passing[0])))
        done = await asyncio.gather(*self.bindings)
        return time.perf_counter() - started, sum(done)

    async def bind(self, pod: dict[str, Any], node: str) -> bool:
        """Bind a pod."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        return not (await self.ask("bind", body))["Error"]


def schedule(pipe: Connection) -> None:
    """Do what the pipe asks for, from a process of its own, until killed."""

    async def forever() -> None:
        url, names, rounds, count = await asyncio.to_thread(pipe.recv)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            scheduler = Scheduler(session, names)
            figures: dict[str, Any] = {}
            for size in sorted({min(500, len(names)), len(names)}):
                few = names[:size]
                await scheduler.latencies(pods_of_ten_kinds("warm", 10), few)
                times = await scheduler.latencies(pods_of_ten_kinds("asked", rounds), few)
                figures[f"filter_{size}_p50_seconds"] = times[len(times) // 2]
                figures[f"filter_{size}_p99_seconds"] = times[int(len(times) * 0.99)]
            pipe.send(figures)
            await asyncio.to_thread(pipe.recv)
            seconds, bound = await scheduler.place(pods_of_ten_kinds("placed", count))
            pipe.send({"pods_per_second": bound / seconds, "bound": bound, "placed": count})
            await asyncio.Event().wait()

    asyncio.run(forever())


async def measure(url: str, options: argparse.Namespace, scheduler: Connection) -> dict[str, Any]:
    """Run the operator against the feeder, have it asked, and take the figures."""
    settings = {"extender_address": "127.0.0.1:0", "lead": False, "rebalance": False}
    async with (
        operator_on(url, **settings) as operator,
        aiohttp.ClientSession(url) as session,
    ):
        await until(lambda: bool(operator.extender_port))
        figures: dict[str, Any] = {"verdict_seconds": seconds_of_a_verdict(operator)}
        names = [node.name for node in operator.pipeline.state.all_nodes()]
        url = f"http://127.0.0.1:{operator.extender_port}"
        scheduler.send((url, names, options.rounds, options.placed))
        figures |= await asyncio.to_thread(scheduler.recv)
        await post(session, {"pods": pods_of_ten_kinds("placed", options.placed)})
        await until(lambda: len(operator.pipeline.state.pending) >= options.placed)
        await until(lambda: not operator.pipeline.forecasts.backlog)
        used = time.process_time()
        scheduler.send("place")
        figures |= await asyncio.to_thread(scheduler.recv)
        figures["cpu_seconds_per_pod"] = (time.process_time() - used) / max(figures["bound"], 1)
        figures["rss_mib"] = psutil.Process().memory_info().rss / 2**20
    return figures


def seconds_of_a_verdict(operator: Operator) -> float:
    """Time of one more verdict on one more node: a new kind of pod on all nodes, by their number."""
    kind = PodKind.of(ClusterPod.from_api(waiting_pod(0, 13)))
    if kind is None:
        raise ValueError("the benchmark's own pod cannot be read")
    nodes = list(operator.pipeline.state.all_nodes())
    best = float("inf")
    for _ in range(3):
        forecast = Forecast(kind)
        started = time.perf_counter()
        forecast.renew(nodes)
        best = min(best, time.perf_counter() - started)
    return best / len(nodes)


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=300, help="filter requests per number of node names")
    parser.add_argument("--placed", type=int, default=1000, help="pods taken through all verbs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with feeding(nodes=options.nodes, pods=options.pods, distinct=True, helper=schedule) as (url, scheduler):
        figures = asyncio.run(measure(url, options, scheduler))
    figures = {"nodes": options.nodes, "pods": options.pods, **figures}
    missed = [name for name, goal in GOALS.items() if name in figures and figures[name] > goal]
    missed += [name for name, goal in LEAST.items() if figures[name] < goal]
    return report(figures, missed, GOALS | LEAST, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
