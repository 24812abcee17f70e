"""The demo on a simulated cluster: what NUMA-blind scheduling does, and what numazones sees of it.

Four acts: a workload comes and goes and leaves the nodes fragmented; questions are put to the operator by
pods that nobody schedules; a ReplicaSet is driven in circles by kubelets that reject its replicas; the same
ReplicaSet behind the admission gate waits until there is room, and runs.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones_client import Resource
from numazones_client.resources import NUMAZONES, PODS
from numazones_simulator import node_kinds, tables
from numazones_simulator.control_plane import NAMESPACES
from numazones_simulator.node_kinds import GPU, KIND_LABEL, NIC
from numazones_simulator.replica_sets import REPLICA_SETS
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import SimulatedCluster
from numazones_simulator.workload import Workload

PREDICTIONS = Resource("numazones.io", "v1alpha1", "admissionpredictions")
OPERATOR_ARGUMENTS = ("--admission-gate",)
NODES = (
    node_kinds.single_numa_node,
    node_kinds.restricted_pods,
    node_kinds.best_effort_full_cores,
    node_kinds.single_numa_node_pods,
)

_ZONES = "/apis/numazones.io/v1alpha1/numazones"
_GATE = "numazones.io/admission"
_OPT_IN = {"numazones.io/admission-gate": "enabled"}
_HOLD = "numazones.example/hold"
_STAGE = "single-numa-node"
"""Kind of the node on which the story is told."""
_FIRST_PODS = 30
_WORKER_CPUS = 4
_CIRCLES = 3
_PATIENCE = 30.0
_POLL = 0.1

Body = dict[str, Any]


class StoryStuck(NumazonesError):
    """The demo waited in vain; the message says for what, and where the logs are."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Tells the story on a running cluster of ``NODES``."""

    cluster: SimulatedCluster
    screen: Screen

    async def tell(self) -> None:
        """Run all acts; prints as it goes.

        Raises:
            StoryStuck: something did not happen in time.
        """
        await self._fragment()
        await self._ask()
        size = self._unplaceable_size()
        await self._run_in_circles(size)
        await self._wait_at_the_gate(size)

    # A workload comes and goes

    async def _fragment(self) -> None:
        self.screen.progress("creating pods")
        for pod in islice(Workload(1, namespace="default").pods(), _FIRST_PODS):
            await self._create(pod)
        await self._settled("default")
        workers = await self._fill_stage()
        self.screen.progress("every second worker ends")
        for name in workers[::2]:
            await self.cluster.plane.client.delete(PODS, name, namespace="default")
        await self._settled("default")
        await self._until_current("the zones to show what ended")
        pods = await self._pods("default")
        self.screen.title("A workload has come and gone: what is left in each zone")
        self.screen.say(f"Pods: {summary(pods)}")
        self.screen.say()
        await self._show(_ZONES)

    async def _fill_stage(self) -> list[str]:
        """Create equal workers on one node until there is no more room for them; return their names."""
        names: list[str] = []
        while True:
            name = f"worker-{len(names) + 1:02}"
            self.screen.progress(f"creating {name}")
            await self._create(_pod(name, "default", cpus=_WORKER_CPUS, selector={KIND_LABEL: _STAGE}))
            await self._settled("default")
            pods = {pod["metadata"]["name"]: pod for pod in await self._pods("default")}
            if not pods[name]["spec"].get("nodeName"):
                await self.cluster.plane.client.delete(PODS, name, namespace="default")
                return names
            if _phase(pods[name]) == "Failed":
                return names
            names.append(name)

    # Questions

    async def _ask(self) -> None:
        self.screen.progress("asking where further pods would fit")
        await self._create_namespace("questions")
        questions: tuple[tuple[str, int, dict[str, str]], ...] = (
            ("cpus-04", 4, {}),
            ("cpus-10", 10, {}),
            ("cpus-16", 16, {}),
            ("cpus-22", 22, {}),
            ("cpus-28", 28, {}),
            ("gpu-and-nic", 4, {GPU: "1", NIC: "1"}),
            ("hugepages", 2, {"hugepages-1Gi": "2Gi"}),
        )
        for name, cpus, further in questions:
            pod = _pod(name, "questions", cpus=cpus, further=further)
            pod["spec"]["schedulingGates"] = [{"name": _HOLD}]
            await self._create(pod)
        await self._until_predicted("questions", len(questions))
        self.screen.title("Where would further pods be admitted? (they are gated, so nobody schedules them)")
        await self._show(_predictions("questions"), wide=True)

    # In circles, and at the gate

    def _unplaceable_size(self) -> int:
        """CPUs that the stage has free, but not within one zone."""
        node = self._stage()
        free = [free for _, free in free_cpus(node)]
        size = max(free) + 2
        if size > sum(free):
            raise StoryStuck(f"the free CPUs of {free} per zone leave no gap to show; start the demo again")
        return size

    async def _run_in_circles(self, size: int) -> None:
        await self._create_namespace("circles")
        await self._create_replica_set("circles", size, gated=False)
        self.screen.progress(f"a ReplicaSet asks for {size} CPUs that no single zone has")
        await self._until(
            lambda pods: [_phase(pod) for pod in pods].count("Failed") >= _CIRCLES,
            "circles",
            "replicas to be rejected",
        )
        free = ", ".join(f"{free} in zone {zone}" for zone, free in free_cpus(self._stage()))
        self.screen.title(f"A ReplicaSet wants one replica of {size} CPUs; free on its node: {free}")
        self.screen.say(
            "The scheduler sees enough in total, the kubelet finds no zone, a new replica comes, and again:"
        )
        self.screen.say()
        for pod in sorted(await self._pods("circles"), key=_created):
            status = pod["status"]
            self.screen.say(
                f"  {pod['metadata']['name']}  {pod['spec'].get('nodeName', '')}  {_phase(pod)}  "
                f"{status.get('reason', '')}  {status.get('message', '')}".rstrip()
            )
        await self.cluster.plane.client.delete(REPLICA_SETS, "trainer", namespace="circles")

    async def _wait_at_the_gate(self, size: int) -> None:
        await self._create_namespace("patient", labels=_OPT_IN)
        await self._create_replica_set("patient", size, gated=True)
        await self._until_predicted("patient", 1)
        self.screen.title(f"The same ReplicaSet behind the gate {_GATE}: no replica fails, one waits")
        await self._show(_predictions("patient"), wide=True)
        self.screen.progress("workers end, until one zone has room")
        ended = await self._make_room(size)
        pods = await self._until(
            lambda pods: [_phase(pod) for pod in pods] == ["Running"], "patient", "the waiting replica to run"
        )
        self.screen.say(
            f"{ended} more {'worker has' if ended == 1 else 'workers have'} ended, the gate opened, "
            f"and {pods[0]['metadata']['name']} runs on {pods[0]['spec']['nodeName']}:"
        )
        self.screen.say()
        await self._until(
            lambda bodies: all((body.get("status") or {}).get("outcome") for body in bodies),
            "patient",
            "the outcome beside the prediction",
            resource=PREDICTIONS,
        )
        await self._show(_predictions("patient"))

    async def _make_room(self, size: int) -> int:
        """End workers one by one until a zone of the stage has room; return how many it took."""
        ended = 0
        for worker in await self._pods("default"):
            if not worker["metadata"]["name"].startswith("worker"):
                continue
            if max(free for _, free in free_cpus(self._stage())) >= size:
                break
            await self.cluster.plane.client.delete(
                PODS, worker["metadata"]["name"], namespace="default", grace_seconds=0
            )
            await self._settled("default")
            ended += 1
        return ended

    # Acting

    async def _create(self, pod: Body) -> None:
        await self.cluster.plane.client.create(PODS, pod, namespace=pod["metadata"]["namespace"])

    async def _create_namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": dict(labels or {})}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self.cluster.plane.client.create(NAMESPACES, body)

    async def _create_replica_set(self, namespace: str, cpus: int, *, gated: bool) -> None:
        spec = _pod("trainer", namespace, cpus=cpus, selector={KIND_LABEL: _STAGE})["spec"]
        if gated:
            spec["schedulingGates"] = [{"name": _GATE}]
        labels = {"app": "trainer"}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "trainer", "namespace": namespace},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        await self.cluster.plane.client.create(REPLICA_SETS, body, namespace=namespace)

    # Looking

    def _stage(self) -> Node:
        return next(
            agent.kubelet.node
            for agent in self.cluster.fleet.agents.values()
            if agent.kubelet.spec.labels[KIND_LABEL] == _STAGE
        )

    async def _pods(self, namespace: str) -> list[Body]:
        return await self.cluster.plane.client.list(PODS, namespace=namespace)

    async def _settled(self, namespace: str) -> None:
        """Wait until every pod was decided on by scheduler or kubelet, and deleted ones are gone."""
        await self._until(lambda pods: all(map(_is_settled, pods)), namespace, "pods to be decided on")

    async def _until_predicted(self, namespace: str, count: int) -> None:
        await self._until(
            lambda bodies: sum("verdict" in (body.get("status") or {}) for body in bodies) >= count,
            namespace,
            "predictions",
            resource=PREDICTIONS,
        )

    async def _until_current(self, what: str) -> None:
        """Wait until the published zones are those of the kubelets' states."""

        async def agree() -> bool:
            free: Counter[str] = Counter()
            for zone in await self.cluster.plane.client.list(NUMAZONES):
                resources = zone["status"]["resources"]
                cpu = next(item for item in resources if item["name"] == "cpu")
                free[zone["spec"]["nodeName"]] += int(cpu["available"])
            return all(
                free[name] == sum(free for _, free in free_cpus(agent.kubelet.node))
                for name, agent in self.cluster.fleet.agents.items()
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
                f"waited {_PATIENCE:g} s in vain for {what}; see {self.cluster.programs.log_directory}"
            ) from None

    async def _show(self, path: str, *, wide: bool = False) -> None:
        self.screen.say(tables.render(await tables.fetch(self.cluster.plane.server.url, path), wide=wide))


