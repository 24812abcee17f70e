"""Questions to the library that several commands ask, each answered once and the same way."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from numazones import advice, cpuset, placement, scheduling
from numazones.advice import Advice
from numazones.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.explanation import explain
from numazones.kubelet.node import Node
from numazones.kubelet.shortfall import name_numas
from numazones.kubelet.versions import NEWEST
from numazones.placement import Model, Unknown
from numazones.prediction import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    Kind,
    NodeVerdict,
    Prediction,
    Standing,
    beside,
    deciding,
    newcomer,
    unreadable,
)
from numazones.quantity import format_rounded
from numazones.rebalance import moves
from numazones.wording import some_of

_MOST_NODES_ADVISED = 3
_MOST_NAMED = 3


def decide(pod: ClusterPod, node: ClusterNode) -> Admission | str:
    """Return the kubelet's decision about a pod that would be new to the node, or why there is none."""
    if pod.admission is None:
        return f"the pod cannot be read: {pod.problem}"
    state = deciding(pod.constraints, node)
    if isinstance(state, Unknown):
        return f"unknown: {state.message}"
    if not isinstance(state, Node):
        return f"{placement.DECIDERS[placement.model_of(state)]} decides on this node, not the kubelet"
    try:
        return admit(state, newcomer(pod.admission))
    except NumazonesError as error:
        return f"unknown: {error}"


def as_if_new(pod: ClusterPod) -> ClusterPod:
    """The pod as its owner would make it again: without node and outcome."""
    return replace(pod, node="", phase="Pending", reason="", message="", started="", acknowledged=False)


def forecast_of(pod: ClusterPod, nodes: Mapping[str, ClusterNode]) -> Forecast | None:
    """Ask all nodes about a pod, as if it were created now; None where it cannot be read."""
    kind = Kind.of(as_if_new(pod))
    if kind is None:
        return None
    forecast = Forecast(kind)
    forecast.renew(nodes.values())
    return forecast


def prediction_of(pod: ClusterPod, forecast: Forecast | None) -> Prediction:
    """Sum up what the nodes said."""
    return unreadable(pod) if forecast is None else forecast.prediction(candidates=len(forecast.verdicts))


def foresee(pod: ClusterPod, nodes: Mapping[str, ClusterNode]) -> Prediction:
    """Predict a pod on all nodes, as if it were created now."""
    return prediction_of(pod, forecast_of(pod, nodes))


def asked(forecast: Forecast | None, nodes: Mapping[str, ClusterNode]) -> Iterator[ClusterNode]:
    """Yield the nodes whose kubelets have said yes or no."""
    for name, said in ({} if forecast is None else forecast.verdicts).items():
        if said.model is Model.KUBELET and said.standing in {Standing.ADMITS, Standing.REJECTS}:
            yield nodes[name]


def reservation(nodes: Iterable[ClusterNode]) -> str:
    """Say which kubelets are newer than the rules that their answers follow; empty for none."""
    found = sorted(
        f"{node.name} ({node.state.config.release.newer})"
        for node in nodes
        if node.state is not None and node.state.config.release.newer
    )
    if not found:
        return ""
    named = some_of(found, most=_MOST_NAMED)
    return f"newer kubelets are decided by the rules of 1.{NEWEST}, the newest known: {named}"


def scheduler_obstacles(pod: ClusterPod, node: ClusterNode) -> tuple[str, ...]:
    """What the scheduler has against a node, amounts asked and free included."""
    return (
        *scheduling.placement_obstacles(pod.constraints, node),
        *map(str, scheduling.lacks(pod.requests, node)),
    )


def advice_for(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], order: Iterator[str]
) -> list[tuple[str, Advice]]:
    """Return (node, advice) for the nearest nodes, each sentence once."""
    found: list[tuple[str, Advice]] = []
    told: set[str] = set()
    advised = 0
    for name in order:
        if advised == _MOST_NODES_ADVISED:
            break
        node = nodes[name]
        fresh = [item for item in _advice_on(pod, node) if item.sentence not in told]
        advised += bool(fresh)
        told.update(item.sentence for item in fresh)
        found.extend((name, item) for item in fresh)
    return found


def _advice_on(pod: ClusterPod, node: ClusterNode) -> tuple[Advice, ...]:
    away = advice.advise_on_scheduling(pod, node)
    if away is not None:
        return (away,)
    if scheduler_obstacles(pod, node):
        return ()
    return advice.advise_on(pod, node)


EXIT_CODES = {ADMISSIBLE: 0, INADMISSIBLE: 1, UNKNOWN: 2}
"""Verdict → exit code of the commands that answer a question."""


def nearest(prediction: Prediction, nodes: Mapping[str, ClusterNode]) -> Iterator[str]:
    """Yield all nodes: first those that came nearest, one per reason, then the rest by name."""
    first = [reason.node for reason in prediction.reasons if reason.node]
    yield from dict.fromkeys([*first, *sorted(nodes)])


