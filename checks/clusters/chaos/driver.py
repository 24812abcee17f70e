"""Drives a cluster with random traffic and faults.

What is drawn depends on the seed alone; what comes of it depends on the pace of machine and programs, too.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from checks.clusters.chaos import checker
from checks.clusters.chaos.checker import Pace, Violation
from checks.clusters.chaos.cluster import NODES, REPLICAS, Cluster, running
from checks.clusters.chaos.tenant import IMPORTANT, Tenant
from numazones.cluster.admission_gate import GATE
from numazones_client import APIError, Resource
from numazones_client.resources import (
    BUDGETS,
    LEASES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_simulator.control_plane import NAMESPACE

SHAPE = 24
"""CPUs that the policy wants room for."""
_APPS = 6
_BARE_PODS = 5
_STEPS = 20
_POLL = 0.5
_PLAN_WAIT = 6.0
_AIMED_KILLS = 3
"""How many times a round kills the leader in the middle of a plan that it was led to."""
_AIM_SECONDS = 25.0
_IN_EXECUTION = "in execution"
_OPERATOR = "numazones-operator"

Action = Callable[[], Awaitable[None]]


class Driver:
    """Draws what to do next, and does it."""

    def __init__(self, cluster: Cluster, draw: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._history = cluster.history
        self._faults = cluster.server.faults
        self._draw = draw
        self._say = say
        self._apps: set[str] = set()
        self._bare: set[str] = set()
        self._reserved = True
        """The policy that reserves our programs' annotations is bound."""
        self._gated = True
        """Whether all apps of this round ask for the gate."""
        self._read = 0
        self._phases: dict[str, str] = {}
        """Plan → its phase, as of the events that were read."""
        self._moves: dict[str, str] = {}
        """Plan in execution → the phase of its move that was written last."""

    # Traffic

    async def insist(self, act: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> None:
        """Ask for something; what the API server refuses, or cannot do now, does not happen."""
        try:
            await act(*arguments, **options)
        except APIError as error:
            self._say(f"    not done: {error}")

    async def set_policy(
        self, mode: str = "Auto", *, suspend: bool = False, pending_pods: bool = False
    ) -> None:
        """Create the policy, or change what it wants."""
        spec = {
            "mode": mode,
            "goals": {
                "pendingPods": pending_pods,
                "shapes": [{"name": "large", "resources": {"cpu": str(SHAPE), "memory": "1Gi"}}],
            },
            "limits": {"evictSingleReplicas": True},
            "schedule": {"interval": "1s", "suspend": suspend},
            "cooldown": "5s",
            "expiry": "30s",
        }
        body = {
            "apiVersion": "numazones.io/v1alpha1",
            "kind": "RebalancePolicy",
            "metadata": {"name": "room"},
            "spec": spec,
        }
        await self.insist(self._client.apply, REBALANCE_POLICIES, body, field_manager="people")

    async def create_replica_set(
        self, app: str, cpus: int, replicas: int, *, gated: bool = True, priority: str = ""
    ) -> None:
        """Create a ReplicaSet of pods with whole CPUs; ``priority``: the name of a PriorityClass."""
        template: dict[str, Any] = {"metadata": {"labels": {"app": app}}, "spec": _pod_spec(cpus)}
        if priority:
            template["spec"]["priorityClassName"] = priority
        if gated:
            template["spec"]["schedulingGates"] = [{"name": GATE}]
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template},
        }
        await self.insist(self._client.create, REPLICA_SETS, body, namespace="default")

    async def create_pod(self, name: str, cpus: int, *, node: str = "") -> None:
        """Create a pod without owner and gate; with a node, it passes by the scheduler."""
        spec = _pod_spec(cpus) | ({"nodeName": node} if node else {})
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        await self.insist(self._client.create, PODS, body, namespace="default")

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object of the namespace default, or of the cluster."""
        namespace = "default" if resource.namespaced else ""
        await self.insist(self._client.delete, resource, name, namespace=namespace)

    def _app(self) -> str:
        return f"app-{self._draw.randrange(_APPS)}"

    async def _create_app(self, app: str, cpus: int, replicas: int) -> None:
        gated = self._gated or self._draw.random() < 0.7
        self._apps.add(app)
        priority = IMPORTANT if self._draw.random() < 0.2 else ""
        await self.create_replica_set(app, cpus, replicas, gated=gated, priority=priority)

    async def _change_app(self) -> None:
        app = self._app()
        match self._draw.choice(("scale", "scale", "delete")) if app in self._apps else "create":
            case "create":
                await self._create_app(app, self._draw.randint(2, 9), self._draw.randint(1, 3))
            case "scale":
                patch = {"spec": {"replicas": self._draw.randint(0, 3)}}
                await self.insist(self._client.patch, REPLICA_SETS, app, patch, namespace="default")
            case _:
                self._apps.discard(app)
                await self.delete(REPLICA_SETS, app)

    async def _change_pod(self) -> None:
        name = f"bare-{self._draw.randrange(_BARE_PODS)}"
        if name not in self._bare:
            self._bare.add(name)
            await self.create_pod(name, self._draw.randint(4, 14))
        else:
            self._bare.discard(name)
            await self.delete(PODS, name)

    async def _fragment(self) -> None:
        """Leave a few small pods of apps, spread over the nodes: bringing them together makes room."""
        await self._clear_out()
        for _ in range(self._draw.randint(1, 2)):
            app = self._app()
            if app not in self._apps:
                await self._create_app(app, self._draw.randint(4, 9), len(NODES))
                if self._draw.random() < 0.5:
                    await self._create_budget(app)

    async def _clear_out(self) -> None:
        for name in sorted(self._bare):
            await self.delete(PODS, name)
        for app in sorted(self._apps):
            await self.delete(REPLICA_SETS, app)
        self._bare.clear()
        self._apps.clear()

    async def _want_room(self) -> None:
        """Have a large pod wait at the gate, or wait no longer."""
        app = f"large-{self._draw.randrange(2)}"
        if app in self._apps:
            self._apps.discard(app)
            await self.delete(REPLICA_SETS, app)
        else:
            await self._create_app(app, self._draw.randint(SHAPE, 30), 1)

    async def _change_budget(self) -> None:
        app = self._app()
        if self._draw.random() < 0.5:
            await self._create_budget(app)
        else:
            await self.delete(BUDGETS, app)

    async def _create_budget(self, app: str) -> None:
        """Demand of an app that one pod runs, or as many as ``_fragment`` creates, so that none may go."""
        least = self._draw.randint(1, len(NODES))
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
        }
        await self.insist(self._client.create, BUDGETS, body, namespace="default")

    async def _change_policy(self) -> None:
        mode = self._draw.choice(("Auto", "Auto", "Auto", "Approve", "Approve", "Recommend"))
        suspend = self._draw.random() < 0.1
        if self._draw.random() < 0.1:
            await self.delete(REBALANCE_POLICIES, "room")
        await self.set_policy(mode, suspend=suspend, pending_pods=self._draw.random() < 0.5)

    async def _change_reservation(self) -> None:
        self._reserved = not self._reserved
        await self._cluster.bind_reservation(bound=self._reserved)

    async def approve(self) -> None:
        """Approve what is proposed."""
        try:
            found = await self._client.list(REBALANCE_RECOMMENDATIONS)
        except APIError:
            return
        for item in found:
            if (item.get("status") or {}).get("phase") == "Proposed":
                patch = {"spec": {"approved": True}}
                name = item["metadata"]["name"]
                await self.insist(self._client.patch, REBALANCE_RECOMMENDATIONS, name, patch)

    # Faults

    async def _for_a_while(self, name: str, end: Action, seconds: float) -> None:
        began = self._history.now()
        await asyncio.sleep(seconds)
        await end()
        self._history.add_fault(name, began)

    async def _api_away(self) -> None:
        await self._cluster.server.stop()
        await self._for_a_while("API server away", self._cluster.server.start, self._draw.uniform(0.3, 4.0))

    async def _clear(self) -> None:
        self._faults.clear()

    async def _api_ill(self) -> None:
        resource = self._draw.choice(
            ("", "pods", "numazones", "admissionpredictions", "rebalancerecommendations", "leases")
        )
        how = self._draw.choice(("slow", "throttles", "conflicts", "expires", "resets", "fails"))
        verb = "" if how != "conflicts" else "patch"
        add: dict[str, Action] = {
            "slow": lambda: _none(
                self._faults.delay(self._draw.uniform(0.2, 2.0), resource=resource, count=20)
            ),
            "throttles": lambda: _none(self._faults.too_many_requests(resource=resource, count=20)),
            "conflicts": lambda: _none(self._faults.conflict(verb=verb, resource=resource, count=20)),
            "expires": lambda: _none(self._faults.resource_expired(verb="watch", resource=resource, count=5)),
            "resets": lambda: _none(self._faults.reset(resource=resource, count=20)),
            "fails": lambda: _none(self._faults.server_error(resource=resource, count=20)),
        }
        self._say(f"    {how}: {resource or 'everything'}")
        await add[how]()
        await self._for_a_while(how, self._clear, self._draw.uniform(0.5, 3.0))

    async def _watches(self) -> None:
        how = self._draw.choice(("cut", "compacted", "silent"))
        self._say(f"    {how}")
        if how == "cut":
            self._faults.drop_watches()
        elif how == "compacted":
            self._cluster.server.compact()
            self._faults.drop_watches(compacted=True)
        else:
            resource = self._draw.choice(("", "pods", "numazones"))
            self._faults.silence_watches(resource, client=_OPERATOR)
            # They are opened again after --watch-silence; the traffic goes on meanwhile.
            began = self._history.now()
            self._history.events.append({"t": began, "kind": "fault", "name": how, "until": began + 6.0})

    async def _kill_operator(self) -> None:
        name, began = self._draw.choice(REPLICAS), self._history.now()
        await self._cluster.kill(name)
        await self._cluster.start_operator(name)
        self._history.add_fault(f"killed {name}", began)

    async def _kill_in_plan(self) -> None:
        """Lead the operator to a plan, and kill the leader between two of its steps, perhaps repeatedly."""
        await self._clear_out()
        for number in range(_APPS):
            await self.delete(BUDGETS, f"app-{number}")
        await self.set_policy()
        await self._create_app(self._app(), self._draw.randint(31 - SHAPE, 15), len(NODES))
        step, kills = self._draw.choice(("Evicting", "Evicted", "Placed")), self._draw.randint(1, 3)
        if not await self._until(lambda: step in self._executing(), _AIM_SECONDS):
            return
        for _ in range(kills):
            began, leader = self._history.now(), await self._leader()
            steps = self._executing()
            if leader not in self._cluster.processes or not steps:
                return
            await self._cluster.kill(leader)
            await self._cluster.start_operator(leader)
            self._history.add_fault(f"killed {leader} {_IN_EXECUTION} ({', '.join(sorted(steps))})", began)
            self._say(f"  {began:8.2f} s killed {leader} {_IN_EXECUTION}: {', '.join(sorted(steps))}")
            await asyncio.sleep(self._draw.uniform(0.5, 8.0))

    async def _leader(self) -> str:
        try:
            lease = await self._client.get(LEASES, _OPERATOR, namespace=NAMESPACE)
        except APIError:
            return ""
        return str(lease["spec"].get("holderIdentity") or "")

    async def _stop_operator(self) -> None:
        name = self._draw.choice(REPLICAS)
        self._cluster.signal(name, signal.SIGSTOP)

        async def go_on() -> None:
            self._cluster.signal(name, signal.SIGCONT)

        await self._for_a_while(f"stopped {name}", go_on, self._draw.uniform(1.0, 14.0))

    async def _kill_exporter(self) -> None:
        name, began = self._draw.choice(NODES), self._history.now()
        await self._cluster.kill(name)
        await self._cluster.start_exporter(name)
        self._history.add_fault(f"killed exporter of {name}", began)

    async def _tear_state_file(self) -> None:
        node = self._draw.choice(NODES)
        path = self._cluster.directory / node / "kubelet" / "cpu_manager_state"
        whole = _tear(path)

        async def mend() -> None:
            _mend(path, whole)

        await self._for_a_while(f"torn state file of {node}", mend, self._draw.uniform(0.1, 2.0))

    # The course of things

    def _read_plans(self) -> None:
        events = self._history.events
        for event in events[self._read :]:
            if event["kind"] == "object" and event["resource"] == "rebalancerecommendations":
                status = event["after"].get("status") or {}
                phase, name = status.get("phase", ""), event["name"]
                self._phases[name] = "" if event["type"] == "DELETED" else phase
                begun = [one["phase"] for one in status.get("progress") or () if one["phase"] != "Pending"]
                self._moves[name] = begun[-1] if begun else "Pending"
        self._read = len(events)

    def _has_plan(self, phase: str) -> bool:
        """Return whether a plan is in a phase."""
        self._read_plans()
        return phase in self._phases.values()

    def _executing(self) -> set[str]:
        """Return the phases of the current moves of plans in execution."""
        self._read_plans()
        return {self._moves[name] for name, phase in self._phases.items() if phase == "Executing"}

    async def _plan_is(self, phase: str) -> bool:
        """Wait for a while until a plan is in a phase; whether one is."""
        return await self._until(lambda: self._has_plan(phase), _PLAN_WAIT)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a while until a condition is met; return whether it is."""
        end = self._history.now() + seconds
        while not (met := condition()) and self._history.now() < end:  # noqa: ASYNC110 -- until a time, too
            await asyncio.sleep(_POLL / 10)
        return met

    async def _approve_late(self) -> None:
        """Approve plans some seconds after somebody has taken room where a pod is to go."""
        await self.set_policy("Approve", pending_pods=self._draw.random() < 0.5)
        name, cpus = f"bare-{self._draw.randrange(_BARE_PODS)}", self._draw.randint(8, 24)
        late = self._draw.uniform(checker.PACE.lag, 2 * checker.PACE.lag)
        if not await self._plan_is("Proposed"):
            return
        if name in self._bare:
            await self.delete(PODS, name)
        self._bare.add(name)
        await self.create_pod(name, cpus, node=await self._target())
        await asyncio.sleep(late)
        await self.approve()

    async def _target(self) -> str:
        """Return a node that a proposed plan moves a pod to; empty if there is none."""
        try:
            found = await self._client.list(REBALANCE_RECOMMENDATIONS)
        except APIError:
            return ""
        targets = [
            str(move["target"]["node"])
            for item in found
            if (item.get("status") or {}).get("phase") == "Proposed"
            for move in item["spec"]["moves"]
        ]
        return next(iter(targets), "")

    async def turmoil(self) -> None:
        """Take some steps, faults among them, many of them in the middle of a plan."""
        traffic: tuple[Action, ...] = (
            self._change_app,
            self._change_app,
            self._change_pod,
            self._fragment,
            self._want_room,
            self._change_budget,
            self._change_policy,
            self._change_reservation,
            self.approve,
            self._approve_late,
        )
        faults: tuple[Action, ...] = (
            self._api_away,
            self._api_ill,
            self._watches,
            self._kill_operator,
            self._kill_operator,
            self._stop_operator,
            self._kill_exporter,
            self._tear_state_file,
        )
        self._gated = self._draw.random() < 0.7
        await self._fragment()
        background: list[asyncio.Task[None]] = []
        aimed = self._draw.sample(range(_STEPS), _AIMED_KILLS)
        for step in range(_STEPS):
            if step in aimed:
                await asyncio.gather(*background)
                self._faults.clear()
                await self._kill_in_plan()
            act = self._draw.choice(traffic if self._draw.random() < 0.65 else faults)
            if self._draw.random() < 0.5:
                await self._plan_is("Executing")
            self._say(f"  {self._history.now():8.2f} s {act.__name__.strip('_')}")
            if act in faults:
                # One fault at a time; the traffic goes on.
                await asyncio.gather(*background)
                background = [asyncio.create_task(_awaited(act))]
            else:
                await act()
            await asyncio.sleep(self._draw.uniform(0.05, 1.5))
        await asyncio.gather(*background)

    async def calm(self, *, patience: float = checker.PACE.promised) -> None:
        """Let everything come to rest, without faults."""
        self._faults.clear()
        await self.set_policy()
        self._history.add("calm")
        began = self._history.now()
        while self._history.now() - began <= patience:
            await asyncio.sleep(_POLL)
            if not list(checker.wrongs(checker.after(self._history.events))):
                break
        self._history.add("end")
        self._say(f"  {self._history.now():8.2f} s at rest after {self._history.now() - began:.1f} s")


