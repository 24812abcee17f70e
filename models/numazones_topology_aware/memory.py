"""Memory zones: sets of NUMA nodes from which containers allocate (``pkg/resmgr/lib/memory``).

A zone is over-committed if the requests whose zones lie inside it add up to more than it holds. Then
requests are moved to larger zones, the least important and youngest first; that changes where *other*
containers may allocate. Every offer, also one that is not taken, leaves the zones that it touched
behind as empty ones until the next commit or removal, and these take part in the following checks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cmp_to_key

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM, TYPES
from numazones_topology_aware.topology import MemoryNode

_PRIORITIES = {QOSClass.BEST_EFFORT: 0, QOSClass.BURSTABLE: 1 << 10, QOSClass.GUARANTEED: 1 << 14}
_PRESERVED = (1 << 15) - 2
_LIMITS = (_PRIORITIES[QOSClass.BURSTABLE], _PRIORITIES[QOSClass.GUARANTEED], _PRESERVED)
_EXTRA_TYPES = (0, DRAM, PMEM, HBM)


class NoMemory(Exception):
    """No zone can be offered; the message says why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One container's request and the zone it is served from."""

    size: int
    """Bytes."""
    priority: int
    created: int
    """Grows with every request; younger ones are moved first."""
    zone: int = 0
    """Mask of NUMA nodes."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Memory held per NUMA node, and its holders."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    """Container id → claim."""
    zones: Mapping[int, int] = field(default_factory=dict)
    """Zone in use, or left behind empty → bytes of the claims inside it, those of sub-zones included."""
    own: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Zone in use → number and bytes of the claims of exactly this zone."""
    clock: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """A zone that a container could be served from, and what that takes."""

    zone: int
    claim: Claim
    moves: Mapping[str, int]
    """Other containers → the zones they would be moved to."""


