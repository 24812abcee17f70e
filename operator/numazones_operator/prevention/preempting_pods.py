"""Nodes for a gated pod that fits nowhere, but for which kube-scheduler would preempt others.

The scheduler preempts only for pods that it is asked about, and a gated pod it is not. So a pod that is more
important than others is released to a node on which the scheduler's own choice of victims makes room that the
node's kubelet finds, too; where it would evict in vain, the pod goes on waiting. Of several nodes the one is
taken that the scheduler would take; nodes that pods leave anyway are left out. Who waits for a few seconds
only is not worth anybody's eviction.
"""

import asyncio
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from numazones.cluster.cluster import ClusterPod
from numazones.errors import About
from numazones.prediction.forecast import INADMISSIBLE, PodKind, relevant
from numazones.rebalance.budgets import Budget
from numazones.rebalance.preemption import Victims, best, useful_victims
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.predictions.live_forecasts import LiveForecasts

PERIOD = 5.0
"""Seconds for which pods of a kind fit nowhere before the first search, and between searches."""
_REMEMBERED = 600.0
"""Seconds after which kinds that nobody asks about any more are forgotten."""
_SLICE = 0.02


@dataclass
class PreemptingPods:
    """Searches, for one kind of pods at a time."""

    state: ClusterState
    forecasts: LiveForecasts
    _: KW_ONLY
    budgets: Callable[[], Sequence[Budget]] | None
    """The PodDisruptionBudgets; None: they are not known, and nothing is searched."""
    may_go: Callable[[ClusterPod, str], bool]
    clock: Callable[[], float] = time.monotonic
    _due: dict[tuple[PodKind, int], float] = field(init=False, default_factory=dict)

    async def victims_for(self, pod: ClusterPod, held: Container[str]) -> Victims | None:
        """Return where the pod may go and who has to leave; ``held``: nodes with others on their way."""
        if self.budgets is None or not self._is_due(pod):
            return None
        budgets, found, started = tuple(self.budgets()), [], time.monotonic()
        for name in [node.name for node in self.state.all_nodes()]:
            if time.monotonic() - started > _SLICE:
                await asyncio.sleep(0)
                started = time.monotonic()
            barred = name in held or name in self.state.left_by_pods or not self.may_go(pod, name)
            node = None if barred else self.state.node(name)
            with self.state.faults.of(of_pod(pod)), About(pod, otherwise=True):
                if node is not None and (here := useful_victims(pod, node, budgets)) is not None:
                    found.append(here)
        choice = best(found)
        node = None if choice is None else self.state.node(choice.node)
        # Others had their turn meanwhile.
        return choice if node is not None and useful_victims(pod, node, budgets) == choice else None

    def _is_due(self, pod: ClusterPod) -> bool:
        """Return whether it has been certain for long enough that the pod fits nowhere."""
        kind = self._kind(pod)
        if kind is None or not pod.preempts:
            return False
        prediction = self.forecasts.prediction_of(pod.uid)
        key, now = (kind, pod.priority or 0), self.clock()
        if prediction is not None and prediction.verdict != INADMISSIBLE:
            self._due.pop(key, None)
            return False
        if now < self._due.setdefault(key, now + PERIOD):
            return False
        self._due = {known: due for known, due in self._due.items() if due > now - _REMEMBERED}
        self._due[key] = now + PERIOD
        return True

    def _kind(self, pod: ClusterPod) -> PodKind | None:
        """Return the kind of a pod of which it can be told whether it fits."""
        if not relevant(pod):  # nothing is predicted for it
            return PodKind.of(pod)
        forecast = self.forecasts.forecast_of(pod.uid)
        return None if forecast is None or self.forecasts.prediction_of(pod.uid) is None else forecast.kind


def names(victims: Victims) -> Iterator[str]:
    """Yield NAMESPACE/NAME of each victim."""
    return (pod.full_name for pod in victims.pods)
