"""Remembers of each node whom it admits beside the pods on their way to it, until either changes."""

from collections.abc import Sequence
from typing import NamedTuple

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import About
from numazones.prediction.arrivals import Arrivals


class _Known(NamedTuple):
    node: ClusterNode
    others: tuple[ClusterNode, ...]
    coming: tuple[ClusterPod, ...]
    arrivals: Arrivals


class ArrivalsByNode:
    """Findings about each node that was evaluated."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def clear(self) -> None:
        """Forget all nodes."""
        self._known.clear()

    def at(
        self,
        node: ClusterNode,
        coming: Sequence[ClusterPod],
        *,
        others: tuple[ClusterNode, ...] = (),
        by_namespace: bool = False,
    ) -> Arrivals:
        """Return a node with the pods on their way to it; the rest as for ``Arrivals.of``."""
        known = self._known.get(node.name)
        if (
            known is None
            or known.node is not node
            or known.others is not others
            or not _begins(coming, known.coming)
        ):
            known = _Known(node, others, (), Arrivals.of(node, (), others=others))
        arrivals = known.arrivals
        for pod in coming[len(known.coming) :]:
            with About(pod):
                arrivals = arrivals.with_pod(pod, by_namespace=by_namespace)
        self._known[node.name] = _Known(node, others, tuple(coming), arrivals)
        return arrivals


def _begins(pods: Sequence[ClusterPod], first: Sequence[ClusterPod]) -> bool:
    """Return whether the pods start with exactly the objects given first."""
    return len(first) <= len(pods) and all(pod is other for pod, other in zip(pods, first, strict=False))
