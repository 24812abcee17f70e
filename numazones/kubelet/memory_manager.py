"""The Memory Manager, policies None and Static: tables per NUMA node, groups, hints, blocks.

Rules: ``memorymanager/policy_static`` of kubelet 1.36 (KEP-1769). A NUMA node is used either alone or
as a member of one group at a time. A block says which nodes it may come from, not how much from
which; the free and reserved amounts per node are kept beside the blocks and cannot be derived from
them, because releasing drains nodes in ascending order whatever they were charged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.resources import MEMORY, hugepage_type
from numazones.kubelet import cures, effort, go
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration, MemoryReservation
from numazones.kubelet.hints import (
    Hint,
    ResourceHints,
    indifferent,
    masks_of_size,
    positions_in,
    unsatisfiable,
)
from numazones.kubelet.kept_memory import in_bytes
from numazones.kubelet.machine import Machine
from numazones.kubelet.machine_state import Block
from numazones.kubelet.rejection import KubeletCrash, Rejection
from numazones.kubelet.versions import POD_MEMORY_KEPT

STATIC = "Static"
NONE = "None"

# Amounts are unsigned 64-bit integers in the kubelet: what is reserved beyond the capacity wraps around.
_U64 = 2**64 - 1

Requests = tuple[tuple[str, int], ...]
"""(type, bytes)"""
Reusable = Mapping[tuple[int, str], int]
"""(NUMA mask, type) → bytes that ordinary init containers of the pod leave to later containers."""
_Columns = Mapping[str, tuple[int, ...]]
"""Type → bytes per NUMA node."""


class MemoryState(NamedTuple):
    """The Memory Manager's state; columns hold one entry per NUMA node, in ascending order of ids."""

    users: tuple[int, ...] = ()
    """Number of memory assignments per NUMA node."""
    groups: tuple[int, ...] = ()
    """Mask of the group each NUMA node is in; its own bit alone if in none."""
    free: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Type → free bytes per NUMA node."""
    reserved: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Type → bytes given to containers, per NUMA node."""
    assignments: Mapping[str, Mapping[str, tuple[Block, ...]]] = MappingProxyType({})
    """Pod uid → container → blocks."""
    pods: Mapping[str, tuple[Block, ...]] = MappingProxyType({})
    """Pod uid → blocks of a pod that is served as a whole; they count, its containers' blocks do not."""

    def record(self, uid: str, container: str, blocks: tuple[Block, ...]) -> "MemoryState":
        """Set a container's blocks."""
        containers = {**self.assignments.get(uid, {}), container: blocks}
        assignments = {**self.assignments, uid: containers}
        return MemoryState(self.users, self.groups, self.free, self.reserved, assignments, self.pods)

    def record_pod(
        self, uid: str, blocks: tuple[Block, ...], parts: Mapping[str, tuple[Block, ...]]
    ) -> "MemoryState":
        """Set the blocks of a pod as a whole, and how its containers use them."""
        return self._replace(
            assignments={**self.assignments, uid: dict(parts)}, pods={**self.pods, uid: blocks}
        )


