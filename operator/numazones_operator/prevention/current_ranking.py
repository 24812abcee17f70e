"""Current sort order of nodes: by ``--placement``, with shapes that policies and pods name.

Predictions, gate and extender of a process share one. Shapes are collected anew at most once a second.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace

from numazones.placement.fragmentation import Shape
from numazones.prediction.node_choice import Ranking
from numazones.prediction.wanted_shapes import shape_of_pod, wanted_shapes
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.rebalance.objects import PolicyObject

_PERIOD = 1.0


@dataclass
class CurrentRanking:
    """Answers when it is called."""

    given: Ranking
    """Ranking of the settings; its shapes count where policies and pods name none."""
    state: ClusterState
    policies: Callable[[], Iterable[PolicyObject]]
    """The RebalancePolicies, as far as this process knows any."""
    _: KW_ONLY
    collects: bool
    """True if shapes that policies and pods name count."""
    clock: Callable[[], float] = time.monotonic
    _known: Ranking | None = field(init=False, default=None)
    _collected: float = field(init=False, default=0.0)

    def __call__(self) -> Ranking:
        """Return what nodes are ranked by."""
        if not self.collects:
            return self.given
        now = self.clock()
        if self._known is None or now - self._collected >= _PERIOD:
            over = self.state.faults.over
            goals = [policy.spec.goals for policy, _ in over(self.policies(), _shapes_of_policy)]
            waiting = [pod for pod, _ in over(self.state.pending.values(), shape_of_pod)]
            named = wanted_shapes(goals, waiting)
            self._known = replace(self.given, shapes=named) if named else self.given
            self._collected = now
        return self._known


def _shapes_of_policy(policy: PolicyObject) -> tuple[Shape, ...]:
    return wanted_shapes((policy.spec.goals,), ())
