"""One node in the scheduling cycle of one pod: Filter, Score and Reserve of both plugins, stage by stage.

Rules: ``nodenumaresource/{plugin,topology_hint,scoring}``, ``deviceshare/plugin`` and the topology
manager's ``Admit``. PreFilter is the ``Request``; ``admission`` runs the stages in order.
"""

from numazones.apimachinery.resources import CPU
from numazones.errors import UnmodelledFeature
from numazones_koordinator.amounts import Counted, scheduler_counts
from numazones_koordinator.annotations import (
    GPU_ISOLATION_PROVIDER,
    NODE_GPU_MODEL,
    NODE_GPU_PARTITION_POLICY,
    NODE_GPU_VENDOR,
    CPUBindPolicy,
    ResourceSpec,
    TopologyPolicy,
)
from numazones_koordinator.books import Allocation
from numazones_koordinator.device_books import DeviceAllocation, give, with_memory
from numazones_koordinator.device_inventory import GPU
from numazones_koordinator.device_request import DeviceRequest
from numazones_koordinator.hints import NUMAHints, device_hints
from numazones_koordinator.host import amplify
from numazones_koordinator.node import Node, merged_policy, valid_topology
from numazones_koordinator.request import Request
from numazones_koordinator.scoring import score
from numazones_koordinator.status import (
    SUCCESS,
    Code,
    Rejected,
    Status,
    status,
    unresolvable,
    unschedulable,
)
from numazones_koordinator.topology_manager import Exclusivity, Hint, Hints, Merging, exclusivity
from numazones_koordinator.trial import INVALID_TOPOLOGY, Grant, Trials, bound_there

NOT_MATCHING = "node(s) NUMA Topology policy not match"
MISSING_RESOURCES = "node(s) missing NUMA resources"
SMT_ALIGNMENT = "node(s) requested cpus not multiple cpus per core"
BIND_POLICY_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
INVALID_RATIO = "node(s) invalid CPU amplification ratio"
INSUFFICIENT_AMPLIFIED = "Insufficient amplified cpu"
_HOPPER = frozenset({"H100", "H800", "H20"})