def node_lines(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], forecast: Forecast | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield (node, verdict, why) for every node, by name; ``forecast``: what they have said already."""
    forecast = forecast or forecast_of(pod, nodes)
    for name, node in sorted(nodes.items()):
        obstacles = scheduler_obstacles(pod, node)
        if obstacles:
            yield name, "Excluded", "; ".join(obstacles)
        elif forecast is None:
            yield name, UNKNOWN, f"the pod cannot be read: {pod.problem}"
        else:
            yield name, *_line(forecast.verdicts[name])


def _line(said: NodeVerdict) -> tuple[str, str]:
    """(verdict, why) of a node that the scheduler could choose."""
    if said.standing is Standing.UNKNOWN:
        return UNKNOWN, said.obstacles[0][1]
    if said.standing is Standing.REJECTS:
        sentence = said.sentence if said.rejection is None else explain(said.rejection).shortfall
        return (
            INADMISSIBLE,
            f"{said.obstacles[0][0]}: {sentence}" if said.model is Model.KUBELET else sentence,
        )
    zones = name_numas(cpuset.of(said.zones)) if said.zones else ""
    if said.model is None or said.model is Model.KUBELET:
        return ADMISSIBLE, f"on {zones}" if zones else "in the shared pool"
    where = f"on {zones}" if zones else "anywhere"
    return ADMISSIBLE, f"{where}, by {placement.DECIDERS[said.model]}"


def policy_lines(pod: ClusterPod, node: ClusterNode) -> tuple[str, ...]:
    """All that another placement model says to a pod, line by line; nothing where the kubelet decides."""
    state = deciding(pod.constraints, node)
    if not isinstance(state, placement.PolicyNode):
        return ()
    if pod.admission is None:
        return (f"the pod cannot be read: {pod.problem}",)
    try:
        return placement.explain(placement.admit(state, newcomer(pod.admission)))
    except NumazonesError as error:
        return (f"unknown: {error}",)


def holders(node: ClusterNode) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield (NUMA node, pod, CPUs, memory, devices) for whoever holds something, NUMA node by NUMA node.

    Devices that are near no NUMA node in particular come last, on ``any``.
    """
    names = node.pod_names
    if node.policy_state is not None:
        for held in sorted(
            placement.holdings(node.policy_state), key=lambda held: (held.numa, names.get(held.uid, ""))
        ):
            memory = format_rounded(held.memory) if held.memory else ""
            yield str(held.numa), names.get(held.uid, held.uid), cpuset.format(held.cpus), memory, ""
    if node.state is None:
        return
    for numa, cpus_of_numa in node.state.machine.cpus_of_numa.items():
        for uid in sorted(node.state.pods, key=lambda uid: names.get(uid, uid)):
            row = _share(node.state, uid, numa, cpus_of_numa)
            if row is not None:
                yield (str(numa), names.get(uid, f"uid {uid}"), *row)
    for uid in sorted(node.state.pods, key=lambda uid: names.get(uid, uid)):
        devices = _devices(node.state, uid, 0)
        if devices:
            yield "any", names.get(uid, f"uid {uid}"), "", "", devices


def _share(state: Node, uid: str, numa: int, cpus_of_numa: int) -> tuple[str, str, str] | None:
    """What a pod holds of one NUMA node; None for nothing."""
    cpus = 0
    for members in state.cpus.assignments.get(uid, {}).values():
        cpus |= members & cpus_of_numa
    memory = [
        f"{format_rounded(block.size)}{'' if block.type == 'memory' else ' ' + block.type}"
        f"{'' if block.affinity == 1 << numa else f' over NUMA nodes {cpuset.format(block.affinity)}'}"
        for blocks in state.memory.assignments.get(uid, {}).values()
        for block in blocks
        if block.affinity >> numa & 1 and block.size
    ]
    devices = _devices(state, uid, 1 << numa)
    if not cpus and not memory and not devices:
        return None
    return cpuset.format(cpus), ", ".join(memory), devices


def _devices(state: Node, uid: str, mask: int) -> str:
    """The devices near NUMA nodes that a pod holds; with none, those that are near none in particular."""
    held = []
    for kinds in state.devices.assignments.get(uid, {}).values():
        for resource, members in kinds.items():
            devices = state.kubelet.devices.resources[resource]
            near = devices.ids(members & (devices.touching(mask) if mask else devices.without_topology))
            if near:
                held.append(f"{resource.rpartition('/')[2]}:{','.join(near)}")
    return " ".join(held)


def place(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], forecast: Forecast | None, *, most: int
) -> list[tuple[ClusterNode, str]]:
    """Place copies of a pod one after the other, each where it costs the least room.

    ``forecast`` is what the nodes said, and is kept up with the copies. Returns (the node with the copy, its
    UID there) for each one that fits, at most ``most``.
    """
    if forecast is None:
        return []
    now = dict(nodes)
    placed: list[tuple[ClusterNode, str]] = []
    while len(placed) < most:
        best = forecast.prediction(candidates=1).candidates
        if not best:
            break
        uid = f"copy-{len(placed)}"
        copy = replace(pod, uid=uid, node="", admission=replace(forecast.kind.admission, uid=uid))
        taken = _placed(now[best[0].node], copy)
        if taken is None:
            break
        now[taken.name] = taken
        forecast.renew([taken])
        placed.append((taken, uid))
    return placed


def _placed(node: ClusterNode, pod: ClusterPod) -> ClusterNode | None:
    """The node with a pod that it admits, whoever decides there; None where it does not."""
    if node.policy_state is None or pod.admission is None:
        return moves.place(node, pod).node
    # Other models tell pods apart by name as well.
    return beside(replace(pod, admission=replace(pod.admission, name=pod.uid)), node)
