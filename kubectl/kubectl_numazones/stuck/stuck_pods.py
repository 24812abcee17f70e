"""Pods that wait for a node or were rejected, worst first: what ``why`` lists, and ``live``.

Pods of one owner share a line, since a ReplicaSet whose replicas are rejected leaves hundreds of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubectl_numazones.stuck import stuck_pod as stuck
from kubectl_numazones.stuck.outlooks import Outlooks
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.rejected_pods import is_rejected, rejection
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones.prediction.stuck import REJECTED, is_stuck

_VERDICT_ORDER = (INADMISSIBLE, UNKNOWN, ADMISSIBLE, REJECTED)


@dataclass(frozen=True, slots=True)
class StuckPods:
    """Pods of one owner that wait or were rejected, and what is foreseen for them."""

    pods: list[ClusterPod]
    example: ClusterPod
    prediction: Prediction
    waits: tuple[Wait, ...] = ()
    """Obstacles of the example besides the nodes."""

    @property
    def name(self) -> str:
        """The owner, or the pod that has none."""
        owner = self.example.controller
        return f"{self.example.namespace}/{self.example.name if owner is None else owner.name}"

    @property
    def waiting(self) -> int:
        """Pods without a node."""
        return sum(1 for pod in self.pods if not pod.node)

    @property
    def rejected(self) -> int:
        """Pods that a kubelet rejected."""
        return len(self.pods) - self.waiting

    @property
    def verdict(self) -> str:
        """Return the forecast for the pods that wait; rejected ones stay so, whatever would be admitted."""
        return self.prediction.verdict if self.waiting else REJECTED

    @property
    def is_stuck(self) -> bool:
        """Return whether the pods that wait are stuck; those that are about to get a node are not."""
        return bool(self.waiting) and is_stuck(self.prediction, self.waits)

    @property
    def why(self) -> str:
        """The same in a sentence."""
        if self.waiting:
            return self.waits[0].sentence if self.waits else self.prediction.sentence
        return rejection(self.example)

    @property
    def reason(self) -> str:
        """Return the obstacle in a word or two that many pods share."""
        if not self.waiting:
            return self.example.reason
        return self.waits[0].reason if self.waits else self.prediction.reason

    @property
    def since(self) -> str:
        """Return when the first of them was created."""
        return min(pod.created for pod in self.pods)


def stuck_pods(outlooks: Outlooks, wanted: Callable[[ClusterPod], bool] = lambda _: True) -> list[StuckPods]:
    """Return the pods that wait or were rejected, of those that are wanted, by owner.

    What hurts comes first: pods that wait for a node that no node is, the oldest on top; rejected pods last.
    """
    return sorted(_stuck(outlooks, wanted), key=_urgency)


def _urgency(item: StuckPods) -> tuple[int, bool, str, str]:
    return _VERDICT_ORDER.index(item.verdict), not item.is_stuck, item.since, item.name


def _stuck(outlooks: Outlooks, wanted: Callable[[ClusterPod], bool]) -> Iterator[StuckPods]:
    owned: dict[str, list[ClusterPod]] = {}
    rejected = filter(is_rejected, outlooks.seen.ended)
    for pod in filter(wanted, (*outlooks.seen.situation.cluster.pending.values(), *rejected)):
        owned.setdefault(pod.uid if pod.controller is None else pod.controller.uid, []).append(pod)
    for pods in owned.values():
        example = stuck.most_telling(pods)
        prediction = outlooks.prediction(example)
        yield StuckPods(pods, example, prediction, outlooks.waits(example, prediction))
