"""Questions to the library that several commands ask, each answered once and the same way."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

from numazones import cpuset
from numazones.advice.changes import Advice
from numazones.alignment.pod_alignment import by_name
from numazones.apimachinery.answer import or_left_out
from numazones.apimachinery.quantity import format_rounded
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.machine import name_numas
from numazones.placement import Decision, Placement, Unknown
from numazones.prediction.device_answer import ContainerPlace, ForeseenDevice
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    NodeAnswer,
    NodeVerdict,
    Placed,
    PodKind,
    Prediction,
    deciding,
    newcomer,
    place_beside,
    unreadable,
)
from numazones.prediction.room import copy_of
from numazones_program.columns import Column

if TYPE_CHECKING:
    from numazones.rebalance.candidates import Situation


def decide(pod: ClusterPod, node: ClusterNode) -> Decision | str:
    """Return what is decided about a pod that would be new to the node, or why that is not known."""
    if pod.admission is None:
        return f"the pod cannot be read: {pod.problem}"
    placement = deciding(pod.constraints, node)
    if isinstance(placement, Unknown):
        return f"unknown: {placement.message}"
    try:
        return placement.admit(newcomer(pod.admission))
    except NumazonesError as error:
        return f"unknown: {error}"


def unbound_copy(pod: ClusterPod) -> ClusterPod:
    """The pod as its owner would make it again: without node and outcome."""
    return replace(pod, node="", phase="Pending", reason="", message="", started="", acknowledged=False)


def forecast_of(pod: ClusterPod, nodes: Mapping[str, ClusterNode]) -> Forecast | None:
    """Ask all nodes about a pod, as if it were created now; None where it cannot be read."""
    kind = PodKind.of(unbound_copy(pod))
    if kind is None:
        return None
    forecast = Forecast(kind)
    forecast.renew(nodes.values())
    return forecast


def prediction_of(pod: ClusterPod, forecast: Forecast | None) -> Prediction:
    """Sum up what the nodes said."""
    return unreadable(pod) if forecast is None else forecast.prediction(candidates=len(forecast.verdicts))


def scheduler_obstacles(pod: ClusterPod, node: ClusterNode) -> tuple[str, ...]:
    """Return the scheduler's objections to a node, with amounts requested and free."""
    return (
        *scheduling.placement_obstacles(pod.constraints, node),
        *map(str, scheduling.lacks(pod.requests, node)),
    )


def advice_for(
    pod: ClusterPod, situation: "Situation", prediction: Prediction, forecast: Forecast | None
) -> list[Advice]:
    """Return what would let a pod in, the cheapest first."""
    # Imported late: most answers do without all that planning needs.
    from numazones.advice.helpful_changes import helpful_changes, nodes_looked_at  # noqa: PLC0415

    if forecast is None:
        return []
    return helpful_changes(pod, situation, prediction, nodes_looked_at(prediction, forecast))


EXIT_CODES = {ADMISSIBLE: 0, INADMISSIBLE: 1, UNKNOWN: 2}
"""Verdict → exit code of the commands that answer a question."""


class NodeLine(NamedTuple):
    """Answer of one node about a pod."""

    node: str
    verdict: str
    why: str


NODES: tuple[Column[NodeLine], ...] = (
    Column("NODE", lambda line: line.node),
    Column("VERDICT", lambda line: line.verdict),
    Column("WHY", lambda line: line.why),
)


def node_lines(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], forecast: Forecast | None = None
) -> Iterator[NodeLine]:
    """Yield a line for every node, by name; ``forecast``: what they have said already."""
    forecast = forecast or forecast_of(pod, nodes)
    for name, node in sorted(nodes.items()):
        obstacles = scheduler_obstacles(pod, node)
        if obstacles:
            yield NodeLine(name, "Excluded", "; ".join(obstacles))
        elif forecast is None:
            yield NodeLine(name, UNKNOWN, f"the pod cannot be read: {pod.problem}")
        else:
            yield NodeLine(name, *_line(forecast.verdicts[name], deciding(pod.constraints, node)))


class NodeGroup(NamedTuple):
    """Nodes that say the same to a pod."""

    number: int
    node: str
    """The one that comes nearest; of those that would admit it, the best."""
    verdict: str
    why: str


