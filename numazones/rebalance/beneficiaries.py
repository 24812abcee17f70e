"""Waiting pods that plans make room for, and the pods they may evict for them.

Whoever may create a pod could have others evicted by it. So a policy says which waiting pods count, and no
plan evicts a pod of a higher priority than the one that it makes room for. Equals may move, unlike in
kube-scheduler's preemption: a plan proves that each finds another place.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.rebalance.protections import label_selector

if TYPE_CHECKING:  # slow to import, and most programs read no policies
    from numazones.api.rebalance import PendingPodSelector

SCHEDULERS = ("default-scheduler", "numazones")
"""Schedulers whose pods count where a policy lists none."""


class InvalidBeneficiaries(NumazonesError):
    """The selector contradicts itself; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Beneficiaries:
    """Waiting pods that a policy covers."""

    included_namespaces: frozenset[str] = frozenset()
    excluded_namespaces: frozenset[str] = frozenset()
    labels: LabelSelector | None = None
    min_priority: int = 0
    schedulers: frozenset[str] = frozenset(SCHEDULERS)

    def __contains__(self, pod: ClusterPod) -> bool:
        included = not self.included_namespaces or pod.namespace in self.included_namespaces
        return (
            included
            and pod.namespace not in self.excluded_namespaces
            and (pod.priority or 0) >= self.min_priority
            and pod.constraints.scheduler_name in self.schedulers
            and (self.labels is None or self.labels.matches(pod.labels))
        )

    @classmethod
    def from_api(cls, selector: "PendingPodSelector | None") -> Self:
        """Read ``goals.pendingPodSelector``.

        Raises:
            InvalidBeneficiaries: namespaces are both included and excluded.
            InvalidSelector: the labels cannot be read.
        """
        if selector is None:
            return cls()
        named = selector.namespaces
        if named is not None and named.include and named.exclude:
            raise InvalidBeneficiaries(
                "goals.pendingPodSelector.namespaces: only one of include and exclude may be set"
            )
        return cls(
            frozenset(() if named is None else named.include),
            frozenset(() if named is None else named.exclude),
            label_selector(selector.label_selector),
            0 if selector.min_priority is None else selector.min_priority,
            frozenset(selector.scheduler_names or SCHEDULERS),
        )


def highest_victim(beneficiaries: Iterable[ClusterPod]) -> int | None:
    """Return the highest priority that a pod evicted for others may have; None: any, as nobody waits."""
    return min((pod.priority or 0 for pod in beneficiaries), default=None)


def outranks(pod: ClusterPod, highest: int | None) -> bool:
    """Return whether a pod is more important than those that it would be evicted for."""
    return highest is not None and (pod.priority or 0) > highest
