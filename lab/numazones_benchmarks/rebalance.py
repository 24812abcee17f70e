"""Time a plan on a large cluster: 1,000 nodes and 10,000 pods by default.

The nodes are filled by arrivals and departures until no zone has room for the pod that is wanted, so that
the planner has to search. The snapshot is not part of the time: the operator keeps one anyway. As there, a
thread plans beside an event loop; how long that is held at most is told in processor time, which other load
on the machine does not lengthen.
"""

import argparse
import asyncio
import gc
import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod, Owner
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.placement.fragmentation import Shape, largest_free_block
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import EvictionContext
from numazones.rebalance.goals import FitMore, Goal, Vacate, Wanted, pending_goals
from numazones.rebalance.moves import evict, place
from numazones.rebalance.planner import PlanningResult, plan
from numazones.rebalance.policy import Policy

ZONES, CORES = 2, 12
WANTED = 12
LARGER = 21
"""CPUs of a pod that one eviction does not make room for."""
GIB = 1 << 30
SIZES = (1, 2, 2, 4, 4, 6)
NOW = datetime.fromisoformat("2026-01-31T12:00:00Z")
_AFTERWARDS = 0.1
"""Seconds in which what a search has left behind may hold the loop."""


def empty_node(name: str) -> ClusterNode:
    """A node of two zones with 12 cores (24 threads) and 128 GiB each, aligned to single NUMA nodes."""
    configuration = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": "pod",
            "reservedSystemCPUs": "0-1",
        }
    )
    cpus = tuple(
        CPU(id=(zone * CORES + core) * 2 + thread, core=core, socket=zone, die=0, numa=zone)
        for zone in range(ZONES)
        for core in range(CORES)
        for thread in range(2)
    )
    machine = Machine(cpus, tuple(NUMANode(zone, 128 * GIB) for zone in range(ZONES)))
    body = {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": str(len(cpus) - 2), "memory": "250Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return ClusterNode.from_api(body).with_state(Node.fresh(machine, configuration))


def a_pod(name: str, cpus: int, owner: str) -> ClusterPod:
    """A running Guaranteed pod."""
    amounts = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    body = {
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    owners = (Owner("ReplicaSet", owner, owner, controller=True),)
    return replace(ClusterPod.from_api(body), owners=owners)


def fragmented(nodes: int, pods: int, draw: random.Random) -> Cluster:
    """Nodes with about so many pods, left by arrivals and departures; no zone has ``WANTED`` CPUs free."""
    each = pods // nodes
    cluster = {}
    for index in range(nodes):
        node = empty_node(f"node-{index:04}")
        for arrival in range(3 * each):
            pod = a_pod(f"pod-{index}-{arrival}", draw.choice(SIZES), f"rs-{draw.randrange(pods // 10)}")
            node = place(node, pod).node or node
            if node.pod_count > each - 1:
                node = evict(node, draw.choice(list(node.pods.values())))
        arrival = 3 * each
        while _hole(node) >= WANTED:
            node = place(node, a_pod(f"pod-{index}-{arrival}", 2, "small")).node or node
            arrival += 1
        cluster[node.name] = node
    return Cluster(cluster)


class Turns:
    """Notes how long an event loop waits for its turns, in processor time of the process."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def take(self) -> None:
        """Take one turn after the other, until cancelled."""
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.process_time() - before)


async def timed(goal: Goal, situation: Situation, policy: Policy, seconds: float) -> dict[str, object]:
    """Plan once and say what came of it."""
    turns = Turns()
    taking = asyncio.create_task(turns.take())
    await asyncio.sleep(0)
    gc.disable()  # as the operator does
    start = time.perf_counter()
    expired: Callable[[], bool] = lambda: time.perf_counter() - start > seconds  # noqa: E731
    outcome: PlanningResult = await asyncio.to_thread(plan, goal, situation, policy, expired=expired)
    took = time.perf_counter() - start
    gc.enable()
    await asyncio.sleep(_AFTERWARDS)
    taking.cancel()
    made = outcome.plan
    return {
        "seconds": round(took, 3),
        "limitSeconds": seconds,
        "loopHeldSeconds": round(turns.longest, 3),
        "movable": outcome.movable,
        "before": outcome.before,
        "gain": made.gain if made else 0,
        "evictions": len(made.moves) if made else 0,
        "minimal": made.minimal if made else None,
        "needAffinity": sum(bool(move.affinity) for move in made.moves) if made else 0,
        "reason": outcome.reason,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=8.0, help="time limit of the search for one plan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    cluster = fragmented(arguments.nodes, arguments.pods, draw)
    held = [pod for node in cluster.nodes.values() for pod in node.pods.values()]
    context = EvictionContext(now=NOW, replicas=EvictionContext.count_replicas(held))
    situation = Situation(cluster, context)
    policy = Policy(limits=EvictionLimits(total=10, single_replicas=True))
    big = replace(a_pod("big", WANTED, "big"), phase="Pending")
    larger = replace(a_pod("larger", LARGER, "larger"), phase="Pending")
    fullest = max(cluster.nodes.values(), key=lambda node: -node.pod_count)
    shape = Shape.parse(f"cpu={WANTED},memory=16Gi")
    goals: dict[str, Goal] = {
        "pending pod": pending_goals([big])[0],
        "larger pending pod": pending_goals([larger])[0],
        "five more of a shape": FitMore((Wanted.shape("large", shape, count=5),)),
        "more of a shape": FitMore((Wanted.shape("large", shape),)),
        "free a zone": Vacate(fullest.name, 0),
    }
    gc.freeze()  # as the operator does with its mirror
    results = {
        name: asyncio.run(timed(goal, situation, policy, arguments.seconds)) for name, goal in goals.items()
    }
    report = {
        "nodes": len(cluster.nodes),
        "pods": len(held),
        "wantedCPUs": WANTED,
        "results": results,
        "slowestSeconds": max(float(str(result["seconds"])) for result in results.values()),
        "longestLoopHeldSeconds": max(float(str(result["loopHeldSeconds"])) for result in results.values()),
        "maxRSSMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    for name, result in results.items():
        print(f"{name}: {result}")


def _hole(node: ClusterNode) -> int:
    return 0 if node.state is None else largest_free_block(node.state)


if __name__ == "__main__":
    main()
