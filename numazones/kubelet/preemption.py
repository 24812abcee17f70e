"""Pods that are preempted for a critical pod that lacks nothing but amounts.

Rules: ``pkg/kubelet/preemption`` of kubelet 1.36. As few Guaranteed pods as can be, then as few Burstable
ones, then BestEffort ones; among equals those nearest to what is missing, then those that ask for less.
"""

from collections.abc import Iterable, Sequence

from numazones.apimachinery.resources import CPU, MEMORY
from numazones.errors import NumazonesError
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.node_info import NodeInfo, PodInfo

PODS = "pods"
"""Stands for the pod slots of a node among its resources."""

Needs = tuple[tuple[str, int], ...]
"""(resource, amount that is missing)"""


class NoVictims(NumazonesError):
    """Not even all pods that may be preempted would make room; the message is the kubelet's."""

    def __init__(self, left: Needs) -> None:
        """Name what would still be missing."""
        listed = "".join(f"(res: {resource}, q: {amount}), " for resource, amount in left)
        super().__init__(
            "preemption: error finding a set of pods to preempt: "
            f"no set of running pods found to reclaim resources: [{listed}]"
        )


def victims_for(node: NodeInfo, pod: PodInfo, needs: Needs) -> tuple[str, ...]:
    """Return the uids of the pods to preempt for a critical pod.

    Raises:
        NoVictims: there are not enough.
    """
    ranks: dict[QOSClass, list[str]] = {qos: [] for qos in QOSClass}
    for uid, other in node.pods.items():
        if pod.outranks(other):
            ranks[node.state.kubelet.reading(other.pod).qos].append(uid)
    search = _Search(node)
    best_effort, burstable, guaranteed = (
        ranks[qos] for qos in (QOSClass.BEST_EFFORT, QOSClass.BURSTABLE, QOSClass.GUARANTEED)
    )
    left = search.without(needs, (*best_effort, *burstable, *guaranteed))
    if left:
        raise NoVictims(left)
    dearest = search.nearest(guaranteed, search.without(needs, (*best_effort, *burstable)))
    dear = search.nearest(burstable, search.without(needs, (*best_effort, *dearest)))
    cheap = search.nearest(best_effort, search.without(needs, (*dear, *dearest)))
    return (*cheap, *dear, *dearest)


class _Search:
    """Looks for pods of one node whose requests cover what is missing."""

    def __init__(self, node: NodeInfo) -> None:
        self._pods = node.pods

    def without(self, needs: Needs, uids: Iterable[str]) -> Needs:
        """Return what is still missing when pods are gone."""
        gone = list(uids)
        left = (
            (resource, amount - sum(self._request(uid, resource) for uid in gone))
            for resource, amount in needs
        )
        return tuple((resource, amount) for resource, amount in left if amount > 0)

    def nearest(self, uids: Sequence[str], needs: Needs) -> list[str]:
        """Return pods that cover what is missing, the nearest to it first."""
        candidates, chosen = list(uids), list[str]()
        while needs:
            best = 0
            for position in range(1, len(candidates)):
                if self._prefers(candidates[position], candidates[best], needs):
                    best = position
            chosen.append(candidates[best])
            needs = self.without(needs, (candidates[best],))
            candidates[best] = candidates[-1]
            candidates.pop()
        return chosen

    def _prefers(self, uid: str, other: str, needs: Needs) -> bool:
        mine, theirs = self._distance(uid, needs), self._distance(other, needs)
        return mine < theirs or (mine == theirs and self._size(uid) <= self._size(other))

    def _distance(self, uid: str, needs: Needs) -> float:
        remains = ((amount - self._request(uid, resource), amount) for resource, amount in needs)
        return sum((left / amount) ** 2 for left, amount in remains if left > 0)

    def _size(self, uid: str) -> tuple[int, int]:
        return self._request(uid, MEMORY), self._request(uid, CPU)

    def _request(self, uid: str, resource: str) -> int:
        return 1 if resource == PODS else self._pods[uid].requests.get(resource, 0)