@dataclass(frozen=True, slots=True)
class MemoryManager:
    """Values that the Memory Manager derives from configuration and machine when the kubelet starts."""

    numa_mask: int
    static: bool = False
    numas: tuple[int, ...] = ()
    capacity: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    """Type → bytes per NUMA node in the hardware; the total for type memory includes hugepages."""
    system_reserved: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    checks_groups: bool = True
    """Groups are looked at once more before memory is taken from several NUMA nodes."""
    unmaskable: tuple[int, ...] = ()
    """Ids of NUMA nodes that the kubelet's sets cannot hold."""
    keeps_pods: bool = False
    """A pod served as a whole keeps its memory if it is admitted again, since 1.38; before, it pays twice."""

    @classmethod
    def start(cls, config: KubeletConfiguration, machine: Machine) -> "MemoryManager":
        """Set the policy up.

        Raises:
            InvalidConfiguration: as the kubelet rejects it.
        """
        policy = config.memory_manager_policy
        if policy == NONE:
            return cls(machine.numa_mask)
        if policy == "BestEffort" and config.release.knows_best_effort_memory:
            raise InvalidConfiguration('policy "BestEffort" is not available for platform "linux"')
        if policy != STATIC:
            raise InvalidConfiguration(f"unknown policy: {go.quote(policy)}")
        _check_reservations(config, machine)
        reserved = _reserved_bytes(config.reserved_memory, machine)
        if not sum(amount for (_, kind), amount in reserved.items() if kind == MEMORY) & _U64:
            raise InvalidConfiguration("[memorymanager] you should specify the system reserved memory")
        manager = cls._static(machine, reserved)
        return replace(
            manager,
            checks_groups=config.release.checks_memory_groups,
            keeps_pods=config.release.follows(POD_MEMORY_KEPT),
        )

    @classmethod
    def _static(cls, machine: Machine, reserved: Mapping[tuple[int, str], int]) -> "MemoryManager":
        nodes = machine.numa_nodes
        pages = {
            node.id: {hugepage_type(size): number * size * 1024 for size, number in node.hugepages}
            for node in nodes
        }
        totals = {node.id: {**pages[node.id], MEMORY: node.memory} for node in nodes}
        # A type that some NUMA node lacks has no complete table; asking for it crashes the kubelet.
        kinds = sorted(set.intersection(*map(set, totals.values())))

        def allocatable(numa: int, kind: str) -> int:
            hugepages = sum(pages[numa].values()) if kind == MEMORY else 0
            return (totals[numa][kind] - reserved.get((numa, kind), 0) - hugepages) & _U64

        return cls(
            numa_mask=machine.numa_mask,
            static=True,
            numas=tuple(totals),
            capacity={kind: tuple(totals[numa][kind] for numa in totals) for kind in kinds},
            system_reserved={kind: tuple(reserved.get((numa, kind), 0) for numa in totals) for kind in kinds},
            allocatable={kind: tuple(allocatable(numa, kind) for numa in totals) for kind in kinds},
            unmaskable=machine.unmaskable,
        )

    def initial_state(self) -> MemoryState:
        """Return the state of a node without pods."""
        if not self.static:
            return MemoryState()
        return MemoryState(
            users=(0,) * len(self.numas),
            groups=tuple(1 << numa for numa in self.numas),
            free=self.allocatable,
            reserved={kind: (0,) * len(self.numas) for kind in self.allocatable},
        )

    def container_hints(
        self, state: MemoryState, uid: str, container: str, requests: Requests, reusable: Reusable
    ) -> tuple[ResourceHints, ...]:
        """Return hints for a container of a Guaranteed pod, one list per type."""
        blocks = state.assignments.get(uid, {}).get(container)
        if blocks is not None:
            return _regenerated_hints(blocks, requests)
        return self._per_type(state, requests, reusable)

    def pod_hints(
        self, state: MemoryState, uid: str, containers: Iterable[str], total: Requests
    ) -> tuple[ResourceHints, ...]:
        """Return hints for a Guaranteed pod as a whole.

        If one of its containers has blocks already, the first such container's blocks are compared
        with the pod's total, as the kubelet does it; since 1.38 those of a pod served as a whole are.
        """
        recorded = state.assignments.get(uid, {})
        if self.keeps_pods and total and uid in state.pods:
            return _regenerated_hints(state.pods[uid], total)
        for container in containers:
            if container in recorded and total:
                return _regenerated_hints(recorded[container], total)
        return self._per_type(state, total, {})

    def _per_type(
        self, state: MemoryState, requests: Requests, reusable: Reusable
    ) -> tuple[ResourceHints, ...]:
        room = _Room(self, state, requests, reusable)
        preferred = room.preferred()
        if not preferred and not any(room.wider()):
            return (indifferent(MEMORY),)
        nodes = len(self.numas)
        return tuple([ResourceHints(kind, preferred, room.others, nodes=nodes) for kind, _ in requests])

    def offer(self, state: MemoryState, kind: str, numa_mask: int, reusable: Reusable) -> int:
        """Return how many bytes NUMA nodes could give together now; 0 if memory groups forbid it."""
        positions = self._positions(numa_mask)
        if kind not in self.allocatable or not _has_room(state, numa_mask, positions):
            return 0
        return _sum(state.free[kind], positions) + reusable.get((numa_mask, kind), 0)

    def is_blocked(self, state: MemoryState, numa_mask: int) -> bool:
        """Return whether memory groups or other users keep NUMA nodes from being used together."""
        return not _has_room(state, numa_mask, self._positions(numa_mask))

    def total_allocatable(self, kind: str, numa_mask: int) -> int:
        """Return how many bytes NUMA nodes could give together on an empty node."""
        return _sum(self.allocatable[kind], self._positions(numa_mask)) if kind in self.allocatable else 0

    def given(self, state: MemoryState, kind: str, numa_mask: int) -> int:
        """Return how many bytes of NUMA nodes containers have."""
        return _sum(state.reserved[kind], self._positions(numa_mask)) if kind in state.reserved else 0

    def fewest_numas(self, requests: Requests) -> int:
        """Return the least number of NUMA nodes that hold the requests on an empty node, or all of them."""
        self._check_types(requests)
        wanted = [(self.allocatable[kind], amount) for kind, amount in requests]
        for size in range(1, len(self.numas)):
            for _, positions in masks_of_size(self.numa_mask, size):
                for allocatable, amount in wanted:
                    if _sum(allocatable, positions) < amount:
                        break
                else:
                    return size
        return len(self.numas)

    def _check_types(self, requests: Requests) -> None:
        for kind, _ in requests:
            if kind not in self.allocatable:
                raise KubeletCrash(
                    "the kubelet would crash: under the static Memory Manager, a Guaranteed pod requests "
                    f"{kind}, which some NUMA nodes of this machine lack"
                )

    def allocate(
        self,
        state: MemoryState,
        uid: str,
        container: str,
        *,
        requests: Requests | None,
        hint: Hint,
        reusable: Reusable,
    ) -> MemoryState:
        """Give a container of a Guaranteed pod its memory.

        Raises:
            Rejection: it cannot be had.
            KubeletCrash: a hugepage size that the machine lacks.
        """
        if container in state.assignments.get(uid, {}):
            return state
        if requests is None:
            raise Rejection("[memorymanager] failed to represent quantity as int64")
        affinity = self._usable_affinity(state, requests, hint, reusable)
        charges = [(kind, max(0, amount - reusable.get((affinity, kind), 0))) for kind, amount in requests]
        blocks = tuple([Block(affinity, kind, amount) for kind, amount in requests])
        containers = {**state.assignments.get(uid, {}), container: blocks}
        return self._charge(state, affinity, charges, {**state.assignments, uid: containers})

    def allocate_pod(self, state: MemoryState, *, requests: Requests, hint: Hint) -> tuple[MemoryState, int]:
        """Charge the memory of a pod that is served as a whole; also return its NUMA nodes.

        Raises:
            Rejection: it cannot be had.
            KubeletCrash: a hugepage size that the machine lacks.
        """
        affinity = self._usable_affinity(state, requests, hint, {})
        return self._charge(state, affinity, requests, state.assignments), affinity

    def _usable_affinity(self, state: MemoryState, requests: Requests, hint: Hint, reusable: Reusable) -> int:
        """Return the hint's affinity, widened where it does not hold enough."""
        affinity, preferred = hint
        if affinity is None:
            best = _Room(self, state, requests, reusable).best(within=0)
            if best is None:
                raise Rejection(
                    "[memorymanager] failed to get the default NUMA affinity, "
                    "no NUMA nodes with enough memory is available"
                )
            if preferred and not best.preferred:
                raise Rejection("[memorymanager] failed to find the default preferred hint")
            affinity, preferred = best.affinity, best.preferred
        self._check_types(requests)
        positions = self._positions(affinity)
        if any(_sum(state.free[kind], positions) < amount for kind, amount in requests):
            best = _Room(self, state, requests, reusable).best(within=affinity)
            if best is None:
                raise Rejection(
                    "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
                )
            if preferred and not best.preferred:
                raise Rejection("[memorymanager] failed to find the extended preferred hint")
            affinity = best.affinity
        if self.checks_groups and not _keeps_groups(state, affinity, self._positions(affinity)):
            raise Rejection("[memorymanager] preferred hint violates NUMA node allocation")
        return affinity

    def _positions(self, mask: int) -> tuple[int, ...]:
        return positions_in(self.numa_mask, mask)

    def _charge(
        self,
        state: MemoryState,
        affinity: int,
        charges: Sequence[tuple[str, int]],
        assignments: Mapping[str, Mapping[str, tuple[Block, ...]]],
    ) -> MemoryState:
        """Charge assignments: every node of the affinity joins the group, free memory is taken in order."""
        positions = self._positions(affinity)
        users, groups = list(state.users), list(state.groups)
        if charges:
            for position in positions:
                users[position] += len(charges)
                groups[position] = affinity
        columns_free, columns_reserved = dict(state.free), dict(state.reserved)
        for kind, charge in charges:
            free, reserved, left = list(columns_free[kind]), list(columns_reserved[kind]), charge
            for position in positions:
                moved = min(left, free[position])
                free[position] -= moved
                reserved[position] += moved
                left -= moved
            columns_free[kind], columns_reserved[kind] = tuple(free), tuple(reserved)
        return MemoryState(
            tuple(users), tuple(groups), columns_free, columns_reserved, assignments, state.pods
        )

    def remove(self, state: MemoryState, uid: str, containers: Iterable[str]) -> MemoryState:
        """Free the memory of some containers of a pod, in the order given."""
        recorded = state.assignments.get(uid)
        if recorded is None:
            return state
        left, pods = dict(recorded), state.pods
        freed = [block for container in containers for block in left.pop(container, ())]
        if uid in pods:  # what its containers hold is part of the pod's, which goes with the last of them
            freed = [] if left else list(pods[uid])
        assignments = dict(state.assignments)
        if left:
            assignments[uid] = left
        else:
            del assignments[uid]
            if uid in pods:
                pods = {other: blocks for other, blocks in pods.items() if other != uid}
        return MemoryState(*self._discharge(state, freed), assignments, pods)

    def _discharge(
        self, state: MemoryState, blocks: Iterable[Block]
    ) -> tuple[tuple[int, ...], tuple[int, ...], _Columns, _Columns]:
        """Return users, groups, free and reserved bytes without some blocks, drained node by node."""
        users, groups = list(state.users), list(state.groups)
        columns_free, columns_reserved = dict(state.free), dict(state.reserved)
        for block in blocks:
            free, reserved = list(columns_free[block.type]), list(columns_reserved[block.type])
            size = block.size
            for position in self._positions(block.affinity):
                users[position] -= 1
                if users[position] == 0:
                    groups[position] = 1 << self.numas[position]
                moved = min(size, reserved[position])
                free[position] += moved
                reserved[position] -= moved
                size -= moved
            columns_free[block.type], columns_reserved[block.type] = tuple(free), tuple(reserved)
        return tuple(users), tuple(groups), columns_free, columns_reserved


