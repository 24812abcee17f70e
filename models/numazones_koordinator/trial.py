"""Trying a pod on a set of NUMA nodes: what it would take of each, and which CPUs.

Rules: ``nodenumaresource/resource_manager`` (``Allocate`` and what it calls). Resources are spread over the
set one by one; a pod that is bound then takes its CPUs from the NUMA nodes that gave it CPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones.errors import UnmodelledFeature
from numazones_koordinator.amounts import MICRO, NANO, Amounts, Counted, milli, scheduler_counts, whole
from numazones_koordinator.annotations import CPUBindPolicy, CPUExclusivePolicy, NUMAResources
from numazones_koordinator.cpu_accumulator import NOT_ENOUGH_CPUS, NoCPUs, Preference, take_cpus
from numazones_koordinator.cpu_topology import CPUTopology
from numazones_koordinator.host import amplify_amounts
from numazones_koordinator.node import Node, valid_topology
from numazones_koordinator.request import CPUS_NOT_INTEGER, Request
from numazones_koordinator.status import Code, Rejected, status, unresolvable, unschedulable

INVALID_TOPOLOGY = "node(s) invalid CPU Topology"
NO_ZONES = "insufficient resources on NUMA Node"
# Go's sort is the insertion sort that is modelled up to this length.
_MAX_INSERTION_SORT = 12


class _Asked(NamedTuple):
    """A resource that is asked for, and that NUMA nodes have at all."""

    name: str
    amount: int
    left: Mapping[int, int]
    """NUMA id → what is left of it."""
    whole: int
    """What one NUMA node alone would have to give: the amount in units that it gives."""


class Uncountable(Exception):
    """An error inside the plugin, which is no verdict about the pod."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Resources that a pod would be given."""

    numa_resources: NUMAResources = ()
    """By NUMA id; NUMA nodes that give nothing are left out."""
    cpus: CPUSet = 0


