"""Keeps the page's documents equal to the operator's state, about once a second while somebody looks.

While nobody looks, nothing is worked out, nor kept. Only what changed is written anew: of nodes the objects
themselves tell, since the mirror makes new ones for every change. Predicting and publishing come first: the
work is cut into slices, each followed by a longer rest, so that much to show makes a round longer and
nobody's wait. Advice comes from ``page.advice``.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TypeVar

from numazones.advice.helpful_changes import plan_made
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.rejected_pods import is_rejected
from numazones.cluster.usage import Usage
from numazones.cluster.waiting import PodContext, Wait, lost_nodes, scheduler_says, waits
from numazones.errors import ObjectFault
from numazones.prediction import doubts
from numazones.prediction.forecast import ADMISSIBLE, Prediction, unreadable
from numazones.prediction.held_room import Hold, by_node, in_the_way, zones_held
from numazones.rebalance.recommendation import Recommendation
from numazones_operator.faults import ObjectFaults, ObjectReference, of_node, of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import Clock
from numazones_operator.options import OperatorOptions
from numazones_operator.page.advice import PageAdvice
from numazones_operator.page.usage import PageUsage
from numazones_operator.page.versioned_documents import VersionedDocuments
from numazones_operator.pipeline import Pipeline
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.prevention.removable_gates import NOT_SERVED, SWITCHED_OFF
from numazones_operator.rebalance.inputs import Inputs
from numazones_page.documents import (
    Document,
    accuracy_document,
    cluster_document,
    node_documents,
    recommendation_document,
    use_documents,
)
from numazones_page.pods import WaitingPod, held_documents, waiting_documents

_PERIOD = 1.0
_SLICE = 0.002
_REST = 0.008
"""Seconds that the page does nothing after a slice; as many on a busy machine, where slices take longer."""
_MAX_WAIT = 1.0
"""Seconds that a slice waits for predictions, before it is the page's turn all the same."""
_ENDED_PLANS = 10

_NOT_SERVED_EVENT = {"reason": NOT_SERVED, "message": SWITCHED_OFF}

_Shown = TypeVar("_Shown", WaitingPod, Hold)

_log = logging.getLogger(__name__)


