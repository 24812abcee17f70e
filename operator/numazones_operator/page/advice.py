"""Advice for the waiting pods on the page, from the function behind ``kubectl numazones why``.

That is expensive, so it is worked out for one kind of pods a round, in a thread, and holds as long as the
nodes that were looked at stay as they are. Pods of one kind and namespace share it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime

from numazones.advice.changes import Advice
from numazones.advice.helpful_changes import helpful_changes, nodes_looked_at
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import INADMISSIBLE, Forecast, Prediction
from numazones.rebalance.candidates import Situation
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import Clock
from numazones_operator.pipeline import Pipeline
from numazones_operator.rebalance.inputs import Inputs

_SITUATION_SECONDS = 10.0
"""So old may be what protects pods: to put it together takes a while on a large cluster."""

_Key = tuple[Forecast, str]
"""What pods of one kind share, and their namespace, whose pods advice names first."""
_States = tuple[tuple[str, object], ...]
"""Names of nodes, each with the state of its kubelet."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Advice that was proven for one state of the nodes."""

    nodes: _States
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    pod: ClusterPod
    prediction: Prediction
    nodes: _States


@dataclass
class PageAdvice:
    """Advice for the pods that fit nowhere, a kind of them at a time."""

    pipeline: Pipeline
    inputs: Inputs
    _: KW_ONLY
    clock: Clock = time.monotonic
    wall: Callable[[], float] = time.time
    _known: dict[_Key, _Known] = field(init=False, default_factory=dict)
    _answers: dict[_Key, tuple[Advice, ...] | None] = field(init=False, default_factory=dict)
    """What was said in this round."""
    _open: dict[_Key, _Question] = field(init=False, default_factory=dict)
    _rounds: int = field(init=False, default=0)
    _situation: tuple[float, Situation] | None = field(init=False, default=None)

    def forget(self) -> None:
        """Drop everything, as nobody looks."""
        self._known.clear()
        self._open.clear()
        self._situation = None

    def begin(self) -> None:
        """Begin a round; what nobody asks for until its end is dropped."""
        self._answers.clear()
        self._open.clear()

    def of(self, pod: ClusterPod, prediction: Prediction) -> tuple[Advice, ...] | None:
        """Return what would help a pod; None while that is being worked out.

        What helped before a node changed is not shown: it is tried anew first.
        """
        forecast = self.pipeline.forecasts.forecast_of(pod.uid)
        if forecast is None or prediction.verdict != INADMISSIBLE:
            return ()
        key = (forecast, pod.namespace)
        if key not in self._answers:
            nodes = self._states(prediction, forecast)
            known = self._known.get(key)
            if known is not None and known.nodes == nodes:
                self._answers[key] = known.advice
            else:
                self._answers[key] = None
                self._open[key] = _Question(pod, prediction, nodes)
        return self._answers[key]

    async def work_out_one(self) -> None:
        """End the round: work out what would help pods of one kind, each kind in its turn."""
        self._known = {key: known for key, known in self._known.items() if key in self._answers}
        if not self._open:
            return
        self._rounds += 1
        key = list(self._open)[self._rounds % len(self._open)]
        question = self._open[key]
        names = [name for name, _ in question.nodes]
        advice: Iterable[Advice] = ()
        with self.pipeline.faults.of(of_pod(question.pod)):
            situation = self._current_situation()
            advice = await asyncio.to_thread(
                helpful_changes, question.pod, situation, question.prediction, names
            )
        self._known[key] = _Known(question.nodes, tuple(advice))

    def _current_situation(self) -> Situation:
        """Return the cluster as it is now, with what protects its pods, as it was a moment ago."""
        now, cluster = self.clock(), self.pipeline.state.cluster()
        if self._situation is None or now - self._situation[0] >= _SITUATION_SECONDS:
            moment = datetime.fromtimestamp(self.wall(), UTC)
            self._situation = (now, self.inputs.situation(cluster, moment, policy=""))
        return replace(self._situation[1], cluster=cluster)

    def _states(self, prediction: Prediction, forecast: Forecast) -> _States:
        """Return the nodes that advice looks at, as they are."""
        names = nodes_looked_at(prediction, forecast)
        found = ((name, self.pipeline.state.node(name)) for name in names)
        return tuple((name, None if node is None else node.state) for name, node in found)
