"""The page on architecture: its walks are those that the programs take, its handlers those that kopf has.

A stop of a walk is the dotted name of a function that begins an item of a numbered list. Each walk is taken
for real while a profiler notes which of the stops are passed.
"""

import asyncio
import importlib
import inspect
import itertools
import json
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kopf
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones.api import crd
from numazones.api.meta import NODE_LABEL
from numazones.kubelet import machines
from numazones.kubelet.admission import admit
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones_client import Client, ClusterConfig
from numazones_client.resources import (
    LEASES,
    NODES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_exporter import daemon
from numazones_exporter.options import Options
from numazones_operator import handlers
from numazones_simulator import machine_tree, node_kinds
from numazones_simulator.control_plane import control_plane
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_spec import NodeSpec, configuration, node_object
from numazones_simulator.replica_sets import ReplicaSets
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.waiting import eventually

PAGE = (ROOT / "docs" / "architecture.md").read_text()
STOP = re.compile(r"^\d+\. `([\w.]+)`", re.MULTILINE)
ROW = re.compile(r"^\| *(\w*) *\| `on\.(\w+)` (?:`([\w.]+)` )?`(\w+)` \|", re.MULTILINE)
WAY_BACK = re.compile(r"^- `([\w.]+)`", re.MULTILINE)

POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "keep-room"},
    "spec": {
        "mode": "Approve",
        "goals": {"shapes": [{"name": "large", "resources": {"cpu": "30", "memory": "1Gi"}, "count": 1}]},
        "limits": {"evictSingleReplicas": True},
        "schedule": {"interval": "1s"},
    },
}
JUDGE = "numazones_operator.rebalance.steps.Steps.judge"
APPROVED = "numazones_operator.handlers.recommendation_approved"

REST = 0.3
"""Seconds in which no stop is passed, before a walk begins."""
_CALLERS_OF_THREAD: ContextVar[frozenset[str]] = ContextVar("callers", default=frozenset())
"""The stops that have something computed in a thread; its context is a copy of theirs."""


def section(title: str) -> str:
    """The part of the page below a heading."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def function_named(name: str) -> Callable[..., Any]:
    """The function of a dotted name, which begins with its module's."""
    found: Any = None
    for part in name.split("."):
        found = importlib.import_module(part) if found is None else _member(found, part)
    assert callable(found), name
    function: Callable[..., Any] = inspect.unwrap(found)
    return function


def _member(owner: Any, name: str) -> Any:
    if inspect.ismodule(owner) and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    return getattr(owner, name)


class Walk:
    """A walk as the page has it, and which of its stops are passed."""

    def __init__(self, title: str) -> None:
        self.stops = STOP.findall(section(title))
        assert self.stops, title
        self._names: dict[CodeType, str] = {
            function_named(stop).__code__: stop for stop in dict.fromkeys(self.stops)
        }
        self._order = {stop: index for index, stop in enumerate(dict.fromkeys(self.stops))}
        self._noting = self._resting = False
        self.passed: list[str] = []
        """Stops in the order in which they were entered, or gone on with after a wait."""
        self.calls_back: set[tuple[str, str]] = set()
        """Pairs of a stop and an earlier one that it called."""

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """Profile this thread, and those that are started meanwhile."""
        before = sys.getprofile()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            # Threads that run keep their profiler: without the main thread's it would mistake who calls them.
            self._noting = False
            sys.setprofile(before)
            threading.setprofile(before)

    async def begin(self) -> None:
        """Note stops from now on, the first one first, once what went on before has come to rest."""
        self._noting = self._resting = True
        while True:
            self.passed.clear()
            await asyncio.sleep(REST)
            if not self.passed:
                break
        self.calls_back.clear()
        self._resting = False

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._noting or event != "call":
            return
        if frame.f_code is asyncio.to_thread.__code__:
            _CALLERS_OF_THREAD.set(frozenset(self._callers(frame)))
            return
        name = self._names.get(frame.f_code)
        if name is None or not (self.passed or self._resting or name == self.stops[0]):
            return
        self.passed.append(name)
        elsewhere = threading.current_thread() is not threading.main_thread()
        callers = {*self._callers(frame), *(_CALLERS_OF_THREAD.get() if elsewhere else ())}
        self.calls_back |= {(caller, name) for caller in callers if self._order[caller] > self._order[name]}

    def _callers(self, frame: FrameType) -> Iterator[str]:
        """Yield the stops that have called a function, on its own thread."""
        caller = frame.f_back
        while caller is not None:
            if caller.f_code in self._names:
                yield self._names[caller.f_code]
            caller = caller.f_back

    def check(self, *, ways_back: Collection[str] = ()) -> None:
        """Compare what was passed with the page; ``ways_back``: the stops that later ones call again."""
        passed = [name for name, _ in itertools.groupby(self.passed)]
        assert list(dict.fromkeys(passed)) == list(dict.fromkeys(self.stops)), passed
        rest = iter(passed)
        missing = [stop for stop in self.stops if stop not in rest]
        assert not missing, passed
        assert {earlier for _, earlier in self.calls_back} == set(ways_back), self.calls_back


