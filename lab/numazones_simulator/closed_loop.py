"""The demo on a simulated cluster: one pod that gets stuck, and what numazones does about it.

A workload comes and goes and leaves the nodes fragmented; a ReplicaSet is driven in circles by a kubelet that
rejects its replicas; `kubectl numazones why` explains it; behind the admission gate it waits instead; a plan
is proposed and carried out; the pod runs, and predictions are held against what the kubelets did. Then the
same pods come twice more, tied to no node: to the usual scheduler, and to one that asks first.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import click

from numazones.api.rebalance import ENDED, Mode, PlanPhase
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.wording import pluralize
from numazones_client import NotFound, Resource
from numazones_client.resources import (
    ADMISSION_PREDICTIONS,
    NAMESPACES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_simulator import node_kinds, outcomes, placement_models, prevention, scheduler, tables
from numazones_simulator.node_kinds import KIND_LABEL, MODEL_LABEL
from numazones_simulator.programs import installed
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import SimulatedCluster
from numazones_simulator.turnover import RUNNING, UNSCHEDULABLE, PodFates, fate_of
from numazones_simulator.workload import PodStream, container

OPERATOR_ARGUMENTS = ("--admission-gate", "--rebalance-period=500ms", "--identity=demo")
NODES = (
    node_kinds.single_numa_node,
    node_kinds.restricted_pods,
    node_kinds.best_effort_full_cores,
    node_kinds.single_numa_node_pods,
    *placement_models.node_kinds()[:2],
)

_ZONES = "/apis/numazones.io/v1alpha1/numazones"
_POLICY_NAME = "make-room"
_POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": _POLICY_NAME},
    "spec": {
        "mode": Mode.APPROVE,
        "goals": {"pendingPods": True},
        "schedule": {"interval": "2s"},
    },
}
_STAGE = "single-numa-node"
"""Kind of the node on which the story is told."""
_FIRST_PODS = 50
_WORKER_CPUS = 4
_CIRCLES = 3
_QUESTIONS = 8
"""How often why is asked until it finds advice."""
_ADVICE = "What would help:"
_PATIENCE = 300.0
_BRIEF = 30.0
"""Seconds until a pod that waits is said to wait."""
_POLL = 0.1
_COLUMNS = 80
_TERMINAL = {"COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1"}
"""Has the plugin fold its answer as on a terminal."""

Body = dict[str, Any]


class StoryStuck(NumazonesError):
    """The demo waited too long; the message says for what, and where the logs are."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Results of the pods that used one scheduler."""

    random: PodFates
    workers: PodFates
    trainers: list[Body]
    """Replicas of the big pod: the last one runs, waits or was rejected."""

    def rows(self, size: int) -> dict[str, str]:
        """Return what is told of each scheduler."""
        big = fates_of(self.trainers)
        at_least = "at least " if big.rejected >= _CIRCLES else ""
        return {
            "random pods that run": str(self.random.counts[RUNNING]),
            "random pods rejected by kubelets": str(self.random.rejected),
            "random pods that wait for room": str(self.random.counts[UNSCHEDULABLE]),
            "replicas of web and batch rejected": str(self.workers.rejected),
            f"replicas of {size} CPUs rejected": f"{at_least}{big.rejected}",
            f"replicas of {size} CPUs that run": str(big.counts[RUNNING]),
        }

    @property
    def trainer(self) -> str:
        """A sentence on the big pod."""
        rejected = fates_of(self.trainers).rejected
        for pod in self.trainers:
            if fate_of(pod) == RUNNING:
                which = (
                    f"after {pluralize(rejected, 'rejected replica')}" if rejected else "the first replica"
                )
                return f"{pod['metadata']['name']} runs on {pod['spec']['nodeName']}, {which}"
        if rejected:
            return f"{pluralize(rejected, 'replica')} of trainer rejected so far"
        return "trainer fits nowhere, and waits"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Shows the story on a running cluster of ``NODES``."""

    cluster: SimulatedCluster
    screen: Screen
    confirm: Callable[[str], Awaitable[bool]]
    """Asked before a plan is carried out."""

    async def tell(self) -> None:
        """Run all parts of the story, and print them.

        Raises:
            StoryStuck: something did not happen in time.
        """
        await self._fragment()
        size = self._unplaceable_size()
        await self._run_in_circles(size)
        await self._explain()
        await self._wait_at_the_gate(size)
        if await self._plan():
            await self._run_at_last()
        await self._compare()
        await self._once_more(size)

    # A workload comes and goes

    async def _fragment(self) -> None:
        await self._create_namespace("shop")
        room = sum(free // _WORKER_CPUS for _, free in free_cpus(self._stage()))
        await self._grow_workers(room)
        self.screen.progress("creating other pods")
        for pod in islice(placement_models.pods_for_all(1, PodStream(1).pods()), _FIRST_PODS):
            await self._create(pod)
        await self._wait_until_decided("default")
        await self._end_batch()
        pods = [*await self._pods("default"), *await self._pods("shop")]
        self.screen.title("Pods were created and deleted. This is free on each NUMA node now")
        self.screen.say(f"Pods: {summary(pods)}")
        self.screen.say()
        await self._show(_ZONES)

    async def _grow_workers(self, count: int, *, scheduler: str = "") -> None:
        """Let two ReplicaSets grow in turn, on the story's node; with a scheduler's name: on any node."""
        for name in ("web", "batch"):
            await self._create_replica_set("shop", name, _WORKER_CPUS, replicas=0, scheduler=scheduler)
        for number in range(count):
            name, replicas = ("web", "batch")[number % 2], number // 2 + 1
            self.screen.progress("ReplicaSets web and batch grow in turn", f"{number + 1} of {count} pods")
            patch = {"spec": {"replicas": replicas}}
            await self.cluster.plane.client.patch(REPLICA_SETS, name, patch, namespace="shop")
            await self._until(partial(_have_grown, count=number + 1), "shop", "a worker to run")

    async def _end_batch(self) -> None:
        self.screen.progress("deleting batch")
        await self._end_replica_set("shop", "batch")
        await self._until_current("the NUMAZones to show what was deleted")

    # A big pod gets stuck

    def _unplaceable_size(self) -> int:
        """Return a number of CPUs that the story's node has free, but not within one zone."""
        node = self._stage()
        free = [free for _, free in free_cpus(node)]
        size = max(free) + 2
        if size > sum(free):
            raise StoryStuck(
                f"with {free} free CPUs per NUMA node, there is no gap to show; start the demo again"
            )
        return size

    async def _run_in_circles(self, size: int) -> None:
        await self._create_namespace("team", labels=dict([OPT_IN]))
        await self._create_replica_set("team", "trainer", size)
        self.screen.progress(f"a ReplicaSet requests {size} CPUs, more than any NUMA node has free")
        await self._until(
            lambda pods: [_phase(pod) for pod in pods].count("Failed") >= _CIRCLES,
            "team",
            "replicas to be rejected",
        )
        free = ", ".join(f"{free} on NUMA node {zone}" for zone, free in free_cpus(self._stage()))
        self.screen.title(f"A ReplicaSet needs {size} CPUs; free: {free}")
        self.screen.say("The scheduler sees enough in total, but the kubelet rejects each replica:")
        self.screen.say()
        pods = sorted(await self._pods("team"), key=_creation_time)
        for pod in pods:
            self.screen.say(
                f"  {pod['metadata']['name']}  {pod['spec'].get('nodeName', '')}  {_phase(pod)}  "
                f"{pod['status'].get('reason', '')}".rstrip()
            )
        self.screen.say()
        self.screen.say(f"The kubelet: {pods[0]['status']['message']}")

    async def _explain(self) -> None:
        self.screen.progress("asking why")
        # A replica that is bound and not yet rejected counts with its requests, as it does for the scheduler:
        # who asks in that moment hears of too few CPUs in all, and asks again.
        for _ in range(_QUESTIONS):
            told = await self._why()
            if _ADVICE in told:
                break
        self.screen.title("kubectl numazones why rs/trainer -n team")
        self.screen.say(told.rstrip())

    async def _why(self) -> str:
        process = await asyncio.create_subprocess_exec(
            str(installed("kubectl-numazones")),
            *("why", "rs/trainer", "--namespace=team", f"--kubeconfig={self.cluster.plane.kubeconfig}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **_TERMINAL},
        )
        told, errors = await process.communicate()
        if errors:
            raise StoryStuck(f"kubectl numazones why failed: {errors.decode()}")
        return click.unstyle(told.decode())

    async def _wait_at_the_gate(self, size: int) -> None:
        await self._end_replica_set("team", "trainer")
        await self._create_replica_set("team", "trainer", size, gated=True)
        waiting = await self._until(
            lambda pods: len(pods) == 1 and _phase(pods[0]) != "Failed", "team", "one replica to wait"
        )
        name = waiting[0]["metadata"]["name"]
        await self._until(
            lambda bodies: any(
                body["metadata"]["name"] == name and "verdict" in (body.get("status") or {})
                for body in bodies
            ),
            "team",
            "its prediction",
            resource=ADMISSION_PREDICTIONS,
        )
        self.screen.title(f"With the gate {GATE}, the replica waits instead of failing")
        await self._show(_predictions("team"))

    # A plan makes room

    async def _plan(self) -> bool:
        """Have a plan proposed; carry it out if the user wants it, and return whether that was so."""
        self.screen.progress("looking for a plan")
        await self.cluster.plane.client.create(REBALANCE_POLICIES, _POLICY)
        (plan,) = await self._until(
            lambda bodies: any(map(_plan_phase, bodies)), "", "a plan", resource=REBALANCE_RECOMMENDATIONS
        )
        name, spec = plan["metadata"]["name"], plan["spec"]
        self.screen.title(f"A RebalancePolicy finds the fewest evictions that make room: {name}")
        for move in spec["moves"]:
            pod, source, target = move["pod"], move["source"], move["target"]
            name_of_pod = f"{pod['namespace']}/{pod['name']}"
            self.screen.say(f"  {name_of_pod}: from {_place(source)} to {_place(target)}; {move['why']}")
        if not await self.confirm("Run the plan?"):
            self.screen.say(f"To approve it later: kubectl numazones approve {name}")
            return False
        approved = {"spec": {"approved": True}}
        await self.cluster.plane.client.patch(REBALANCE_RECOMMENDATIONS, name, approved)
        self.screen.progress("running the plan")
        (done,) = await self._until(
            lambda bodies: all(_plan_phase(body) in ENDED for body in bodies),
            "",
            "the plan to end",
            resource=REBALANCE_RECOMMENDATIONS,
        )
        if _plan_phase(done) != PlanPhase.SUCCEEDED:
            raise StoryStuck(
                f"{name} {_plan_phase(done)}: {done['status'].get('message')}; start the demo again"
            )
        self.screen.say()
        await self._show(REBALANCE_RECOMMENDATIONS.path())
        return True

    async def _run_at_last(self) -> None:
        (pod,) = await self._until(
            lambda pods: [_phase(pod) for pod in pods] == ["Running"], "team", "the waiting replica to run"
        )
        await self._until(
            lambda bodies: all((body.get("status") or {}).get("outcome") for body in bodies),
            "team",
            "the outcome next to the prediction",
            resource=ADMISSION_PREDICTIONS,
        )
        self.screen.title(f"The gate opened, and {pod['metadata']['name']} runs on {pod['spec']['nodeName']}")
        await self._show(_predictions("team"))

    async def _compare(self) -> None:
        compared = await outcomes.fetch(self.cluster.operator)
        self.screen.title(outcomes.verdict(compared))
        self.screen.say(outcomes.render(compared))
        self.screen.say(outcomes.render_models(await outcomes.fetch_models(self.cluster.operator)))

    # The same pods, and a scheduler that asks first

    async def _once_more(self, size: int) -> None:
        """Let the same pods come twice, tied to no node: to the usual scheduler, to one that asks first."""
        await self.cluster.plane.client.delete(REBALANCE_POLICIES, _POLICY_NAME)
        runs = []
        for name in (scheduler.NAME, prevention.SCHEDULER):
            async with self._patience(f"decisions on the same pods, scheduled by {name}"):
                runs.append(await self._let_all_come(size, name))
        usual, asking = runs
        self.screen.title("The same pods with schedulerName: numazones, the NUMA-aware scheduler")
        self.screen.say("ReplicaSets are no longer tied to node-1, for either scheduler.")
        self.screen.say(f"{prevention.SCHEDULER}: {asking.trainer}")
        self.screen.say(f"{scheduler.NAME}: {usual.trainer}")
        self.screen.say()
        self.screen.say(f"{'':<40}{scheduler.NAME:>20}{prevention.SCHEDULER:>12}")
        for (what, before), after in zip(usual.rows(size).items(), asking.rows(size).values(), strict=True):
            self.screen.say(f"{what:<40}{before:>20}{after:>12}")

    async def _let_all_come(self, size: int, name: str) -> _Run:
        """Have everything end, and all pods come again to a scheduler; return what became of them."""
        await self._end_everything(name)
        room = sum(free // _WORKER_CPUS for _, free in free_cpus(self._stage()))
        await self._grow_workers(room, scheduler=name)
        arrivals = placement_models.pods_for_all(1, PodStream(1).pods())
        if name != scheduler.NAME:
            arrivals = prevention.for_scheduler(arrivals)
        for body in islice(arrivals, _FIRST_PODS):
            await self._create(body)
        await self._wait_until_decided("default")
        workers = fates_of(await self._pods("shop"))
        await self._end_batch()
        await self._create_replica_set("team", "trainer", size, scheduler=name)
        trainers: list[Body] = []
        with contextlib.suppress(TimeoutError):  # it may fit nowhere, and wait
            async with asyncio.timeout(_BRIEF):
                while not _is_answered(trainers := await self._pods("team")):  # noqa: ASYNC110 - others write
                    await asyncio.sleep(_POLL)
        return _Run(fates_of(await self._pods("default")), workers, trainers)

    async def _end_everything(self, name: str) -> None:
        self.screen.progress(f"deleting all pods and creating the same again, scheduled by {name}")
        for namespace, replica_set in (("team", "trainer"), ("shop", "web")):
            await self._end_replica_set(namespace, replica_set)
        for pod in await self._pods("default"):
            with contextlib.suppress(NotFound):
                await self.cluster.plane.client.delete(
                    PODS, pod["metadata"]["name"], namespace="default", grace_seconds=0
                )
        await self._until(lambda pods: not pods, "default", "all pods to be gone")
        await self._until_current("the NUMAZones to be empty")

    # Acting

    async def _create(self, pod: Body) -> None:
        await self.cluster.plane.client.create(PODS, pod, namespace=pod["metadata"]["namespace"])

    async def _create_namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": dict(labels or {})}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self.cluster.plane.client.create(NAMESPACES, body)

    async def _create_replica_set(
        self,
        namespace: str,
        name: str,
        cpus: int,
        *,
        replicas: int = 1,
        gated: bool = False,
        scheduler: str = "",
    ) -> None:
        # The story is told on one node; where schedulers are compared, they have the choice.
        spec = _pod_spec(cpus, selector={} if scheduler else {KIND_LABEL: _STAGE})
        if scheduler:
            spec["schedulerName"] = scheduler
        if gated:
            spec["schedulingGates"] = [{"name": GATE}]
        labels = {"app": name}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        await self.cluster.plane.client.create(REPLICA_SETS, body, namespace=namespace)

    async def _end_replica_set(self, namespace: str, name: str) -> None:
        """Delete a ReplicaSet and its pods, as the garbage collector would."""
        client = self.cluster.plane.client
        await client.delete(REPLICA_SETS, name, namespace=namespace)
        for pod in await self._pods(namespace):
            if pod["metadata"]["labels"] == {"app": name}:
                with contextlib.suppress(NotFound):
                    await client.delete(PODS, pod["metadata"]["name"], namespace=namespace, grace_seconds=0)
        await self._until(
            lambda pods: not any(pod["metadata"]["labels"] == {"app": name} for pod in pods),
            namespace,
            f"the pods of {name} to be gone",
        )

    # Looking

    def _stage(self) -> Node:
        return next(
            agent.kubelet.node
            for agent in self.cluster.fleet.agents.values()
            if agent.kubelet.spec.labels[KIND_LABEL] == _STAGE
        )

    async def _pods(self, namespace: str) -> list[Body]:
        return await self.cluster.plane.client.list(PODS, namespace=namespace)

    async def _wait_until_decided(self, namespace: str) -> None:
        """Wait until every pod was decided on by scheduler or kubelet, and deleted ones are gone."""
        await self._until(lambda pods: all(map(_is_settled, pods)), namespace, "decisions on the pods")

    async def _until_current(self, what: str) -> None:
        """Wait until the published zones are those of the kubelets' states."""

        async def agree() -> bool:
            free: Counter[str] = Counter()
            for zone in await self.cluster.plane.client.list(NUMAZONES):
                resources = zone["status"]["resources"]
                cpu = next(item for item in resources if item["name"] == "cpu")
                free[zone["spec"]["nodeName"]] += int(cpu.get("available") or 0)
            return all(
                free[name] == sum(free for _, free in free_cpus(agent.kubelet.node))
                for name, agent in self.cluster.fleet.agents.items()
                if MODEL_LABEL not in agent.kubelet.spec.labels
            )

        async with self._patience(what):
            while not await agree():  # noqa: ASYNC110 - exporters are other processes
                await asyncio.sleep(_POLL)

    async def _until(
        self, holds: Callable[[list[Body]], bool], namespace: str, what: str, *, resource: Resource = PODS
    ) -> list[Body]:
        async with self._patience(what):
            while not holds(found := await self.cluster.plane.client.list(resource, namespace=namespace)):
                await asyncio.sleep(_POLL)
                self.cluster.programs.check()
        return found

    @asynccontextmanager
    async def _patience(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_PATIENCE):
                yield
        except TimeoutError:
            raise StoryStuck(
                f"waited {_PATIENCE:g} s without success for {what}; see "
                f"{self.cluster.programs.log_directory}"
            ) from None

    async def _show(self, path: str) -> None:
        self.screen.say(
            tables.render(await tables.fetch(self.cluster.plane.server.url, path), columns=_COLUMNS)
        )


def summary(pods: Iterable[Body]) -> str:
    """Count pods by what became of them: ``38 Running, 3 Failed (TopologyAffinityError)``."""
    counts: Counter[str] = Counter()
    for pod in pods:
        reason = (pod.get("status") or {}).get("reason")
        counts[f"{_phase(pod)} ({reason})" if reason else _phase(pod)] += 1
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items(), key=lambda item: -item[1]))


