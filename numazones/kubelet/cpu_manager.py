"""The CPU Manager, policies none and static: reserved CPUs, hints, exclusive assignments.

Rules: ``cpumanager/policy_static`` and ``policy_options`` of kubelet 1.36. The default (shared) set
includes the reserved CPUs unless strict-cpu-reservation or OpenShift's workload partitioning keeps them
apart. Init containers' CPUs are handed on
to later containers of the pod but stay recorded until the pod is removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet import cures, effort, go
from numazones.kubelet.config import (
    SINGLE_NUMA_NODE,
    InvalidConfiguration,
    KubeletConfiguration,
    option_unavailable,
)
from numazones.kubelet.cpu_distribution import take
from numazones.kubelet.cpu_packing import PackingStrategy
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.hints import ResourceHints, masks_of_size, unsatisfiable
from numazones.kubelet.rejection import SMT_ALIGNMENT, Rejection
from numazones.kubelet.versions import (
    ALIGN_BY_SOCKET,
    COMBINATIONS_COPIED,
    CORES_IN_TURN,
    CPU_ALPHA_OPTIONS,
    CPU_BETA_OPTIONS,
    DISTRIBUTE_ACROSS_CORES,
    DISTRIBUTE_ACROSS_NUMA,
    DISTRIBUTION_ENDS,
    DISTRIBUTION_KEEPS_WIDTH,
    DISTRIBUTION_KNOWS_SOCKETS,
    EXCLUSIVE_CPU_OPTIONS,
    FULL_PCPUS_ONLY,
    POD_CPUS_KEPT,
    PREFER_ALIGN_BY_UNCORE_CACHE,
    STRICT_CPU_RESERVATION,
)

STATIC = "static"
NONE = "none"

Assignments = Mapping[str, Mapping[str, CPUSet]]
"""Pod uid → container → exclusive CPUs."""


class CPUState(NamedTuple):
    """The CPU Manager's state: the shared set and the exclusive sets."""

    default: CPUSet = 0
    assignments: Assignments = MappingProxyType({})
    pods: Mapping[str, CPUSet] = MappingProxyType({})
    """Pod uid → CPUs of a pod that is served as a whole; its containers' sets are parts of it."""

    def held_by(self, uid: str) -> CPUSet:
        """Return the CPUs that the containers of a pod have exclusively; those handed on count once."""
        return cpuset.union(self.assignments.get(uid, {}).values())

    def exclusive_cpus(self) -> CPUSet:
        """Return all CPUs that some container or pod has exclusively."""
        return cpuset.union(
            (*(cpus for held in self.assignments.values() for cpus in held.values()), *self.pods.values())
        )

    def exclusive_cpus_by_pod(self) -> dict[str, CPUSet]:
        """Return pod uid → all CPUs that it has exclusively."""
        uids = (*self.assignments, *self.pods)
        return {uid: self.held_by(uid) | self.pods.get(uid, 0) for uid in uids}

    def assign(self, uid: str, container: str, cpus: CPUSet) -> "CPUState":
        """Record exclusive CPUs and take them out of the shared set."""
        containers = {**self.assignments.get(uid, {}), container: cpus}
        return CPUState(self.default & ~cpus, {**self.assignments, uid: containers}, self.pods)

    def assign_pod(self, uid: str, cpus: CPUSet) -> "CPUState":
        """Record the CPUs of a pod as a whole and take them out of the shared set."""
        return CPUState(self.default & ~cpus, self.assignments, {**self.pods, uid: cpus})

    def divide(self, uid: str, parts: Mapping[str, CPUSet]) -> "CPUState":
        """Record how the CPUs of a pod as a whole are used by its containers."""
        return CPUState(self.default, {**self.assignments, uid: dict(parts)}, self.pods)

    def remove(self, uid: str) -> "CPUState":
        """Forget a pod; its CPUs return to the shared set.

        CPUs of a pod as a whole return with its last container; if their division failed, never.
        """
        if uid not in self.assignments:
            return self
        assignments, pods = dict(self.assignments), self.pods
        containers = assignments.pop(uid)
        if uid in pods:
            pods = {other: cpus for other, cpus in pods.items() if other != uid}
            return CPUState(self.default | self.pods[uid], assignments, pods)
        return CPUState(self.default | cpuset.union(containers.values()), assignments, pods)


