"""Check that programs do not grow: a cluster whose objects all come and go for as long as you like.

Real processes: the operator with gate, page and rebalancing, the extender, an exporter for each node.
API server, kubelets, scheduler and controllers are simulated in this one. Each round lets random pods come
and go in three ways (bound blindly, through the extender, through the gate), scales ReplicaSets, whose
replicas a policy moves, looks at page and metrics, and ends all watches, answers with errors or deletes all
zones. When it is quiet again, it is counted what every process holds: resident memory, descriptors, threads,
and from within tasks, handlers and all objects by type (``inside/sitecustomize.py``).

Goals hold for the rounds after the warm-up: memory within 5 % of its median, and no more tasks, sockets,
descriptors, threads and handlers at the end than after the warm-up. With --trace Python traces memory
(tracemalloc), which tells what lines hold what has grown; then the goal is of the memory that Python has
given out, as resident are mostly the tables of the tracing, and the processes are slower.

    nice -n 15 python -m numazones_benchmarks.endurance --minutes 60 --json
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from numazones.errors import NumazonesError
from numazones_client.resources import NAMESPACES, NUMAZONES, REBALANCE_POLICIES, REPLICA_SETS
from numazones_simulator import node_kinds, operators, prevention, simulated_cluster
from numazones_simulator.addresses import free_address
from numazones_simulator.prevention import Prevention
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import SimulatedCluster
from numazones_simulator.turnover import Turnover
from numazones_simulator.workload import PodStream, container

CROWD = 15
"""So many pods of each of the three ways stay."""
TEMPLATES = 100
"""Of each way: what pods of a template share is kept, up to a bound that no run of an hour reaches."""
APPS = 5
QUIET_SECONDS = 5.0
FLAT = 0.05
"""How far resident memory may be from its median."""
LEAST = 32
"""Growth of a type by fewer objects is not listed."""
COUNTED = ("descriptors", "sockets", "threads", "children", "tasks", "log_handlers")
HANDLERS = ("asyncio.events.Handle", "asyncio.events.TimerHandle")
POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "room"},
    "spec": {
        "mode": "Auto",
        "goals": {"shapes": [{"name": "large", "resources": {"cpu": "14", "memory": "1Gi"}}], "align": True},
        "limits": {"evictSingleReplicas": True},
        "schedule": {"interval": "2s"},
        "cooldown": "5s",
        "expiry": "30s",
    },
}


@dataclass
class Watched:
    """A program, and what was counted of it."""

    name: str
    process: psutil.Process
    counts_file: Path
    counts: list[dict[str, Any]] = field(default_factory=list)

    async def count(self, minute: float) -> None:
        """Look at it from outside, then have it look at itself."""
        with self.process.oneshot():
            own: dict[str, Any] = {
                "minute": round(minute, 1),
                "rss_mib": self.process.memory_info().rss / 2**20,
                "descriptors": self.process.num_fds(),
                "sockets": len(self.process.net_connections("all")),
                "children": len(self.process.children()),
                "cpu_seconds": sum(self.process.cpu_times()[:2]),
            }
        seen = self._lines()
        self.process.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(600):
            while self._lines() == seen:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.1)
        own |= json.loads(self.counts_file.read_text().splitlines()[-1])
        own["handlers"] = sum(own["types"].get(name, 0) for name in HANDLERS)
        self.counts.append(own)

    def _lines(self) -> int:
        return self.counts_file.read_bytes().count(b"\n") if self.counts_file.exists() else 0

    def figures(self, warm_up: float) -> dict[str, Any]:
        """Return the program's figures after the given minutes."""
        steady = [one for one in self.counts if one["minute"] >= warm_up] or self.counts[-1:]
        first, last = steady[0], steady[-1]
        sizes = [one["rss_mib"] for one in steady]
        median = statistics.median(sizes)
        hours = (last["minute"] - first["minute"]) / 60
        grown = {
            name: [first["types"].get(name, 0), count]
            for name, count in last["types"].items()
            if count - first["types"].get(name, 0) >= LEAST
        }
        figures = {
            "rss_mib": {"first": first["rss_mib"], "median": median, "last": last["rss_mib"]},
            "rss_deviation": max(abs(size - median) for size in sizes) / median,
            "rss_mib_per_hour": slope([one["minute"] / 60 for one in steady], sizes),
            "rss_of_rounds_mib": [round(size, 1) for size in sizes],
            "cpu_share": (last["cpu_seconds"] - first["cpu_seconds"]) / (3600 * hours) if hours else None,
            "objects": [first["objects"], last["objects"]],
            "types_grown": dict(sorted(grown.items(), key=lambda one: one[1][0] - one[1][1])),
            "work": last["work"],
        }
        figures |= {name: [first[name], last[name]] for name in (*COUNTED, "handlers")}
        if "traced_bytes" in last:
            traced = [one["traced_bytes"] for one in steady]
            middle = statistics.median(traced)
            figures["traced_mib"] = [one / 2**20 for one in (traced[0], middle, traced[-1])]
            figures["traced_deviation"] = max(abs(one - middle) for one in traced) / middle
            figures["grown"] = last["grown"]
        return figures


