"""Koordinator's vectors: nodes and pods go through scheduling cycles of koord-scheduler.

Schema: ``conformance/koordinator/README.md`` beside the vectors. A step on which upstream crashed, or
that is not decided here, ends the scenario: it has ``panic`` or ``undecided``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.pod import Pod
from numazones_koordinator.amounts import minus, scheduler_counts
from numazones_koordinator.cycle import Candidate
from numazones_koordinator.node import Node
from numazones_koordinator.request import Request
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import Rejected, SchedulerCrash, Status
from numazones_koordinator.topology_manager import Hint, Hints
from numazones_koordinator.trial import INVALID_TOPOLOGY, Grant, bound_there
from tests.conformance import form
from tests.conformance.comparison import Difference, unequal

_OUTCOMES = ("expect",)
_FORM = {
    "args?": {},
    "nodes": [{"name": str, "labels?": {"*": str}, "annotations?": {"*": str}, "allocatable?": {}}],
    "steps?": [{"op?": str, "pod?": {}, "node?": str, "uid?": str}],
}
_STEPS = {"schedule": ("pod",), "running": ("pod", "node"), "remove": ("uid",)}
# The vectors list hints of nodes with at most so many NUMA nodes.
_MOST_LISTED = 4


def replay(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with this model's outcome; whatever outcome it came with is dropped."""
    given = {key: value for key, value in scenario.items() if key not in _OUTCOMES}
    steps = given.pop("steps", None) or ()
    try:
        form.require(scenario, _FORM)
        form.require_fields_of_steps(scenario, _STEPS)
        cluster = _Cluster.read(scenario)
    except NumazonesError as error:
        return {**given, "error": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {**given, "error": f"no scenario in the vectors' schema: {error!r}"}
    done = []
    for step in steps:
        bare = {key: value for key, value in step.items() if key not in _OUTCOMES}
        done.append({**bare, "expect": cluster.step(step)})
        if cluster.over:
            break
    return {**given, "steps": done}


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Difference]:
    """All differences of one scenario; a step on which upstream crashed needs only be rejected."""
    name = str(expected.get("id"))
    if "error" in actual:
        yield Difference(name, None, "error", expected.get("error"), actual["error"])
        return
    replayed = actual["steps"]
    until = int(expected.get("nondeterministicFrom", 0)) if expected.get("nondeterministic") else None
    for index, step in enumerate(expected.get("steps", [])[:until]):
        recorded = step["expect"]
        if "panic" in recorded:
            ours = replayed[index]["expect"] if index < len(replayed) else {}
            if "panic" not in ours and "undecided" not in ours:
                yield Difference(name, index, "panic", recorded["panic"], None)
            return
        if index >= len(replayed):
            yield Difference(name, index, "", recorded, None)
            return
        for path, theirs, mine in unequal("", recorded, replayed[index]["expect"]):
            yield Difference(name, index, path, theirs, mine)


