"""The allocator's search: which devices the requests of claims get, depth first, first solution first.

Rules, order and quirks are those of ``allocateOne`` and ``allocateDevice`` in ``structured/internal`` of
Kubernetes 1.36.3. Each call of ``_one`` is a call there, so that the number of calls shows an equal search;
what is between calls is done once per request and device here. The search is exponential: after ``limit``
calls it is given up, where the scheduler would work for seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.taints import Toleration
from numazones.dra.allocated import AllocatedDevices
from numazones.dra.claims import RequestChoice
from numazones.dra.constraints import State
from numazones.dra.consumption import consumption, exceeds
from numazones.dra.counters import Counters
from numazones.dra.devices import KEEPS_AWAY, PublishedDevice
from numazones.dra.rules import AllocatorRules
from numazones.dra.slices import CandidateDevice, NodePool
from numazones.dra.verdicts import AllocationError, Verdicts
from numazones.errors import NumazonesError

MOST_RESULTS = 32
"""Devices that a claim can have."""
_NO, _YES, _LIMIT = 0, 1, 2
_Fit = None | bool | dict[str, Quantity]


class SearchGivenUp(NumazonesError):
    """The search takes longer than it may; the message says what it was for."""


@dataclass(slots=True)
class Ask:
    """One request of a claim, or one of its alternatives, while its devices are searched."""

    claim: str
    request: str
    """Name of the request, whichever alternative this is."""
    choice: RequestChoice
    count: int
    every: list[int] | None
    """Positions of the devices, where it asks for all; None: it asks for a number."""
    constraints: list[State]
    fits: list[_Fit]
    """For each device whether it can be chosen: not known yet, no, yes, or what would be taken of it."""

    @property
    def name(self) -> str:
        """REQUEST, or REQUEST/ALTERNATIVE."""
        return f"{self.request}/{self.choice.name}" if self.choice.name else self.request

    @property
    def label(self) -> str:
        """What errors call it."""
        return f"claim {self.claim}, request {self.choice.name or self.request}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device that is chosen for a request."""

    ask: Ask
    at: int
    amounts: Mapping[str, Quantity] | None
    """What is taken of a shared device's capacities; None: the device is not shared."""
    counted: bool = False
    """Whether counters of its pool were taken for it."""


@dataclass(slots=True)
class Offer:
    """The devices that a node's pools offer, and what is taken of them."""

    pools: Sequence[NodePool]
    allocated: AllocatedDevices
    rules: AllocatorRules
    devices: list[CandidateDevice] = field(init=False)
    pool_of: list[NodePool] = field(init=False)
    shareable: list[bool] = field(init=False)
    in_use: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = [one for pool in self.pools for one in pool.devices]
        self.pool_of = [pool for pool in self.pools for _ in pool.devices]
        self.shareable = [self.rules.consumable and one.device.shareable for one in self.devices]
        taken = self.allocated.devices
        self.in_use = [one.key in taken for one in self.devices] if taken else [False] * len(self.devices)