class Candidate:
    """One node in the cycle of one pod; the stages are to be run in the scheduler's order."""

    def __init__(self, node: Node, request: Request) -> None:
        self.node = node
        self.request = request
        self.policy = merged_policy(node.host.topology_policy, request.numa.policy)
        """The effective policy; None: the pod's and the node's don't go together."""
        self.affinity: Hint | None = None
        """What the topology manager stored."""
        self._trials: Trials | None = None

    @property
    def trials(self) -> Trials:
        """All trials of the pod on the node."""
        if self._trials is None:
            self._trials = Trials(self.node, self.request)
        return self._trials

    @property
    def numas(self) -> int | None:
        """The stored set of NUMA nodes."""
        return None if self.affinity is None else self.affinity.numas

    # Filter.

    def filter(self) -> Status:
        """Run Filter of NodeNUMAResource."""
        try:
            self._filter()
        except Rejected as rejected:
            return rejected.status
        return SUCCESS

    def _filter(self) -> None:
        host, request = self.node.host, self.request
        if self.policy is None:
            raise unresolvable(NOT_MATCHING)
        bound = bound_there(self.node, request)
        self._check_amplified(bound=bound)
        if bound:
            required = self._check_binding()
            if required and self.policy == TopologyPolicy.NONE:
                if host.ratio_error:
                    raise unresolvable(host.ratio_error)
                self.trials.on(None)
                return
        if self.policy not in {TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT}:
            self._align()

    def _check_amplified(self, *, bound: bool) -> None:
        """Check the ordinary fit again on amplified nodes, with CPU sets amplified."""
        host, asked = self.node.host, self.request.cpu_milli
        if not asked:
            return
        if host.node_ratio is None:
            raise unresolvable(INVALID_RATIO)
        if host.node_ratio <= 1:
            return
        if bound:
            asked = amplify(asked, host.node_ratio)
        if host.topology is not None and not host.topology.valid:
            raise unresolvable(INVALID_TOPOLOGY)
        exclusive = self.node.used_cpus.bit_count() * 1000
        requested = self.node.requested.get(CPU, 0)
        if requested >= exclusive > 0:
            requested += amplify(exclusive, host.node_ratio) - exclusive
        if asked > host.allocatable.get(CPU, 0) - requested:
            raise unschedulable(INSUFFICIENT_AMPLIFIED)

    def _check_binding(self) -> bool:
        """Return whether the pod's CPUs require a bind policy."""
        host, request = self.node.host, self.request
        topology = host.topology
        if topology is None or not topology.valid:
            raise unresolvable(INVALID_TOPOLOGY)
        required = host.required_bind_policy or request.required_bind_policy
        if request.required_bind_policy and request.required_bind_policy != required:
            raise unresolvable(BIND_POLICY_CONFLICT)
        if required == CPUBindPolicy.FULL_PCPUS and request.cpus % topology.per_core:
            raise unresolvable(SMT_ALIGNMENT)
        return bool(required)

    def _align(self) -> None:
        """Find the set of NUMA nodes, and try it."""
        host = self.node.host
        if not host.zones:
            raise unresolvable(MISSING_RESOURCES)
        affinity = self._best()
        if host.ratio_error:
            raise unresolvable(host.ratio_error)
        self.trials.on(affinity.numas)
        if self.node.devices is not None and self.request.devices is not None:
            give(self.node.devices, self.request.devices, numas=affinity.numas)
        self.affinity = affinity

    def _best(self) -> Hint:
        """Return the best set of NUMA nodes by the hints of both plugins; one that fails gives the reason."""
        failures = []
        hints: NUMAHints | None = None
        devices: Hints | None = None
        try:
            one_only = self.policy == TopologyPolicy.SINGLE_NUMA_NODE
            hints = NUMAHints(self.trials, self.policy or "", scored=1 if one_only else None)
        except Rejected as rejected:
            failures.append(rejected.status.message)
        try:
            devices = self.device_hints()
        except Rejected as rejected:
            failures.append(rejected.status.message)
        if hints is None or failures:
            raise Rejected(status(Code.UNSCHEDULABLE, failures))
        merging = Merging(
            policy=self.policy or "", numa_ids=self.node.host.numa_ids, exclusive=self._exclusivity()
        )
        for smaller in hints.growing():
            best = merging.preferred_hint([smaller, devices])
            if best is not None:
                return best
        return merging.best([hints.all(), devices])

    def hints(self) -> Hints:
        """Return the hints of NodeNUMAResource.

        Raises:
            Rejected: it can't tell.
        """
        bound_there(self.node, self.request)
        return NUMAHints(self.trials, self.policy or "").all()

    def device_hints(self) -> Hints | None:
        """Return the hints of DeviceShare; None: it takes no part.

        Raises:
            Rejected: there are not enough devices.
        """
        if self.node.devices is None or self.request.devices is None:
            return None
        check_modelled(self.node, self.request.devices)
        return device_hints(self.node.devices, self.request.devices)

    def _exclusivity(self) -> Exclusivity:
        count = len(self.node.host.zones)
        return exclusivity(self.request.exclusive, (self.node.use(numa) for numa in range(count)))

    def device_filter(self) -> Status:
        """Run Filter of DeviceShare."""
        try:
            self._device_filter()
        except Rejected as rejected:
            return rejected.status
        return SUCCESS

    def _device_filter(self) -> None:
        devices = self.request.devices
        if devices is None:
            return
        labels = self.node.host.labels
        if devices.shared_gpu:
            provider = devices.isolation_provider
            if provider and provider != labels.get(GPU_ISOLATION_PROVIDER, ""):
                raise Rejected(Status(Code.ERROR, ("GPUIsolationProviderHAMICore not found on the node",)))
            vendor, model = labels.get(NODE_GPU_VENDOR, ""), labels.get(NODE_GPU_MODEL, "")
            if (vendor, model) in self.node.host.scheduler.unshared_models:
                raise unresolvable(f'model "{model}" of vendor "{vendor}" does not support GPU Share')
        if self.affinity is None and self.node.devices is not None:
            check_modelled(self.node, devices)
            give(self.node.devices, devices, numas=None)

    # Score.

    def score(self) -> int:
        """Return the score of NodeNUMAResource; 0 also where it fails."""
        host = self.node.host
        if host.ratio_error or (self.trials.bound and valid_topology(host) is None):
            return 0
        asked = self.trials.counted
        if self.policy == TopologyPolicy.NONE:
            amplified = self.request.cpu_milli and host.ratio > 1
            if amplified and host.topology is not None and not host.topology.valid:
                return 0
            return score(
                host.scheduler.scoring,
                requested=self._node_requests(),
                capacity=host.allocatable,
                asked=asked,
            )
        try:
            grant = self.trials.on(self.numas)
        except Rejected:
            return 0
        requested, capacity = self._use_of(grant)
        return score(host.scheduler.scoring, requested=requested, capacity=capacity, asked=asked)

    def _node_requests(self) -> Counted:
        """Return what all pods of the node request, CPU sets amplified."""
        node, host = self.node, self.node.host
        if not self.request.cpu_milli or host.ratio <= 1:
            return node.requested
        exclusive = node.used_cpus.bit_count() * 1000
        cpu = node.requested.get(CPU, 0) - exclusive + amplify(exclusive, host.ratio)
        return {**node.requested, CPU: cpu}

    def _use_of(self, grant: Grant) -> tuple[Counted, Counted]:
        """Return what is in use, and what there is, on the NUMA nodes of a grant; without any, on the node.

        Of a bound pod's NUMA nodes the CPUs in use count by the CPU sets of the whole machine.
        """
        node, host = self.node, self.node.host
        requested: Counted = node.requested
        capacity: Counted = host.allocatable
        if grant.numa_resources:
            there = {name: 0 for name, _ in host.scheduler.scoring.weights}
            used = dict(there)
            for numa, _ in grant.numa_resources:
                all_, taken = host.zone_of[numa], node.allocated_amounts(numa) or {}
                for name in there:
                    there[name] += all_.get(name, 0)
                    used[name] += max(0, taken.get(name, 0))
            requested, capacity = scheduler_counts(used), scheduler_counts(there)
        if grant.cpus:
            cpus = amplify(node.used_cpus.bit_count() * 1000, host.ratio)
            requested = {**requested, CPU: cpus}
        return requested, capacity

    # Reserve.

    def reserve(self) -> tuple[Status, Grant | None]:
        """Return what Reserve of NodeNUMAResource gives; None: the plugin does not track the pod."""
        try:
            return SUCCESS, self._reserve()
        except Rejected as rejected:
            return rejected.status, None

    def _reserve(self) -> Grant | None:
        host = self.node.host
        if self.policy == TopologyPolicy.BEST_EFFORT:
            self._align()
        if not self.trials.bound and self.policy == TopologyPolicy.NONE:
            return None
        if self.trials.bound and (host.topology is None or not host.topology.valid):
            raise Rejected(Status(Code.ERROR, (INVALID_TOPOLOGY,)))
        if host.ratio_error:
            raise Rejected(Status(Code.ERROR, (host.ratio_error,)))
        return self.trials.on(self.numas)

    def device_reserve(self) -> tuple[Status, DeviceAllocation]:
        """Return what Reserve of DeviceShare gives."""
        books, devices = self.node.devices, self.request.devices
        if books is None or devices is None:
            return SUCCESS, {}
        try:
            scoring = self.node.host.scheduler.device_scoring
            given = give(books, devices, numas=self.numas, scoring=scoring)
            return SUCCESS, with_memory(books, given)
        except Rejected as rejected:
            return rejected.status, {}

    def node_with_pod(self, grant: Grant | None, devices: DeviceAllocation) -> Node:
        """Return the node with the pod on it."""
        return self.node.place(self.request.pod, self._allocation(grant), devices)

    def node_after_unreserve(self, grant: Grant | None) -> Node:
        """Return the node after NodeNUMAResource reserved and gave back."""
        allocation = self._allocation(grant)
        if allocation is None:
            return self.node
        uid = self.request.pod.uid
        return self.node.record(uid, allocation).remove_record(uid)

    def _allocation(self, grant: Grant | None) -> Allocation | None:
        if grant is None or not (grant.cpus or grant.numa_resources):
            return None
        return Allocation(grant.cpus, grant.numa_resources, self.request.spec.exclusive_policy)

    def resource_spec(self) -> ResourceSpec | None:
        """Return the ``resource-spec`` that PreBind writes on a bound pod; None: it stays as it is."""
        if not self.trials.bound:
            return None
        given, policy = self.request.spec, self.trials.bind_policy
        required, preferred = given.required_bind_policy, given.preferred_bind_policy
        if self.trials.required and required in {"", CPUBindPolicy.DEFAULT}:
            required = policy
        if preferred == CPUBindPolicy.DEFAULT or not (required or preferred):
            preferred = policy
        spec = ResourceSpec(required, preferred, given.exclusive_policy)
        return None if spec == given else spec


def check_modelled(node: Node, devices: DeviceRequest) -> None:
    """Refuse to decide about whole GPUs on nodes that group them in partitions.

    Raises:
        UnmodelledFeature: with the way out.
        Rejected: the node's label wants partitions, and it has none.
    """
    if devices.shared_gpu or GPU not in devices.shares:
        return
    labels = node.host.labels
    vendor, model = labels.get(NODE_GPU_VENDOR, ""), labels.get(NODE_GPU_MODEL, "")
    known = vendor in {"", "nvidia"} and model in _HOPPER
    if known or (node.devices is not None and node.devices.inventory.partitioned):
        raise UnmodelledFeature(
            f"node {node.name} groups its GPUs in partitions, which is not modelled, "
            "so nothing is predicted for pods with whole GPUs there"
        )
    if labels.get(NODE_GPU_PARTITION_POLICY) == "Honor":
        raise unresolvable("node(s) missing GPU Partition Table")