@dataclass
class _Cluster:
    """The nodes of a scenario as they change from step to step."""

    scheduler: Scheduler
    nodes: dict[str, Node]
    places: dict[str, str]
    """Uid of a pod → its node."""
    devices: bool
    """The plugin DeviceShare takes part."""
    over: bool = False

    @classmethod
    def read(cls, scenario: Mapping[str, Any]) -> "_Cluster":
        devices = any("devices" in node for node in scenario["nodes"])
        scheduler = Scheduler.from_args(scenario.get("args") or {}, device_share=devices)
        nodes = {node["name"]: _node(node, scheduler) for node in scenario["nodes"]}
        return cls(scheduler, nodes, {}, devices)

    def step(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """The outcome of a step."""
        operation = step.get("op")
        try:
            if operation == "schedule":
                return _Cycle(self, Pod.from_api(step["pod"])).run()
            if operation == "running":
                self._run(Pod.from_api(step["pod"]), step["node"])
                return {"state": self.state()}
            if operation == "remove":
                self.remove(step["uid"])
                return {"state": self.state()}
        except NumazonesError as error:
            self.over = True
            return {"undecided": str(error)}
        self.over = True
        return {"undecided": f"unknown operation {operation!r}"}

    def _run(self, pod: Pod, name: str) -> None:
        if name in self.nodes:
            self.nodes[name] = self.nodes[name].bind(pod)
            self.places[pod.uid] = name

    def remove(self, uid: str) -> None:
        name = self.places.pop(uid, None)
        if name is not None:
            self.nodes[name] = self.nodes[name].remove(uid)

    def state(self) -> dict[str, Any]:
        return {name: self._state(node) for name, node in self.nodes.items()}

    def _state(self, node: Node) -> dict[str, Any]:
        topology = node.host.topology
        valid = topology is not None and topology.valid
        allocated = {
            str(numa): scheduler_counts(minus(taken, {}))
            for numa in node.host.numa_ids
            if (taken := node.allocated_amounts(numa)) is not None
        }
        state: dict[str, Any] = {
            "freeCPUs": cpuset.format(node.free_cpus()) if valid else "",
            "numaStatus": [str(node.use(numa)) for numa in range(len(node.host.zones))] or None,
            "available": {str(numa): scheduler_counts(left) for numa, left in node.available().items()},
        }
        if allocated:
            state["allocated"] = allocated
        if topology is not None and not valid:
            state["error"] = INVALID_TOPOLOGY
        if self.devices and node.devices is not None:
            state["freeDevices"] = {
                type_: {
                    str(minor): scheduler_counts(left) for minor, left in node.devices.free(type_).items()
                }
                for type_ in node.devices.types()
            }
        return state


class _Cycle:
    """One pod going through one scheduling cycle over all nodes."""

    def __init__(self, cluster: _Cluster, pod: Pod) -> None:
        self.cluster = cluster
        self.pod = pod
        self.request = Request.of(pod, cluster.scheduler)
        self.outcome: dict[str, Any] = {"preFilter": _status(self.request.status)}

    def run(self) -> dict[str, Any]:
        if not self.request.status.success:
            return self.outcome
        if self.cluster.devices:
            self.outcome["devicePreFilter"] = _status(self.request.device_status)
            if not self.request.device_status.success and self.request.device_status.reasons:
                return self.outcome
        nodes = self.outcome["nodes"] = {}
        feasible: list[tuple[int, Candidate]] = []
        for name, node in self.cluster.nodes.items():
            candidate = Candidate(node, self.request)
            nodes[name] = {}
            try:
                self._judge(candidate, nodes[name])
            except SchedulerCrash:
                return self._crash("filter")
            if "score" in nodes[name]:
                feasible.append((nodes[name]["score"], candidate))
        if feasible:
            best = max(score for score, _ in feasible)
            try:
                self._reserve(next(candidate for score, candidate in feasible if score == best))
            except SchedulerCrash:
                return self._crash("reserve")
        return self.outcome

    def _crash(self, stage: str) -> dict[str, Any]:
        self.cluster.over = True
        return {**self.outcome, "panic": stage}

    def _judge(self, candidate: Candidate, told: dict[str, Any]) -> None:
        """Filter and Score of one node."""
        told["policy"] = "mismatch" if candidate.policy is None else str(candidate.policy)
        try:
            told["cpuBind"] = bound_there(candidate.node, self.request)
        except Rejected:
            told["cpuBind"] = False
        if candidate.policy and 0 < len(candidate.node.host.zones) <= _MOST_LISTED:
            self._hints(candidate, told)
        filtered = candidate.filter()
        told["filter"] = _status(filtered)
        if candidate.affinity is not None:
            told["affinity"] = _hint(candidate.affinity)
        if not filtered.success:
            return
        if self.cluster.devices and self.request.devices is not None:
            filtered = candidate.device_filter()
            told["deviceFilter"] = _status(filtered)
            if not filtered.success:
                return
        told["score"] = candidate.score()

    def _hints(self, candidate: Candidate, told: dict[str, Any]) -> None:
        try:
            if hints := candidate.hints():
                told["hints"] = _listed(hints)
        except Rejected as rejected:
            told["hintsStatus"] = _status(rejected.status)
        if not self.cluster.devices:
            return
        try:
            if device_hints := candidate.device_hints():
                told["deviceHints"] = _listed(device_hints)
        except Rejected as rejected:
            told["deviceHintsStatus"] = _status(rejected.status)

    def _reserve(self, candidate: Candidate) -> None:
        name = candidate.node.name
        outcome = self.outcome
        outcome["chosen"] = name
        reserved, grant = candidate.reserve()
        outcome["reserve"] = _status(reserved)
        if candidate.affinity is not None:
            outcome["affinity"] = _hint(candidate.affinity)
        if not reserved.success:
            return
        device_status, devices = candidate.device_reserve()
        if self.cluster.devices and self.request.devices is not None:
            outcome["deviceReserve"] = _status(device_status)
        if not device_status.success:
            self.cluster.nodes[name] = candidate.node_after_unreserve(grant)
            return
        self.cluster.nodes[name] = candidate.node_with_pod(grant, devices)
        self.cluster.places[self.pod.uid] = name
        if grant is not None:
            outcome.update(_grant(grant))
        if devices:
            outcome["devices"] = {
                type_: [
                    {"minor": minor, "resources": scheduler_counts(given)} for minor, given in sorted(parts)
                ]
                for type_, parts in devices.items()
            }
        spec = candidate.resource_spec()
        if spec is not None:
            outcome["resourceSpec"] = spec.json()
        outcome["state"] = self.cluster.state()


def _node(description: Mapping[str, Any], scheduler: Scheduler) -> Node:
    metadata = {key: description.get(key) or {} for key in ("labels", "annotations")}
    node = {
        "metadata": {"name": description["name"], **metadata},
        "status": {"allocatable": description.get("allocatable") or {}},
    }
    nrt = device = None
    if description.get("nrt") is not None:
        nrt = _nrt(description["nrt"])
    if "devices" in description:
        device = {"spec": {"devices": description["devices"] or []}}
    return Node.read(node, nrt, device, scheduler=scheduler)


def _nrt(description: Mapping[str, Any]) -> dict[str, Any]:
    zones = [
        {
            "name": zone["name"],
            "type": zone["type"],
            "resources": [
                {"name": name, "allocatable": amount}
                for name, amount in (zone.get("allocatable") or {}).items()
            ],
        }
        for zone in description.get("zones") or ()
    ]
    return {
        "metadata": {"annotations": description.get("annotations") or {}},
        "topologyPolicies": description.get("topologyPolicies") or [],
        "zones": zones,
    }


def _status(status: Status) -> dict[str, Any]:
    told: dict[str, Any] = {"code": str(status.code)}
    if status.reasons:
        told["reasons"] = list(status.reasons)
    return told


def _hint(hint: Hint) -> dict[str, Any]:
    told: dict[str, Any] = {
        "numa": None if hint.numas is None else list(cpuset.ids(hint.numas)),
        "preferred": hint.preferred,
        "score": hint.score,
    }
    if hint.unsatisfied:
        told["unsatisfied"] = True
    return told


def _listed(hints: Hints) -> dict[str, Any]:
    return {name: [_hint(hint) for hint in offered] for name, offered in hints.items()}


def _grant(grant: Grant) -> dict[str, Any]:
    told: dict[str, Any] = {"cpuset": cpuset.format(grant.cpus)}
    if grant.numa_resources:
        told["numaNodeResources"] = [
            {"numa": numa, "resources": scheduler_counts(given)} for numa, given in grant.numa_resources
        ]
    return told
