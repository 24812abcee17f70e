"""The tree of pools: root, sockets, dies, NUMA nodes, L3 caches (``buildPoolsByTopology``).

Levels with a single member are left out. Pools are numbered children first, so that the root has the
highest id; ids are the last tie-break of the ranking.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM, TYPES
from numazones_topology_aware.topology import Die, Package, Topology


class PoolKind(StrEnum):
    """Level of a pool, as the policy's NodeResourceTopology names it."""

    ROOT = "virtual node"
    SOCKET = "socket"
    DIE = "die"
    NUMA = "numa node"
    L3 = "L3 cache"


# The order of levels by which an unlimited burstable container's wish is compared with a pool.
LEVELS = {PoolKind.ROOT: 1, PoolKind.SOCKET: 2, PoolKind.DIE: 3, PoolKind.NUMA: 4, PoolKind.L3: 5}


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool and what it has when nothing is granted."""

    id: int
    name: str
    kind: PoolKind
    hardware_id: int
    """Number of the socket, die, NUMA node or cache; -1 for the root."""
    package: int
    """Socket it lies in; -1 for the root."""
    depth: int
    parent: int
    """Id; -1 for the root of the tree."""
    cpus: CPUSet
    """All its CPUs, available or not."""
    isolated: CPUSet
    reserved: CPUSet
    sharable: CPUSet
    memory: tuple[int, int, int]
    """Masks of its DRAM, PMEM and HBM nodes."""
    ancestors: tuple[int, ...] = ()
    """Nearest first."""
    descendants: tuple[int, ...] = ()
    """Children first, itself last, as a depth-first walk meets them."""
    memory_types: int = field(init=False)
    """Types of memory that it has."""

    def __post_init__(self) -> None:
        types = sum(kind for kind, nodes in zip(TYPES, self.memory, strict=True) if nodes)
        object.__setattr__(self, "memory_types", types)

    def memory_of(self, types: int) -> int:
        """NUMA nodes of some types of memory."""
        dram, pmem, hbm = self.memory
        return (dram if types & DRAM else 0) | (pmem if types & PMEM else 0) | (hbm if types & HBM else 0)

    @property
    def leaf(self) -> bool:
        """Return whether the pool has no children."""
        return len(self.descendants) == 1


@dataclass(frozen=True, slots=True)
class Tree:
    """All pools by id."""

    pools: tuple[Pool, ...]
    by_name: dict[str, int] = field(init=False, compare=False, repr=False)
    """Where a name appears twice (a NUMA node in several dies), the pool that was made last."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {pool.name: pool.id for pool in self.pools})

    @property
    def root(self) -> Pool:
        """The pool of everything."""
        return self.pools[-1]

    @classmethod
    def build(cls, topology: Topology, *, available: CPUSet, reserved: CPUSet) -> "Tree":
        """Return the tree of a machine."""
        draft = _root(topology)
        pools: list[Pool] = []
        _number(draft, pools, parent_depth=-1)
        finished = [
            _with_supply(
                pool, topology, available=available, reserved=reserved, last=pool.id == len(pools) - 1
            )
            for pool in pools
        ]
        return cls(tuple(_with_relatives(finished)))

    def existing_level(self, wanted: int) -> PoolKind:
        """Return the kind that stands for a level (see ``LEVELS``): that of the first pool at or above it."""
        for pool in self.pools:
            if LEVELS[pool.kind] <= wanted:
                return pool.kind
        return PoolKind.SOCKET


@dataclass(slots=True)
class _Draft:
    """A pool before it has a number."""

    name: str
    kind: PoolKind
    hardware_id: int
    package: int
    cpus: CPUSet
    children: list["_Draft"] = field(default_factory=list)


def _root(topology: Topology) -> _Draft:
    sockets = [_socket(topology, package) for package in topology.packages]
    if len(sockets) == 1:
        return sockets[0]
    everything = topology.online | topology.offline
    return _Draft("root", PoolKind.ROOT, -1, -1, everything, sockets)