class _Room:
    """The sets of NUMA nodes that could serve requests now, size by size."""

    __slots__ = (
        "_bound",
        "_fewest",
        "_grouped",
        "_manager",
        "_possible",
        "_reusable",
        "_used",
        "_wanted",
        "_wider",
    )

    def __init__(
        self, manager: MemoryManager, state: MemoryState, requests: Requests, reusable: Reusable
    ) -> None:
        effort.check_ids(manager.unmaskable, "memoryManagerPolicy Static")
        nodes = len(manager.numas)
        effort.check_memory_walk(nodes)
        self._manager = manager
        self._reusable = reusable
        self._fewest, *self._wider = range(manager.fewest_numas(requests), nodes + 1)
        self._wanted = [
            (manager.allocatable[kind], state.free[kind], kind, amount) for kind, amount in requests
        ]
        # No set will do if all NUMA nodes together have too little.
        self._possible = bool(requests) and (
            bool(reusable) or all(sum(free) >= amount for _, free, _, amount in self._wanted)
        )
        if not self._possible:
            return
        # Masks of NUMA nodes: in use at all, bound together with others, and in use per group.
        self._used = self._grouped = 0
        self._bound: dict[int, int] = {}
        for position, numa in enumerate(manager.numas):
            group = state.groups[position]
            if group & group - 1:
                self._grouped |= 1 << numa
            if state.users[position]:
                self._used |= 1 << numa
                self._bound[group] = self._bound.get(group, 0) | 1 << numa

    def preferred(self) -> tuple[int, ...]:
        """Return the sets of as few NUMA nodes as would do on an empty node."""
        return tuple(self._masks(self._fewest))

    def wider(self) -> Iterator[list[int]]:
        """Return the sets of more NUMA nodes than that, size by size."""
        return map(self._masks, self._wider)

    def others(self) -> tuple[int, ...]:
        """Return them all at once."""
        return tuple(chain.from_iterable(self.wider()))

    def best(self, *, within: int) -> "_Candidate | None":
        """Return the narrowest set that includes some NUMA nodes; among equals, that of the lowest ids."""
        for size in (self._fewest, *self._wider):
            found = min([mask for mask in self._masks(size) if not within & ~mask], default=None)
            if found is not None:
                return _Candidate(found, size == self._fewest)
        return None

    def _masks(self, size: int) -> list[int]:
        found: list[int] = []
        if not self._possible:
            return found
        for mask, positions in masks_of_size(self._manager.numa_mask, size):
            # As _has_room: no single node out of a group, no group over nodes that are in use otherwise.
            if mask & (self._grouped if size == 1 else self._used & ~self._bound.get(mask, 0)):
                continue
            for allocatable, free, kind, amount in self._wanted:
                if (
                    _sum(free, positions) + self._reusable.get((mask, kind), 0) < amount
                    or _sum(allocatable, positions) < amount
                ):
                    break
            else:
                found.append(mask)
        return found