def slope(times: list[float], values: list[float]) -> float:
    """Growth of values per unit of time, by least squares."""
    return statistics.linear_regression(times, values).slope if len(set(times)) > 1 else 0.0


def missed(name: str, figures: dict[str, Any]) -> Iterator[str]:
    """Yield the goals that a program misses."""
    # Where memory is traced, the tables of the tracing are the larger part of what is resident.
    deviation = figures.get("traced_deviation", figures["rss_deviation"])
    if deviation > FLAT:
        yield f"{name}: memory {deviation:.1%} off its median"
    for what in COUNTED:
        before, after = figures[what]
        if after > before:
            yield f"{name}: {what} grew from {before} to {after}"


class Rounds:
    """Lets things come and go."""

    def __init__(self, cluster: SimulatedCluster, page: str, *, pods: int, seed: int) -> None:
        self._cluster = cluster
        self._client = cluster.plane.client
        self._page = page
        self._pods = pods
        self._draw = random.Random(seed)
        blind = again(PodStream(seed, namespace="blind"))
        extended = prevention.for_scheduler(again(PodStream(seed + 1, namespace="extended")))
        gated = again(PodStream(seed + 2))
        self._turnovers = [
            Turnover(self._client, pods, crowd=CROWD, in_flight=5, seed=seed)
            for pods in (blind, extended, gated)
        ]

    async def prepare(self) -> None:
        """Make what stays."""
        for name in ("blind", "extended", "apps"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._client.create(NAMESPACES, body)
        await self._client.create(REBALANCE_POLICIES, POLICY)
        for number in range(APPS):
            await self._client.create(REPLICA_SETS, replica_set(number), namespace="apps")

    async def once(self, number: int) -> None:
        """One round."""
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._look()), tasks.create_task(self._check())]
            coming = [tasks.create_task(one.run(self._pods)) for one in self._turnovers]
            for app in range(APPS):
                replicas = {"spec": {"replicas": self._draw.randint(1, 4)}}
                await self._client.patch(REPLICA_SETS, f"app-{app}", replicas, namespace="apps")
                await asyncio.sleep(1)
            match number % 4:
                case 0:
                    self._cluster.plane.server.faults.drop_watches()
                case 1:
                    self._cluster.plane.server.faults.drop_watches(compacted=True)
                case 2:
                    self._cluster.plane.server.faults.reset(verb="watch", count=20)
                    self._cluster.plane.server.faults.drop_watches()
                case _:
                    for zone in await self._client.list(NUMAZONES):
                        await self._client.delete(NUMAZONES, zone["metadata"]["name"])
            await asyncio.wait(coming)
            for task in beside:
                task.cancel()
        # The same is there at the end of each round, as far as chance allows.
        for app in range(APPS):
            await self._client.patch(REPLICA_SETS, f"app-{app}", {"spec": {"replicas": 2}}, namespace="apps")
        await asyncio.sleep(QUIET_SECONDS)

    async def _check(self) -> None:
        """Fail when a program ends; what waits for it would do so for ever."""
        while True:
            self._cluster.programs.check()
            await asyncio.sleep(1)

    async def _look(self) -> None:
        """Look at what people and Prometheus look at, again and again."""
        addresses = [*self._cluster.exporters.values(), self._cluster.operator]
        while True:
            with contextlib.suppress(NumazonesError, aiohttp.ClientError, TimeoutError):
                for address in addresses:
                    await operators.ask(f"{address}/metrics")
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
                    session.get(f"http://{self._page}/events") as events,
                ):
                    async for _ in events.content.iter_any():
                        pass
            await asyncio.sleep(0.5)


