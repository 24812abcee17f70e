"""What would a policy do to this cluster? The planner, offline, on a dump.

A dump is what ``kubectl get nodes,pods,numazones,poddisruptionbudgets,replicasets,statefulsets,jobs,… -A -o
json`` prints. Plans are made one after the other, each on the cluster as the one before leaves it, until
none is left; nothing is carried out. The same dump and policy give the same answer on every machine, so
effort is bounded by steps of the search, not by time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from numazones import timestamp
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.cluster import Cluster, ClusterNode, ClusterPod, Unknown
from numazones.defaulting import Defaults
from numazones.errors import NumazonesError
from numazones.placement import DECIDERS, model_of, seen
from numazones.prediction import UNDECIDED
from numazones.quantity import format_milli
from numazones.rebalance.budgets import Budget, Headroom
from numazones.rebalance.candidates import Situation, candidates, why_not
from numazones.rebalance.filter import Surroundings
from numazones.rebalance.goals import FitMore, Goal, measure
from numazones.rebalance.moves import Plan, evict, place
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.templates import pod_from_template
from numazones.sharing import Sharing
from numazones.wording import counted

_EPOCH = "1970-01-01T00:00:00Z"


class InvalidDump(NumazonesError):
    """A dump lacks what an answer needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a policy would do for one goal."""

    before: int
    after: int
    plans: tuple[Plan, ...]
    reason: str
    """Why there is no further plan."""
    movable: int
    unmovable: Mapping[str, int]
    """Rule → pods that it keeps from moving; one pod may be kept by several."""

    @property
    def evictions(self) -> int:
        """Of all plans together."""
        return sum(len(made.moves) for made in self.plans)

    def to_json(self) -> dict[str, Any]:
        """Write it for programs."""
        return {
            "before": self.before,
            "after": self.after,
            "evictions": self.evictions,
            "movable": self.movable,
            "unmovable": dict(sorted(self.unmovable.items())),
            "plans": [_plan_to_json(made) for made in self.plans],
            "reason": self.reason,
        }


def _plan_to_json(made: Plan) -> dict[str, Any]:
    return {
        "gain": made.gain,
        "minimal": made.minimal,
        "cpus": format_milli(made.cpus),
        "moves": [
            {
                "pod": move.pod.full_name,
                "from": {"node": move.pod.node, "numaIDs": list(move.zones)},
                "to": {"node": move.node, "numaIDs": list(move.target_zones)},
                "affinity": list(move.affinity),
                "why": move.why,
            }
            for move in made.moves
        ],
    }


class Effort:
    """Says that time is up after a number of asks: a clock that runs the same everywhere."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __call__(self) -> bool:
        """Whether the effort is spent; each ask is one step."""
        self._left -= 1
        return self._left < 0


def moment_of(items: Iterable[Mapping[str, Any]]) -> datetime:
    """Return the moment of a dump: the latest time at which something in it was made, started or renewed.

    Raises:
        numazones.timestamp.InvalidTimestamp: it is none.
    """
    times = [_EPOCH]
    for item in items:
        times.append((item.get("metadata") or {}).get("creationTimestamp") or "")
        times.append((item.get("status") or {}).get("startTime") or "")
        times.append((item.get("spec") or {}).get("renewTime") or "")
    return timestamp.parse(max(times))


def situation_of(items: Iterable[Mapping[str, Any]], now: datetime) -> Situation:
    """Read a dump.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    kinds = _by_kind(items)
    defaults = Defaults.of(item for found in kinds.values() for item in found)
    sharing = Sharing()
    pods = [sharing.pod(body) for body in kinds.get("Pod", ())]
    templates = {
        body["metadata"]["uid"]: pod_from_template(body, defaults)
        for kind in ("ReplicaSet", "StatefulSet", "Job")
        for body in kinds.get(kind, ())
    }
    surroundings = Surroundings(
        now=now,
        replicas=Surroundings.count_replicas(pod for pod in pods if not pod.terminal),
        headroom=Headroom.of(map(Budget.from_api, kinds.get("PodDisruptionBudget", ()))),
        storage_classes={
            (claim["metadata"]["namespace"], claim["metadata"]["name"]): claim["spec"].get(
                "storageClassName", ""
            )
            for claim in kinds.get("PersistentVolumeClaim", ())
        },
        namespace_labels={
            namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
            for namespace in kinds.get("Namespace", ())
        },
    )
    nodes = _nodes(kinds, lambda: pods, sharing)
    return Situation(Cluster.of(nodes, pods), surroundings, templates)


def nodes_of(items: Iterable[Mapping[str, Any]]) -> list[ClusterNode]:
    """Read the nodes of a dump alone, without their pods.

    Pods are looked at only where a node's state depends on them, as with Koordinator.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    kinds, sharing = _by_kind(items), Sharing()
    return _nodes(kinds, lambda: map(sharing.pod, kinds.get("Pod", ())), sharing)