def _sum(column: tuple[int, ...], positions: tuple[int, ...]) -> int:
    if len(positions) == 1:
        return column[positions[0]]
    return sum([column[position] for position in positions]) & _U64


def _has_room(state: MemoryState, mask: int, positions: tuple[int, ...]) -> bool:
    """Return whether a mask respects groups: no single node of a group, no group over nodes in use."""
    if len(positions) == 1:
        return state.groups[positions[0]].bit_count() <= 1
    return _keeps_groups(state, mask, positions)


def _keeps_groups(state: MemoryState, mask: int, positions: tuple[int, ...]) -> bool:
    """Return whether no node of a wide mask is in use otherwise; a single node is never checked."""
    if len(positions) == 1:
        return True
    return all(not state.users[position] or state.groups[position] == mask for position in positions)


class _Candidate(NamedTuple):
    """A set of NUMA nodes that memory may come from."""

    affinity: int
    preferred: bool


def _regenerated_hints(blocks: tuple[Block, ...], requests: Requests) -> tuple[ResourceHints, ...]:
    """Return hints to the memory that a container has already; indifferent where it is not as requested."""
    wanted = dict(requests)
    if len(blocks) != len(wanted) or any(wanted.get(block.type) != block.size for block in blocks):
        return (indifferent(MEMORY),)
    masks: dict[str, list[int]] = {kind: [] for kind in wanted}
    for block in blocks:
        masks[block.type].append(block.affinity)
    if not masks:
        return (indifferent(MEMORY),)
    return tuple(
        ResourceHints(kind, tuple(found)) if found else unsatisfiable(kind) for kind, found in masks.items()
    )