class Trials:
    """All trials of one pod on one node; each set of NUMA nodes is tried once.

    With ``sorted_spread`` the NUMA nodes with least available give first. That is what is meant, and what the
    scheduler does not do; an explanation asks whether it was to blame.

    Raises:
        Rejected: the pod is to be bound by the node and asks for a fraction of a CPU.
    """

    def __init__(self, node: Node, request: Request, *, sorted_spread: bool = False) -> None:
        host = node.host
        self.sorted_spread = sorted_spread
        self.node = node
        self.request = request
        self.bound = bound_there(node, request)
        self.topology = valid_topology(host)
        self.bind_policy, self.required = _bind_policy(node, request)
        self.amounts = request.amounts
        """As they are scored: a bound pod's CPU amplified."""
        if self.bound and host.ratio > 1:
            cpu = {CPU: request.amounts[CPU]} if CPU in request.amounts else {}
            self.amounts = {**request.amounts, **amplify_amounts(cpu, {CPU: host.ratio})}
        self.counted: Counted = (
            request.counted if self.amounts is request.amounts else scheduler_counts(self.amounts)
        )
        self._available: dict[int, dict[str, int]] | None = None
        self._known: dict[int | None, Grant | Rejected] = {}
        self._left: dict[str, Mapping[int, int]] = {}
        self._asked: Sequence[_Asked] | None = None
        self._shares: dict[int, NUMAResources] = {}
        self._bindable: CPUSet | None = None
        self._taken: dict[tuple[CPUSet, int], CPUSet] = {}

    def on(self, numas: int | None) -> Grant:
        """Return what the pod would get on a set of NUMA nodes; None: CPUs from anywhere, nothing recorded.

        Raises:
            Rejected: it does not fit.
        """
        if numas not in self._known:
            try:
                self._known[numas] = self._try(numas)
            except Rejected as rejected:
                self._known[numas] = rejected
        outcome = self._known[numas]
        if isinstance(outcome, Rejected):
            raise outcome
        return outcome

    def fits(self, numas: int) -> bool:
        """Return whether the pod fits on a set of NUMA nodes: ``on`` would give what it needs.

        That is told without choosing CPUs wherever their number tells it.

        Raises:
            Uncountable: as ``available``.
        """
        ids = numa_ids(numas)
        for _, amount, left, _ in self._wanted_resources():
            rest = amount
            for numa in ids:
                rest -= left.get(numa, 0)
            if rest > 0:
                return False
        try:
            shares = self._spread(numas)
            if self.bound and not self._enough_cpus(shares):
                self.on(numas)
        except Rejected:
            return False
        return True

    def _enough_cpus(self, shares: NUMAResources) -> bool:
        """The NUMA nodes that give CPU have so many CPUs, and any choice among these would do.

        False: not known. One NUMA node in one socket gives exactly what is asked of it.
        """
        topology = self.topology
        if topology is None or not topology.regular or not shares:
            return False
        counts = [count for _, count in self._cpus_of(topology, shares)]
        whole_cores = self.required and self.bind_policy == CPUBindPolicy.FULL_PCPUS
        if whole_cores and any(count % topology.per_core for count in counts):
            return False
        return sum(counts) == self.request.cpus <= self._bindable_cpus().bit_count()

    def _try(self, numas: int | None) -> Grant:
        shares: NUMAResources = ()
        if numas is not None:
            if not self.node.host.zones:
                raise unresolvable(NO_ZONES)
            try:
                shares = self._spread(numas)
            except Uncountable as error:
                raise unresolvable(str(error)) from None
        if not self.bound:
            return Grant(shares)
        try:
            return Grant(shares, self._cpus(shares))
        except NoCPUs as error:
            raise unschedulable(str(error)) from None

    # Amounts.

    def available(self) -> Mapping[int, Amounts]:
        """NUMA id → what is left; where a bind policy is required, CPU is capped by what can be bound.

        Raises:
            Uncountable: a bind policy is required, and the node's CPUs are not known.
        """
        if self._available is None:
            left = self.node.available()
            if self.required:
                self._cap(left)
            self._available = left
        return self._available

    def _cap(self, left: dict[int, dict[str, int]]) -> None:
        if self.topology is None:
            raise Uncountable(INVALID_TOPOLOGY)
        free = self.node.free_cpus()
        for numa, resources in left.items():
            if resources.get(CPU):
                inside = self._allowed_cpus(free & self.topology.numas.get(numa, 0)).bit_count() * 1000
                if inside < milli(resources[CPU]):
                    resources[CPU] = inside * MICRO

    def left_of(self, name: str) -> Mapping[int, int]:
        """NUMA id → what is left of a resource.

        Raises:
            Uncountable: as ``available``.
        """
        if name not in self._left:
            self._left[name] = {numa: left.get(name, 0) for numa, left in self.available().items()}
        return self._left[name]

    def _wanted_resources(self) -> Sequence[_Asked]:
        """The resources asked for that NUMA nodes have at all."""
        if self._asked is None:
            listed = set().union(*self.available().values())
            self._asked = [
                _Asked(name, amount, self.left_of(name), self._part(name, amount, 1))
                for name, amount in self.request.amounts.items()
                if name in listed
            ]
        return self._asked

    def _spread(self, numas: int) -> NUMAResources:
        """Every resource as evenly as possible over the set.

        Raises:
            Rejected: naming the resources that are short.
            Uncountable: as ``available``.
        """
        if numas not in self._shares:
            ids = numa_ids(numas)
            self._shares[numas] = self._of_one(ids[0]) if len(ids) == 1 else self._of_several(ids)
        return self._shares[numas]

    def _of_one(self, numa: int) -> NUMAResources:
        given: dict[str, int] = {}
        short = []
        for name, amount, left, whole_amount in self._wanted_resources():
            part = min(left.get(numa, 0), whole_amount)
            if part:
                given[name] = part
            if part != amount:
                short.append(f"Insufficient NUMA {name}")
        if short:
            raise Rejected(status(Code.UNSCHEDULABLE, short))
        return ((numa, given),) if given else ()

    def _of_several(self, ids: tuple[int, ...]) -> NUMAResources:
        given: dict[int, dict[str, int]] = {}
        short = []
        for name, amount, left, _ in self._wanted_resources():
            rest, givers = amount, len(ids)
            for numa in self._order(ids, left):
                part = min(left.get(numa, 0), self._part(name, rest, givers))
                givers -= 1
                if part:
                    given.setdefault(numa, {})[name] = part
                    rest -= part
            if rest:
                short.append(f"Insufficient NUMA {name}")
        if short:
            raise Rejected(status(Code.UNSCHEDULABLE, short))
        return tuple(sorted(given.items()))

    def _order(self, ids: tuple[int, ...], left: Mapping[int, int]) -> Sequence[int]:
        """The NUMA nodes in the order of giving.

        While sorting, the scheduler compares the NUMA nodes whose ids are the two *positions*, and never the
        elements it swaps.
        """
        if self.sorted_spread:
            return sorted(ids, key=lambda numa: left.get(numa, 0))
        if len(ids) > _MAX_INSERTION_SORT:
            raise UnmodelledFeature(
                f"koord-scheduler's order of more than {_MAX_INSERTION_SORT} NUMA nodes is not modelled, "
                "so nothing is predicted for this machine"
            )
        order = list(ids)
        for start in range(1, len(order)):
            place = start
            while place > 0 and left.get(place, 0) < left.get(place - 1, 0):
                order[place], order[place - 1] = order[place - 1], order[place]
                place -= 1
        return order

    def _part(self, name: str, rest: int, numas: int) -> int:
        """An even part: whole units, thousandths of a CPU for pods that are not bound."""
        if name != CPU:
            return whole(rest) // numas * NANO
        if not self.bound:
            return milli(rest) // numas * MICRO
        if self.required and self.bind_policy == CPUBindPolicy.FULL_PCPUS and self.topology is not None:
            size = self.topology.per_core
            return whole(rest) // size // numas * size * NANO
        return whole(rest) // numas * NANO

    # CPUs.

    def _cpus(self, shares: NUMAResources) -> CPUSet:
        """CPUs on the NUMA nodes that give amounts; without any, from the whole machine.

        Raises:
            NoCPUs: there are not enough.
        """
        topology = self.topology
        if topology is None:
            raise NoCPUs(INVALID_TOPOLOGY)
        free, need = self._bindable_cpus(), self.request.cpus
        if free.bit_count() < need:
            raise NoCPUs(NOT_ENOUGH_CPUS)
        taken: CPUSet = 0
        if shares:
            for inside, count in self._cpus_of(topology, shares):
                taken |= self._take(topology, inside, count)
            if taken.bit_count() != need:
                raise NoCPUs(NOT_ENOUGH_CPUS)
        else:
            taken = self._take(topology, free, need)
        self._check_policy(topology, taken)
        return taken

    def _bindable_cpus(self) -> CPUSet:
        """The free CPUs that a required bind policy leaves."""
        if self._bindable is None:
            self._bindable = self._allowed_cpus(self.node.free_cpus())
        return self._bindable

    def _cpus_of(self, topology: CPUTopology, shares: NUMAResources) -> Iterator[tuple[CPUSet, int]]:
        """(free CPUs of a NUMA node, how many of them to take) of the NUMA nodes that give amounts."""
        free = self._bindable_cpus()
        for numa, resources in shares:
            inside = free & topology.numas.get(numa, 0)
            yield inside, min(inside.bit_count(), milli(resources.get(CPU, 0)) // 1000)

    def _take(self, topology: CPUTopology, free: CPUSet, count: int) -> CPUSet:
        """Choose CPUs; sets of NUMA nodes overlap, so that the same choice comes up again and again."""
        key = free, count
        if key not in self._taken:
            self._taken[key] = self._choose(topology, free, count)
        return self._taken[key]

    def _choose(self, topology: CPUTopology, free: CPUSet, count: int) -> CPUSet:
        books, exclusive = self.node.books, self.request.exclusive_policy
        clashing = 0
        if exclusive == CPUExclusivePolicy.PCPU_LEVEL:
            clashing = books.core_exclusive
        elif exclusive == CPUExclusivePolicy.NUMA_NODE_LEVEL:
            clashing = books.numa_exclusive
        preference = Preference(
            bind_policy=self.bind_policy,
            exclusive_policy=exclusive,
            most_allocated=self.node.host.most_allocated,
            clashing=clashing,
        )
        return take_cpus(topology, free, count, preference)

    def _allowed_cpus(self, cpus: CPUSet) -> CPUSet:
        """The CPUs that a required bind policy leaves: whole cores, or one of each core."""
        topology = self.topology
        if not self.required or topology is None:
            return cpus
        if self.bind_policy == CPUBindPolicy.FULL_PCPUS:
            return topology.whole_cores(cpus)
        if self.bind_policy == CPUBindPolicy.SPREAD_BY_PCPUS:
            return topology.one_per_core(cpus)
        return cpus

    def _check_policy(self, topology: CPUTopology, taken: CPUSet) -> None:
        if not self.required:
            return
        cores = topology.cores_touched(taken)
        size = topology.per_core if self.bind_policy == CPUBindPolicy.FULL_PCPUS else 1
        if cores * size != taken.bit_count():
            raise NoCPUs(f"insufficient CPUs to satisfy required cpu bind policy {self.bind_policy}")


@lru_cache(maxsize=1 << 12)
def numa_ids(numas: int) -> tuple[int, ...]:
    """Return the NUMA nodes of a set; it is cached, as the same few sets come up on every node."""
    return tuple(cpuset.ids(numas))


def bound_there(node: Node, request: Request) -> bool:
    """Return whether the pod gets exclusive CPUs on a node.

    Raises:
        Rejected: the node binds every pod, and this one asks for a fraction of a CPU.
    """
    if request.bound:
        return True
    if not request.cpu_milli or not node.host.required_bind_policy:
        return False
    if request.cpu_milli % 1000:
        raise unresolvable(CPUS_NOT_INTEGER)
    return True


def _bind_policy(node: Node, request: Request) -> tuple[str, bool]:
    """The CPU bind policy, and whether it is required: the pod's, then the node's."""
    required = request.required_bind_policy or node.host.required_bind_policy
    return (required, True) if required else (request.preferred_bind_policy, False)
