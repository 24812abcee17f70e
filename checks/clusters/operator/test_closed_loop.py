"""A random workload on twenty nodes of three placement models, everything live: every prediction comes true.

API server, kubelets, zones, scheduler and operator run at the same time, so predictions are made while zones
lag behind, pods are bound in bursts and others vanish.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop, metrics
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement.model import kubelet_verdict
from numazones.prediction import forecast as prediction
from numazones_client import NotFound
from numazones_client.resources import PODS
from numazones_koordinator.identity import NAME as KOORDINATOR
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_operator.process import Operator
from numazones_operator.verification.verifier import Expectation, Verification, Verifier
from numazones_simulated_models.koordinator.koord_scheduler import KoordScheduler
from numazones_simulated_models.topology_aware.plugin import TopologyAwarePlugin
from numazones_simulator import node_kinds, placement_models
from numazones_simulator.workload import PodStream
from numazones_topology_aware.identity import NAME as TOPOLOGY_AWARE
from numazones_topology_aware.node_placement import TopologyAwarePlacement
from tests.waiting import eventually

NODES = 12
CONCERNED = 800
"""Pods that NUMA placement concerns and that get a node; others come on top."""
CROWD = 140
"""Pods from which on most new ones take the place of an old one."""
BURST = 25


class Churn:
    """Creates pods in bursts and deletes old ones, whatever became of them."""

    def __init__(self, loop: Loop, *, seed: int) -> None:
        self._loop = loop
        self._draw = random.Random(seed)
        self._pods = placement_models.pods_for_all(seed, PodStream(seed).pods())
        self.alive: list[str] = []
        self.created = 0

    async def burst(self) -> None:
        for _ in range(BURST):
            body = next(self._pods)
            await self._loop.client.create(PODS, body, namespace="default")
            self.alive.append(body["metadata"]["name"])
            self.created += 1
            if len(self.alive) > CROWD:
                await self._end(self.alive.pop(self._draw.randrange(CROWD - 2 * BURST)))

    async def _end(self, name: str) -> None:
        try:
            await self._loop.client.delete(PODS, name, namespace="default", grace_seconds=0)
        except NotFound:
            return


class Witness:
    """Sees what was predicted, and from which node, beside the node that decided.

    A kubelet tries rejected containers again at moments of its own, and tells of those that it creates some
    time after. A pod that is bound in between finds a node that nobody could know of.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unknown: list[str] = []
        """Pods of which nothing was predicted, and why."""
        self.missed: list[Verification] = []
        """Wrong predictions of what the topology-aware policy does."""
        self._foreseen: dict[str, tuple[set[str], set[str]]] = {}
        """UID of a pod that was bound → containers with a grant, and those told not to be created."""
        self._found: dict[str, set[str]] = {}
        """UID of a pod → containers with a grant when its own were first asked for."""
        bound, compare, create = Verifier.bound, Verifier.compare, TopologyAwarePlugin.create

        def expected(verifier: Verifier, pod: ClusterPod, *nodes: ClusterNode | None) -> Expectation | None:
            expectation = bound(verifier, pod, *nodes)
            if expectation is not None and expectation.predicted == prediction.UNKNOWN:
                self.unknown.append(f"{pod.name} on {pod.node}: {expectation.reason}: {expectation.message}")
            node = nodes[0]
            if node is not None and isinstance(node.known, TopologyAwarePlacement):
                told = {
                    f"{other.kubelet_uid}/{name}" for other in node.pods.values() for name in other.uncreated
                }
                self._foreseen[pod.kubelet_uid] = set(node.known.node.grants), told
            return expectation

        def compared(verifier: Verifier, pod: ClusterPod, **how: Any) -> Verification | None:
            verification = compare(verifier, pod, **how)
            if verification is None or verification.expectation.model != TOPOLOGY_AWARE:
                return verification
            if verification.hit is False:
                self.missed.append(verification)
            return verification

        def created(plugin: TopologyAwarePlugin, body: dict[str, Any]) -> dict[str, str]:
            self._found.setdefault(body["metadata"]["uid"], set(plugin.node.grants))
            return create(plugin, body)

        monkeypatch.setattr(Verifier, "bound", expected)
        monkeypatch.setattr(Verifier, "compare", compared)
        monkeypatch.setattr(TopologyAwarePlugin, "create", created)

    def overtaken(self) -> set[str]:
        """Full names of pods that were foreseen wrongly since their node was another than could be known.

        It was, by a container told not to have been created; or by what another such pod was given, of which
        its kubelet had not told yet when this one was bound.
        """
        pods = {miss.expectation.pod.kubelet_uid: miss.expectation.pod for miss in self.missed}
        late = {uid for uid in pods if self._differing(uid) & self._foreseen[uid][1]}
        while more := {uid for uid in pods.keys() - late if late & set(map(_pod_of, self._differing(uid)))}:
            late |= more
        return {pods[uid].full_name for uid in late}

    def facts(self) -> dict[str, tuple[set[str], set[str]]]:
        """Full name of a pod foreseen wrongly → containers that had come or gone, and those told of."""
        pods = [miss.expectation.pod for miss in self.missed]
        return {
            pod.full_name: (self._differing(pod.kubelet_uid), self._foreseen[pod.kubelet_uid][1])
            for pod in pods
        }

    def _differing(self, uid: str) -> set[str]:
        """Containers that had a grant when the pod was bound or when it was created, but not both times."""
        granted, _ = self._foreseen[uid]
        return granted ^ self._found.get(uid, granted)


