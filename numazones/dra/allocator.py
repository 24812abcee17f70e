"""The scheduler's structured allocator as a pure function: which devices claims get on a node.

    slices = DeviceSlices(Slice.from_api(body) for body in ...)         # once per change of the cluster
    allocated = AllocatedDevices.of_claims(claims with an allocation)   # as the scheduler counts them
    allocator = Allocator(slices, classes, allocated, rules("v1.36.2"))
    outcome = allocator.allocate(Place("worker-1", labels), claims)
    match outcome:
        case Allocated(claims):       claims[0].devices[0].device.numa  # a PublishedDevice each
        case DoesNotFit():            outcome.reason                    # one sentence
        case AllocationFailed():      outcome.message                   # the scheduler gives up on the pod
        case AllocationUnknown():     outcome.reason                    # never a guess

``claims`` are a pod's in the order of ``spec.resourceClaims`` without those that have an allocation; the
claim of its extended resources (``extended_resources``) comes last. For one pod and many nodes make one
``Allocator`` and call it for each node, as the scheduler does in a scheduling cycle.

Rules: ``k8s.io/dynamic-resource-allocation/structured`` of Kubernetes 1.36.3, quirks included; ``rules`` says
which implementation decides. Where pools are in random order there (``rules``: not ``sorted``), the answer is
given only if every order leads to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from math import factorial

from numazones.apimachinery.quantity import Quantity
from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import (
    Allocated,
    AllocatedConfiguration,
    AllocatedDevice,
    AllocationFailed,
    AllocationOutcome,
    AllocationUnknown,
    ClaimAllocation,
    DoesNotFit,
    NodeRequirement,
)
from numazones.dra.claims import ALL, EXACT_COUNT, DeviceClaim, DeviceRequest, RequestChoice
from numazones.dra.constraints import state
from numazones.dra.counters import Counters
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import NodeAccess
from numazones.dra.rules import CONSUMABLE, PRIORITIZED_LIST, AllocatorRules
from numazones.dra.search import MOST_RESULTS, Ask, Chosen, DeviceSearch, Offer, SearchGivenUp
from numazones.dra.shortfall import DeviceShortfall
from numazones.dra.slices import AllocationNode, CandidateDevice, DeviceSlices, NodePool, UnreadableSelector
from numazones.dra.verdicts import AllocationError, UnknownSelector, Verdicts

MOST_STEPS = 50_000
"""Steps of a search before it is given up; the scheduler needs some seconds for so many."""
_MOST_DEPTH = 600
"""Devices and requests that a search may go through one within the other."""
_MOST_ORDERS = 24
_STEPS_OF_REASON = 2_000
"""Steps of each search that finds out why claims do not fit."""
_INVALID_POOLS = "invalid resource pools were encountered"


@dataclass(slots=True, eq=False)
class Allocator:
    """Allocates the claims of one pod on any node; what it would get on one does not count for the next."""

    slices: DeviceSlices
    """The cluster's."""
    classes: Mapping[str, DeviceClass]
    """The cluster's, by name."""
    allocated: AllocatedDevices
    """Held by claims already."""
    rules: AllocatorRules
    counters: Counters = field(init=False)

    def __post_init__(self) -> None:
        """Prepare for one pod."""
        self.counters = Counters(self.allocated)

    def allocate(self, place: AllocationNode, claims: Sequence[DeviceClaim]) -> AllocationOutcome:
        """Return which devices claims get on a node, together and in this order, or why they get none."""
        try:
            pools = self.slices.pools(place, self.rules)
        except UnreadableSelector as error:
            return AllocationUnknown(str(error))
        outcome = self._in_order(place, claims, pools)
        if self.rules.sorted or isinstance(outcome, AllocationUnknown):
            return outcome
        return self._in_any_order(place, claims, pools, outcome)

    def _in_order(
        self, place: AllocationNode, claims: Sequence[DeviceClaim], pools: Sequence[NodePool]
    ) -> AllocationOutcome:
        attempt = _Attempt(self, place, claims, pools)
        try:
            return attempt.outcome()
        except AllocationError as error:
            return AllocationFailed(str(error), attempt.steps)
        except (UnknownSelector, SearchGivenUp) as error:
            return AllocationUnknown(str(error), attempt.steps)

    def _in_any_order(
        self,
        place: AllocationNode,
        claims: Sequence[DeviceClaim],
        pools: Sequence[NodePool],
        outcome: AllocationOutcome,
    ) -> AllocationOutcome:
        """Return the outcome that every order of the pools leads to; unknown where orders disagree."""
        found = [(at, self._matters(place, claims, pool)) for at, pool in enumerate(pools)]
        relevant = [at for at, matters in found if matters]
        if len(relevant) < 2:  # noqa: PLR2004 - one pool has one order
            return outcome
        if isinstance(outcome, AllocationFailed) and {matters for _, matters in found} == {outcome.message}:
            return outcome
        unknown = AllocationUnknown(
            "the result depends on the random order in which the scheduler tries these resource pools: "
            + ", ".join(pools[at].full_name for at in relevant)
        )
        if factorial(len(relevant)) > _MOST_ORDERS:
            return outcome if isinstance(outcome, DoesNotFit) else unknown
        for order in permutations(relevant):
            places = iter(order)
            mixed = [pools[next(places)] if at in relevant else pool for at, pool in enumerate(pools)]
            other = self._in_order(place, claims, mixed)
            if not _is_same(outcome, other):
                return unknown
        return outcome

    def _matters(self, place: AllocationNode, claims: Sequence[DeviceClaim], pool: NodePool) -> bool | str:
        """Whether the place of a pool among the others may matter, or the error that its devices cause."""
        attempt = _Attempt(self, place, claims, [pool])
        try:
            return attempt.has_candidates()
        except (AllocationError, UnknownSelector) as error:
            return str(error)


