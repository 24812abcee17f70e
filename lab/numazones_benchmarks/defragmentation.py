"""Fifty fragmented nodes, big pods that are rejected, and what gets them in: the closed loop, with figures.

Random arrivals and departures fragment simulated nodes until pods of 12 CPUs on one NUMA node are rejected.
Then, from the same state:

- *auto*: live. API server, kubelets, scheduler and ReplicaSets in this process, the operator as a process of
  its own with a RebalancePolicy in mode Auto; disruption budgets on every workload.
- *kep6007*: the same arrivals on nodes that prefer the most allocated NUMA node from the start.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from numazones.api.rebalance import ACTIVE, MovePhase
from numazones.cluster.cluster import Cluster
from numazones.cluster.waiting import GATE, OPT_IN
from numazones.placement.fragmentation import Shape
from numazones.rebalance.goals import FitMore, Wanted, measure
from numazones_client import Client, NotFound
from numazones_client.resources import (
    ADMISSION_PREDICTIONS,
    BUDGETS,
    NAMESPACES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_simulator.churn import NAMESPACE, Churn, Happening, container_of, nodes_of
from numazones_simulator.control_plane import ControlPlane, control_plane
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import ZonePublisher
from numazones_simulator.programs import Programs
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import Scheduler

_GONE = frozenset({MovePhase.EVICTED, MovePhase.PLACED, MovePhase.VERIFIED})
"""Phases of a move whose pod has been evicted."""

WORKLOADS = 40
NOW = datetime.fromisoformat("2026-02-01T00:00:00Z")


@dataclass(frozen=True)
class Setting:
    """The size of the experiment."""

    nodes: int
    crowd: int
    """Running pods."""
    arrivals: int
    big_cpus: int
    big_pods: int
    seed: int

    def churned(self, *, prefer_most_allocated: bool = False) -> Churn:
        """The nodes after all arrivals and departures."""
        churn = Churn.on(
            nodes_of(self.nodes, prefer_most_allocated=prefer_most_allocated), workloads=WORKLOADS
        )
        churn.run(random.Random(self.seed), arrivals=self.arrivals, crowd=self.crowd)
        return churn

    @property
    def goal(self) -> FitMore:
        """The big pods."""
        shape = Shape.parse(f"cpu={self.big_cpus},memory={self.big_cpus}Gi")
        return FitMore((Wanted.shape("big", shape, count=self.big_pods),))


# Comparisons, without an API server


def fitting_by_size(cluster: Cluster) -> dict[int, int]:
    """How many pods of several sizes would fit, each size for itself."""
    shapes = {cpus: Shape.parse(f"cpu={cpus},memory={cpus}Gi") for cpus in (4, 6, 8, 10, 12)}
    return {cpus: measure(FitMore((Wanted.shape("any", shape),)), cluster) for cpus, shape in shapes.items()}


# The live loop


@dataclass
class Watchman:
    """Looks at pods and budgets again and again, and remembers what must not be."""

    client: Client
    below_budget: int = 0
    phases: dict[str, str] = field(default_factory=dict)
    """Pod name → phase; absent once it is gone."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(0.2)

    async def look(self) -> None:
        """Look once."""
        pods = await self.client.list(PODS, namespace=NAMESPACE)
        self.phases = {pod["metadata"]["name"]: (pod.get("status") or {}).get("phase", "") for pod in pods}
        for budget in await self.client.list(BUDGETS, namespace=NAMESPACE):
            status = budget.get("status") or {}
            if status.get("currentHealthy", 0) < status.get("desiredHealthy", 0):
                self.below_budget += 1

    async def until(self, name: str, phase: str) -> None:
        """Wait until a pod is in a phase; the empty one: until it is gone."""
        while self.phases.get(name, "") != phase:  # noqa: ASYNC110 - the next look is not far
            await asyncio.sleep(0.05)

    @property
    def big_running(self) -> int:
        """How many big pods run."""
        return sum(name.startswith("big-") and phase == "Running" for name, phase in self.phases.items())