def _check_reservations(config: KubeletConfiguration, machine: Machine) -> None:
    totals: dict[str, Quantity] = {}
    for reservation in config.reserved_memory:
        if reservation.numa not in machine.kubelet_ids:
            raise InvalidConfiguration(
                f"the reserved memory configuration references a NUMA node {reservation.numa} "
                "that does not exist on this machine"
            )
        for kind, amount in reservation.limits:
            totals[kind] = amount + totals[kind] if kind in totals else amount
    for kind in sorted({MEMORY, *totals}):
        reserved = totals.get(kind, quantity.ZERO)
        expected = quantity.ZERO
        if kind == MEMORY:
            expected = reserved if config.kept_memory is None else config.kept_memory.of(machine.memory)
        if reserved != expected:
            raise InvalidConfiguration(
                f"the total amount {go.quote(reserved.canonical())} of type {go.quote(kind)} is not equal "
                f"to the value {go.quote(expected.canonical())} determined by Node Allocatable feature",
                cure=_cure_of_sum(config, kind, reserved, expected),
            )


def matching_reservations(
    config: KubeletConfiguration, machine: Machine
) -> tuple[MemoryReservation, ...] | None:
    """Return the ``reservedMemory`` that a configuration needs, to the byte; None: its sum is not known.

    What is reserved now stays where it is; the lowest NUMA node takes what is missing, the highest give what
    is too much. Hugepages cannot be reserved: no other field does.

    >>> from numazones import build
    >>> config = build.configuration({"evictionHard": {"memory.available": "10%"}})
    >>> [entry] = matching_reservations(config, build.machine(cores=4, memory="16Gi"))
    >>> entry.limits[0][1].value()
    1717986944
    """
    if config.kept_memory is None:
        return None
    amounts = dict.fromkeys(machine.kubelet_ids, 0)
    for entry in config.reserved_memory:
        for kind, amount in entry.limits:
            if entry.numa in amounts and kind == MEMORY:
                amounts[entry.numa] += amount.value()
    missing = config.kept_memory.of(machine.memory).value() - sum(amounts.values())
    amounts[min(amounts)] += max(missing, 0)
    surplus = max(-missing, 0)
    for numa in sorted(amounts, reverse=True):
        taken = min(surplus, amounts[numa])
        amounts[numa] -= taken
        surplus -= taken
    return tuple(
        MemoryReservation(numa, ((MEMORY, Quantity(amount * 10**9, amount, binary=True)),))
        for numa, amount in amounts.items()
        if amount
    )