async def equals(found: Any, expected: Any) -> bool:
    return bool(await found == expected)


def guaranteed(name: str, *, cpus: int) -> Pod:
    body = pod_body(name, cpu=cpus)
    return Pod.from_api({**body, "metadata": {**body["metadata"], "uid": name}})


async def show(agent: Agent, node: Node) -> None:
    """Let zones show a state of the kubelet that no pod of the API server explains."""
    agent.kubelet.node = node
    agent.changed.set()


def replica_set(name: str, *, cpus: int) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_body(name, cpu=cpus)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def pods_of(loop: Loop, owner: str) -> list[str]:
    names = [body["metadata"]["name"] for body in await loop.client.list(PODS, namespace="default")]
    return [name for name in names if name.startswith(f"{owner}-")]


async def recommendation_in(loop: Loop, phase: str) -> str:
    """The name of a recommendation in that phase; empty if there is none."""
    for body in await loop.client.list(REBALANCE_RECOMMENDATIONS):
        if (body.get("status") or {}).get("phase") == phase:
            return str(body["metadata"]["name"])
    return ""


async def test_changed_state_file_becomes_zones_as_the_page_describes(tmp_path: Path) -> None:
    walk = Walk("Sysfs to NUMAZone")
    name, stop = "worker-3", asyncio.Event()
    machine = machines.build(machines.MachineShape(sockets=2, cores_per_numa=4, memory_per_numa=8 << 30))
    config = configuration(machine, topology_manager_policy="single-numa-node", reserved_cpus="0,4")
    kubelet = SimulatedKubelet(NodeSpec(name, machine, config))
    tree = machine_tree.write(machine, tmp_path)
    files = KubeletFiles(tmp_path / "kubelet")
    files.write(kubelet.node)
    (tmp_path / "kubelet.json").write_text(json.dumps(config))
    options = Options(
        node_name=name,
        sysfs=tree.sysfs,
        procfs=tree.procfs,
        kubelet_dir=tmp_path / "kubelet",
        kubelet_config=f"file:{tmp_path / 'kubelet.json'}",
        metrics_address="127.0.0.1:0",
        pods="none",
        interval=3600.0,
    )

    async def assigned(client: Client) -> int:
        """The CPUs that zones of one snapshot show as given away; -1 while they are being written."""
        statuses = [zone.get("status") or {} for zone in await client.list(NUMAZONES)]
        if len({status.get("snapshot") for status in statuses}) != 1:
            return -1
        resources = [one for status in statuses for one in status.get("resources", ())]
        return sum(int(one["assigned"]) for one in resources if one["name"] == "cpu")

    async with AsyncExitStack() as stack:
        endpoint = tmp_path / "kubelet" / "pod-resources" / "kubelet.sock"
        await stack.enter_async_context(PodResourcesServer(endpoint, lambda: (kubelet.node, kubelet.pods)))
        plane = await stack.enter_async_context(control_plane(tmp_path))
        await plane.client.create(NODES, node_object(kubelet.spec, now="2026-01-31T08:00:00Z"))
        client = await stack.enter_async_context(Client(ClusterConfig(plane.server.url), user_agent="test"))
        stack.enter_context(walk.profiled())
        exporting = asyncio.create_task(
            daemon.serve(options, client, stop=stop, registry=CollectorRegistry())
        )

        async def end() -> None:
            stop.set()
            await exporting

        stack.push_async_callback(end)
        # The Lease follows the first zones.
        await eventually(lambda: plane.client.list(LEASES, label_selector=NODE_LABEL))
        await walk.begin()
        body = pod_body("first", nodeName=name)
        assert kubelet.admit({**body, "metadata": {**body["metadata"], "uid": "first"}}).rejection is None
        files.write(kubelet.node)
        await eventually(lambda: equals(assigned(plane.client), 2), what="the zones show the pod")
    walk.check()