class _Attempt:
    """The search on one node, with the pools in one order."""

    def __init__(
        self,
        allocator: Allocator,
        place: AllocationNode,
        claims: Sequence[DeviceClaim],
        pools: Sequence[NodePool],
    ) -> None:
        self._allocator, self._place, self._claims, self._pools = allocator, place, claims, pools
        self._rules, self._classes = allocator.rules, allocator.classes
        self._offer = Offer(pools, allocator.allocated, self._rules)
        self._verdicts = Verdicts(self._classes, self._rules, place)
        self._search = self._new_search([])

    def _new_search(self, asks: list[list[list[Ask]]], most_steps: int = MOST_STEPS) -> DeviceSearch:
        return DeviceSearch(self._offer, asks, self._verdicts, self._allocator.counters, most_steps)

    @property
    def steps(self) -> int:
        """How many steps the search has taken."""
        return self._search.calls

    def outcome(self) -> AllocationOutcome:
        """Search.

        Raises:
            AllocationError: the scheduler gives up on the pod.
            UnknownSelector: a selector cannot be evaluated.
            SearchGivenUp: it takes too long.
        """
        asks = [self._asks_of(claim) for claim in self._claims]
        if (
            sum(sum(max(one.count for one in request) + 2 for request in claim) + 1 for claim in asks)
            > _MOST_DEPTH
        ):
            raise SearchGivenUp("the claims request more devices than this search supports")
        self._search = search = self._new_search(asks)
        if search.run():
            found = claim_allocations(self._place, self._claims, search, self._classes)
            return Allocated(found, search.calls)
        message = _INVALID_POOLS if any(pool.invalid for pool in self._pools) else ""
        return DoesNotFit(
            search.calls, message, partial(_reason, self._allocator, self._place, self._claims, self._pools)
        )

    def shortfall(self) -> DeviceShortfall:
        """Return what finds out why nothing fits."""
        asks = [self._asks_of(claim) for claim in self._claims]

        def fits(lengths: Sequence[int]) -> bool | None:
            fresh = [
                self._asks_of(claim)[:length] for claim, length in zip(self._claims, lengths, strict=True)
            ]
            try:
                return self._new_search(fresh, most_steps=_STEPS_OF_REASON).run()
            except (AllocationError, SearchGivenUp, UnknownSelector):
                return None

        return DeviceShortfall(self._claims, asks, self._offer, self._verdicts, fits)

    def has_candidates(self) -> bool:
        """Return whether a device fits to one of the requests, others aside."""
        return any(
            self._search.listed(ask, range(len(self._offer.devices)))
            for claim in self._claims
            for request in self._asks_of(claim)
            for ask in request
        )

    # --- checks before the search -------------------------------------------------------------

    def _asks_of(self, claim: DeviceClaim) -> list[list[Ask]]:
        asks = [self._alternatives(claim, request) for request in claim.requests]
        wanted = sum(min(ask.count for ask in alternatives) for alternatives in asks)
        if wanted > MOST_RESULTS:
            raise AllocationError(
                f"claim {claim.full_name}: number of requested devices {wanted} exceeds the claim limit of "
                f"{MOST_RESULTS}"
            )
        for at, constraint in enumerate(claim.constraints):
            held = state(constraint, self._offer.devices, self._rules)
            if held is None:
                raise AllocationError(
                    f"claim {claim.full_name}, constraint #{at}: empty constraint "
                    "(unsupported constraint type?)"
                )
            for ask in (ask for alternatives in asks for ask in alternatives):
                if not constraint.requests or {ask.request, ask.name} & set(constraint.requests):
                    ask.constraints.append(held)
        return asks

    def _alternatives(self, claim: DeviceClaim, request: DeviceRequest) -> list[Ask]:
        where = f"claim {claim.full_name}"
        if request.prioritized and not self._rules.prioritized_list:
            raise AllocationError(
                f"{where}, request {request.name}: has subrequests, but the {PRIORITIZED_LIST} feature is "
                "disabled"
            )
        asks = []
        for choice in request.choices or (RequestChoice("", ""),):
            if choice.capacity is not None and self._refuses_capacity:
                kind = f"subrequest {choice.name}" if choice.name else f"request {request.name}"
                raise AllocationError(
                    f"{where}, {kind}: has capacity requests, but the {CONSUMABLE} feature is disabled"
                )
            asks.append(self._ask(claim, request, choice))
        return asks

    @property
    def _refuses_capacity(self) -> bool:
        return not self._rules.consumable and self._rules.checks_capacity

    def _ask(self, claim: DeviceClaim, request: DeviceRequest, choice: RequestChoice) -> Ask:
        fits: list[bool | dict[str, Quantity] | None] = [None] * len(self._offer.devices)
        ask = Ask(claim.full_name, request.name, choice, choice.count, None, [], fits)
        if problem := next(self._problems(choice), None):
            raise AllocationError(f"{ask.label}{problem}")
        if choice.mode == ALL:
            ask.every = list(self._every(ask))
            ask.count = len(ask.every)
        return ask

    def _problems(self, choice: RequestChoice) -> Iterator[str]:
        for at, expression in enumerate(choice.selectors):
            if not expression:
                yield f", selector #{at}: CEL expression empty (unsupported selector type?)"
        if choice.admin is not None and not self._rules.admin_access:
            yield ": admin access is requested, but the feature is disabled"
        if not choice.device_class:
            yield ": missing device class name (unsupported request type?)"
        elif choice.device_class not in self._classes:
            name = choice.device_class
            yield (
                f': could not retrieve device class {name}: deviceclasses.resource.k8s.io "{name}" not found'
            )
        if choice.mode not in (EXACT_COUNT, ALL):
            yield f": unsupported count mode {choice.mode}"

    def _every(self, ask: Ask) -> Iterator[int]:
        """The devices that a request for all devices means, in use or not."""
        start = 0
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                now = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"{ask.label}: asks for all devices, but resource pool {pool.full_name} is currently "
                    f"{now}"
                )
            end = start + len(pool.devices)
            yield from self._search.listed(ask, range(start, end))
            start = end