def summary(pods: Iterable[Body]) -> str:
    """Count pods by what became of them: ``38 Running, 3 Failed (TopologyAffinityError)``."""
    counts: Counter[str] = Counter()
    for pod in pods:
        reason = (pod.get("status") or {}).get("reason")
        counts[f"{_phase(pod)} ({reason})" if reason else _phase(pod)] += 1
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items(), key=lambda item: -item[1]))


def free_cpus(node: Node) -> list[tuple[int, int]]:
    """(NUMA id, CPUs that can still be given exclusively) for every zone with CPUs."""
    available = node.kubelet.cpus.available(node.cpus)
    return [
        (numa, (available & cpus).bit_count()) for numa, cpus in node.machine.cpus_of_numa.items() if cpus
    ]


def _pod(
    name: str,
    namespace: str,
    *,
    cpus: int,
    selector: Mapping[str, str] | None = None,
    further: Mapping[str, str] | None = None,
) -> Body:
    """A Guaranteed pod of one container."""
    amounts = {"cpu": str(cpus), "memory": "1Gi", **(further or {})}
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
    }
    spec: Body = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if selector:
        spec["nodeSelector"] = dict(selector)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _predictions(namespace: str) -> str:
    return PREDICTIONS.path(namespace=namespace)


def _phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _created(pod: Body) -> tuple[str, str]:
    return (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"])


def _is_settled(pod: Body) -> bool:
    """Whether a pod runs, has failed, or has been told that no node has room."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if pod["spec"].get("nodeName"):
        return _phase(pod) != "Pending"
    return bool((pod.get("status") or {}).get("conditions"))
