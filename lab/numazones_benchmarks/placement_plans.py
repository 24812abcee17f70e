"""What rebalance plans could do at the end of a run of ``placement.py`` for pods that were left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.prediction.node_choice import NodeChoice, choose
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import Surroundings
from numazones.rebalance.goals import FitMore, Wanted
from numazones.rebalance.moves import place
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import Effort, situation_after
from numazones.whatif.workload import Event, Leaving
from numazones_benchmarks.placement_workloads import OWNER

REPLICAS = 1000
"""Of the owner of all pods, so that limits per workload don't decide."""
POLICY = Policy(cooldown=timedelta())


@dataclass(frozen=True)
class Needed:
    """The pods that wait at the end, taken in the order of their arrival."""

    waiting: int
    """They were left out, and have not left since."""
    fit: int
    """A node takes them by now."""
    planned: int
    """A plan makes room for them, within the default limit of evictions."""
    evictions: int
    """Of all these plans."""

    @property
    def without_plan(self) -> int:
        """Pods for which no plan was found."""
        return self.waiting - self.fit - self.planned


def needed(nodes: Iterable[ClusterNode], events: Iterable[Event], *, effort: int) -> Needed:
    """Let in what waits at the end of a run, pod by pod, and count what that takes.

    Each pod that is let in stays, so that room is promised once. ``effort``: steps of one search, as the
    plugin's ``plan --effort`` counts them, so that the answer is the same on every machine.
    """
    nodes = list(nodes)
    pods = waiting(nodes, events)
    fit = planned = evictions = 0
    situation = Situation(
        Cluster({node.name: node for node in nodes}),
        Surroundings(now=datetime(2026, 1, 1, tzinfo=UTC), replicas={OWNER.uid: REPLICAS}),
    )
    for pod in pods:
        chosen = choose(pod, situation.cluster.nodes.values(), NodeChoice.BEST_FIT)
        taken = None if chosen is None else place(chosen, pod).node
        if taken is not None:
            fit += 1
            situation = replace(situation, cluster=situation.cluster.with_node(taken))
            continue
        goal = FitMore((Wanted(pod.full_name, pod, 1, (pod,)),))
        found = plan(goal, situation, POLICY, expired=Effort(effort)).plan
        if found is not None:
            planned += 1
            evictions += len(found.moves)
            situation = situation_after(found, situation)
    return Needed(len(pods), fit, planned, evictions)


def waiting(nodes: Sequence[ClusterNode], events: Iterable[Event]) -> list[ClusterPod]:
    """Return the pods that arrived, have not left, and are on no node."""
    there: dict[str, ClusterPod] = {}
    for event in events:
        if isinstance(event, Leaving):
            there.pop(event.uid, None)
        elif event.admission is not None:
            there[event.kubelet_uid] = event
    placed = {uid for node in nodes for uid in node.pods}
    return [pod for pod in there.values() if pod.uid not in placed]