def _by_kind(items: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        kinds.setdefault(item.get("kind", ""), []).append(item)
    if "Node" not in kinds:
        raise InvalidDump("the dump holds no nodes; kubectl get nodes,pods,numazones -A -o json has them")
    return kinds


def what_if(
    goal: Goal, situation: Situation, policy: Policy, *, effort: int, most_plans: int = 100
) -> Report:
    """Say what a policy would do for a goal, plan after plan; ``effort`` bounds the steps of each search."""
    unmovable = unmovable_by_rule(situation, policy)
    before, movable = measure(goal, situation.cluster), len(candidates(situation, policy))
    plans: list[Plan] = []
    settled = 0
    reason = f"after {counted(most_plans, 'plan')} no more were sought"
    while len(plans) < most_plans:
        outcome = plan(goal, situation, policy, expired=Effort(effort))
        if outcome.plan is None:
            reason = f"after {_counted(plans)}, {outcome.reason}" if plans else outcome.reason
            break
        plans.append(outcome.plan)
        situation = carried_out(outcome.plan, situation)
        settled += len(outcome.plan.placements)
        goal = _left_of(goal, outcome.plan)
    after = settled + measure(goal, situation.cluster)
    return Report(before, after, tuple(plans), reason, movable, unmovable)


def unmovable_by_rule(situation: Situation, policy: Policy) -> dict[str, int]:
    """Count the pods that stay where they are, by each rule that speaks against moving them."""
    unmovable: dict[str, int] = {}
    for node in situation.cluster.nodes.values():
        for pod in node.pods.values():
            for rule in {objection.rule for objection in why_not(pod, situation, policy)}:
                unmovable[rule] = unmovable.get(rule, 0) + 1
    return unmovable


def _counted(plans: Sequence[Plan]) -> str:
    return "this plan" if len(plans) == 1 else f"these {len(plans)} plans"


def _left_of(goal: Goal, made: Plan) -> Goal:
    """The goal without the pending pods that a plan places: they have what they waited for."""
    if not isinstance(goal, FitMore):
        return goal
    placed = {placement.pod.uid for placement in made.placements}
    wanted = []
    for item in goal.wanted:
        left = tuple(pod for pod in item.pods if pod.uid not in placed)
        count = None if item.count is None else item.count - (len(item.pods) - len(left))
        wanted.append(replace(item, pods=left, count=count))
    return FitMore(tuple(wanted))


def carried_out(made: Plan, situation: Situation) -> Situation:
    """Return the situation after a plan: the pods moved, running again, and resting for the cooldown."""
    cluster, history = situation.cluster, situation.history
    for move in made.moves:
        cluster = cluster.with_node(evict(cluster.nodes[move.pod.node], move.pod))
        running = replace(move.replacement, phase="Running", ready=True)
        placed = place(cluster.nodes[move.node], running).node
        if placed is not None:
            cluster = cluster.with_node(placed)
        history = history.after_move(move.pod, move.node, situation.surroundings.now)
    for placement in made.placements:
        placed = place(cluster.nodes[placement.node], placement.pod).node
        if placed is not None:
            cluster = cluster.without_pod(placement.pod).with_node(placed)
    return replace(situation, cluster=cluster, history=history)


def _nodes(
    kinds: Mapping[str, Sequence[Mapping[str, Any]]],
    pods: Callable[[], Iterable[ClusterPod]],
    sharing: Sharing,
) -> list[ClusterNode]:
    """Read the nodes; ``pods`` is asked once at most."""
    zones = _zones_by_node(kinds.get("NUMAZone", ()))
    topologies, devices = _by_name(kinds, "NodeResourceTopology"), _by_name(kinds, "Device")

    @cache
    def bound() -> dict[str, list[ClusterPod]]:
        found: dict[str, list[ClusterPod]] = {}
        for pod in pods():
            if pod.active:
                found.setdefault(pod.node, []).append(pod)
        return found

    def bound_to(node: str) -> Iterator[ClusterPod]:
        yield from bound().get(node, ())

    nodes = []
    for body in kinds["Node"]:
        node = ClusterNode.from_api(body)
        if node.name in zones:
            node = _with_zones(node, zones[node.name], sharing)
        try:
            other = seen(
                body,
                topologies.get(node.name),
                pods=bound_to(node.name),
                kubelet_node=node.state,
                device=devices.get(node.name),
                configurations=kinds.get("TopologyAwarePolicy", ()),
            )
        except NumazonesError as error:
            node = node.with_unknown_state(Unknown(UNDECIDED, str(error)))
        else:
            if other is not None:
                node = node.with_policy_state(other, DECIDERS[model_of(other)], beneath=node.state)
        nodes.append(node)
    return nodes


def _zones_by_node(bodies: Iterable[Mapping[str, Any]]) -> dict[str, list[NUMAZone]]:
    zones: dict[str, list[NUMAZone]] = {}
    for body in bodies:
        zone = NUMAZone.from_api(body)
        zones.setdefault(zone.spec.node_name, []).append(zone)
    return zones


def _with_zones(node: ClusterNode, zones: Sequence[NUMAZone], sharing: Sharing) -> ClusterNode:
    for zone in zones:
        if zone.status is not None and zone.status.silence is not None:
            return node.with_unknown_state(Unknown("ExporterSilent", zone.status.silence.message))
    try:
        return node.with_state(node_from_zones(zones, remember=sharing.made))
    except NumazonesError as error:
        return node.with_unknown_state(Unknown("ZonesUnreadable", str(error)))


def _by_name(kinds: Mapping[str, Sequence[Mapping[str, Any]]], kind: str) -> dict[str, Mapping[str, Any]]:
    return {body["metadata"]["name"]: body for body in kinds.get(kind, ())}