class KoordinatorWitness:
    """Sees which pods were on a node when Koordinator's scheduler decided, and when the operator predicted.

    The scheduler decides a moment before it binds. A pod that ends or comes in between is known to one of the
    two only, so the pod may be given something else than foreseen.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._elsewhere: list[ClusterPod] = []
        """Pods that were given something else than foreseen."""
        self._decided: dict[str, set[str]] = {}
        """UID of a pod → UIDs of the pods that the scheduler counted on its node."""
        self._foreseen: dict[str, set[str]] = {}
        """UID of a pod → UIDs of the pods that the operator counted on its node when it was bound."""
        bound, compare, prepare = Verifier.bound, Verifier.compare, KoordScheduler._prepare

        def expected(verifier: Verifier, pod: ClusterPod, *nodes: ClusterNode | None) -> Expectation | None:
            node = nodes[0]
            if node is not None and isinstance(node.known, KoordinatorPlacement):
                self._foreseen[pod.kubelet_uid] = set(node.known.node.books.pods) - {pod.kubelet_uid}
            return bound(verifier, pod, *nodes)

        def compared(verifier: Verifier, pod: ClusterPod, **how: Any) -> Verification | None:
            found = compare(verifier, pod, **how)
            if found is not None and found.expectation.model == KOORDINATOR and found.hit is False:
                self._elsewhere.append(found.expectation.pod)
            return found

        async def prepared(scheduler: KoordScheduler, pod: ClusterPod, node: str) -> None:
            if node in scheduler._books:
                self._decided[pod.kubelet_uid] = set(scheduler._books[node].books.pods)
            await prepare(scheduler, pod, node)

        monkeypatch.setattr(Verifier, "bound", expected)
        monkeypatch.setattr(Verifier, "compare", compared)
        monkeypatch.setattr(KoordScheduler, "_prepare", prepared)

    def overtaken(self) -> set[str]:
        """Full names of pods that were foreseen wrongly on a node that was another one for the scheduler."""
        uids = {pod.kubelet_uid: pod.full_name for pod in self._elsewhere}
        return {name for uid, name in uids.items() if self._decided.get(uid) != self._foreseen.get(uid)}


def _pod_of(container: str) -> str:
    return container.partition("/")[0]


async def undecided_pods(loop: Loop) -> list[str]:
    """Pods that have a node but no outcome yet."""
    pods = [ClusterPod.from_api(body) for body in await loop.client.list(PODS)]
    return [
        pod.name for pod in pods if pod.node and prediction.relevant(pod) and kubelet_verdict(pod) is None
    ]


def outcomes(series: dict[str, float]) -> dict[tuple[str, str], float]:
    """(predicted, actual) → number of pods."""
    found = {}
    for name, value in series.items():
        if name.startswith("numazones_prediction_outcomes_total{"):
            labels = dict(part.split("=", 1) for part in name.partition("{")[2].rstrip("}").split(","))
            found[labels["predicted"].strip('"'), labels["actual"].strip('"')] = value
    return found


def accuracies(series: dict[str, float]) -> dict[tuple[str, str], float]:
    """(model, accuracy) → number of pods, where there are any."""
    found = {}
    for name, value in series.items():
        if name.startswith("numazones_prediction_accuracy_total{") and value:
            labels = dict(part.split("=", 1) for part in name.partition("{")[2].rstrip("}").split(","))
            found[labels["model"].strip('"'), labels["accuracy"].strip('"')] = value
    return found


@pytest.mark.slow
# Against hanging alone: its minute of work takes a quarter of an hour beside twelve busy processes.
@pytest.mark.timeout(3600)
async def test_every_prediction_at_binding_time_equals_the_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness, koordinator = Witness(monkeypatch), KoordinatorWitness(monkeypatch)
    async with closed_loop(tmp_path) as loop:
        kinds = (*node_kinds.KINDS, *placement_models.node_kinds())
        await loop.start_nodes(node_kinds.mixed(NODES, kinds=kinds), lag=0.5)
        operator = await loop.start_operator()
        loop.start_scheduler()
        churn = Churn(loop, seed=4)
        counted: dict[tuple[str, str], float] = {}
        while sum(counted.values()) < CONCERNED:
            await churn.burst()
            await asyncio.sleep(0.02)
            counted = outcomes(await metrics(operator))
            assert churn.created < 10 * CONCERNED
        await eventually(lambda: _none_undecided(loop))
        counted = outcomes(await metrics(operator))
        judged = await eventually(lambda: _all_judged(operator, sum(counted.values())))
        logged = [(getattr(record, "fields", {}), record.getMessage()) for record in caplog.records]
        misses = {fields["pod"]: message for fields, message in logged if fields.get("miss")}
        overtaken = witness.overtaken() | koordinator.overtaken()
        assert not misses.keys() - overtaken, misses
        assert not witness.unknown, (witness.unknown[:3], counted, judged)
        missed = {miss.expectation.pod.full_name for miss in witness.missed}
        assert not missed - overtaken, (witness.facts(), judged)
        wrong = {
            (predicted, actual): number
            for (predicted, actual), number in counted.items()
            if (predicted == "Admissible") != (actual == "Admitted") or predicted == "Unknown"
        }
        assert sum(wrong.values()) == len(witness.missed), (wrong, counted, judged)
        assert counted["Admissible", "Admitted"] > CONCERNED / 2
        assert sum(n for (predicted, _), n in counted.items() if predicted == "Inadmissible") > 50
        assert {model for model, _ in judged} == {"kubelet", "koordinator", "topology-aware"}
        # Those overtaken: most by what the API server told later, one in a long while by what nobody told.
        late = sum(judged.pop(("topology-aware", accuracy), 0) for accuracy in ("race", "model"))
        assert late == len(witness.missed)
        assert {accuracy for _, accuracy in judged} == {"right"}, judged


async def _none_undecided(loop: Loop) -> bool:
    return not await undecided_pods(loop)


async def _all_judged(operator: Operator, pods: float) -> dict[tuple[str, str], float]:
    judged = accuracies(await metrics(operator))
    return judged if sum(judged.values()) >= pods else {}
