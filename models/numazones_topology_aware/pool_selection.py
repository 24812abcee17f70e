"""The choice of a pool for one container, and of CPUs and memory in it (``allocatePool``)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware import affinity, ranking, request, topology_hints
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.cpu_state import CPUBooks, CPUState, Grant
from numazones_topology_aware.expression import Subject
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.memory import MemoryState, Offer
from numazones_topology_aware.memory_types import ALL, PRESERVE
from numazones_topology_aware.node import Known
from numazones_topology_aware.policy import LEVEL_NUMBERS, Policy
from numazones_topology_aware.pools import Pool, PoolKind
from numazones_topology_aware.ranking import Ranking, Score
from numazones_topology_aware.rejection import Rejection
from numazones_topology_aware.request import CPUType, Request

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Assessment:
    """A container's request and where it would go."""

    request: Request
    pool: Pool | None = None
    """None: the policy did not get as far as choosing one."""
    ranking: Ranking | None = None
    """None: the container goes to the root without being ranked."""
    offer: Offer | None = None


@dataclass(slots=True)
class PoolSelection:
    """One container being placed; ``memory`` moves on with every offer that is made."""

    policy: Policy
    books: CPUBooks
    memory: MemoryState
    containers: Mapping[str, Known]
    known: Known
    assessment: Assessment | None = None
    """What became known on the way, for whoever asks why."""
    asked: tuple[int, int, MemoryState, Offer | None] | None = None
    """The last question for memory and its answer: pools of one NUMA node ask the same."""

    def place(self, hinted_pool: str | None = None) -> tuple[Grant, dict[str, int]]:
        """Grant CPUs and memory; return the grant and other containers' new memory zones.

        ``hinted_pool`` names the pool in which a container was before.

        Raises:
            Rejection: with a code; nothing is granted then, but empty memory zones stay behind.
            UnmodelledFeature, PluginCrash: as they say.
        """
        wanted, pool, offer = self.assess(hinted_pool)
        if offer is None:
            raise Rejection(f"{pool.name} has no memory offer for the container", code="memory-offer")
        before = self.books.state
        try:
            grant = self.take_cpus(wanted, pool, offer)
            self.check_strict(wanted, grant)
        except Rejection:
            self.books.state = before
            raise
        name = self.known.spec.id
        self.memory = self.policy.memory.commit(self.memory, name, offer)
        self.books.add(grant)
        return grant, dict(offer.moves)

    def assess(self, hinted_pool: str | None = None) -> tuple[Request, Pool, Offer | None]:
        """Build the request and choose the pool; return both and the pool's memory offer.

        Raises:
            Rejection: an annotation is broken.
            UnmodelledFeature, PluginCrash: as they say.
        """
        wanted = request.build(self.policy, self.known.sandbox, self.known.spec.name, self.known.wants)
        self.assessment = Assessment(wanted)
        tree = self.policy.tree
        if wanted.cpu.kind is not CPUType.NORMAL:
            offer = self.plain_memory_offer(tree.root, wanted)
            self.assessment = Assessment(wanted, tree.root, None, offer)
            return wanted, tree.root, offer
        ranked = self.rank(wanted)
        hinted = (pool for pool in ranked.order if tree.pools[pool].name == hinted_pool)
        pool = tree.pools[next(hinted, ranked.order[0])]
        offer = ranked.scores[pool.id].offer
        self.assessment = Assessment(wanted, pool, ranked, offer)
        return wanted, pool, offer

    def rank(self, wanted: Request) -> Ranking:
        """Score and order all pools."""
        affinities = self.pool_affinities()
        hints = self.known.hints
        state = self.books.state
        free = state.all_free(self.policy.tree)
        scores = []
        for pool in self.policy.tree.pools:
            isolated, shared, priority = ranking.cpu_score(self.policy, state, wanted, pool, free[pool.id])
            scores.append(
                Score(
                    pool=pool,
                    isolated=isolated,
                    shared=shared,
                    free=free[pool.id],
                    priority=priority,
                    colocated=state.colocated_count(pool.id, wanted.cpu.kind),
                    affinity=affinities[pool.id],
                    hints=self.hint_scores(pool) if hints else None,
                    offer=self.memory_offer(pool, wanted),
                )
            )
        return ranking.rank(self.policy, wanted, self.known.sandbox.qos, scores, self.burstable_level())

    def pool_affinities(self) -> list[float]:
        """Affinity score of every pool."""
        known = self.known
        try:
            affinities = affinity.of_container(known.sandbox, known.spec, self.policy.config)
        except InvalidDocument as error:
            raise Rejection(
                f"the pod's affinity annotation can't be read: {error}", code="affinity"
            ) from error
        own: dict[int, int] = {}
        if affinities:
            for name, weight in affinity.weights(affinities, self.others()).items():
                pool = self.books.grants[name].pool
                own[pool] = own.get(pool, 0) + weight
        return affinity.pool_scores(self.policy.tree, own)

    def others(self) -> Iterator[Subject]:
        """Containers that hold something, this one excepted."""
        for name in self.books.grants:
            if name != self.known.spec.id:
                other = self.containers[name]
                yield Subject(other.sandbox, other.spec)

    def hint_scores(self, pool: Pool) -> tuple[float, float]:
        """A pool's combined hint scores."""
        policy = self.policy
        return topology_hints.combine(
            [
                topology_hints.score(hint, pool, policy.tree, policy.topology)
                for _, hint in sorted(self.known.hints.items())
            ]
        )

    def burstable_level(self) -> PoolKind:
        """The level to which this container would go if it were burstable without a CPU limit."""
        wanted = self.known.sandbox.preference("unlimited-burstable", self.known.spec.name)
        if wanted in LEVEL_NUMBERS:
            return self.policy.tree.existing_level(LEVEL_NUMBERS[wanted])
        return self.policy.burstable_level

    def memory_offer(self, pool: Pool, wanted: Request) -> Offer | None:
        """Return the memory a pool offers, near the container's pod resources if it prefers that."""
        if wanted.by_hints and wanted.memory_types != PRESERVE:
            nodes = self.hinted_nodes(pool.memory_of(wanted.memory_types), wanted.memory_types)
            if nodes and (offer := self.ask(wanted, nodes, wanted.memory_types)) is not None:
                return offer
        return self.plain_memory_offer(pool, wanted)

    def plain_memory_offer(self, pool: Pool, wanted: Request) -> Offer | None:
        """Return the memory a pool offers; a container that preserves its memory is accounted in the root."""
        if wanted.memory_types == PRESERVE:
            nodes = self.policy.tree.root.memory_of(ALL)
            return self.ask(wanted, nodes, self.policy.memory.types_of(nodes))
        return self.ask(wanted, pool.memory_of(wanted.memory_types), wanted.memory_types)

    def hinted_nodes(self, nodes: int, types: int) -> int:
        """NUMA nodes of the container's pod resources; 0 where they don't suit the pool or the types."""
        hinted = 0
        for provider, hint in self.known.hints.items():
            if provider.startswith(topology_hints.POD_RESOURCES):
                hinted |= cpuset.parse(hint.numas)
        if hinted & ~nodes or self.policy.memory.types_of(hinted) != types:
            return 0
        return hinted

    def ask(self, wanted: Request, nodes: int, types: int) -> Offer | None:
        """Return an offer of memory near some nodes."""
        asked = self.asked
        if asked is None or asked[:2] != (nodes, types) or asked[2] is not self.memory:
            offer, self.memory = self.policy.memory.offer(
                self.memory,
                owner=self.known.spec.id,
                qos=self.known.sandbox.qos,
                size=wanted.memory,
                affinity=nodes,
                types=types,
            )
            asked = self.asked = (nodes, types, self.memory, offer)
        return asked[3]

    def take_cpus(self, wanted: Request, pool: Pool, offer: Offer) -> Grant:
        """Take exclusive CPUs and account the shared part."""
        cpu = wanted.cpu
        kind = cpu.kind
        if (
            kind is CPUType.RESERVED
            and self.books.state.free_reserved(self.books.tree, pool) < cpu.fraction > 0
        ):
            kind = CPUType.NORMAL
        exclusive = self.pick_exclusive(wanted, pool)
        self.books.withdraw(pool, exclusive)
        if kind is CPUType.NORMAL and cpu.fraction > 0:
            free = self.books.state.free(pool)
            if free < cpu.fraction:
                raise Rejection(
                    f"{pool.name} has {free}m of shared CPUs left, but {cpu.fraction}m are requested",
                    code="cpu-shared",
                )
            self.books.account(pool, shared=cpu.fraction)
        elif kind is CPUType.RESERVED:
            self.books.account(pool, reserved=cpu.fraction)
        return Grant(
            container=self.known.spec.id,
            pool=pool.id,
            kind=kind,
            exclusive=exclusive,
            portion=cpu.fraction,
            memory_types=wanted.memory_types,
            zone=offer.zone,
            memory=wanted.memory,
            cold_start=wanted.cold_start,
            idle=is_idle(self.known, kind),
        )

    def pick_exclusive(self, wanted: Request, pool: Pool) -> CPUSet:
        """Pick a container's exclusive CPUs.

        The check for shared capacity is made for containers without exclusive CPUs too: in a pool below
        zero nothing at all can be placed.
        """
        state, count = self.books.state, wanted.cpu.full
        if wanted.cpu.isolate and state.isolated[pool.id].bit_count() >= count:
            return self.pick(wanted, state.isolated[pool.id])
        free = state.free(pool)
        if free < _MILLI * count:
            if count:
                raise Rejection(
                    f"{pool.name} has {free}m of shared CPUs left, but {count} exclusive CPUs must come from "
                    "them",
                    code="cpu-exclusive",
                )
            raise Rejection(
                f"{pool.name} has a negative amount of shared CPU left ({free}m); nothing can be placed "
                "there",
                code="cpu-negative",
            )
        if not count:
            return 0
        sliceable = self.sliceable(state, pool)
        if sliceable.bit_count() < count:
            raise Rejection(
                f"{pool.name} has {free}m of shared CPUs left, but only {sliceable.bit_count()} CPUs can "
                f"become exclusive without overcommitting the pools below; {count} are requested",
                code="cpu-pick",
            )
        return self.pick(wanted, sliceable)

    def sliceable(self, state: CPUState, pool: Pool) -> CPUSet:
        """CPUs that may be cut out of a pool: of each pool below it as many as that has free."""
        tree, allocator = self.policy.tree, self.policy.cpus
        cpus = 0
        for one in pool.descendants if pool.leaf else pool.descendants[:-1]:
            count = max(state.free(tree.pools[one]), 0) // _MILLI
            cpus |= allocator.take(state.sharable[one], count) or 0
        return cpus

    def pick(self, wanted: Request, available: CPUSet) -> CPUSet:
        """Pick CPUs out of a set, near the container's pod resources if that is asked for and possible."""
        count, priority = wanted.cpu.full, wanted.cpu.priority
        picked = self.pick_by_hints(available, count, priority) if wanted.by_hints else None
        if picked is None:
            picked = self.policy.cpus.take(available, count, priority)
        return picked or 0

    def pick_by_hints(self, available: CPUSet, count: int, priority: Priority) -> CPUSet | None:
        """Pick an equal share near each pod resource, the rest anywhere; None where that is impossible."""
        hints = [
            hint
            for provider, hint in sorted(self.known.hints.items())
            if provider.startswith(topology_hints.POD_RESOURCES)
        ]
        if not hints or len(hints) > count:
            return None
        each = count // len(hints) if count % len(hints) == 0 else 1
        picked = 0
        for hint in hints:
            near = self.policy.cpus.take(available & ~picked & hint.cpu_set, each, priority)
            if near is None:
                return None
            picked |= near
        rest = self.policy.cpus.take(available & ~picked, count - picked.bit_count(), priority)
        return None if rest is None else picked | rest

    def check_strict(self, wanted: Request, grant: Grant) -> None:
        """Reject CPUs that lie elsewhere than strict hints say, or too few isolated ones."""
        sandbox, name = self.known.sandbox, self.known.spec.name
        pool = self.policy.tree.pools[grant.pool]
        if self.known.hints and sandbox.flag("strict.topologyhints", name):
            used = [
                self.books.state.sharable[pool.id] if grant.shared else 0,
                pool.reserved if grant.reserved else 0,
                grant.exclusive,
            ]
            for provider, hint in self.known.hints.items():
                for cpus in used:
                    if stray := hint.stray(cpus, self.policy.topology):
                        raise Rejection(
                            f"CPUs {cpuset.format(stray)} are outside the strict hint of {provider}",
                            code="strict-hint",
                        )
        isolated = (grant.exclusive & pool.isolated).bit_count()
        cpu = wanted.cpu
        if cpu.full and cpu.isolate and cpu.require_isolated and isolated < cpu.full:
            raise Rejection(
                f"{cpu.full} isolated CPUs are required, but {pool.name} has {isolated}",
                code="require-isolated",
            )


def is_idle(known: Known, kind: CPUType) -> bool:
    """Return whether a container keeps its pool from being drained although it requests no CPU."""
    if kind is CPUType.RESERVED:
        return False
    qos = known.sandbox.qos
    return qos is QOSClass.BEST_EFFORT or (qos is QOSClass.BURSTABLE and not known.wants.cpu_request)
