"""What the page shows, gathered from the operator's parts, once a second while somebody looks.

Nothing is gathered, nor kept, for nobody. Only what changed is written anew: of nodes the objects themselves
tell, since the mirror makes new ones for every change. Predicting has the right of way: the work is cut into
slices, and advice, which is dear, is asked for one pod at a time and only when its obstacle is another one.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

from numazones import advice, prediction
from numazones.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit
from numazones.prediction import Prediction, newcomer
from numazones_operator.metrics import Metrics
from numazones_operator.options import Options
from numazones_operator.page.board import Board
from numazones_operator.pipeline import Pipeline
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.objects import Recommendation
from numazones_page.documents import (
    Document,
    Documents,
    Waiting,
    accuracy_document,
    cluster_document,
    node_documents,
    recommended_document,
    waiting_documents,
)

_PERIOD = 1.0
_SLICE = 0.005
_ENDED_PLANS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Advice:
    """What would help an owner's pods on the node that comes nearest, as long as the obstacle is the same."""

    obstacle: tuple[str, str]
    """The node that comes nearest, and what is missing there."""
    sentences: tuple[tuple[str, str], ...]


class Gathering:
    """Keeps a board up to date for those who look at it."""

    def __init__(
        self, pipeline: Pipeline, intent: Intent, *, options: Options, metrics: Metrics, identity: str
    ) -> None:
        self.board = Board()
        self.viewers = 0
        self._pipeline = pipeline
        self._intent = intent
        self._shapes = options.target_shapes
        self._metrics = metrics
        self._identity = identity
        self._watched = asyncio.Event()
        self._nodes: dict[str, tuple[ClusterNode, tuple[str, ...]]] = {}
        """Name → the node as it is shown, and the keys of its documents."""
        self._waiting: frozenset[str] = frozenset()
        self._plans: dict[str, Document] = {}
        """UID of a recommendation → its document as it was first shown, with the zones as they were then."""
        self._advice: dict[str, _Advice] = {}
        """UID of an owner, or of a pod without one."""
        self._slice_started = 0.0

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Count a viewer for as long as it looks."""
        self.viewers += 1
        self._watched.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._watched.clear()

    async def run(self) -> None:
        """Gather until cancelled."""
        while True:
            if not self.viewers:
                self._forget()
                await self._watched.wait()
            try:
                await self._gather()
            except Exception:  # noqa: BLE001 - whatever is wrong with a page, predicting goes on
                _log.exception("the page could not be brought up to date")
            self.board.announce()
            await asyncio.sleep(_PERIOD)

    def _forget(self) -> None:
        self.board.wipe()
        self._nodes.clear()
        self._advice.clear()
        self._waiting = frozenset()

    async def _gather(self) -> None:
        self._slice_started = time.monotonic()
        self.board.show(
            cluster_document(
                source=self._identity,
                shapes=self._shapes,
                version=version("numazones"),
                note=self._note(),
            )
        )
        await self._show_nodes()
        await self._show_waiting()
        self._show_plans()
        if self._intent.followed.is_set():
            self.board.show(accuracy_document(self._accuracy(), note="since this replica started"))
        else:
            self.board.take_down(["accuracy/"])

    def _note(self) -> str:
        if not self._pipeline.synced:
            return "The operator is still reading the cluster."
        if not self._intent.followed.is_set():
            return "This replica stands by: plans and accuracy are known to the one that leads."
        return ""

    # Nodes

    async def _show_nodes(self) -> None:
        present = set()
        for node in self._pipeline.state.all_nodes():
            present.add(node.name)
            if self._nodes.get(node.name, (None,))[0] is not node:
                documents = node_documents(node, self._shapes)
                self._nodes[node.name] = (node, tuple(documents))
                self.board.show(documents)
            await self._breathe()
        for name in self._nodes.keys() - present:
            del self._nodes[name]
            self.board.take_down([f"node/{name}"])
        machines = {key for _, keys in self._nodes.values() for key in keys}
        self.board.take_down([key for key in self.board.keys("machine/") if key not in machines])

    # Waiting pods

    async def _show_waiting(self) -> None:
        waiting = []
        known: set[str] = set()
        for pod in list(self._pipeline.state.pending.values()):
            found = self._prediction(pod)
            if found is None:
                continue
            known.add(_owner(pod))
            waiting.append(Waiting(pod, found, self._advice_for(pod, found)))
            await self._breathe()
        for owner in self._advice.keys() - known:
            del self._advice[owner]
        documents = waiting_documents(waiting, plans=self._placed())
        self.board.take_down(self._waiting - documents.keys())
        self._waiting = frozenset(documents)
        self.board.show(documents)

    def _prediction(self, pod: ClusterPod) -> Prediction | None:
        if pod.admission is None:
            return prediction.unreadable(pod)
        return self._pipeline.forecasts.prediction_of(pod.uid)

    def _advice_for(self, pod: ClusterPod, found: Prediction) -> tuple[tuple[str, str], ...]:
        kubelets = (reason for reason in found.reasons if reason.source is prediction.Source.KUBELET)
        first = next(kubelets, None)
        if found.verdict != prediction.INADMISSIBLE or first is None:
            return ()
        obstacle, known = (first.node, first.sentence), self._advice.get(_owner(pod))
        if known is None or known.obstacle != obstacle:
            node = self._pipeline.state.node(first.node)
            known = _Advice(obstacle, () if node is None else tuple(_advised(pod, node)))
            self._advice[_owner(pod)] = known
        return known.sentences

    # Plans

    def _show_plans(self) -> None:
        state = self._pipeline.state
        firsts: dict[str, Document] = {}
        documents: Documents = {}
        for item in _worth_showing(self._intent.recommendations):
            first = self._plans.get(item.uid)
            shown = recommended_document(
                item.name, item.spec, item.status, state.node, state.pods.get, first=first
            )
            firsts[item.uid] = first or shown[f"plan/{item.name}"]
            documents |= shown
        self._plans = firsts
        self.board.take_down([key for key in self.board.keys("plan/") if key not in documents])
        self.board.show(documents)

    def _placed(self) -> dict[str, list[str]]:
        """NAMESPACE/NAME of a waiting pod → the plans in force that place it."""
        found: dict[str, list[str]] = {}
        for item in self._intent.recommendations:
            for placement in item.spec.placements if item.active else ():
                name = f"{placement.pod.namespace}/{placement.pod.name}"
                found.setdefault(name, []).append(item.name)
        return found

    # Accuracy

    def _accuracy(self) -> dict[str, int]:
        """How right predictions were → pods, over all models."""
        counts: dict[str, int] = {}
        for family in self._metrics.accuracy.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    accuracy = sample.labels["accuracy"]
                    counts[accuracy] = counts.get(accuracy, 0) + int(sample.value)
        return counts

    async def _breathe(self) -> None:
        """Let others run if this has gone on for a while."""
        if time.monotonic() - self._slice_started > _SLICE:
            await asyncio.sleep(0)
            self._slice_started = time.monotonic()


def _worth_showing(items: Iterable[Recommendation]) -> list[Recommendation]:
    """Plans in force, and the latest that have ended."""
    latest = sorted(items, key=lambda item: item.created, reverse=True)
    ended = [item for item in latest if not item.active]
    return [*(item for item in latest if item.active), *ended[:_ENDED_PLANS]]


def _owner(pod: ClusterPod) -> str:
    owner = pod.controller
    return pod.uid if owner is None else owner.uid


def _advised(pod: ClusterPod, node: ClusterNode) -> Iterator[tuple[str, str]]:
    """(node, what would help there)."""
    if node.state is None or pod.admission is None:
        return
    try:
        rejection = admit(node.state, newcomer(pod.admission))
    except NumazonesError:
        return
    if rejection.admitted:
        return
    names = {item.kubelet_uid: f"{item.namespace}/{item.name}" for item in node.pods.values()}
    for item in advice.advise(rejection, names):
        yield node.name, item.sentence
