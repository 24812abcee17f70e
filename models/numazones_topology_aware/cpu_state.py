"""The CPU books of the pools: what is sharable, isolated and granted where.

A pool's free shared capacity is the least that it and each of its ancestors have left, less 1 mCPU if
a container without a CPU request sits in it or below: that keeps a busy pool from being drained.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from numazones.cpuset import CPUSet
from numazones_topology_aware.pools import Pool, Tree
from numazones_topology_aware.request import CPUType

_MILLI = 1000
# Position of a CPU type in the counts of containers.
_POSITION = {CPUType.NORMAL: 0, CPUType.RESERVED: 1, CPUType.PRESERVE: 2}


@dataclass(frozen=True, slots=True)
class Grant:
    """Resources that a container holds."""

    container: str
    pool: int
    """Id of its pool."""
    kind: CPUType
    exclusive: CPUSet
    """Isolated ones included."""
    portion: int
    """Milli-CPU of the shared (reserved) CPUs; for a preserving container merely what it asked for."""
    memory_types: int
    zone: int
    """Mask of NUMA nodes that its memory may come from."""
    memory: int
    """Bytes accounted."""
    cold_start: timedelta
    """How long it is to have PMEM only; zero: not at all."""
    idle: bool
    """Counts as a container without a CPU request."""

    @property
    def shared(self) -> int:
        """Milli-CPU of shared CPUs."""
        return self.portion if self.kind is CPUType.NORMAL else 0

    @property
    def reserved(self) -> int:
        """Milli-CPU of reserved CPUs."""
        return self.portion if self.kind is CPUType.RESERVED else 0

    @property
    def follows_pool(self) -> bool:
        """Return whether the container runs on its pool's sharable CPUs, and is updated when they change."""
        return self.kind is CPUType.NORMAL and (self.portion > 0 or not self.exclusive)


@dataclass(frozen=True, slots=True)
class CPUState:
    """Books of every pool, by pool id."""

    sharable: tuple[CPUSet, ...]
    isolated: tuple[CPUSet, ...]
    """Free isolated CPUs."""
    shared: tuple[int, ...]
    """Milli-CPU granted in the very pool."""
    subtree: tuple[int, ...]
    """Milli-CPU granted in the pool and below."""
    reserved: tuple[int, ...]
    """Milli-CPU of reserved CPUs granted in the very pool."""
    reserved_subtree: tuple[int, ...]
    idlers: tuple[int, ...]
    """Containers without a CPU request in the pool and below."""
    held: tuple[tuple[int, int, int], ...]
    """Containers in the very pool by CPU type: normal, reserved, preserve."""

    @classmethod
    def initial(cls, tree: Tree) -> "CPUState":
        """Return the state in which nothing is granted."""
        none = (0,) * len(tree.pools)
        return cls(
            tuple(pool.sharable for pool in tree.pools),
            tuple(pool.isolated for pool in tree.pools),
            none, none, none, none, none, ((0, 0, 0),) * len(tree.pools),
        )  # fmt: skip

    def free(self, pool: Pool) -> int:
        """Free shared capacity of a pool in milli-CPU; below 0 where more is granted than there is."""
        sharable, subtree = self.sharable, self.subtree
        least = _MILLI * sharable[pool.id].bit_count() - subtree[pool.id]
        for above in pool.ancestors:
            left = _MILLI * sharable[above].bit_count() - subtree[above]
            least = min(least, left)
        return least - 1 if self.idlers[pool.id] else least

    def all_free(self, tree: Tree) -> list[int]:
        """``free`` of every pool."""
        caps = [0] * len(tree.pools)
        for pool in reversed(tree.pools):  # parents have higher ids than their children
            own = _MILLI * self.sharable[pool.id].bit_count() - self.subtree[pool.id]
            caps[pool.id] = own if pool.parent < 0 else min(own, caps[pool.parent])
        return [cap - 1 if idlers else cap for cap, idlers in zip(caps, self.idlers, strict=True)]

    def free_reserved(self, tree: Tree, pool: Pool) -> int:
        """Free capacity of a pool's reserved CPUs in milli-CPU; -1 where it has none."""
        if not pool.reserved:
            return -1
        return min(
            _MILLI * tree.pools[one].reserved.bit_count() - self.reserved_subtree[one]
            for one in (pool.id, *pool.ancestors)
        )

    def colocated_count(self, pool: int, kind: CPUType) -> int:
        """Containers of a CPU type in the very pool."""
        return self.held[pool][_POSITION[kind]]