NODE_GROUPS: tuple[Column[NodeGroup], ...] = (
    Column("NODES", lambda group: str(group.number), right=True),
    Column("NEAREST", lambda group: group.node),
    Column("VERDICT", lambda group: group.verdict),
    Column("WHY", lambda group: group.why),
)


def node_groups(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], prediction: Prediction, forecast: Forecast | None
) -> Iterator[NodeGroup]:
    """Yield the nodes by what they say, as predictions count them; those that would admit it come first."""
    counts = [(prediction.nodes.admissible, one.node) for one in prediction.candidates[:1]]
    counts += [(reason.count, reason.node) for reason in prediction.reasons]
    for count, name in counts:
        if name:
            (line,) = node_lines(pod, {name: nodes[name]}, forecast)
            yield NodeGroup(count, *line)


def refusing(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], prediction: Prediction, forecast: Forecast | None
) -> list[NodeGroup]:
    """Return the nodes that do not take the pod, by what they say."""
    groups = node_groups(pod, nodes, prediction, forecast)
    return [group for group in groups if group.verdict != ADMISSIBLE]


def _line(said: NodeVerdict, placement: Placement | Unknown) -> tuple[str, str]:
    """(verdict, why) of a node that the scheduler could choose."""
    if said.answer is NodeAnswer.UNKNOWN:
        return UNKNOWN, said.obstacles[0][1]
    if said.answer is NodeAnswer.REJECTS:
        if said.rejection is None:
            return INADMISSIBLE, f"{said.obstacles[0][0]}: {said.sentence}"
        return INADMISSIBLE, said.rejection.shortfall("").line
    zones = name_numas(cpuset.of(said.zones)) if said.zones else ""
    if isinstance(placement, Unknown) or placement.kubelet is not None:
        return ADMISSIBLE, f"on {zones}" if zones else "in the shared pool"
    where = f"on {zones}" if zones else "anywhere"
    return ADMISSIBLE, f"{where}, by {placement.model.decider}"


class HolderRow(NamedTuple):
    """Resources that a holder has on a NUMA node."""

    numa: str
    pod: str
    cpus: str
    memory: str
    devices: str
    alignment: str
    """The whole pod's."""


HOLDERS: tuple[Column[HolderRow], ...] = (
    Column("NUMA", lambda held: held.numa),
    Column("POD", lambda held: held.pod),
    Column("CPUS", lambda held: held.cpus),
    Column("MEMORY", lambda held: held.memory),
    Column("DEVICES", lambda held: held.devices),
    Column("ALIGNMENT", lambda held: held.alignment),
)


_MOST_IDS = 16
"""Ids of devices that are shown of one resource."""


def holders(node: ClusterNode) -> Iterator[HolderRow]:
    """Yield whoever holds something, NUMA node by NUMA node.

    Devices that are near no NUMA node in particular come last, on ``any``.
    """
    occupancy, lying = node.occupancy, by_name(node)
    for share in () if occupancy is None else occupancy.shares():
        yield HolderRow(
            "any" if share.numa is None else str(share.numa),
            share.name,
            cpuset.format(share.cpus),
            ", ".join(_block(*block) for block in share.memory),
            " ".join(f"{held.resource.rpartition('/')[2]}:{_ids(held.ids)}" for held in share.devices),
            str(lying[share.name].alignment) if share.name in lying else "",
        )


def _ids(ids: Collection[str]) -> str:
    """Return ids of devices; of many, their number."""
    return ",".join(ids) if len(ids) <= _MOST_IDS else f"({len(ids)} of them)"


def _block(kind: str, size: int, numas: tuple[int, ...]) -> str:
    """A block of memory, with the NUMA nodes where it lies on several."""
    name = "" if kind == MEMORY else f" {kind}"
    over = f" over NUMA nodes {cpuset.format(cpuset.of(numas))}" if len(numas) > 1 else ""
    return f"{format_rounded(size)}{name}{over}"


