"""Keeps a forecast per kind of pod that waits for a node, and renews what changes touch.

Pods of one template share a forecast. Changes are collected for a moment, then each forecast asks the
nodes that changed, and only those. Asking five thousand nodes for a new kind takes a while, so the work
is cut into slices between which the loop serves everybody else; what changes meanwhile belongs to the next
batch. Nodes are ranked here once, as ``--placement`` says, for predictions and the gate.
"""

import asyncio
import time
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import About, NodeName, ObjectFault
from numazones.prediction import forecast as prediction
from numazones.prediction.forecast import Forecast, NodeAnswer, PodKind, Prediction
from numazones.prediction.node_choice import Ranking
from numazones.prediction.room import copy_of
from numazones_operator.faults import ObjectFaults, of_node, of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState

_SLICE = 0.02
_MAX_IDLE_KINDS = 32
"""Forecasts kept for kinds of which no pod waits just now: a Deployment's next pod comes soon."""

ForecastChange = tuple[list[ClusterPod], Prediction, float]
"""Pods, the prediction for each, and since when the cause of a change was known (monotonic seconds)."""

_Key = tuple[Any, ...]
"""What a node is sorted by, the best first."""


@dataclass(slots=True)
class _KindForecast:
    """One kind of pod and its forecast."""

    forecast: Forecast
    example: ClusterPod
    """A pod of the kind."""
    pods: dict[str, None] = field(default_factory=dict)
    latest: Prediction | None = None
    unasked: dict[str, None] | None = None
    """Nodes that changed since nobody waits; None: everything has to be asked."""
    keys: dict[str, _Key] = field(default_factory=dict)
    """Node whose placement admits the pods → what it is sorted by."""
    order: list[tuple[_Key, str]] = field(default_factory=list)
    """The same, sorted: a change of one node among thousands moves that one only."""
    left_out: set[str] = field(default_factory=set)
    """Nodes about which something raised since they changed."""
    raised: bool = False
    """True if something raised about the pods themselves the last time."""

    def leave_out(self, name: str, problem: str) -> None:
        """Name a node no more among those that admit the pods, until it changes."""
        self.left_out.add(name)
        old = self.keys.pop(name, None)
        if old is not None:
            self.order.remove((old, name))
        try:
            self.forecast.leave_open(name, problem)
        except Exception:  # noqa: BLE001 - it is known that something raises about it
            self.forecast.forget(name)

    def leave(self, nodes: Iterable[str]) -> None:
        """Note nodes that changed while nobody waits; what they were like is not kept."""
        if self.unasked is not None:
            for name in nodes:
                self.unasked[name] = None
                self.forecast.forget(name)
                self._sort_in(name, None)

    def rank(self, asked: Iterable[str], ranking: Ranking, state: ClusterState) -> bool:
        """Rank the nodes that were asked; return whether any is sorted by something else now."""
        verdicts = self.forecast.verdicts
        names = list(verdicts) if not ranking.by_node else [name for name in asked if name in verdicts]
        keys = ranking.keys(self.example, {name: verdicts[name] for name in names}, state.node)
        changed = False
        for name in (*asked, *names):
            with About(NodeName(name)):
                changed |= name not in self.left_out and self._sort_in(name, keys.get(name))
        return changed

    def _sort_in(self, name: str, new: _Key | None) -> bool:
        """Sort a node by something else, None: leave it out; return whether that is a change."""
        old = self.keys.get(name)
        if old == new:
            return False
        if old is not None:
            del self.keys[name]
            del self.order[bisect_left(self.order, (old, name))]
        if new is not None:
            self.keys[name] = new
            insort(self.order, (new, name))
        return True

    def best(self, number: int) -> list[str]:
        """Return the best nodes that would admit the pods."""
        verdicts = self.forecast.verdicts
        admitting = (name for _, name in self.order if verdicts[name].answer is NodeAnswer.ADMITS)
        return list(islice(admitting, number))