class PageUpdater:
    """Keeps documents up to date for those who look at them."""

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: Inputs,
        held: HeldRoom,
        *,
        usage: PageUsage,
        options: OperatorOptions,
        metrics: Metrics,
        identity: str,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.documents = VersionedDocuments()
        self.viewers = 0
        self._pipeline = pipeline
        self._faults = pipeline.faults
        self._intent = inputs.intent
        self._held = held
        self._advice = PageAdvice(pipeline, inputs, clock=clock)
        self._usage = usage
        self._usage_shown: Usage | None = None
        self._shapes = options.target_shapes
        self._told_of_gates = () if options.admission_gate else (_NOT_SERVED_EVENT,)
        self._metrics = metrics
        self._identity = identity
        self._clock = clock
        self._sleep = sleep
        self._has_viewers = asyncio.Event()
        self._nodes: dict[str, tuple[ClusterNode, tuple[str, ...]]] = {}
        """Name → the node as it is shown, and the key of its machine, if that is known."""
        self._machines: set[str] = set()
        """Keys of the machines that are shown."""
        self._keys: dict[str, set[str]] = {}
        """Kind of document → the keys of those that are shown."""
        self._plans: dict[str, Document] = {}
        """UID of a recommendation → its document as it was first shown, with the zones as they were then."""
        self._slice_started = 0.0
        self._notified_at = 0.0

    @asynccontextmanager
    async def viewer(self) -> AsyncIterator[None]:
        """Count a viewer for as long as it looks."""
        self.viewers += 1
        self._has_viewers.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._has_viewers.clear()

    async def run(self) -> None:
        """Update until cancelled."""
        while True:
            if not self.viewers:
                self._forget()
                await self._has_viewers.wait()
            try:
                await self._update()
            except Exception:  # noqa: BLE001 - whatever is wrong with a page, predicting goes on
                _log.exception("could not update the page")
            self._notify()
            await self._sleep(_PERIOD)

    def _forget(self) -> None:
        self.documents.clear()
        self._nodes.clear()
        self._machines.clear()
        self._keys.clear()
        self._advice.forget()
        self._usage.forget()
        self._usage_shown = None

    def _notify(self) -> None:
        self._notified_at = self._clock()
        self.documents.notify()

    async def _update(self) -> None:
        self._slice_started = self._clock()
        self._usage.renew()
        self.documents.put(
            cluster_document(
                source=self._identity,
                shapes=self._shapes,
                version=version("numazones"),
                note=self._note(),
                reading=not self._pipeline.synced,
                doubts=self._doubts(),
            )
        )
        await self._show_nodes()
        await self._show_waiting()
        await self._show_held()
        await self._show_plans()
        if self._intent.followed.is_set():
            self.documents.put(
                accuracy_document(self._accuracy(), note="Counted since this replica started.")
            )
        else:
            self.documents.remove(["accuracy/"])

    def _doubts(self) -> tuple[str, ...]:
        """Return what is not certain about the nodes, without those about which something raises."""
        nodes = list(self._pipeline.state.all_nodes())
        try:
            return doubts.of_nodes(nodes)
        except ObjectFault:
            asked = self._faults.over(nodes, lambda node: doubts.of_nodes((node,)))
            return doubts.of_nodes(node for node, _ in asked)

    def _note(self) -> str:
        if not self._pipeline.synced:
            return "The operator is still reading the cluster."
        if not self._intent.followed.is_set():
            known = "This replica is on standby: only the leader shows plans and accuracy."
            return f"{known} {self._usage.note}".strip()
        return self._usage.note

    # Nodes

    async def _show_nodes(self) -> None:
        present: set[str] = set()
        used: set[str] = set()
        usage = self._usage.current
        for node in self._pipeline.state.all_nodes():
            with self._faults.of(of_node(node.name)):
                changed = self._nodes.get(node.name, (None,))[0] is not node
                if changed:
                    self._show_node(node)
                if changed or usage is not self._usage_shown:
                    self._show_use(node, usage)
                present.add(node.name)
                used.update(self._nodes[node.name][1])
            await self._rest_when_due()
        for name in self._nodes.keys() - present:
            del self._nodes[name]
            self.documents.remove([f"node/{name}", f"use/{name}"])
        self._usage_shown = usage
        self.documents.remove(self._machines - used)
        self._machines &= used

    def _show_node(self, node: ClusterNode) -> None:
        documents = node_documents(node, self._shapes)
        machine = tuple(key for key in documents if key.startswith("machine/"))
        # Its key is made of what it says.
        self.documents.put({key: item for key, item in documents.items() if key not in self._machines})
        self._nodes[node.name] = (node, machine)
        self._machines.update(machine)

    def _show_use(self, node: ClusterNode, usage: Usage | None) -> None:
        found = {} if usage is None else use_documents(node, usage)
        self.documents.put(found)
        if not found:
            self.documents.remove([f"use/{node.name}"])

    # Waiting pods

    async def _show_waiting(self) -> None:
        waiting: list[WaitingPod] = []
        self._advice.begin()
        held_before: dict[tuple[Prediction, int | None], tuple[str, ...]] = {}
        for pod in list(self._pipeline.state.pending.values()):
            with self._faults.of(of_pod(pod)):
                waiting += self._waiting(pod, held_before)
            await self._rest_when_due()
        rejected = []
        for pod, found in self._faults.over(list(self._pipeline.state.pods), is_rejected):
            if found:
                rejected.append(pod)
            await self._rest_when_due()
        plans = self._plans_of_pods()
        await self._show_sound(
            "waiting", waiting, lambda items: waiting_documents(items, ended=rejected, plans=plans)
        )
        await self._advice.work_out_one()

    def _waiting(
        self, pod: ClusterPod, held_before: dict[tuple[Prediction, int | None], tuple[str, ...]]
    ) -> Iterator[WaitingPod]:
        """Yield what is shown of a pod that waits, if it is known; ``held_before`` is kept for the round."""
        found = self._prediction(pod)
        if found is None:
            return
        if (found, pod.priority) not in held_before:
            held_before[found, pod.priority] = self._held_before(pod, found)
        held = held_before[found, pod.priority]
        yield WaitingPod(
            pod,
            found,
            self._advice.of(pod, found),
            self._waits(pod, found, held),
            scheduler_says(pod, {}),
            held,
        )

    def _prediction(self, pod: ClusterPod) -> Prediction | None:
        if pod.admission is None:
            return unreadable(pod)
        return self._pipeline.forecasts.prediction_of(pod.uid)

    def _held_before(self, pod: ClusterPod, found: Prediction) -> tuple[str, ...]:
        """Return the pods for which room is held that this pod would otherwise get."""
        if found.verdict == ADMISSIBLE:
            with self._faults.of(of_pod(pod)):
                return tuple(in_the_way(pod, found, self._pipeline.state.node, self._held.by_node(pod)))
        return ()

    def _waits(self, pod: ClusterPod, found: Prediction, held: tuple[str, ...]) -> tuple[Wait, ...]:
        """Return what a pod waits for, whatever the nodes answer."""
        namespace = self._intent.namespaces.get(pod.namespace)
        around = PodContext(None if namespace is None else namespace.labels, events=self._told_of_gates)
        lost = lost_nodes(pod, self._pipeline.state.all_nodes())
        return waits(pod, around, admissible=found.verdict == ADMISSIBLE, held=bool(held), lost=lost)

    async def _show_held(self) -> None:
        held = list(self._held.on_their_way())
        state = self._pipeline.state
        nodes = ((node, pods) for name, pods in by_node(held).items() if (node := state.node(name)))
        asked = self._faults.over(
            nodes, lambda item: list(zones_held(*item)), lambda item: of_node(item[0].name)
        )
        known = {node.name: node for (node, _), _ in asked}
        await self._show_sound("held", held, lambda items: held_documents(items, known.get))

    # Plans

    async def _show_plans(self) -> None:
        shown = _plans_to_show(self._intent.recommendations, self._faults)
        uids = {item.uid for item in shown}
        self._plans = {uid: first for uid, first in self._plans.items() if uid in uids}
        await self._show_kind("plan", (found for _, found in self._faults.over(shown, self._plan)))

    def _plan(self, item: Recommendation) -> tuple[str, Document]:
        state = self._pipeline.state
        first = self._plans.get(item.uid)
        policy = self._intent.policies.get(item.spec.policy)
        mode = None if policy is None else policy.spec.mode
        ((key, document),) = recommendation_document(
            item.name, item.spec, item.status, state.node, state.pods.get, mode=mode, first=first
        ).items()
        self._plans.setdefault(item.uid, document)
        return key, document

    def _plans_of_pods(self) -> dict[str, dict[str, str]]:
        """NAMESPACE/NAME of a waiting pod → the plans in force that place it → what is to be said of them."""
        found: dict[str, dict[str, str]] = {}
        for item in self._intent.in_force():
            for placement in item.spec.placements:
                found.setdefault(placement.pod.full_name, {})[item.name] = plan_made(item.name)
        return found

    # Accuracy

    def _accuracy(self) -> dict[str, int]:
        """Return the number of predictions by accuracy, over all models."""
        counts: dict[str, int] = {}
        for family in self._metrics.accuracy.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    accuracy = sample.labels["accuracy"]
                    counts[accuracy] = counts.get(accuracy, 0) + int(sample.value)
        return counts

    # One slice after the other

    async def _show_sound(
        self,
        kind: str,
        items: Sequence[_Shown],
        documents: Callable[[Sequence[_Shown]], Iterable[tuple[str, Document]]],
    ) -> None:
        """Show the documents of pods, without those about which something raises."""
        try:
            await self._show_kind(kind, documents(items))
        except Exception:  # noqa: BLE001 - found out here about which
            asked = self._faults.over(items, lambda item: self._put(documents([item])), _of_item)
            await self._show_kind(kind, documents([item for item, _ in asked]))

    def _put(self, documents: Iterable[tuple[str, Document]]) -> None:
        for key, document in documents:
            self.documents.put({key: document})

    async def _show_kind(self, kind: str, documents: Iterable[tuple[str, Document]]) -> None:
        """Show the documents of a kind, and no others of it any longer."""
        listed = self._keys.setdefault(kind, set())
        current = set()
        for key, document in documents:
            current.add(key)
            listed.add(key)
            self.documents.put({key: document})
            await self._rest_when_due()
        gone = listed - current
        self.documents.remove(gone)
        listed -= gone

    async def _rest_when_due(self) -> None:
        """Pause if this has gone on for a while, and let predictions go first, for a second at most."""
        now = self._clock()
        if now - self._slice_started < _SLICE:
            return
        if now - self._notified_at > _PERIOD:
            self._notify()
        await self._sleep(_REST)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT):
                await self._pipeline.idle.wait()
        self._slice_started = self._clock()


def _of_item(item: WaitingPod | Hold) -> ObjectReference:
    return of_pod(item.pod)


def _plans_to_show(items: Iterable[Recommendation], faults: ObjectFaults) -> list[Recommendation]:
    """Plans in force, and the latest that have ended."""
    latest = sorted(items, key=lambda item: item.created, reverse=True)
    asked = list(faults.over(latest, lambda item: item.active))
    ended = [item for item, active in asked if not active]
    return [*(item for item, active in asked if active), *ended[:_ENDED_PLANS]]