@dataclass(frozen=True, slots=True)
class CPUManager:
    """Values that the CPU Manager derives from configuration and machine when the kubelet starts."""

    topology: CPUTopology
    static: bool = False
    reserved: CPUSet = 0
    reserved_physical: CPUSet = 0
    """The reserved CPUs and their core siblings."""
    strategy: PackingStrategy = field(default_factory=PackingStrategy)
    full_cores_only: bool = False
    align_by_socket: bool = False
    keeps_reserved_apart: bool = False
    """Whether reserved CPUs are not in the shared set."""
    strict_reservation: bool = False
    """Whether that is so by the option strict-cpu-reservation."""
    tells_smt_cause: bool = True
    """Missing cores are told as such even where none is left."""
    keeps_pods: bool = False
    """A pod served as a whole that is admitted again keeps its CPUs, since 1.38; before, it gets others."""

    @classmethod
    def start(cls, config: KubeletConfiguration, topology: CPUTopology) -> "CPUManager":
        """Set the policy up.

        Raises:
            InvalidConfiguration: as the kubelet rejects it.
        """
        if config.cpu_manager_policy == NONE:
            if config.cpu_manager_policy_options:
                options = go.format_map(config.cpu_manager_policy_options)
                raise InvalidConfiguration(
                    f"new none policy error: None policy: received unsupported options={options}"
                )
            return cls(topology)
        if config.cpu_manager_policy != STATIC:
            raise InvalidConfiguration(f'unknown policy: "{config.cpu_manager_policy}"')
        reserved = go.parse_cpu_list(config.reserved_system_cpus)
        count = reserved.bit_count() or config.reserved_cpu.value()
        if count == 0:
            raise InvalidConfiguration(
                "[cpumanager] unable to determine reserved CPU resources for static policy",
                cure=cures.RESERVED_CPUS,
            )
        try:
            return _static(config, topology, reserved=reserved, count=count)
        except InvalidConfiguration as error:
            raise InvalidConfiguration(f"new static policy error: {error}", cure=error.cure) from error

    def initial_state(self) -> CPUState:
        """Return the state of a node without pods."""
        if not self.static:
            return CPUState()
        shared = self.topology.all_cpus
        return CPUState(shared & ~self.reserved if self.keeps_reserved_apart else shared)

    def available(self, state: CPUState) -> CPUSet:
        """Return the CPUs that may still be given exclusively."""
        return state.default & ~self.reserved

    def allocatable(self) -> CPUSet:
        """Return the CPUs that may be given exclusively on an empty node."""
        return self.topology.all_cpus & ~self.reserved if self.static else 0

    def container_hints(
        self, state: CPUState, uid: str, container: str, request: int, reusable: CPUSet
    ) -> ResourceHints:
        """Return hints for a container's exclusive CPUs; ``request`` is positive."""
        recorded = state.assignments.get(uid, {}).get(container)
        if recorded is None:
            return self._hints(self.available(state), reusable, request)
        if recorded.bit_count() != request:
            return unsatisfiable("cpu")
        return self._hints(recorded, 0, request)

    def pod_hints(
        self, state: CPUState, uid: str, requests: Mapping[str, int], total: int, reusable: CPUSet
    ) -> ResourceHints:
        """Return hints for all exclusive CPUs of a pod; ``requests`` are those of its containers."""
        union = 0
        for container, cpus in state.assignments.get(uid, {}).items():
            if container in requests:
                if cpus.bit_count() != requests[container]:
                    return unsatisfiable("cpu")
                union |= cpus
        if union.bit_count() == total:
            return self._hints(union, 0, total)
        return self._hints(self.available(state), reusable | union, total)

    def allocate(
        self,
        state: CPUState,
        uid: str,
        container: str,
        *,
        request: int,
        affinity: int | None,
        reusable: CPUSet,
    ) -> CPUState:
        """Give a container its exclusive CPUs.

        Raises:
            Rejection: they cannot be had.
            KubeletHang: the kubelet would search for ever.
        """
        if self.full_cores_only:
            self._check_cores(state, request)
        if container in state.assignments.get(uid, {}):
            return state
        return state.assign(uid, container, self._choose(state, request, affinity, reusable))

    def allocate_pod(self, state: CPUState, uid: str, *, request: int, affinity: int | None) -> CPUState:
        """Give a pod that is served as a whole its CPUs, undivided.

        Raises:
            Rejection: they cannot be had.
            KubeletHang: the kubelet would search for ever.
        """
        if self.full_cores_only:
            self._check_cores(state, request)
        return state.assign_pod(uid, self._choose(state, request, affinity, 0))

    def _choose(self, state: CPUState, request: int, affinity: int | None, reusable: CPUSet) -> CPUSet:
        """Choose CPUs for a request, those of the affinity first."""
        allocatable = self.available(state) | reusable
        taken = 0
        if affinity is not None:
            aligned = allocatable & self._aligned_to(affinity)
            taken = take(
                self.topology,
                self.strategy,
                aligned,
                min(request, aligned.bit_count()),
                width=affinity.bit_count(),
            )
            if taken.bit_count() == request:
                return taken
        return taken | take(self.topology, self.strategy, allocatable & ~taken, request - taken.bit_count())

    def offer(self, state: CPUState, numa_mask: int, reusable: CPUSet) -> int:
        """Return how many CPUs NUMA nodes could give now; reusable ones count if none lies elsewhere."""
        inside = self.topology.cpus_in(numa_mask)
        free = (self.available(state) & inside).bit_count()
        return free if reusable & ~inside else free + reusable.bit_count()

    def capacity(self, numa_mask: int) -> int:
        """Return how many CPUs NUMA nodes could give exclusively on an empty node."""
        return (self.allocatable() & self.topology.cpus_in(numa_mask)).bit_count()

    def _check_cores(self, state: CPUState, request: int) -> None:
        per_core = self.topology.cpus_per_core
        free = (state.default & ~self.reserved_physical).bit_count()
        untold = free == 0 and not self.tells_smt_cause
        if request % per_core or untold:
            raise Rejection(
                f"SMT Alignment Error: requested {request} cpus not multiple cpus per core = {per_core}",
                reason=SMT_ALIGNMENT,
            )
        if request > free:
            raise Rejection(
                f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, "
                f"requested CPUs = {request}, CPUs per core = {per_core}",
                reason=SMT_ALIGNMENT,
            )

    def _aligned_to(self, affinity: int) -> CPUSet:
        topology = self.topology
        cpus = topology.cpus_in(affinity)
        if not self.align_by_socket:
            return cpus
        return cpuset.union(members for members in topology.sockets.values() if members & cpus)

    def _hints(self, available: CPUSet, reusable: CPUSet, request: int) -> ResourceHints:
        topology = self.topology
        nodes = len(topology.numas)
        effort.check_cpu_walk(nodes, topology.all_cpus.bit_count())
        missing = request - reusable.bit_count()
        if missing > available.bit_count():
            return ResourceHints("cpu")  # all NUMA nodes together have too few
        fewest = topology.fewest_numas(request)
        reused = topology.numas_of(reusable) if reusable else 0
        free = [(cpus & available).bit_count() for _, cpus in topology.numas]

        def feasible(size: int) -> tuple[int, ...]:
            return tuple(
                [
                    mask
                    for mask, positions in masks_of_size(topology.numa_mask, size)
                    if reused & ~mask == 0 and sum([free[position] for position in positions]) >= missing
                ]
            )

        def others() -> tuple[int, ...]:
            # No set of fewer NUMA nodes will do, busy or not.
            return tuple([mask for size in range(fewest + 1, nodes + 1) for mask in feasible(size)])

        narrowest = feasible(fewest)
        if not self.align_by_socket:
            return ResourceHints("cpu", narrowest, others, nodes=nodes)
        wider = others()
        aligned = tuple(mask for mask in wider if self._is_socket_aligned(mask, fewest))
        return ResourceHints(
            "cpu",
            narrowest + aligned,
            lambda: tuple(mask for mask in wider if mask not in aligned),
            nodes=nodes,
        )

    def _is_socket_aligned(self, mask: int, fewest: int) -> bool:
        topology = self.topology
        # At least 1: the kubelet does not start with more sockets than NUMA nodes.
        per_socket = len(topology.numas) // len(topology.sockets)
        return topology.socket_count(mask) == -(-fewest // per_socket)


def _static(
    config: KubeletConfiguration, topology: CPUTopology, *, reserved: CPUSet, count: int
) -> CPUManager:
    options = _options(config)
    if ALIGN_BY_SOCKET in options:
        if config.topology_manager_policy == SINGLE_NUMA_NODE:
            raise InvalidConfiguration(
                "Topolgy manager single-numa-node policy is incompatible "
                "with CPUManager align-by-socket policy option"
            )
        if len(topology.sockets) > len(topology.numas):
            raise InvalidConfiguration(
                "Align by socket is not compatible with hardware where "
                "number of sockets are more than number of NUMA"
            )
    full_cores_only = FULL_PCPUS_ONLY in options
    strategy = PackingStrategy(
        spread=DISTRIBUTE_ACROSS_CORES in options,
        distributed=DISTRIBUTE_ACROSS_NUMA in options,
        group=topology.cpus_per_core if full_cores_only else 1,
        align_uncore_caches=PREFER_ALIGN_BY_UNCORE_CACHE in options,
        rounds_up_uncore_cache_rest=config.release.rounds_up_uncore_cache_rest,
        prefers_one_socket=ALIGN_BY_SOCKET in options and config.release.follows(DISTRIBUTION_KNOWS_SOCKETS),
        keeps_width=config.release.follows(DISTRIBUTION_KEEPS_WIDTH),
        counts_whole_groups=config.release.follows(DISTRIBUTION_ENDS),
        copies_combinations=config.release.follows(COMBINATIONS_COPIED),
        takes_cores_in_turn=config.release.follows(CORES_IN_TURN),
    )
    if not reserved:
        try:
            reserved = take(topology, strategy, topology.all_cpus, count)
        except Rejection as rejection:  # the kubelet goes on with an empty set, and names it
            raise InvalidConfiguration(
                f"[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal {count})"
            ) from rejection
    return CPUManager(
        topology,
        static=True,
        reserved=reserved,
        reserved_physical=cpuset.union(cpus for cpus in topology.cores.values() if cpus & reserved),
        strategy=strategy,
        full_cores_only=full_cores_only,
        align_by_socket=ALIGN_BY_SOCKET in options,
        keeps_reserved_apart=config.workload_partitioning or STRICT_CPU_RESERVATION in options,
        strict_reservation=STRICT_CPU_RESERVATION in options,
        tells_smt_cause=config.release.tells_smt_cause,
        keeps_pods=config.release.follows(POD_CPUS_KEPT),
    )


def _options(config: KubeletConfiguration) -> set[str]:
    """Return the options that are on."""
    known = config.release.cpu_options
    alpha, beta = config.gate(CPU_ALPHA_OPTIONS), config.gate(CPU_BETA_OPTIONS)
    options: set[str] = set()
    for name, value in config.cpu_manager_policy_options:
        if name not in known:
            raise InvalidConfiguration(
                f"unknown CPU Manager Policy option: {go.quote(name)}", cure=cures.known_option(name, known)
            )
        hidden = option_unavailable(known[name], alpha=alpha, beta=beta)
        if hidden is not None:
            raise InvalidConfiguration(
                f"CPU Manager Policy {hidden.value.capitalize()}-level Options not enabled, "
                f"but option {go.quote(name)} provided"
            )
        try:
            if go.parse_bool(value):
                options.add(name)
        except ValueError as error:
            raise InvalidConfiguration(f"bad value for option {go.quote(name)}: {error}") from error
    for first, second in EXCLUSIVE_CPU_OPTIONS:
        if first in options and second in options:
            raise InvalidConfiguration(
                f"static policy options {first} and {second} can not be used at the same time"
            )
    return options