@dataclass
class LiveForecasts:
    """Predictions for all pods without a node, as current as the last batch of changes."""

    state: ClusterState
    _: KW_ONLY
    metrics: Metrics
    candidates: int
    """How many of the best nodes a prediction names; ``ranking`` tells the best."""
    ranking: Callable[[], Ranking] = Ranking
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    _kinds: dict[PodKind, _KindForecast] = field(init=False, default_factory=dict)
    _kind_of: dict[str, PodKind] = field(init=False, default_factory=dict)
    _unreadable: dict[str, ClusterPod] = field(init=False, default_factory=dict)
    """UID → pod that cannot be read; its ``problem`` says why."""
    _raised: set[str] = field(init=False, default_factory=set)
    """Those of them about which something raised."""
    _slice_started: float = field(init=False, default=0.0)
    _by_namespace: bool = field(init=False, default=False)

    @property
    def backlog(self) -> int:
        """Return how many changed nodes and pods wait to be processed."""
        return len(self.state.changed_nodes) + len(self.state.changed_pods)

    def prediction_of(self, uid: str) -> Prediction | None:
        """Return the latest prediction for a waiting pod; None if it does not wait or is new."""
        kind = self._kind_of.get(uid)
        return None if kind is None else self._kinds[kind].latest

    def raised(self, uid: str) -> bool:
        """Return whether something raised about a waiting pod, so that nothing may be done on its behalf."""
        kind = self._kind_of.get(uid)
        return uid in self._raised or (kind is not None and self._kinds[kind].raised)

    def forecast_of(self, uid: str) -> Forecast | None:
        """Return the forecast that a waiting pod shares."""
        kind = self._kind_of.get(uid)
        return None if kind is None else self._kinds[kind].forecast

    def ranked(self, uid: str) -> list[str]:
        """Return the nodes whose placement would admit a waiting pod, the best first.

        Those are among them that may lack devices which the scheduler still has to allocate.
        """
        kind = self._kind_of.get(uid)
        return [] if kind is None else [name for _, name in self._kinds[kind].order]

    def verdicts(self) -> dict[str, int]:
        """Return verdict → number of waiting pods."""
        counts = dict.fromkeys((prediction.ADMISSIBLE, prediction.INADMISSIBLE, prediction.UNKNOWN), 0)
        for live in self._kinds.values():
            if live.latest is not None:
                counts[live.latest.verdict] += len(live.pods)
        counts[prediction.UNKNOWN] += len(self._unreadable)
        return counts

    def blocked_by(self) -> dict[tuple[str, str], int]:
        """Return (source, reason) → number of inadmissible pods for which it is the first reason."""
        counts: dict[tuple[str, str], int] = {}
        for live in self._kinds.values():
            if live.pods and live.latest is not None and live.latest.verdict == prediction.INADMISSIBLE:
                first = live.latest.reasons[0]
                key = (str(first.source), first.reason)
                counts[key] = counts.get(key, 0) + len(live.pods)
        return counts

    def blocked_pods(self) -> Iterator[tuple[ClusterPod, str]]:
        """Yield each inadmissible pod and the first reason."""
        for live in self._kinds.values():
            if live.latest is not None and live.latest.verdict == prediction.INADMISSIBLE:
                for uid in live.pods:
                    pod = self.state.pending.get(uid)
                    if pod is not None:
                        yield pod, live.latest.reasons[0].reason

    async def renew(self) -> AsyncIterator[ForecastChange]:
        """Look at everything that has changed so far; yield every prediction that is new or has changed."""
        started = self._slice_started = time.monotonic()
        nodes, self.state.changed_nodes = self.state.changed_nodes, {}
        pods = dict(self.state.changed_pods)
        self.state.changed_pods.clear()
        if self._by_namespace != self.state.namespaces_matter:
            self._by_namespace = self.state.namespaces_matter
            pods = {**dict.fromkeys(self.state.pending, started), **pods}
        added = self._regroup(pods)
        for live in list(self._kinds.values()):
            if not live.pods:
                with self.faults.of(of_pod(live.example)):
                    live.leave(nodes)
                continue
            if await self._renew_isolated(live, nodes):
                pods_of_kind = [self.state.pending[uid] for uid in live.pods if uid in self.state.pending]
                if live.latest is not None:
                    yield pods_of_kind, live.latest, min(nodes.values(), default=time.monotonic())
                await self._yield_when_due()
        for uid, since in added.items():
            for change in self._changes_isolated(uid, since):
                yield change
        self._forget_idle_kinds()
        self.metrics.compute_seconds.observe(time.monotonic() - started)

    def _regroup(self, changed: dict[str, float]) -> dict[str, float]:
        """Put pods with their kinds; return the waiting pods whose prediction is to be yielded."""
        added: dict[str, float] = {}
        for uid, since in changed.items():
            self._unreadable.pop(uid, None)
            self._raised.discard(uid)
            pod = self.state.pending.get(uid)
            before = self._kind_of.pop(uid, None)
            if before is not None:
                self._kinds[before].pods.pop(uid, None)
            if pod is None:
                continue
            added[uid] = since
            try:
                self._put_with_kind(uid, pod)
            except Exception as error:  # noqa: BLE001 - it concerns this pod alone
                problem = self.faults.take(of_pod(pod), error)
                self._raised.add(uid)
                self._unreadable[uid] = replace(pod, problem=problem)
        return added

    def _put_with_kind(self, uid: str, pod: ClusterPod) -> None:
        """Put a waiting pod with its kind, or with those that cannot be read."""
        kind = PodKind.of(pod, by_namespace=self._by_namespace)
        if kind is None:
            self._unreadable[uid] = pod
            return
        kind = kind.settled(self.state.devices.current)
        live = self._kinds.get(kind)
        if live is None:
            live = self._kinds[kind] = _KindForecast(Forecast(kind), copy_of(pod, 0))
        self._kind_of[uid] = live.forecast.kind
        live.pods[uid] = None

    async def _renew_isolated(self, live: _KindForecast, nodes: dict[str, float]) -> bool:
        """Do the same as ``_renew_kind``; a kind of pod about which something raises is Unknown."""
        live.left_out -= nodes.keys()
        try:
            changed = await self._renew_without_faulty(live, nodes)
        except Exception as error:  # noqa: BLE001 - it concerns this kind of pod alone
            live.raised = True
            pod = next((self.state.pending[uid] for uid in live.pods if uid in self.state.pending), None)
            problem = self.faults.take(of_pod(pod or live.example), error)
            latest = prediction.unreadable(replace(live.example, problem=problem))
            changed = latest != live.latest
            live.latest, live.unasked = latest, None
        else:
            live.raised = False
        return changed

    async def _renew_without_faulty(self, live: _KindForecast, nodes: dict[str, float]) -> bool:
        """Do the same as ``_renew_kind``, without the nodes about which something raises."""
        again = False
        while True:
            try:
                return await self._renew_kind(live, nodes, again=again)
            except ObjectFault as fault:
                node = fault.objects[0]
                if node.KIND != "Node" or node.name in live.left_out:
                    raise
                live.leave_out(node.name, self.faults.take(of_node(node.name), fault))
                again = True

    async def _renew_kind(self, live: _KindForecast, nodes: dict[str, float], *, again: bool) -> bool:
        """Ask the nodes that changed; return whether the prediction is another one now."""
        if live.latest is None and live.unasked is None:
            changed = await self._ask_all(live)
            asked = list(live.forecast.verdicts)
        else:
            asked = [name for name in {**(live.unasked or {}), **nodes} if name not in live.left_out]
            changed = await self._ask(live.forecast, asked)
        changed |= again
        live.unasked = {}
        changed |= live.rank(asked, self.ranking(), self.state)
        if not changed and live.latest is not None:
            return False
        latest = live.forecast.prediction(candidates=self.candidates, ranked=live.best(self.candidates))
        if latest == live.latest:
            return False
        live.latest = latest
        return True

    async def _ask_all(self, live: _KindForecast) -> bool:
        for node in self.state.all_nodes():
            if node.name not in live.left_out:
                self._renew_node(live.forecast, node)
            await self._yield_when_due()
        return True

    async def _ask(self, forecast: Forecast, names: Iterable[str]) -> bool:
        changed = False
        for name in names:
            node: ClusterNode | None = self.state.node(name)
            if node is not None:
                changed |= self._renew_node(forecast, node)
            else:
                with self.faults.of(of_node(name)):
                    changed |= forecast.forget(name)
            await self._yield_when_due()
        return changed

    def _renew_node(self, forecast: Forecast, node: ClusterNode) -> bool:
        """Ask a node; where asking raises, its verdict is Unknown."""
        try:
            return forecast.renew((node,))
        except Exception as error:  # noqa: BLE001 - it concerns this node and this kind of pod alone
            problem = self.faults.take(of_pod(forecast.kind.admission), error)
            try:
                return forecast.leave_open(node.name, problem)
            except Exception as another:
                raise ObjectFault.about(another, NodeName(node.name)) from another

    async def _yield_when_due(self) -> None:
        """Let others run if this has gone on for a while."""
        if time.monotonic() - self._slice_started > _SLICE:
            await asyncio.sleep(0)
            self._slice_started = time.monotonic()

    def _changes_isolated(self, uid: str, since: float) -> list[ForecastChange]:
        try:
            return list(self._changes_for(uid, since))
        except Exception as error:  # noqa: BLE001 - it concerns this pod alone
            pod = self.state.pending[uid]
            problem = self.faults.take(of_pod(pod), error)
            return [([pod], prediction.unreadable(replace(pod, problem=problem)), since)]

    def _changes_for(self, uid: str, since: float) -> Iterator[ForecastChange]:
        pod = self.state.pending.get(uid)
        if pod is None:
            return
        unreadable = self._unreadable.get(uid)
        latest = self.prediction_of(uid) if unreadable is None else prediction.unreadable(unreadable)
        if latest is not None:
            yield [pod], latest, since

    def _forget_idle_kinds(self) -> None:
        idle = [kind for kind, live in self._kinds.items() if not live.pods]
        for kind in idle[:-_MAX_IDLE_KINDS]:
            del self._kinds[kind]