def _reason(
    allocator: Allocator, place: AllocationNode, claims: Sequence[DeviceClaim], pools: Sequence[NodePool]
) -> str:
    return _Attempt(allocator, place, claims, pools).shortfall().sentence()


def _is_same(one: AllocationOutcome, other: AllocationOutcome) -> bool:
    """Whether two outcomes give the same devices, or the same verdict."""
    if isinstance(one, Allocated) and isinstance(other, Allocated):
        return all(
            {(given.request, given.key) for given in mine.devices}
            == {(given.request, given.key) for given in theirs.devices}
            for mine, theirs in zip(one.claims, other.claims, strict=True)
        )
    return type(one) is type(other) and not isinstance(one, AllocationUnknown)


def claim_allocations(
    place: AllocationNode,
    claims: Sequence[DeviceClaim],
    search: DeviceSearch,
    classes: Mapping[str, DeviceClass],
) -> tuple[ClaimAllocation, ...]:
    """Return what each claim gets after a search that was successful.

    Rules: the end of ``Allocate`` and ``createNodeSelector`` in ``structured/internal``.
    """
    found = []
    for c, claim in enumerate(claims):
        results = search.results[c]
        alternatives = {
            request.name: search.chosen[c, r]
            for r, request in enumerate(claim.requests)
            if request.prioritized
        }
        asks = [search.asks[c][r][search.chosen.get((c, r), 0)] for r in range(len(claim.requests))]
        found.append(
            ClaimAllocation(
                claim.full_name,
                tuple(_device(one, search) for one in results),
                (*_of_classes(asks, classes), *_of_claim(claim, asks)),
                tuple(_requirements(place, [search.offer.devices[one.at] for one in results])),
                alternatives,
            )
        )
    return tuple(found)