async def test_changed_zones_become_a_prediction_as_the_page_describes(tmp_path: Path) -> None:
    walk = Walk("NUMAZone event to prediction")
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        assert loop.fleet is not None
        agent = loop.fleet.agents["n1"]
        empty = full = agent.kubelet.node
        for name in ("one", "other"):
            full = admit(full, guaranteed(name, cpus=20)).node
        await show(agent, full)
        with walk.profiled():
            operator = await loop.start_operator()
            await loop.create_pod("waits", cpu=30)
            await eventually(lambda: equals(loop.verdict("waits"), "Inadmissible"))
            await eventually(lambda: not operator.pipeline.publisher.depth)
            await walk.begin()
            await show(agent, empty)
            await eventually(lambda: equals(loop.verdict("waits"), "Admissible"))
    walk.check()


async def test_policy_becomes_an_eviction_as_the_page_describes(tmp_path: Path) -> None:
    walk = Walk("Policy to plan to eviction")
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        for name, cpus in (("fills", 20), ("leaves", 10)):
            await loop.create_pod(name, cpu=cpus)
            await loop.run_on("n1", name)
        loop.tasks.create_task(ReplicaSets(loop.client, pause=0.05).run())
        await loop.client.create(REPLICA_SETS, replica_set("moves", cpus=10), namespace="default")
        (moves,) = await eventually(lambda: pods_of(loop, "moves"))
        await loop.run_on("n1", moves)
        await loop.client.delete(PODS, "leaves", namespace="default")
        loop.start_scheduler()
        with walk.profiled():
            operator = await loop.start_operator(
                rebalance=True, rebalance_period=0.05, admission_gate=True, leader_elect=False
            )
            # What is there before is listed, and kopf only tells of it again.
            await operator.intent.followed.wait()
            await walk.begin()
            await loop.client.create(REBALANCE_POLICIES, POLICY)
            proposed = await eventually(lambda: recommendation_in(loop, "Proposed"))
            # What was proposed is judged before anybody approves it.
            await eventually(lambda: JUDGE in walk.passed)
            # A round that begins before kopf's handler would take the approval from the list.
            operator.intent.followed.clear()
            await loop.client.patch(REBALANCE_RECOMMENDATIONS, proposed, {"spec": {"approved": True}})
            await eventually(lambda: APPROVED in walk.passed)
            operator.intent.followed.set()
            await eventually(lambda: recommendation_in(loop, "Succeeded"))
    walk.check(ways_back=WAY_BACK.findall(section("Repeated steps")))


def test_the_handlers_on_the_page_are_those_of_kopf() -> None:
    kinds = {"namespaces": "Namespace"}
    for definition in map(crd.crd, crd.KINDS):
        kinds[definition["spec"]["names"]["plural"]] = definition["spec"]["names"]["kind"]
    registry = kopf.get_default_registry()
    known = set()
    for activity in registry._activities.get_all_handlers():
        assert activity.activity is not None
        word = activity.activity.value.replace("authentication", "login")
        if vars(handlers).get(activity.id) is activity.fn:  # kopf brings some of its own
            known.add(("", word, "", str(activity.id)))
    for word, of_kind in (
        ("event", registry._watching),
        ("field", registry._changing),
        ("daemon", registry._spawning),
        ("index", registry._indexing),
        ("validate", registry._webhooks),
    ):
        for handler in of_kind.get_all_handlers():
            assert handler.selector is not None
            kind = kinds[str(handler.selector.any_name)]
            known.add((kind, word, ".".join(handler.field or ()), str(handler.id).partition("/")[0]))
    assert set(ROW.findall(section("kopf"))) == known