def again(workload: PodStream) -> Iterator[dict[str, Any]]:
    """Yield pods of a few templates for ever, as deployments make them, under names of their own."""
    bodies = list(islice(workload.pods(), TEMPLATES))
    for number, body in enumerate(cycle(bodies)):
        yield body | {"metadata": body["metadata"] | {"name": f"{body['metadata']['name']}-{number}"}}


def replica_set(number: int) -> dict[str, Any]:
    """An application whose replicas may be moved."""
    name = f"app-{number}"
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container("app", {"cpu": str(2 + number), "memory": "1Gi"})],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "apps"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run the rounds, and sum up; SIGTERM ends all programs, too."""
    if (work := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    page = free_address()
    arguments = (f"--page-address={page}", "--rebalance-period=500ms")
    async with simulated_cluster.running(
        node_kinds.mixed(options.nodes),
        directory,
        Screen(StringIO(), StringIO()),
        operator=arguments,
        recreate_pause=0.5,
        prevent=(Prevention.GATE, Prevention.EXTENDER),
    ) as cluster:
        watched = programs(directory)
        rounds = Rounds(cluster, page, pods=options.pods, seed=options.seed)
        await rounds.prepare()
        started, number = time.monotonic(), 0
        while (minute := (time.monotonic() - started) / 60) < options.minutes:
            await rounds.once(number)
            number += 1
            for one in watched:
                await one.count((time.monotonic() - started) / 60)
            note(number, minute, watched)
    return {
        "minutes": round(minute, 1),
        "rounds": number,
        "pods": 3 * options.pods * number,
        "programs": {one.name: one.figures(options.warm_up) for one in watched},
    }


def programs(directory: Path) -> list[Watched]:
    """The programs that this process has started."""
    found = []
    for child in psutil.Process().children():
        words = child.cmdline()
        name = next((Path(word).name for word in words[:3] if "numazones-" in word), "")
        if not name:
            continue
        node = next((word.partition("=")[2] for word in words if word.startswith("--node-name=")), "")
        extender = any(word.startswith("--extender-address=") for word in words)
        short = node or ("extender" if extender else "operator")
        found.append(Watched(short, child, directory / "counts" / str(child.pid)))
    return found


def note(number: int, minute: float, watched: list[Watched]) -> None:
    """Tell somebody who waits how it goes."""
    sizes = " ".join(f"{one.name}={one.counts[-1]['rss_mib']:.1f}" for one in watched)
    print(f"round {number}, minute {minute:.1f}: {sizes}", file=sys.stderr, flush=True)


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=10.0, help="first minutes, not measured")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--pods", type=int, default=40, help="pods per round and way of scheduling")
    parser.add_argument("--trace", action="store_true", help="make the programs trace their memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nz-") as name:
        directory = Path(name)
        (directory / "counts").mkdir()
        os.environ["NUMAZONES_COUNTS"] = str(directory / "counts")
        os.environ["PYTHONPATH"] = str(Path(__file__).with_name("inside"))
        if options.trace:
            os.environ["PYTHONTRACEMALLOC"] = "1"
        figures = asyncio.run(measure(options, directory))
    figures["missed"] = [
        text for program, its in figures["programs"].items() for text in missed(program, its)
    ]
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for program, its in figures["programs"].items():
            print(f"{program}: {its['rss_mib']}, tasks {its['tasks']}, descriptors {its['descriptors']}")
        print("\n".join(figures["missed"]) or "all goals are met")
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