def fates_of(pods: Iterable[Body]) -> PodFates:
    """Count what became of pods; those that nobody has decided on wait."""
    return PodFates(Counter(fate_of(pod) or UNSCHEDULABLE for pod in pods))


def free_cpus(node: Node) -> list[tuple[int, int]]:
    """(NUMA id, CPUs that can still be given exclusively) for every zone with CPUs."""
    available = node.kubelet.cpus.available(node.cpus)
    return [
        (numa, (available & cpus).bit_count()) for numa, cpus in node.machine.cpus_of_numa.items() if cpus
    ]


def _pod_spec(cpus: int, *, selector: Mapping[str, str]) -> Body:
    """A Guaranteed pod of one container."""
    containers = [container("app", {"cpu": str(cpus), "memory": "1Gi"})]
    return {"terminationGracePeriodSeconds": 0, "nodeSelector": dict(selector), "containers": containers}


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['node']} (NUMA node {','.join(map(str, place['numaIDs']))})"


def _plan_phase(recommendation: Body) -> str:
    return str((recommendation.get("status") or {}).get("phase", ""))


def _predictions(namespace: str) -> str:
    return ADMISSION_PREDICTIONS.path(namespace=namespace)


def _phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _is_answered(trainers: Iterable[Body]) -> bool:
    """Return whether a replica runs, or enough were rejected that the next one will be rejected too."""
    fates = fates_of(trainers)
    return fates.counts[RUNNING] > 0 or fates.rejected >= _CIRCLES


def _have_grown(pods: list[Body], *, count: int) -> bool:
    """Return whether that many replicas run or wait; a ReplicaSet that goes in circles is not waited for."""
    fates = fates_of(pods)
    return all(map(_is_settled, pods)) and (
        fates.total - fates.rejected >= count or fates.rejected >= _CIRCLES * count
    )


def _creation_time(pod: Body) -> tuple[str, str]:
    return (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"])


def _is_settled(pod: Body) -> bool:
    """Return whether a pod runs, has failed, or has been reported unschedulable."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if pod["spec"].get("nodeName"):
        return _phase(pod) != "Pending"
    return bool((pod.get("status") or {}).get("conditions"))