@dataclass(frozen=True, slots=True)
class MemoryAllocator:
    """The machine's memory."""

    nodes: Mapping[int, MemoryNode]
    everything: int = field(init=False)
    normal: int = field(init=False)
    present: int = field(init=False)
    """Types of memory that exist."""
    by_type: Mapping[int, int] = field(init=False)
    """DRAM, PMEM, HBM → nodes that have such memory."""
    rings: Mapping[int, tuple[int, ...]] = field(init=False)
    """NUMA id → masks of the other nodes, nearest first."""
    starts: dict[tuple[int, int], int | str] = field(init=False, repr=False, compare=False)
    """(affinity, types) → zone to start from, or why there is none; answers that were given."""
    zone_sizes: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        holding = {number: node for number, node in self.nodes.items() if node.capacity > 0}
        by_type = {
            kind: cpuset.of(number for number, node in holding.items() if node.kind == kind) for kind in TYPES
        }
        values = {
            "everything": cpuset.of(self.nodes),
            "normal": cpuset.of(number for number, node in holding.items() if node.normal),
            "present": sum(kind for kind in TYPES if by_type[kind]),
            "by_type": by_type,
            "rings": {number: _rings(node) for number, node in self.nodes.items()},
            "starts": {},
            "zone_sizes": {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def types_of(self, zone: int) -> int:
        """Types of the nodes of a zone, nodes without memory included."""
        types = 0
        for node in cpuset.ids(zone & self.everything):
            types |= self.nodes[node].kind
        return types

    def of_types(self, types: int) -> int:
        """Nodes that have memory of any of the types."""
        return sum(mask for kind, mask in self.by_type.items() if types & kind)

    def capacity(self, zone: int) -> int:
        """Return the bytes of a zone."""
        size = self.zone_sizes.get(zone)
        if size is None:
            size = sum(self.nodes[node].capacity for node in cpuset.ids(zone & self.everything))
            self.zone_sizes[zone] = size
        return size

    def free(self, state: MemoryState, zone: int) -> int:
        """Bytes of a zone that no claim inside it uses; nodes without memory don't make it another zone."""
        zone &= self.of_types(self.present)
        used = state.zones.get(zone)
        return self.capacity(zone) - (_used_bytes(state, zone) if used is None else used)

    def offer(
        self, state: MemoryState, *, owner: str, qos: QOSClass, size: int, affinity: int, types: int
    ) -> tuple[Offer | None, MemoryState]:
        """Return what a container would get, and the state with the zones that the request leaves behind.

        Only the creation order of claims matters, so the clock advances when an offer is taken.
        """
        start = self._start(affinity, types)
        if isinstance(start, str) or owner in state.claims:
            return None, state
        claim = claim_of(qos, size, state.clock, start)
        left = _with_zone(state, start)
        if not self._is_exceeded(left.zones, start, size):
            return Offer(start, claim, {}), left
        books = _Books(self, state)
        books.assign(owner, claim)
        settled = books.settle(start)
        left = replace(state, zones={zone: _used_bytes(state, zone) for zone in books.zones})
        if not settled:
            return None, left
        moves = {name: books.claims[name].zone for name in books.moved if name != owner}
        return Offer(books.claims[owner].zone, claim, moves), left

    def commit(self, state: MemoryState, owner: str, offer: Offer) -> MemoryState:
        """Return the state with an offer taken."""
        claims, own = dict(state.claims), dict(state.own)
        for name, zone in offer.moves.items():
            claim = claims[name]
            _count(own, claim, -1)
            claims[name] = claim = replace(claim, zone=zone)
            _count(own, claim, 1)
        claim = offer.claim if offer.claim.zone == offer.zone else replace(offer.claim, zone=offer.zone)
        claims[owner] = claim
        _count(own, claim, 1)
        return MemoryState(claims, _sums(own), own, state.clock + 1)

    def remove(self, state: MemoryState, owner: str) -> MemoryState:
        """Return the state without a container's claim; containers without one change nothing."""
        if owner not in state.claims:
            return state
        claims, own = dict(state.claims), dict(state.own)
        _count(own, claims.pop(owner), -1)
        return MemoryState(claims, _sums(own), own, state.clock)

    def widen(self, state: MemoryState, owner: str, types: int) -> tuple[dict[str, int], MemoryState]:
        """Add the nearest nodes of some types to a container's zone.

        Returns:
            The zones of all containers that were moved, the owner included, and the state.

        Raises:
            NoMemory: the owner has no claim, or there are no further nodes or no memory in them.
        """
        claim = state.claims.get(owner)
        if claim is None:
            raise NoMemory(f"container {owner} has no memory claim")
        if self.types_of(claim.zone) & types == types:
            return {owner: claim.zone}, state
        more = self.expand(claim.zone, types)
        if not more:
            raise NoMemory("there are no further NUMA nodes of the wanted types")
        books = _Books(self, state)
        books.move(owner, claim.zone | more)
        if not books.settle(claim.zone | more):
            raise NoMemory("no memory is left in the wider zone")
        # Unlike a commit, this leaves the zones that were emptied behind.
        widened = {name: books.claims[name].zone for name in books.moved}
        own: dict[int, tuple[int, int]] = {}
        for one in books.claims.values():
            _count(own, one, 1)
        return widened, MemoryState(books.claims, books.sums(), own, state.clock)

    def expand(self, zone: int, types: int) -> int:
        """The nearest nodes of each type outside a zone.

        Nodes are asked in ascending order; what an earlier one offered stays, though a later one may
        know something nearer.
        """
        found = 0
        for kind in TYPES:
            if types & kind:
                found |= self._nearest(zone, kind)
        return found

    def _nearest(self, zone: int, kind: int) -> int:
        wanted = self.by_type[kind] & ~zone
        found, limit = 0, None
        for node in cpuset.ids(zone & self.everything) if wanted else ():
            for ring in self.rings[node]:
                if ring & wanted:
                    distance = self.nodes[node].distances[(ring & -ring).bit_length() - 1]
                    if limit is None or distance <= limit:
                        limit = distance
                        found |= ring & wanted
                    break
        return found

    def _start(self, affinity: int, types: int) -> int | str:
        key = (affinity, types)
        if key not in self.starts:
            self.starts[key] = self._initial_zone(affinity, types)
        return self.starts[key]

    def _initial_zone(self, affinity: int, types: int) -> int | str:
        if not affinity:
            return "the pool has no memory of the wanted types"
        types = types & self.present or self.types_of(affinity)
        zone = affinity & self.everything
        missing = types & ~self.types_of(zone)
        if missing:
            zone |= self.expand(zone, missing)
        zone = zone & self.of_types(types) or zone
        if zone & self.normal:
            return zone
        return self._with_normal_memory(zone, types)

    def _with_normal_memory(self, zone: int, types: int) -> int | str:
        normal = self.types_of(self.normal)
        wanted = types & normal or next((kind for kind in TYPES if normal & kind), 0)
        while more := self.expand(zone, wanted):
            zone |= more
            if zone & self.normal:
                return zone
        return "there is no normal memory within reach"

    def _is_exceeded(self, zones: Mapping[int, int], start: int, size: int) -> bool:
        """Return whether a new claim would over-commit any zone that touches the start."""
        for zone, used in zones.items():
            if zone & start:
                total = used + size if zone & start == start else used
                if total > self.capacity(zone):
                    return True
        return False


def _rings(node: MemoryNode) -> tuple[int, ...]:
    """Masks of nodes by distance; the first distance, that to the node itself, is left out."""
    rings: dict[int, int] = {}
    for other, distance in node.distances.items():
        rings[distance] = rings.get(distance, 0) | 1 << other
    return tuple(rings[distance] for distance in sorted(rings))[1:]


def _used_bytes(state: MemoryState, zone: int) -> int:
    return sum(size for inner, (_, size) in state.own.items() if inner & zone == inner)


def _with_zone(state: MemoryState, zone: int) -> MemoryState:
    if zone in state.zones:
        return state
    return replace(state, zones={**state.zones, zone: _used_bytes(state, zone)})


def _count(own: dict[int, tuple[int, int]], claim: Claim, step: int) -> None:
    """Add a claim to its zone's numbers, or take it off; a zone without claims is dropped."""
    users, size = own.get(claim.zone, (0, 0))
    own[claim.zone] = (users + step, size + step * claim.size)
    if not own[claim.zone][0]:
        del own[claim.zone]


def _sums(own: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Zone → bytes in it and its sub-zones."""
    return {zone: sum([size for inner, (_, size) in own.items() if inner & zone == inner]) for zone in own}


def claim_of(qos: QOSClass, size: int, created: int, zone: int) -> Claim:
    """Return what a container of a QoS class holds of a zone."""
    return Claim(size, _PRIORITIES[qos], created, zone)


def state_of(claims: Iterable[tuple[str, Claim]], zones: Iterable[int]) -> MemoryState:
    """Return the state of these containers' claims, oldest first, and of zones in their order.

    The zones are those of the claims and those that offers left behind.
    """
    of_zone: dict[int, list[int]] = {zone: [] for zone in zones}
    held = dict(claims)
    for claim in held.values():
        of_zone[claim.zone].append(claim.size)
    own = {zone: (len(sizes), sum(sizes)) for zone, sizes in of_zone.items() if sizes}
    state = MemoryState(held, {}, own, len(held))
    return replace(state, zones={zone: _used_bytes(state, zone) for zone in of_zone})


class _Books:
    """A change in progress: claims while they are moved."""

    def __init__(self, allocator: MemoryAllocator, state: MemoryState) -> None:
        self.allocator = allocator
        self.claims = dict(state.claims)
        self.zones: dict[int, dict[str, None]] = {zone: {} for zone in state.zones}
        for name, claim in state.claims.items():
            self.zones.setdefault(claim.zone, {})[name] = None
        self.moved: dict[str, None] = {}

    def assign(self, name: str, claim: Claim) -> None:
        self.claims[name] = claim
        self.zones.setdefault(claim.zone, {})[name] = None
        self.moved[name] = None

    def move(self, name: str, zone: int) -> None:
        claim = self.claims[name]
        if claim.zone != zone:
            del self.zones[claim.zone][name]
            self.assign(name, replace(claim, zone=zone))

    def sums(self) -> dict[int, int]:
        """Zone → bytes of the claims inside it."""
        return _sums(
            {
                zone: (len(names), sum(self.claims[name].size for name in names))
                for zone, names in self.zones.items()
            }
        )

    def overflows(self, around: int) -> dict[int, int]:
        """Over-committed zones that touch a mask → bytes too many, in the order of relief."""
        capacity = self.allocator.capacity
        over = {
            zone: used - capacity(zone)
            for zone, used in self.sums().items()
            if zone & around and used > capacity(zone)
        }
        return {zone: over[zone] for zone in sorted(over, key=cmp_to_key(self.compare_zones))}

    def compare_zones(self, first: int, second: int) -> int:
        """Compare zones: most users first, then sub-zones, then larger, then higher ids."""
        if difference := len(self.zones[second]) - len(self.zones[first]):
            return difference
        if first & second == first:
            return -1
        if first & second == second:
            return 1
        return second.bit_count() - first.bit_count() or second - first

    def settle(self, around: int) -> bool:
        """Move claims until nothing is over-committed; False if that cannot be reached."""
        over = self.overflows(around)
        while over:
            moved = 0
            for limit in _LIMITS:
                extra = 0
                for kind in self.extra_types():
                    extra |= kind
                    moved += sum(
                        self.relieve(zone, amount, limit=limit, extra=extra) for zone, amount in over.items()
                    )
                    over = self.overflows(around)
                    if not over:
                        return True
            if not moved:
                return False
        return True

    def extra_types(self) -> Iterator[int]:
        """Types by which zones may grow beyond their own: none at first, then what exists."""
        return (kind for kind in _EXTRA_TYPES if not kind or kind & self.allocator.present)

    def relieve(self, zone: int, amount: int, *, limit: int, extra: int) -> int:
        """Move claims out of a zone into a wider one; return the bytes moved."""
        users = self.zones.get(zone)
        if not users:
            return 0
        more = self.allocator.expand(zone, self.allocator.types_of(zone) | extra)
        if not more:
            return 0
        candidates = sorted(
            (name for name in users if self.claims[name].priority <= limit),
            key=lambda name: (self.claims[name].priority, self.claims[name].size, -self.claims[name].created),
        )
        moved = 0
        for name in candidates:
            self.move(name, zone | more)
            moved += self.claims[name].size
            if moved >= amount:
                break
        return moved
