"""Measure how fast the scheduling gate releases pods, over real HTTP, on a large cluster.

The embedded API server runs in a process of its own, feeds a leading operator,
and binds each pod that is released to the first node that its affinity names, as a scheduler that keeps up
would.

    .venv/bin/python -m numazones_benchmarks.gate --nodes 5000 --pods 50000 --json
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import psutil

from numazones.cluster.admission_gate import GATE
from numazones_benchmarks.large_cluster import feeding, operator_on, pods_of_ten_kinds, post, report, until
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.prevention.gate_remover import GateRemover

LEAST = {"releases_per_second": 150.0}
"""Goals that are to be exceeded: as many as the extender is to place."""
_NAMESPACE = "gated"
_QUIET = 10.0
"""Seconds without a release after which the rest is taken to fit nowhere."""


def gated_pods(count: int) -> list[dict[str, Any]]:
    """Pods of ten kinds and three priorities."""
    pods = pods_of_ten_kinds("gated", count)
    for number, pod in enumerate(pods):
        pod["metadata"] |= {"namespace": _NAMESPACE}
        pod["spec"] |= {"schedulingGates": [{"name": GATE}], "priority": number % 3}
    return pods


class Spent:
    """The time that calls take, summed up."""

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def deciding(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with its time counted."""

        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            found = call(*arguments)
            self._count(started)
            return found

        return timed

    def asking(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a request with its time counted, from when it is begun until it is answered."""

        async def timed(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            found = await call(*arguments, **options)
            self._count(started)
            return found

        return timed

    def _count(self, started: float) -> None:
        self.calls += 1
        self.seconds += time.perf_counter() - started


async def until_done(released: Callable[[], int], wanted: int) -> float:
    """Wait until all are released, or nobody has been for a while, as of pods that fit nowhere.

    Return when the last one was.
    """
    last, at = released(), time.monotonic()
    while last < wanted and time.monotonic() - at < _QUIET:
        await asyncio.sleep(0.05)
        if released() > last:
            last, at = released(), time.monotonic()
    return at


async def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run the operator against the feeder, let gated pods come, and take the figures."""
    settings = {"leader_elect": False, "admission_gate": True, "rebalance": False}
    async with (
        operator_on(url, **settings) as operator,
        aiohttp.ClientSession(url) as session,
    ):
        await until(lambda: operator.leadership.leading and operator.intent.followed.is_set())
        deciding, asking = Spent(), Spent()
        # Where time goes is asked here alone, so the classes of this process are changed, not the programs.
        gates: Any = AdmissionGates
        gates._free_nodes = deciding.deciding(gates._free_nodes)  # noqa: SLF001
        remover: Any = GateRemover
        remover._patch = asking.asking(remover._patch)  # noqa: SLF001

        def released() -> int:
            return asking.calls  # to collect metrics takes the operator's own time

        await post(session, {"pods": gated_pods(options.gated)})
        await until(lambda: released() > 0)
        started, before, used = time.monotonic(), released(), time.process_time()
        seconds = await until_done(released, options.gated) - started
        used = time.process_time() - used
        return {
            "released": released(),
            "releases_per_second": (released() - before) / max(seconds, 1e-9),
            "cpu_seconds_per_release": used / max(released() - before, 1),
            "decisions": deciding.calls,
            "decision_seconds": deciding.seconds / deciding.calls,
            "request_seconds": asking.seconds / asking.calls,
            "deciding_share": deciding.seconds / seconds,
            "rss_mib": psutil.Process().memory_info().rss / 2**20,
        }


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--gated", type=int, default=1000, help="pods created with the gate, all at once")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with feeding(nodes=options.nodes, pods=options.pods, distinct=True, gated=_NAMESPACE) as (url, _):
        figures = asyncio.run(measure(url, options))
    figures = {"nodes": options.nodes, "pods": options.pods, **figures}
    missed = [name for name, goal in LEAST.items() if figures[name] < goal]
    return report(figures, missed, LEAST, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