async def live(setting: Setting, churn: Churn, directory: Path, seconds: float) -> dict[str, Any]:
    """Bring the state about, let big pods come, switch the policy on, and report."""
    async with (
        control_plane(directory) as plane,
        Programs(directory / "logs") as programs,
        asyncio.TaskGroup() as tasks,
        AsyncExitStack() as stack,
    ):
        running: list[asyncio.Task[None]] = []
        stack.callback(lambda: [task.cancel() for task in running])
        fleet = Fleet(plane.client, nodes_of(setting.nodes))
        plane.server.node_proxy = fleet.answer
        watchman = Watchman(plane.client)
        parts = [fleet.run(), watchman.run()]
        parts += [ZonePublisher(agent, plane.client).run() for agent in fleet.agents.values()]
        running += [tasks.create_task(part) for part in parts]
        await plane.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": dict([OPT_IN])}})
        while len(await plane.client.list(NUMAZONES)) < 2 * setting.nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await _replay(plane.client, churn, watchman)
        running += [
            tasks.create_task(ReplicaSets(plane.client, pause=0.1).run()),
            tasks.create_task(Scheduler(plane.client).run()),
        ]
        await _start_operator(plane, programs)
        return await _defragment(setting, plane.client, watchman, seconds)


async def _replay(client: Client, churn: Churn, watchman: Watchman) -> None:
    """Bring about what has happened, in its order on every node, then set replicas and budgets."""
    owners = {}
    for number in range(churn.workloads):
        owners[f"w{number}"] = await _replica_set(client, f"w{number}", replicas=0)
    by_node: dict[str, list[Happening]] = {}
    for item in churn.history:
        by_node.setdefault(item.node, []).append(item)
    await asyncio.gather(*(_replay_node(client, items, owners, watchman) for items in by_node.values()))
    counts = Counter(body["metadata"]["labels"]["app"] for body, _ in churn.running.values())
    for workload, count in counts.items():
        await client.patch(REPLICA_SETS, workload, {"spec": {"replicas": count}}, namespace=NAMESPACE)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": workload, "namespace": NAMESPACE},
            "spec": {"minAvailable": max(0, count - 1), "selector": {"matchLabels": {"app": workload}}},
        }
        await client.create(BUDGETS, budget, namespace=NAMESPACE)


async def _replay_node(
    client: Client, items: list[Happening], owners: Mapping[str, str], watchman: Watchman
) -> None:
    for item in items:
        metadata = item.body["metadata"]
        name, workload = metadata["name"], metadata["labels"]["app"]
        if item.arrives:
            (owner,) = metadata["ownerReferences"]
            body = {
                **item.body,
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": metadata["labels"],
                    "ownerReferences": [{**owner, "uid": owners[workload]}],
                },
                "spec": {**item.body["spec"], "nodeName": item.node},
            }
            await client.create(PODS, body, namespace=NAMESPACE)
            await watchman.until(name, "Running" if item.admitted else "Failed")
        else:
            await client.delete(PODS, name, namespace=NAMESPACE)
            await watchman.until(name, "")


