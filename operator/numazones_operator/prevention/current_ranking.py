"""Current sort order of nodes: by ``--placement``, with shapes that policies and pods name.

Predictions, gate and extender of a process share one. Shapes are collected anew at most once a second.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from numazones.placement.fragmentation import Shape
from numazones.prediction.node_choice import Ranking
from numazones.prediction.wanted_shapes import shape_of_pod, wanted_shapes
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.rebalance.objects import PolicyObject

_PERIOD = 1.0


class CurrentRanking:
    """Answers when it is called."""

    def __init__(
        self,
        given: Ranking,
        state: ClusterState,
        policies: Callable[[], Iterable[PolicyObject]],
        *,
        collects: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Rank as the settings say.

        Args:
            given: what they say; its shapes count where nobody names any.
            state: the cluster, with the pods that wait.
            policies: the RebalancePolicies, as far as this process knows any.
            collects: whether shapes that these name count.
            clock: monotonic seconds.
        """
        self._given = given
        self._state = state
        self._policies = policies
        self._clock = clock
        self._collects = collects
        self._known: Ranking | None = None
        self._collected = 0.0

    def __call__(self) -> Ranking:
        """Return what nodes are ranked by."""
        if not self._collects:
            return self._given
        now = self._clock()
        if self._known is None or now - self._collected >= _PERIOD:
            over = self._state.faults.over
            goals = [policy.spec.goals for policy, _ in over(self._policies(), _shapes_of_policy)]
            waiting = [pod for pod, _ in over(self._state.pending.values(), shape_of_pod)]
            named = wanted_shapes(goals, waiting)
            self._known = replace(self._given, shapes=named) if named else self._given
            self._collected = now
        return self._known


def _shapes_of_policy(policy: PolicyObject) -> tuple[Shape, ...]:
    return wanted_shapes((policy.spec.goals,), ())