class DeviceSearch:
    """One search for the devices of some claims on one node."""

    def __init__(
        self,
        offer: Offer,
        asks: Sequence[Sequence[Sequence[Ask]]],
        verdicts: Verdicts,
        counters: Counters,
        limit: int,
    ) -> None:
        """Prepare a search.

        Args:
            offer: the node's devices.
            asks: of each claim, of each request, its alternatives; of one that has none, itself.
            verdicts: which devices selectors select.
            counters: what is left of counters, shared by the searches of one scheduling cycle.
            limit: how many calls it may take.
        """
        self.offer, self.verdicts, self.rules = offer, verdicts, offer.rules
        self.asks = asks
        self._limit = limit
        self.calls = 0
        self.results: list[list[Chosen]] = [[] for _ in asks]
        self.chosen: dict[tuple[int, int], int] = {}
        """(claim, request) → the alternative that was chosen."""
        self._taken = [0] * len(offer.devices)
        self._taken_in: list[set[int]] = [set() for _ in asks]
        self._consuming: dict[int, dict[str, int]] = {}
        self._shares: dict[int, int] = {}
        self._counters = counters.search()

    def run(self) -> bool:
        """Return whether there are devices for all; ``results`` has them.

        Raises:
            AllocationError: an error ends the search, as it ends the scheduler's.
            SearchGivenUp: it takes too long.
        """
        return self._one(0, 0, 0, 0, False, 0) == _YES

    # --- the recursion ------------------------------------------------------------------------

    def _one(  # noqa: C901, PLR0911 - one function there, too
        self, c: int, r: int, s: int, i: int, inside: bool, start: int  # noqa: FBT001
    ) -> int:  # fmt: skip
        """Choose device ``i`` of alternative ``s`` of request ``r`` of claim ``c``, and all after it."""
        self.calls += 1
        if self.calls > self._limit:
            raise SearchGivenUp(
                f"the allocator's search takes more than {self._limit} steps, which takes the scheduler "
                "several seconds"
            )
        if c == len(self.asks):
            return _YES
        requests = self.asks[c]
        if r == len(requests):
            return _NO if (x := self._one(c + 1, 0, 0, 0, False, 0)) == _LIMIT else x
        alternatives = requests[r]
        ask = alternatives[s]
        if ask.choice.name and not inside:
            return self._any_alternative(c, r, s, i, len(alternatives))
        every = ask.every
        if every is not None and not every:
            return _NO
        if i >= ask.count:
            return self._one(c, r + 1, 0, 0, False, 0)
        if len(self.results[c]) + ask.count - i > MOST_RESULTS:
            return _LIMIT
        if every is not None:
            following = 0 if self.rules.loses_alternative else s
            if not self._take(c, ask, every[i], must=True):
                return _NO
            if (x := self._one(c, r, following, i + 1, inside, 0)) != _YES:
                self._give_back(c)
            return x
        return self._any_device(c, r, s, i, inside, start, ask)

    def _any_alternative(self, c: int, r: int, s: int, i: int, count: int) -> int:
        limited = True
        for at in range(s, count):
            found = self._one(c, r, at, i, True, 0)
            if found == _LIMIT:
                continue
            limited = False
            if found:
                self.chosen[c, r] = at
                return _YES
        return _LIMIT if limited else _NO

    def _any_device(self, c: int, r: int, s: int, i: int, inside: bool, start: int, ask: Ask) -> int:  # noqa: FBT001
        offer, fits, taken, admin = self.offer, ask.fits, self._taken, ask.choice.admin
        in_use, mine = offer.in_use, self._taken_in[c]
        ascending = self.rules.combinations
        for at in range(start, len(fits)):
            fit = fits[at]
            if fit is False or (at in mine if admin else in_use[at] or taken[at]):
                continue
            if fit is None and (fit := self._fit(ask, at)) is False:
                continue
            if fit is not True and self._is_short(at, fit):  # type: ignore[arg-type]
                continue
            if not self._take(c, ask, at):
                continue
            if (x := self._one(c, r, s, i + 1, inside, at + 1 if ascending else 0)) == _YES:
                return _YES
            self._give_back(c)
            if x == _LIMIT:
                return _LIMIT
        return _NO

    # --- one device ---------------------------------------------------------------------------

    def _fit(self, ask: Ask, at: int) -> _Fit:
        """Whether a device can be chosen for a request at all, or what would be taken of it."""
        candidate = self.offer.devices[at]
        fit: _Fit = False
        if self.verdicts.selects(ask.claim, ask.choice, candidate):
            fit = self._amounts(ask, at)
        ask.fits[at] = fit
        return fit

    def _amounts(self, ask: Ask, at: int) -> _Fit:
        candidate = self.offer.devices[at]
        device = candidate.device
        if not self.rules.consumable or not (device.capacities or ask.choice.capacity or device.shareable):
            return True
        amounts = consumption(ask.choice.capacity, device)
        if amounts is None:
            return False
        if self.offer.shareable[at]:
            return amounts
        return not exceeds(amounts, self.offer.allocated.capacity.get(candidate.key, _NOTHING), device)

    def _is_short(self, at: int, amounts: Mapping[str, Quantity]) -> bool:
        """Whether too little of a shared device is left."""
        candidate = self.offer.devices[at]
        used, consuming = self.offer.allocated.capacity.get(candidate.key, _NOTHING), self._consuming.get(at)
        if consuming:
            used = {name: used.get(name, 0) + consuming.get(name, 0) for name in {*used, *consuming}}
        return exceeds(amounts, used, candidate.device)

    def listed(self, ask: Ask, positions: range) -> list[int]:
        """Return the devices among some that a request for all devices means, in use or not."""
        found = []
        for at in positions:
            fit = self._fit(ask, at)
            if fit is True or (isinstance(fit, dict) and not self._is_short(at, fit)):
                found.append(at)
        return found

    def _take(self, c: int, ask: Ask, at: int, *, must: bool = False) -> bool:
        """Choose a device; False: it cannot be chosen, and nothing has changed.

        Raises:
            AllocationError: ``must``, and a constraint of the claim is in the way.
        """
        offer, device = self.offer, self.offer.devices[at].device
        shareable = offer.shareable[at]
        if must and (at in self._taken_in[c] if ask.choice.admin else offer.in_use[at] or self._taken[at]):
            return False
        counted = bool(device.counters) and not (shareable and self._is_shared_already(at))
        if device.counters and not (self.rules.partitionable and self._count(at, counted=counted)):
            return False
        if device.taints and self.rules.taints and not tolerates(ask.choice.tolerations, device):
            ask.fits[at] = False
        elif self._meets_constraints(ask, at, must=must):
            fit = ask.fits[at]
            if not (must and isinstance(fit, dict) and self._is_short(at, fit)):
                self._note(c, Chosen(ask, at, fit if isinstance(fit, dict) else None, counted))
                return True
            for constraint in ask.constraints:
                constraint.remove(ask.request)
        if counted:
            self._counters.give_back(offer.pool_of[at], device)
        return False

    def _count(self, at: int, *, counted: bool) -> bool:
        return not counted or self._counters.take(self.offer.pool_of[at], self.offer.devices[at].device)

    def _is_shared_already(self, at: int) -> bool:
        return at in self._consuming or self.offer.devices[at].key in self.offer.allocated.capacity

    def _meets_constraints(self, ask: Ask, at: int, *, must: bool) -> bool:
        for position, constraint in enumerate(ask.constraints):
            if not constraint.add(ask.request, at):
                for earlier in ask.constraints[:position]:
                    earlier.remove(ask.request)
                if must:
                    name = "/".join(self.offer.devices[at].key)
                    raise AllocationError(
                        f"{ask.label}: cannot add device {name} because a claim constraint would not be "
                        "satisfied"
                    )
                return False
        return True

    def _note(self, c: int, chosen: Chosen) -> None:
        at = chosen.at
        if self.offer.shareable[at]:
            consuming = self._consuming.setdefault(at, {})
            self._shares[at] = self._shares.get(at, 0) + 1
            for name, amount in (chosen.amounts or {}).items():
                consuming[name] = consuming.get(name, 0) + amount.nanos
        else:
            self._taken[at] += 1
            self._taken_in[c].add(at)
        self.results[c].append(chosen)

    def _give_back(self, c: int) -> None:
        """Give back the device that a claim was given last."""
        chosen = self.results[c].pop()
        at, ask = chosen.at, chosen.ask
        if self.offer.shareable[at]:
            consuming = self._consuming[at]
            for name, amount in (chosen.amounts or {}).items():
                consuming[name] -= amount.nanos
            self._shares[at] -= 1
            if not self._shares[at]:
                del self._consuming[at]
        else:
            self._taken[at] -= 1
            self._taken_in[c].discard(at)
        for constraint in ask.constraints:
            constraint.remove(ask.request)
        if chosen.counted:
            self._counters.give_back(self.offer.pool_of[at], self.offer.devices[at].device)


_NOTHING: Mapping[str, int] = {}


def tolerates(tolerations: Sequence[Toleration], device: PublishedDevice) -> bool:
    """Return whether tolerations allow a device in spite of its taints."""
    return all(
        any(toleration.covers(taint) for toleration in tolerations)
        for taint in device.taints
        if taint.effect in KEEPS_AWAY
    )