@dataclass(frozen=True, slots=True)
class FittingPlace:
    """Place where a pod would fit."""

    node: Annotated[str, "Name of the node."]
    numas: Annotated[tuple[int, ...], "Ids of the NUMA nodes whose resources the pod gets."]
    cpus: Annotated[int, "Exclusive CPUs, as a list; empty for the shared pool.", cpuset.format]
    devices: Annotated[
        tuple[ForeseenDevice, ...],
        "Devices that the scheduler would allocate by DRA; left out if none.",
        or_left_out,
    ]
    alignment: Annotated[
        str,
        "Whether the devices are on the same NUMA node as the CPUs and memory: aligned, notAligned or "
        "unknown; left out if none.",
        or_left_out,
    ]
    containers: Annotated[
        tuple[ContainerPlace, ...],
        "The same for each container that uses devices; left out if none.",
        or_left_out,
    ]

    @classmethod
    def of(cls, placed: Placed) -> "FittingPlace":
        """Say where a copy was placed."""
        found = placed.devices
        return cls(
            placed.node.name,
            placed.decision.zones,
            placed.decision.exclusive,
            () if found is None else found.devices,
            "" if found is None else found.alignment,
            () if found is None else found.containers,
        )


@dataclass(frozen=True, slots=True)
class Fitting:
    """Copies of one pod, as far as they were placed."""

    pod: ClusterPod
    replicas: int
    placed: Sequence[Placed]
    first: Prediction
    """For the first copy."""
    last: Prediction
    """For the one after those that were placed, if not all were."""
    refusals: Sequence[NodeGroup]
    """Nodes that do not take the first copy or, where not all fit, another one."""
    forecast: Forecast | None
    nodes: Mapping[str, ClusterNode]
    """With those that were placed."""

    @property
    def fits(self) -> bool:
        """Return whether all of them fit."""
        return len(self.placed) >= self.replicas

    @property
    def verdict(self) -> str:
        """Return Admissible if all fit, Inadmissible if not, or Unknown."""
        if self.fits:
            return ADMISSIBLE
        return UNKNOWN if self.first.nodes.stale or self.first.verdict == UNKNOWN else INADMISSIBLE


def fit_together(asked: Sequence[tuple[ClusterPod, int]], nodes: Mapping[str, ClusterNode]) -> list[Fitting]:
    """Place copies of several pods beside each other, larger ones first; ``asked``: (pod, how many)."""
    found: dict[int, Fitting] = {}
    for number in sorted(range(len(asked)), key=lambda at: -asked[at][0].requests.get(CPU, 0)):
        pod, replicas = asked[number]
        forecast = forecast_of(pod, nodes)
        first = prediction_of(pod, forecast)
        refusals = refusing(pod, nodes, first, forecast)
        before = sum(len(one.placed) for one in found.values())
        placed = place(pod, nodes, forecast, most=replicas, before=before)
        nodes = {**nodes, **{item.node.name: item.node for item in placed}}
        last = first
        if len(placed) < replicas:
            last = prediction_of(pod, forecast)
            refusals = refusing(pod, nodes, last, forecast)
        found[number] = Fitting(pod, replicas, placed, first, last, refusals, forecast, nodes)
    return [found[number] for number in range(len(asked))]


def best_place(pod: ClusterPod, nodes: Mapping[str, ClusterNode], found: Prediction) -> FittingPlace | None:
    """Return where a pod would go by its prediction; None if nowhere."""
    if not found.candidates:
        return None
    placed = place_beside(copy_of(pod, 0), nodes[found.candidates[0].node])
    return None if placed is None else FittingPlace.of(placed)


def place(
    pod: ClusterPod,
    nodes: Mapping[str, ClusterNode],
    forecast: Forecast | None,
    *,
    most: int,
    before: int = 0,
) -> list[Placed]:
    """Place copies of a pod one after the other, each where it costs the least room.

    ``forecast`` is what the nodes said, and is kept up with the copies. Returns at most ``most``. ``before``:
    copies of other pods that the nodes have; models tell pods apart by UID.
    """
    placed: list[Placed] = []
    if forecast is None:
        return placed
    now = dict(nodes)
    while len(placed) < most:
        best = forecast.prediction(candidates=1).candidates
        if not best:
            break
        copy = copy_of(replace(pod, admission=forecast.kind.admission), before + len(placed))
        taken = place_beside(copy, now[best[0].node])
        if taken is None:
            break
        now[taken.node.name] = taken.node
        if taken.devices is not None and taken.devices.elsewhere:
            left = taken.node.cluster_devices
            now = {name: replace(node, cluster_devices=left) for name, node in now.items()}
            forecast.renew(now.values())
        else:
            forecast.renew([taken.node])
        placed.append(taken)
    return placed