def _socket(topology: Topology, package: Package) -> _Draft:
    socket = _Draft(f"socket #{package.id}", PoolKind.SOCKET, package.id, package.id, package.cpus)
    if len(package.dies) > 1 and any(len(die.clusters) > 1 for die in package.dies):
        socket.children = [_die(topology, package, die) for die in package.dies]
    else:
        socket.children = _numas_or_caches(topology, package, socket, package.numas)
    return socket


def _die(topology: Topology, package: Package, die: Die) -> _Draft:
    pool = _Draft(f"die #{package.id}/{die.id}", PoolKind.DIE, die.id, package.id, die.cpus)
    pool.children = _numas_or_caches(topology, package, pool, die.numas)
    return pool


def _numas_or_caches(
    topology: Topology, package: Package, parent: _Draft, numas: tuple[int, ...]
) -> list[_Draft]:
    if len(numas) == 1:
        return _caches(package, parent)
    children = []
    for numa in numas:
        node = topology.memory_nodes[numa]
        if node.capacity:
            pool = _Draft(f"NUMA node #{numa}", PoolKind.NUMA, numa, package.id, node.cpus)
            pool.children = _caches(package, pool)
            children.append(pool)
    return children


def _caches(package: Package, parent: _Draft) -> list[_Draft]:
    """L3 caches that lie wholly in a pool, if there are several."""
    inside = [(number, cpus) for number, cpus in package.l3 if not cpus & ~parent.cpus]
    if len(inside) <= 1:
        return []
    return [
        _Draft(f"{parent.name}/L3 cache #{number}", PoolKind.L3, number, package.id, cpus)
        for number, cpus in inside
    ]


def _number(draft: _Draft, pools: list[Pool], parent_depth: int) -> int:
    """Number a draft and what is below it; return its id."""
    depth = parent_depth + 1
    children = [_number(child, pools, depth) for child in draft.children]
    number = len(pools)
    for child in children:
        pools[child] = replace(pools[child], parent=number)
    pools.append(
        Pool(
            number, draft.name, draft.kind, draft.hardware_id, draft.package, depth, -1, draft.cpus,
            0, 0, 0, (0, 0, 0),
        )
    )  # fmt: skip
    return number


def _with_supply(pool: Pool, topology: Topology, *, available: CPUSet, reserved: CPUSet, last: bool) -> Pool:
    cpus = pool.cpus & available
    isolated = cpus & topology.isolated
    kept = cpus & reserved
    return replace(
        pool,
        isolated=isolated,
        reserved=kept,
        sharable=cpus & ~isolated & ~kept,
        memory=_memory(topology, pool.cpus, everything=last),
    )


def _memory(topology: Topology, cpus: CPUSet, *, everything: bool) -> tuple[int, int, int]:
    nodes = topology.memory_nodes
    if everything:
        near = cpuset.of(number for number, node in nodes.items() if node.capacity)
    else:
        near = cpuset.of(number for number, node in nodes.items() if node.cpus & cpus)
        near |= cpuset.of(_attached_nodes(topology, near))
    masks = [
        near & cpuset.of(number for number, node in nodes.items() if node.kind == kind) for kind in TYPES
    ]
    return masks[0], masks[1], masks[2]


def _attached_nodes(topology: Topology, near: int) -> Iterator[int]:
    """NUMA nodes without CPUs of which a nearest DRAM node with CPUs is among the near ones."""
    nodes = topology.memory_nodes
    for number, node in nodes.items():
        if node.cpus or not node.capacity:
            continue
        distances = {other: node.distances[other] for other in nodes if nodes[other].cpus and other != number}
        nearest = min(distances.values())
        if any(distance == nearest and near >> other & 1 for other, distance in distances.items()):
            yield number


def _with_relatives(pools: list[Pool]) -> Iterator[Pool]:
    below: dict[int, tuple[int, ...]] = {pool.id: () for pool in pools}
    for pool in pools:
        below[pool.id] = (*below[pool.id], pool.id)
        if pool.parent >= 0:
            below[pool.parent] = (*below[pool.parent], *below[pool.id])
    for pool in pools:
        ancestors = []
        above = pool.parent
        while above >= 0:
            ancestors.append(above)
            above = pools[above].parent
        yield replace(pool, ancestors=tuple(ancestors), descendants=below[pool.id])