def _cure_of_sum(config: KubeletConfiguration, kind: str, reserved: Quantity, expected: Quantity) -> str:
    if kind != MEMORY:
        return cures.no_reservation_of(kind)
    kept = str(config.kept_memory) or "kubeReserved, systemReserved and evictionHard together"
    more = quantity.format_bytes(abs(reserved.value() - expected.value()))
    way = "more" if reserved > expected else "less"
    return cures.matching_reservations(in_bytes(expected), kept, f"{more} {way}")


def _reserved_bytes(
    reservations: tuple[MemoryReservation, ...], machine: Machine
) -> dict[tuple[int, str], int]:
    converted = {}
    for reservation in reservations:
        for kind, amount in reservation.limits:
            integer = amount.as_int()
            if integer is None:
                raise InvalidConfiguration("could not covert a variable of type Quantity to int64")
            converted[machine.kubelet_ids[reservation.numa], kind] = integer
    return converted


def hand_on(reusable: Reusable, blocks: Iterable[Block], *, init: bool) -> Reusable:
    """Return what later containers of a pod may reuse after a container got its blocks."""
    if not init and not reusable:
        return reusable
    left = dict(reusable)
    for block in blocks:
        key = (block.affinity, block.type)
        held = left.get(key, 0)
        if init:
            left[key] = max(held, block.size)
        elif held:
            left[key] = max(0, held - block.size)
    return left


def shrink_reused(
    state: MemoryState, uid: str, *, earlier: Iterable[str], blocks: Iterable[Block]
) -> MemoryState:
    """Take memory that a container reuses out of the blocks of the ordinary init containers before it."""
    shrunk = {name: list(state.assignments[uid][name]) for name in earlier}
    for block in blocks:
        size = block.size
        for own in shrunk.values():
            for position, candidate in enumerate(own):
                if candidate.type == block.type and candidate.affinity == block.affinity:
                    reused = min(size, candidate.size)
                    own[position] = candidate._replace(size=candidate.size - reused)
                    size -= reused
    for name, own in shrunk.items():
        state = state.record(uid, name, tuple(own))
    return state