def _device(chosen: Chosen, search: DeviceSearch) -> AllocatedDevice:
    device = search.offer.devices[chosen.at].device
    shared = search.offer.shareable[chosen.at]
    return AllocatedDevice(
        request=chosen.ask.name,
        device=device,
        admin=bool(chosen.ask.choice.admin),
        tolerations=chosen.ask.choice.tolerations,
        shared=shared,
        consumed=dict(chosen.amounts or {}),
        binding_conditions=device.binding_conditions if search.rules.binding else (),
        binding_failure_conditions=device.binding_failure_conditions if search.rules.binding else (),
    )


def _of_classes(asks: Sequence[Ask], classes: Mapping[str, DeviceClass]) -> Iterator[AllocatedConfiguration]:
    """Each class once, with all requests for it."""
    for name in dict.fromkeys(ask.choice.device_class for ask in asks):
        requests = tuple(ask.name for ask in asks if ask.choice.device_class == name)
        for configuration in classes[name].configurations:
            yield AllocatedConfiguration(True, requests, configuration)


def _of_claim(claim: DeviceClaim, asks: Sequence[Ask]) -> Iterator[AllocatedConfiguration]:
    """Those without requests once, the others once for each request that they name."""
    for configuration in claim.configurations:
        times = 1
        if configuration.requests:
            times = sum(bool({ask.request, ask.name} & set(configuration.requests)) for ask in asks)
        for _ in range(times):
            yield AllocatedConfiguration(False, configuration.requests, configuration)


def _requirements(place: AllocationNode, devices: Sequence[CandidateDevice]) -> Iterator[NodeRequirement]:
    """This node where a device is bound to one; else what the node selectors of all devices require."""
    accesses = [_node_access(candidate) for candidate in devices]
    if any(access.node for access in accesses) or any(one.device.binds_to_node for one in devices):
        yield NodeRequirement("metadata.name", "In", (place.name,), on_field=True)
        return
    seen = set()
    for access in accesses:
        for term in access.terms or ():
            for on_field, requirements in ((False, term.expressions), (True, term.fields)):
                for one in requirements:
                    same = (on_field, one.key, one.operator, frozenset(one.values))
                    if same not in seen:
                        seen.add(same)
                        yield NodeRequirement(one.key, one.operator, one.values, on_field=on_field)


def _node_access(candidate: CandidateDevice) -> NodeAccess:
    return candidate.device.node_access if candidate.slice.per_device else candidate.slice.node_access
