"""Pods that wait for a node or were rejected, worst first: what ``why`` lists, and ``live``.

Pods of one owner stand in one line, for a ReplicaSet whose replicas are rejected leaves hundreds of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubectl_numazones.printing import answers
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.stuck import stuck_pod as stuck
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, PodKind, Prediction

FAILED = "Failed"
_VERDICT_ORDER = (INADMISSIBLE, UNKNOWN, ADMISSIBLE, FAILED)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Pods of one owner that wait or were rejected, and what is foreseen for them."""

    pods: list[ClusterPod]
    example: ClusterPod
    prediction: Prediction

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
        """Return the forecast for the pods that wait; failed ones stay failed, whatever would be admitted."""
        return self.prediction.verdict if self.waiting else FAILED

    @property
    def why(self) -> str:
        """The same in a sentence."""
        if self.waiting:
            return self.prediction.sentence
        return f"{self.example.reason} on {self.example.node}; a failed pod is not tried again: delete it"

    @property
    def reason(self) -> str:
        """Return the obstacle in a word or two that many pods share."""
        return self.prediction.reason if self.waiting else self.example.reason

    @property
    def since(self) -> str:
        """Return when the first of them was created."""
        return min(pod.created for pod in self.pods)


def stuck_pods(seen: ClusterView, wanted: Callable[[ClusterPod], bool] = lambda _: True) -> list[Stuck]:
    """Return the pods that wait or were rejected, of those that are wanted, by owner.

    What hurts comes first: pods that wait for a node that no node is, the oldest on top; failed pods last.
    """
    return sorted(_stuck(seen, wanted), key=_urgency)


def _urgency(item: Stuck) -> tuple[int, str, str]:
    return _VERDICT_ORDER.index(item.verdict), item.since, item.name


def _stuck(seen: ClusterView, wanted: Callable[[ClusterPod], bool]) -> Iterator[Stuck]:
    owned: dict[str, list[ClusterPod]] = {}
    rejected = (pod for pod in seen.ended if pod.reason and not pod.acknowledged)
    for pod in filter(wanted, (*seen.situation.cluster.pending.values(), *rejected)):
        owned.setdefault(pod.uid if pod.controller is None else pod.controller.uid, []).append(pod)
    nodes = seen.situation.cluster.nodes
    foreseen: dict[PodKind, Prediction] = {}
    for pods in owned.values():
        example = stuck.most_telling(pods)
        kind = PodKind.of(example)
        known = None if kind is None else foreseen.get(kind)
        prediction = answers.predict_if_new(example, nodes) if known is None else known
        if kind is not None:
            foreseen[kind] = prediction
        yield Stuck(pods, example, prediction)
