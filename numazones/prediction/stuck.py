"""Stuck pods, by one definition, and how many there are: every view of a cluster shows these counts.

A pod without a node is stuck unless some node would admit it and nothing else keeps it waiting. A pod that a
kubelet rejected has failed: it no longer waits, so it counts by itself, and stays until it is deleted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import relevant
from numazones.cluster.rejected_pods import is_rejected
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones.wording import pluralize

REJECTED = "Rejected"
"""Word for a rejected pod, where others have a verdict."""


def is_stuck(prediction: Prediction, waits: Sequence[Wait]) -> bool:
    """Return whether a pod without a node is stuck, not just about to get one."""
    return prediction.verdict != ADMISSIBLE or bool(waits)


class Waiting(NamedTuple):
    """A pod without a node: its prediction, and what else it waits for."""

    pod: ClusterPod
    prediction: Prediction
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Number of pods without a node, by what keeps them, and of rejected pods."""

    stuck: Annotated[int, "Waiting pods that no node would admit or that something else keeps waiting."]
    nowhere: Annotated[int, "Stuck pods that no node would admit."]
    unknown: Annotated[int, "Stuck pods for which it is unknown whether a node would admit them."]
    kept: Annotated[int, "Stuck pods that a node would admit but something else keeps waiting."]
    fitting: Annotated[int, "Waiting pods that are about to get a node."]
    rejected: Annotated[int, "Pods that a kubelet rejected; they stay until they are deleted."]

    @classmethod
    def of(cls, waiting: Iterable[Waiting], ended: Iterable[ClusterPod]) -> Self:
        """Count pods; those that wait and that NUMA placement does not concern count for nothing."""
        verdicts = Counter(
            item.prediction.verdict if is_stuck(item.prediction, item.waits) else ""
            for item in waiting
            if relevant(item.pod) and not item.pod.deleting
        )
        fitting = verdicts.pop("", 0)
        return cls(
            stuck=verdicts.total(),
            nowhere=verdicts[INADMISSIBLE],
            unknown=verdicts[UNKNOWN],
            kept=verdicts[ADMISSIBLE],
            fitting=fitting,
            rejected=sum(map(is_rejected, ended)),
        )

    @property
    def headline(self) -> str:
        """State how many pods are stuck."""
        if not self.stuck:
            return "No pod is stuck"
        return f"{pluralize(self.stuck, 'pod')} {'is' if self.stuck == 1 else 'are'} stuck"

    @property
    def details(self) -> str:
        """Say what keeps the stuck pods, then what becomes of the others; empty if there are none."""
        stuck = (
            (self.nowhere, "fits nowhere", "fit nowhere"),
            (self.kept, "would fit but is kept waiting", "would fit but are kept waiting"),
            (self.unknown, "is unknown", "are unknown"),
        )
        others = (
            (self.fitting, "fits and is about to get a node", "fit and are about to get a node"),
            (self.rejected, "was rejected and stays until deleted", "were rejected and stay until deleted"),
        )
        return "; ".join(filter(None, (", ".join(_phrases(stuck)), *_phrases(others))))

    @property
    def sentence(self) -> str:
        """Return both in one line."""
        if not self.details:
            return self.headline
        return f"{self.headline}{':' if self.stuck else ';'} {self.details}"


def _phrases(parts: Iterable[tuple[int, str, str]]) -> Iterator[str]:
    return (f"{count} {one if count == 1 else many}" for count, one, many in parts if count)