def _tear(path: Path) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def _mend(path: Path, whole: bytes) -> None:
    if path.read_bytes() == whole[: len(whole) // 2]:  # the kubelet may have written it anew meanwhile
        path.write_bytes(whole)


def _pod_spec(cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {"containers": [{"name": "main", "image": "registry.example/app", "resources": resources}]}


async def _none(_: object) -> None:
    """Have done something that gives something."""


async def _awaited(act: Action) -> None:
    await act()


def summary(events: Sequence[checker.Event]) -> str:
    """Count what happened in a run."""
    count: Counter[str] = Counter()
    ended: dict[str, str] = {}
    for event in events:
        if event["kind"] == "fault":
            count["faults"] += 1
            count["aimed"] += _IN_EXECUTION in event["name"]
        elif event["kind"] == "denied":
            count["denied"] += 1
        elif event["kind"] == "kubelet" and event["what"] == "rejected":
            count["rejections"] += 1
        elif event["kind"] == "object":
            count[f"{event['client']} {event['resource']} {event['verb']} {event['sub']}"] += 1
            if event["resource"] == "rebalancerecommendations":
                ended[event["name"]] = (event["after"].get("status") or {}).get("phase", "")
    world = checker.after(events)
    plans = ", ".join(f"{number} {phase}" for phase, number in sorted(Counter(ended.values()).items()))
    return (
        f"{count['faults']} faults, {count['aimed']} of them kills {_IN_EXECUTION}, "
        f"{len(ended)} plans ({plans}), "
        f"{count[f'{_OPERATOR} pods create eviction']} evictions, {len(world.released)} releases, "
        f"{count['rejections']} rejections, {count['denied']} forgeries denied, "
        f"{count['numazones-exporter numazones patch status']} zones and "
        f"{count[f'{_OPERATOR} admissionpredictions patch status']} predictions written"
    )


async def drive(
    directory: Path,
    *,
    seed: int,
    rounds: Callable[[int, float], bool],
    pace: Pace = checker.PACE,
    defect: str = "",
    say: Callable[[str], None] = lambda _line: None,
) -> list[Violation]:
    """Run rounds of turmoil and calm while ``rounds`` of their number and the seconds so far wants it.

    ``defect``: what is put into the operators on purpose. It ends after the first round that broke a rule.
    The history is left in the directory.
    """
    async with running(directory, defect=defect) as cluster:
        driver = Driver(cluster, random.Random(seed), say)
        hostile = asyncio.create_task(Tenant(cluster.client, random.Random(seed)).run())
        await driver.calm(patience=pace.promised)
        number = 0
        found: list[Violation] = []
        while not found and rounds(number, cluster.history.now()):
            number += 1
            say(f"round {number}")
            await driver.turmoil()
            await driver.calm(patience=pace.promised)
            cluster.history.write(directory / "history.jsonl")
            found = checker.violations(cluster.history.events, pace)
        hostile.cancel()
        say(summary(cluster.history.events))
        return found