@dataclass(slots=True)
class CPUBooks:
    """Books while an event changes them; ``state`` is replaced, never changed."""

    tree: Tree
    state: CPUState
    grants: dict[str, Grant] = field(default_factory=dict)

    def withdraw(self, pool: Pool, cpus: CPUSet) -> None:
        """Take CPUs out of a pool, everything above and everything below it."""
        if cpus:
            sharable, isolated = list(self.state.sharable), list(self.state.isolated)
            for one in (*pool.descendants, *pool.ancestors):
                sharable[one] &= ~cpus
                isolated[one] &= ~cpus
            self.state = replace(self.state, sharable=tuple(sharable), isolated=tuple(isolated))

    def give_back(self, pool: Pool, cpus: CPUSet) -> None:
        """Return CPUs; in each pool they are isolated or sharable as they were at the start."""
        if cpus:
            sharable, isolated = list(self.state.sharable), list(self.state.isolated)
            own = cpus & pool.isolated
            isolated[pool.id] |= own
            sharable[pool.id] |= cpus & ~own
            for one in (*pool.descendants[:-1], *pool.ancestors):
                isolated[one] |= cpus & self.tree.pools[one].isolated
                sharable[one] |= cpus & self.tree.pools[one].sharable
            self.state = replace(self.state, sharable=tuple(sharable), isolated=tuple(isolated))

    def account(self, pool: Pool, *, shared: int = 0, reserved: int = 0) -> None:
        """Add to what is granted; negative amounts take back."""
        if shared:
            own, subtree = _sums(pool, self.state.shared, self.state.subtree, shared)
            self.state = replace(self.state, shared=own, subtree=subtree)
        if reserved:
            own, subtree = _sums(pool, self.state.reserved, self.state.reserved_subtree, reserved)
            self.state = replace(self.state, reserved=own, reserved_subtree=subtree)

    def add(self, grant: Grant) -> None:
        """Record a grant whose CPUs and portion are accounted."""
        self.grants[grant.container] = grant
        self._count(grant, 1)

    def remove(self, container: str) -> Grant | None:
        """Release a grant; None if there is none."""
        grant = self.grants.pop(container, None)
        if grant is not None:
            pool = self.tree.pools[grant.pool]
            self._count(grant, -1)
            self.account(pool, shared=-grant.shared, reserved=-grant.reserved)
            self.give_back(pool, grant.exclusive)
        return grant

    def exchange(self, grant: Grant) -> None:
        """Replace the grant of a container by one that differs in memory or idleness only."""
        before = self.grants[grant.container]
        if before.idle != grant.idle:
            self._count(before, -1)
            self._count(grant, 1)
        self.grants[grant.container] = grant

    def _count(self, grant: Grant, step: int) -> None:
        held = list(self.state.held)
        counts = list(held[grant.pool])
        counts[_POSITION[grant.kind]] += step
        held[grant.pool] = (counts[0], counts[1], counts[2])
        self.state = replace(self.state, held=tuple(held))
        if grant.idle:
            pool = self.tree.pools[grant.pool]
            idlers = list(self.state.idlers)
            for one in (pool.id, *pool.ancestors):
                idlers[one] += step
            self.state = replace(self.state, idlers=tuple(idlers))


def _sums(
    pool: Pool, own: tuple[int, ...], subtree: tuple[int, ...], amount: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    owns, subtrees = list(own), list(subtree)
    owns[pool.id] += amount
    for one in (pool.id, *pool.ancestors):
        subtrees[one] += amount
    return tuple(owns), tuple(subtrees)
