"""An operator on a large cluster: what the benchmarks of the operator share.

The API server runs in a process of its own (``feeder``), so that the figures are the operator's alone.
"""

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import aiohttp

from numazones_client import ClusterConfig
from numazones_operator.options import OperatorOptions
from numazones_operator.process import Operator

ZONES = 2  # per node, unless told otherwise


def serve(pipe: Connection, size: dict[str, Any], gated: str) -> None:
    """Run a feeder until killed; tell its address through the pipe."""
    from numazones_benchmarks.feeder import FedObjects, Feeder  # noqa: PLC0415 - it would count as the operator's memory

    async def forever() -> None:
        feeder = Feeder(FedObjects(**size), gated=gated)
        await feeder.fill()
        await feeder.start()
        pipe.send(feeder.url)
        await asyncio.Event().wait()

    asyncio.run(forever())


@contextmanager
def feeding(
    *,
    nodes: int,
    pods: int,
    distinct: bool,
    zones: int = ZONES,
    gated: str = "",
    helper: Callable[[Connection], None] | None = None,
) -> Iterator[tuple[str, Connection]]:
    """Run a feeder, and a helper, in processes of their own; give the address and a pipe to the helper."""
    here, there = multiprocessing.Pipe()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    arguments = (there, {"nodes": nodes, "pods": pods, "distinct": distinct, "zones": zones}, gated)
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
async def operator_on(url: str, **settings: Any) -> AsyncIterator[Operator]:
    """Run an operator in this process, which has read everything that a feeder has."""
    options = OperatorOptions(metrics_address="127.0.0.1:0", log_level="warning", **settings)
    operator = Operator(options, ClusterConfig(server=url))
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
