"""Why claims do not fit on a node, in one sentence: the first request, constraint or combination that fails.

The search alone decides; this asks it again about parts of the claims. What a request lacks by itself is
counted device by device, then what a constraint leaves, then whether requests are in each other's way.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from numazones.dra.claims import Constraint, DeviceClaim
from numazones.dra.consumption import consumption, exceeds
from numazones.dra.counters import Counters
from numazones.dra.devices import PCIE_ROOT, is_numa_attribute
from numazones.dra.search import Ask, Offer, tolerates
from numazones.dra.verdicts import AllocationError, UnknownSelector, Verdicts
from numazones.wording import enumeration, pluralize

Asks = Sequence[Sequence[Sequence[Ask]]]
_TAKEN = "allocated"
_CAUSES = {
    _TAKEN: "allocated",
    "selector": "not matched by its selectors",
    "tainted": "tainted",
    "capacity": "without enough capacity",
    "counters": "whose partitions no longer fit",
    "elsewhere": "not available to this node",
}


@dataclass(slots=True, eq=False)
class DeviceShortfall:
    """Finds out why a search found nothing."""

    _claims: Sequence[DeviceClaim]
    """Those that were searched for."""
    _asks: Asks
    """Alternatives by claim and request."""
    _offer: Offer
    _verdicts: Verdicts
    _fits: Callable[[Sequence[int]], bool | None]
    """Returns whether the first so many requests of each claim fit together; None: it takes too long."""
    _known: dict[tuple[int, int], str | None] = field(init=False, default_factory=dict)

    def sentence(self) -> str:
        """Return the reason."""
        found = next(self._reasons(), "the requests of the claims do not fit together")
        return found + self._unseen()

    def _reasons(self) -> Iterator[str]:
        for claim, requests in zip(self._claims, self._asks, strict=True):
            for alternatives in requests:
                short = [self._lack(ask) for ask in alternatives]
                if all(short):
                    yield f"claim {claim.full_name}, request {alternatives[0].request}: " + ", or ".join(
                        short
                    )
        for claim, requests in zip(self._claims, self._asks, strict=True):
            for constraint in claim.constraints:
                if short_of := self._constrained(constraint, requests):
                    yield f"claim {claim.full_name}: {short_of}"
        yield from self._combined()

    # --- one request --------------------------------------------------------------------------

    def _lack(self, ask: Ask) -> str:
        """Say what a request lacks by itself; empty: nothing."""
        by_cause = Counter(
            cause for at in range(len(self._offer.devices)) if (cause := self._cause(ask, at)) is not None
        )
        free, total = by_cause.pop("", 0), sum(by_cause.values())
        of_class = f"of class {ask.choice.device_class}"
        if ask.every is not None:
            if not ask.every:
                return f"needs all devices {of_class}, and none of the node's devices match"
            taken = sum(bool(self._cause(ask, at)) for at in ask.every)
            are = "is" if taken == 1 else "are"
            return f"needs all {len(ask.every)} devices {of_class}; {taken} {are} not free" if taken else ""
        if free >= ask.count:
            return ""
        needs = f"needs {_devices(ask.count)} {of_class}"
        if not total + free:
            return f"{needs}; the node has none"
        why = ", ".join(f"{count} {_CAUSES[cause]}" for cause, count in sorted(by_cause.items()))
        return f"{needs}; {_free(free)} ({total + free} on the node{': ' if why else ''}{why})"

    def _cause(self, ask: Ask, at: int) -> str | None:
        """What keeps a device from a request; empty: it is free, None: it is not of its class."""
        key = (id(ask), at)
        if key not in self._known:
            try:
                self._known[key] = self._found_cause(ask, at)
            except (AllocationError, UnknownSelector):
                self._known[key] = "selector"
        return self._known[key]

    def _found_cause(self, ask: Ask, at: int) -> str | None:  # noqa: PLR0911 - one per cause
        offer, rules = self._offer, self._offer.rules
        candidate, choice = offer.devices[at], ask.choice
        device = candidate.device
        if not self._verdicts.of_class(choice, candidate):
            return None
        if offer.in_use[at] and not choice.admin:
            return _TAKEN
        if not self._verdicts.selects(ask.claim, choice, candidate):
            return "selector"
        if rules.taints and device.taints and not tolerates(choice.tolerations, device):
            return "tainted"
        if rules.consumable:
            amounts = consumption(choice.capacity, device)
            if amounts is None or exceeds(amounts, offer.allocated.capacity.get(candidate.key, {}), device):
                return "capacity"
        shared = offer.shareable[at] and candidate.key in offer.allocated.capacity
        if device.counters and not shared:
            counters = Counters(offer.allocated).search()
            if not rules.partitionable or not counters.take(offer.pool_of[at], device):
                return "counters"
        return ""

    # --- a constraint -------------------------------------------------------------------------

    def _constrained(self, constraint: Constraint, requests: Sequence[Sequence[Ask]]) -> str:
        """Say how a constraint leaves too few devices by itself; empty: it does not, or there is a choice."""
        covered = [
            alternatives
            for alternatives in requests
            if not constraint.requests
            or {alternatives[0].request, *(ask.name for ask in alternatives)} & set(constraint.requests)
        ]
        if any(len(alternatives) > 1 for alternatives in covered):
            return ""
        asks = [ask for alternatives in covered for ask in alternatives]
        name = constraint.match or constraint.distinct
        values = self._values(name, asks)
        known = sorted({value for free in values for value in free}, key=str)
        needed: Counter[str] = Counter()
        for ask in asks:
            needed[ask.choice.device_class] += ask.count
        wanted = enumeration([f"{_devices(count)} of class {name}" for name, count in needed.items()])
        if constraint.distinct:
            if len(known) >= max(len(asks), *(min(ask.count, 2) for ask in asks)):  # see _Distinct
                return ""
            had = f"the free devices have only {pluralize(len(known), 'value')}" if known else _NOBODY_SAYS
            return f"{wanted} with distinct {name}: {had}"
        if any(self._suffices(value, values, asks) for value in known):
            return ""
        return f"{wanted} {_place(name)}: {self._nearest(known, values, asks)}"

    def _values(self, name: str, asks: Sequence[Ask]) -> list[dict[object, set[int]]]:
        """For each request the free devices by value of an attribute."""
        found: list[dict[object, set[int]]] = []
        for ask in asks:
            free: dict[object, set[int]] = {}
            for at, candidate in enumerate(self._offer.devices):
                attribute = candidate.device.attribute(name)
                if attribute is None or self._cause(ask, at) != "":
                    continue
                values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
                for value in values if self._offer.rules.lists else (attribute.value,):
                    free.setdefault(value, set()).add(at)
            found.append(free)
        return found

    def _suffices(self, value: object, values: Sequence[dict[object, set[int]]], asks: Sequence[Ask]) -> bool:
        """Whether devices with a value may be enough for all requests."""
        pairs = [(free.get(value, set()), ask) for free, ask in zip(values, asks, strict=True)]
        together = set().union(*(free for free, _ in pairs))
        if any(self._offer.shareable[at] for at in together):
            return all(free for free, _ in pairs)
        needed = sum(ask.count for ask in asks)
        return len(together) >= needed and all(len(free) >= ask.count for free, ask in pairs)

    def _nearest(
        self, known: Sequence[object], values: Sequence[dict[object, set[int]]], asks: Sequence[Ask]
    ) -> str:
        """Say what the value with the most free devices has of them."""
        if not known:
            return _NOBODY_SAYS
        free: dict[object, dict[str, set[int]]] = {value: {} for value in known}
        for it, ask in zip(values, asks, strict=True):
            for value, found in it.items():
                free[value].setdefault(ask.choice.device_class, set()).update(found)
        best = max(known, key=lambda value: len(set().union(*free[value].values())))
        most = len(set().union(*free[best].values()))
        classes = list(dict.fromkeys(ask.choice.device_class for ask in asks))
        if len(classes) == 1:
            return f"at most {_free(most)} on any"
        parts = enumeration([f"{len(free[best].get(name, ()))} of class {name}" for name in classes])
        return f"the closest, {best}, has {parts} free, {_devices(most)} in all"

    # --- several requests ---------------------------------------------------------------------

    def _combined(self) -> Iterator[str]:
        """Name the first request that does not fit once those before it have their devices."""
        before = [0] * len(self._asks)
        for c, requests in enumerate(self._asks):
            for r, alternatives in enumerate(requests):
                before[c] = r + 1
                fits = self._fits(before)
                if fits is None:
                    return
                if not fits:
                    ask = alternatives[0]
                    wanted = f"{_devices(ask.count)} of class {ask.choice.device_class}"
                    yield f"claim {ask.claim}, request {ask.request}: {wanted} " + (
                        "would fit alone, but not together with the requests before it"
                        if sum(before) > 1
                        else "are free, but cannot be allocated together"
                    )

    def _unseen(self) -> str:
        """Name pools whose devices do not count."""
        parts = []
        for pool in self._offer.pools:
            if pool.incomplete or pool.invalid:
                why = "is being updated" if pool.incomplete else "contradicts itself"
                parts.append(f"pool {pool.full_name} {why}")
        return f"; devices of some pools are ignored: {enumeration(parts)}" if parts else ""


_NOBODY_SAYS = "no free device has this attribute"


def _devices(count: int) -> str:
    return pluralize(count, "device")


def _free(count: int) -> str:
    return f"{count or 'none'} {'are' if count > 1 else 'is'} free"


def _place(attribute: str) -> str:
    if attribute == PCIE_ROOT:
        return "on one PCIe root"
    return "on one NUMA node" if is_numa_attribute(attribute) else f"with the same {attribute}"
