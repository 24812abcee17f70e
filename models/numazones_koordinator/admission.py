"""koord-scheduler's decision about a pod and a node: ``admit(node, pod)`` and ``remove(node, uid)``.

It is that of one scheduling cycle with this node as the only candidate: PreFilter, Filter, Score and
Reserve of NodeNUMAResource and DeviceShare, and what PreBind writes on the pod. Other plugins, such as
the ordinary fit of a pod's requests, are not asked; they have their say before.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.pod import Pod
from numazones_koordinator.amounts import format_amounts
from numazones_koordinator.annotations import (
    DEVICE_ALLOCATED,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    NUMAResources,
    ResourceSpec,
)
from numazones_koordinator.cycle import Candidate
from numazones_koordinator.device_books import DeviceAllocation
from numazones_koordinator.node import Node
from numazones_koordinator.request import Request
from numazones_koordinator.status import SUCCESS, Code, Status
from numazones_koordinator.topology_manager import Hint
from numazones_koordinator.trial import Grant


class Stage(StrEnum):
    """Stage of the scheduling cycle that rejected a pod."""

    PRE_FILTER = "PreFilter"
    FILTER = "Filter"
    RESERVE = "Reserve"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision that is the same on every node in the same state."""

    status: Status
    stage: Stage | None = None
    """Of a rejection; None if admitted."""
    policy: str | None = ""
    """The effective topology policy; None: the pod's and the node's don't go together."""
    affinity: Hint | None = None
    """The NUMA nodes that the topology manager settled on; None: it was not asked."""
    score: int | None = None
    """Raw node score of NodeNUMAResource, where Filter let the pod pass."""
    grant: Grant | None = None
    """None: the plugin gives nothing, and writes nothing on the pod."""
    devices: DeviceAllocation = field(default_factory=dict)
    spec: ResourceSpec | None = None
    """What PreBind makes of the pod's ``resource-spec``; None: it stays as it is."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about one pod on one node."""

    outcome: Outcome
    request: Request = field(repr=False)
    before: Node = field(repr=False)
    """The node decided on."""

    @property
    def pod(self) -> Pod:
        """The pod decided about."""
        return self.request.pod

    @property
    def admitted(self) -> bool:
        """Return whether the pod can be placed there."""
        return self.outcome.stage is None

    @property
    def reason(self) -> str:
        """Return the status code of a rejection, such as Unschedulable; empty if admitted."""
        return "" if self.admitted else str(self.outcome.status.code)

    @property
    def message(self) -> str:
        """Return the scheduler's reasons for a rejection; empty if admitted."""
        return self.outcome.status.message

    @property
    def cpus(self) -> CPUSet:
        """The pod's CPU set; 0: none, it runs in the shared pool."""
        return 0 if self.outcome.grant is None else self.outcome.grant.cpus

    @property
    def numa_resources(self) -> NUMAResources:
        """(NUMA id, amounts) that are recorded for the pod."""
        return () if self.outcome.grant is None else self.outcome.grant.numa_resources

    @property
    def devices(self) -> DeviceAllocation:
        """Device type → (minor, amounts)."""
        return self.outcome.devices

    @property
    def node(self) -> Node:
        """The node afterwards, computed on first use."""
        candidate = Candidate(self.before, self.request)
        candidate.affinity = self.outcome.affinity
        if self.admitted:
            return candidate.node_with_pod(self.outcome.grant, self.outcome.devices)
        return candidate.node_after_unreserve(self.outcome.grant)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the annotations that the scheduler writes on the pod before binding; empty if rejected."""
        outcome, before = self.outcome, self.before
        if not self.admitted:
            return {}
        told = {}
        if outcome.grant is not None:
            told[RESOURCE_STATUS] = _resource_status(outcome.grant)
        if outcome.spec is not None:
            told[RESOURCE_SPEC] = outcome.spec.json()
        if outcome.devices:
            told[DEVICE_ALLOCATED] = _device_allocated(before, outcome.devices)
        return told


def admit(node: Node, pod: Pod) -> Admission:
    """Decide on a pod.

    Raises:
        SchedulerCrash: the scheduler would not decide.
        UnmodelledFeature: the verdict depends on what is not modelled.
    """
    request = Request.of(pod, node.host.scheduler)
    return Admission(decide(node, request), request, node)


def admit_each(nodes: Iterable[Node], pod: Pod) -> Iterator[Admission]:
    """Decide on a pod for each of many nodes; nodes in the same state are decided on once.

    Raises:
        SchedulerCrash, UnmodelledFeature: as ``admit``.
    """
    requests: dict[int, Request] = {}
    outcomes: dict[object, Outcome] = {}
    for node in nodes:
        scheduler = node.host.scheduler
        request = requests.get(id(scheduler))
        if request is None:
            request = requests[id(scheduler)] = Request.of(pod, scheduler)
        key = node.state_key
        outcome = outcomes.get(key)
        if outcome is None:
            outcome = outcomes[key] = decide(node, request)
        yield Admission(outcome, request, node)


def remove(node: Node, uid: str) -> Node:
    """Return the node after a pod ended or was deleted; unknown pods change nothing."""
    return node.remove(uid)


def decide(node: Node, request: Request) -> Outcome:
    """Run one scheduling cycle.

    Raises:
        SchedulerCrash, UnmodelledFeature: as ``admit``.
    """
    for read in (request.status, request.device_status):
        if not read.success and read.code is not Code.SKIP:
            return Outcome(read, Stage.PRE_FILTER)
    if request.status.code is Code.SKIP:
        return Outcome(SUCCESS)
    candidate = Candidate(node, request)
    for stage in (candidate.filter, candidate.device_filter):
        status = stage()
        if not status.success:
            return Outcome(status, Stage.FILTER, candidate.policy, candidate.affinity)
    score = candidate.score()
    status, grant = candidate.reserve()
    devices: DeviceAllocation = {}
    if status.success:
        status, devices = candidate.device_reserve()
    stage_ = None if status.success else Stage.RESERVE
    return Outcome(
        status=status,
        stage=stage_,
        policy=candidate.policy,
        affinity=candidate.affinity,
        score=score,
        grant=grant,
        devices=devices,
        spec=candidate.resource_spec() if status.success and grant is not None else None,
    )


def _resource_status(grant: Grant) -> str:
    status: dict[str, object] = {}
    if grant.cpus:
        status["cpuset"] = cpuset.format(grant.cpus)
    if grant.numa_resources:
        status["numaNodeResources"] = [
            {"node": numa, "resources": format_amounts(resources)} for numa, resources in grant.numa_resources
        ]
    return json.dumps(status, separators=(",", ":"))


def _device_allocated(node: Node, given: DeviceAllocation) -> str:
    inventory = node.host.inventory
    ids = (
        {} if inventory is None else {(device.type, device.minor): device.id for device in inventory.devices}
    )
    return json.dumps(
        {
            type_: [
                {"minor": minor, "resources": format_amounts(resources), "id": ids.get((type_, minor), "")}
                for minor, resources in parts
            ]
            for type_, parts in sorted(given.items())
        },
        separators=(",", ":"),
    )
