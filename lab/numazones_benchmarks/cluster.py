"""Measure the operator on a large cluster: time to sync, memory, time per prediction, lag under load.

The embedded API server runs in a process of its own and feeds the operator,
which runs here through its real entry points: reflectors, forecasts, publisher. With --viewers the load is
applied in turns with nobody and with so many looking at the live page, from a third process.

    .venv/bin/python -m numazones_benchmarks.cluster --nodes 5000 --pods 50000 --json
    .venv/bin/python -m numazones_benchmarks.cluster --nodes 5000 --pods 50000 --viewers 20 --json

With PYTHONTRACEMALLOC=1 it says which lines of code hold how many bytes for each node.
"""

import argparse
import asyncio
import gc
import sys
import time
import tracemalloc
import types
from collections import Counter
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutine
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import psutil
from aiohttp import web_protocol

from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import Forecast, PodKind
from numazones_benchmarks.large_cluster import ZONES, feeding, operator_on, post, report, until, waiting_pod
from numazones_operator.page import updater
from numazones_operator.process import Operator

WAITING_KINDS = 10
GOALS = {
    "sync_seconds": 15.0,
    "rss_mib": 600.0,
    "cold_seconds": 1.0,
    "one_change_seconds": 0.010,
    "lag_p99_seconds": 1.0,
}
VIEWED_GOALS = {"rss_ratio": 1.1, "lag_p99_ratio": 1.1, "page_longest_hold_seconds": 0.005}
"""What looking may cost: with viewers against without."""
LINES = 30
TURNS = 3
"""How often the load is applied without and with viewers."""


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


async def measure(url: str, options: argparse.Namespace, viewers: Connection) -> dict[str, Any]:
    """Run the operator against the feeder and take the figures."""
    process = psutil.Process()
    before = process.memory_info().rss
    holds = Holds()
    asyncio.get_running_loop().set_task_factory(holds.task)
    gc.callbacks.append(holds.collection)
    started, idle = time.monotonic(), process.cpu_times()
    page_address = "127.0.0.1:0" if options.viewers else ""
    async with (
        operator_on(url, page_address=page_address, leader_elect=False) as operator,
        aiohttp.ClientSession(url) as session,
    ):
        used = process.cpu_times()
        figures: dict[str, Any] = {
            "sync_seconds": time.monotonic() - started,
            "sync_cpu_seconds": used.user + used.system - idle.user - idle.system,
        }
        await asyncio.sleep(1)
        figures["rss_mib"] = process.memory_info().rss / 2**20
        figures["rss_before_mib"] = before / 2**20
        figures["kib_per_node"] = (figures["rss_mib"] - figures["rss_before_mib"]) * 1024 / options.nodes
        if tracemalloc.is_tracing():
            figures["bytes_per_node_by_line"] = largest(options.nodes)
        figures |= cold(operator) | situation(operator)
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
    return figures


@dataclass
class Load:
    """Measurements taken while load was applied, over all rounds."""

    lags: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    busy: float = 0.0
    seconds: float = 0.0
    fed_seconds: float = 0.0
    fed: Counter[str] = field(default_factory=Counter)
    caught_up: float = 0.0
    """How long after the last change all was published, the last time."""
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
            "events_per_second": self.fed["events"] / self.fed_seconds,
            "node_changes_per_second": self.fed["node_changes"] / self.fed_seconds,
            "api_read_bytes_per_second": self.fed["sent_bytes"] / self.fed_seconds,
            "api_writes_per_second": self.fed["writes"] / self.fed_seconds,
            "api_written_bytes_per_second": self.fed["written_bytes"] / self.fed_seconds,
            "cpu_share": self.busy / self.seconds,
            "cpu_ms_per_node_change": 1000 * self.busy / self.fed["node_changes"],
            "caught_up_seconds": self.caught_up,
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
    fed = await post(
        session, {"rate": options.rate, "seconds": options.seconds, "pods_too": options.pods_too}
    )
    ended = time.monotonic()
    await until(lambda: not operator.pipeline.forecasts.backlog and not operator.pipeline.publisher.depth)
    load.caught_up = time.monotonic() - ended
    busy = process.cpu_times()
    load.busy += busy.user + busy.system - used.user - used.system
    load.seconds += fed["seconds"] + load.caught_up
    load.fed_seconds += fed["seconds"]
    load.fed.update({name: int(value) for name, value in fed.items()})
    load.rss.append(process.memory_info().rss / 2**20)


def exchange(pipe: Connection, order: object) -> None:
    """Send an order, and wait until it is done."""
    pipe.send(order)
    pipe.recv()


def cold(operator: Operator) -> dict[str, Any]:
    """Time one new pod on all nodes, and the same again after one node has changed."""
    kind = PodKind.of(ClusterPod.from_api(waiting_pod(0, 14)))
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
        "evaluated": prediction.nodes.evaluated,
        "admissible": prediction.nodes.admissible,
    }


def largest(nodes: int) -> dict[str, int]:
    """From which lines of code most of the memory is, in bytes a node."""
    found = tracemalloc.take_snapshot().statistics("lineno")
    return {str(one.traceback): one.size // nodes for one in found[:LINES] if one.size >= nodes}


def situation(operator: Operator) -> dict[str, Any]:
    """Return how long the event loop is blocked before the search for a plan starts, in processor time."""
    now = datetime.now(UTC)
    started = time.thread_time()
    cluster = operator.pipeline.state.cluster()
    collected = time.thread_time()
    operator.inputs.situation(cluster, now, policy="")
    return {
        "cluster_value_seconds": collected - started,
        "situation_seconds": time.thread_time() - collected,
    }


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--zones", type=int, default=ZONES, help="NUMA nodes of each node")
    parser.add_argument("--distinct", action="store_true", help="give each node a different state")
    parser.add_argument("--waiting", type=int, default=10, help="pods without a node while load is applied")
    parser.add_argument("--rate", type=float, default=200.0, help="zone events per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the load")
    parser.add_argument("--pods-too", action="store_true", help="replace a pod with every node change")
    parser.add_argument("--viewers", type=int, default=0, help="number of viewers of the live page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    size = {"nodes": options.nodes, "pods": options.pods, "zones": options.zones}
    with feeding(**size, distinct=options.distinct, helper=look) as (url, viewers):
        figures = asyncio.run(measure(url, options, viewers))
    figures = {**size, "distinct": options.distinct, **figures}
    goals = GOALS | VIEWED_GOALS if options.viewers else GOALS
    missed = [name for name, goal in goals.items() if figures.get(name) is None or figures[name] > goal]
    return report(figures, missed, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