async def _replica_set(client: Client, name: str, *, replicas: int, cpus: int = 1) -> str:
    """Create a ReplicaSet whose pods wait at the gate; return its UID."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"schedulingGates": [{"name": GATE}], "containers": [container_of(cpus)]},
            },
        },
    }
    made = await client.create(REPLICA_SETS, body, namespace=NAMESPACE)
    return str(made["metadata"]["uid"])


async def _start_operator(plane: ControlPlane, programs: Programs) -> None:
    command = ["numazones-operator", f"--kubeconfig={plane.kubeconfig}", "--metrics-address=127.0.0.1:0"]
    command += ["--no-leader-elect", "--admission-gate", "--admission-gate-timeout=1h"]
    command += ["--rebalance", "--rebalance-period=100ms", "--log-format=text"]
    await programs.start("operator", command)


async def _defragment(setting: Setting, client: Client, watchman: Watchman, seconds: float) -> dict[str, Any]:
    await _replica_set(client, "big", replicas=setting.big_pods, cpus=setting.big_cpus)
    await _until_judged(client, setting.big_pods)
    before = watchman.big_running
    started = time.perf_counter()
    policy = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": "defragment"},
        "spec": {
            "mode": "Auto",
            "goals": {"pendingPods": True},
            "limits": {"maxNoOfPodsToEvictTotal": 5, "evictSingleReplicas": True},
            "schedule": {"interval": "1s"},
            "searchTime": "5s",
        },
    }
    await client.create(REBALANCE_POLICIES, policy)
    await _until_nothing_is_left(client, watchman, setting, started + seconds)
    items = await client.list(REBALANCE_RECOMMENDATIONS)
    progress = [one for item in items for one in (item.get("status") or {}).get("progress") or ()]
    evicted = [one["pod"]["uid"] for one in progress if one["phase"] in _GONE]
    replaced = {one["replacement"]["uid"] for one in progress if one.get("replacement")}
    return {
        "bigPodsBefore": before,
        "bigPodsAfter": watchman.big_running,
        "evictions": len(evicted),
        "evictedTwice": len(evicted) - len(set(evicted)) + len(replaced & set(evicted)),
        "timesBelowBudget": watchman.below_budget,
        "plans": dict(Counter((item.get("status") or {}).get("phase", "") for item in items)),
        "messages": sorted(
            {item["status"]["message"] for item in items if item["status"].get("phase") == "Failed"}
        ),
        "seconds": round(time.perf_counter() - started, 1),
    }


async def _until_judged(client: Client, pods: int) -> None:
    """Wait until every big pod runs or is known to be inadmissible."""
    while True:
        found = await client.list(ADMISSION_PREDICTIONS)
        verdicts = [
            (item.get("status") or {}).get("verdict")
            for item in found
            if item["metadata"]["name"].startswith("big-")
        ]
        admitted = [
            pod
            for pod in await client.list(PODS, namespace=NAMESPACE, label_selector="app=big")
            if (pod.get("status") or {}).get("phase") == "Running"
        ]
        if verdicts.count("Inadmissible") + len(admitted) >= pods:
            return
        await asyncio.sleep(0.2)


async def _until_nothing_is_left(client: Client, watchman: Watchman, setting: Setting, end: float) -> None:
    """Wait until all big pods run, or a search found nothing more, or time is up."""
    quiet = 0
    while time.perf_counter() < end and watchman.big_running < setting.big_pods:
        active = [
            item
            for item in await client.list(REBALANCE_RECOMMENDATIONS)
            if (item.get("status") or {}).get("phase") in {*ACTIVE, None}
        ]
        try:
            status = (await client.get(REBALANCE_POLICIES, "defragment")).get("status") or {}
        except NotFound:
            return
        searched = status.get("lastSearch") and not status.get("recommendation")
        quiet = quiet + 1 if searched and not active else 0
        if quiet > 20:
            return
        await asyncio.sleep(0.25)


def report_of(setting: Setting, seconds: float) -> dict[str, Any]:
    """Run everything."""
    churn = setting.churned()
    cluster = churn.cluster()
    with tempfile.TemporaryDirectory(prefix="nz-") as directory:
        auto = asyncio.run(live(setting, churn, Path(directory), seconds))
    other = setting.churned(prefer_most_allocated=True)
    return {
        "nodes": setting.nodes,
        "pods": len(churn.running),
        "bigPod": {"cpus": setting.big_cpus, "wanted": setting.big_pods},
        "fragmented": {
            "bigPodsThatFit": measure(setting.goal, cluster),
            "fittingByCPUs": fitting_by_size(cluster),
            "rejected": churn.rejected,
        },
        "auto": auto,
        "kep6007": {
            "bigPodsThatFit": measure(setting.goal, other.cluster()),
            "fittingByCPUs": fitting_by_size(other.cluster()),
            "rejected": other.rejected,
            "pods": len(other.running),
        },
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods-per-node", type=int, default=7)
    parser.add_argument("--arrivals-per-node", type=int, default=30)
    parser.add_argument("--big-cpus", type=int, default=12)
    parser.add_argument("--big-pods", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=400, help="bound on the live part")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON on one line")
    arguments = parser.parse_args()
    setting = Setting(
        nodes=arguments.nodes,
        crowd=arguments.nodes * arguments.pods_per_node,
        arrivals=arguments.nodes * arguments.arrivals_per_node,
        big_cpus=arguments.big_cpus,
        big_pods=arguments.big_pods,
        seed=arguments.seed,
    )
    report = report_of(setting, arguments.seconds)
    print(json.dumps(report) if arguments.json else json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
