"""Devices that DeviceShare has recorded on a node, and how it assigns them to a pod.

Rules: ``deviceshare/{device_cache,device_allocator,allocator_gpu,device_resources}``, without what the
package's reference names as not modelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones_koordinator.amounts import NANO, Amounts, minus, nothing, plus, whole, within
from numazones_koordinator.device_inventory import GPU, Inventory, Scope
from numazones_koordinator.device_request import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    DeviceRequest,
    DeviceShare,
)
from numazones_koordinator.scheduler import ScoringStrategy
from numazones_koordinator.scoring import score_device
from numazones_koordinator.status import Code, Rejected, status, unresolvable, unschedulable

Devices = Mapping[int, Amounts]
"""Minor → amounts."""
DeviceAllocation = Mapping[str, tuple[tuple[int, Amounts], ...]]
"""Device type → (minor, amounts)."""

NO_GPUS = "Insufficient GPU Devices"
_NO_DEVICES = Inventory(())


@dataclass(frozen=True, slots=True)
class DeviceBooks:
    """The devices of a node and what of them is given out."""

    inventory: Inventory = _NO_DEVICES
    used: Mapping[str, Devices] = field(default_factory=dict)
    """Device type → minor → amounts given out."""
    pods: Mapping[tuple[str, str], DeviceAllocation] = field(default_factory=dict)
    """(namespace, name) → what the pod was given."""

    def free(self, type_: str) -> dict[int, Amounts]:
        """Minor → what is left, also of devices that only pods' annotations know."""
        total = self.inventory.total.get(type_, {})
        free: dict[int, Amounts] = dict(total)
        for minor, used in self.used.get(type_, {}).items():
            free[minor] = minus(total.get(minor, {}), used)
        return free

    def types(self) -> tuple[str, ...]:
        """Device types that are there or were ever given out."""
        return tuple(sorted({*self.inventory.total, *self.used}))

    def add(self, pod: tuple[str, str], given: DeviceAllocation) -> "DeviceBooks":
        """Return the books with what a pod was given; a pod that is known changes nothing."""
        if not given or pod in self.pods:
            return self
        used = {type_: dict(minors) for type_, minors in self.used.items()}
        for type_, parts in given.items():
            minors = used.setdefault(type_, {})
            for minor, resources in parts:
                minors[minor] = plus(minors.get(minor, {}), resources)
        return DeviceBooks(self.inventory, used, {**self.pods, pod: given})

    def remove(self, pod: tuple[str, str]) -> "DeviceBooks":
        """Return the books without what a pod was given; unknown pods change nothing."""
        if pod not in self.pods:
            return self
        used = {type_: dict(minors) for type_, minors in self.used.items()}
        for type_, parts in self.pods[pod].items():
            minors = used[type_]
            for minor, resources in parts:
                left = minus(minors.get(minor, {}), resources)
                if nothing(left):
                    minors.pop(minor, None)
                else:
                    minors[minor] = left
            if not minors:
                del used[type_]
        pods = {other: given for other, given in self.pods.items() if other != pod}
        return DeviceBooks(self.inventory, used, pods)


def give(
    books: DeviceBooks,
    request: DeviceRequest,
    *,
    numas: int | None,
    scoring: ScoringStrategy | None = None,
) -> DeviceAllocation:
    """Choose devices on a set of NUMA nodes (None: anywhere).

    ``scoring`` prefers devices by their score; without it they are taken by number, as in Filter.

    Raises:
        Rejected: there are not enough devices.
    """
    check_present(books, request)
    given = {}
    for type_ in request.types:
        choice = _Choice(books, type_, request.shares[type_], numas, scoring)
        if type_ == GPU:
            given[type_] = choice.gpus(shared=request.shared_gpu)
        else:
            given[type_] = choice.any_devices()
    return given


def check_present(books: DeviceBooks, request: DeviceRequest) -> None:
    """Reject the pod if the node has no device of a type it asks for.

    Raises:
        Rejected: naming the type.
    """
    for type_ in request.types:
        if not books.inventory.total.get(type_) and not books.used.get(type_):
            raise unresolvable(f"Insufficient {type_} devices")


def with_memory(books: DeviceBooks, given: DeviceAllocation) -> DeviceAllocation:
    """Return what is recorded: of GPUs both memory and its share of the whole.

    Raises:
        Rejected: a GPU is not healthy.
    """
    if GPU not in given:
        return given
    total = books.inventory.total.get(GPU, {})
    filled = []
    for minor, resources in given[GPU]:
        device = total.get(minor, {})
        if nothing(device):
            message = f"fillGPUTotalMem failed: no healthy gpu device with minor {minor} of allocation"
            raise Rejected(status(Code.ERROR, (message,)))
        filled.append((minor, {**resources, **_missing_memory(resources, device)}))
    return {**given, GPU: tuple(filled)}


def _missing_memory(resources: Amounts, device: Amounts) -> Amounts:
    """Return memory from its share of the whole, or the other way round."""
    if GPU_MEMORY in resources and GPU_MEMORY_RATIO in resources:
        return {}
    memory = whole(device.get(GPU_MEMORY, 0))
    if GPU_MEMORY not in resources:
        return {GPU_MEMORY: whole(resources.get(GPU_MEMORY_RATIO, 0)) * memory // 100 * NANO}
    if not memory:
        return {GPU_MEMORY_RATIO: 0}
    return {GPU_MEMORY_RATIO: int(float(whole(resources[GPU_MEMORY])) / float(memory) * 100) * NANO}


class _Choice:
    """One choice of devices of a type: those that may serve, and what is free of them."""

    def __init__(
        self,
        books: DeviceBooks,
        type_: str,
        share: DeviceShare,
        numas: int | None,
        scoring: ScoringStrategy | None,
    ) -> None:
        self.type = type_
        self.share = share
        self.scoring = scoring
        self.scope = books.inventory.scope
        total = books.inventory.total.get(type_, {})
        free = books.free(type_)
        reachable = books.inventory.reachable(type_, numas)
        if all(nothing(resources) for resources in free.values()):
            reachable = frozenset()
        self.total = {minor: total.get(minor, {}) for minor in free if minor in reachable}
        self.free = {minor: free[minor] for minor in self.total}
        self.everything = total
        # GPUs in use, as the choice among scopes counts them: beyond reach, or with something taken.
        self.in_use = {minor for minor in books.used.get(type_, {}) if minor not in self.total} | {
            minor
            for minor, resources in self.total.items()
            if not nothing(minus(resources, self.free[minor]))
        }

    def gpus(self, *, shared: bool) -> tuple[tuple[int, Amounts], ...]:
        """GPUs close together; without a known place of every GPU any that fit.

        Raises:
            Rejected: not enough GPUs.
        """
        if self.scope is None or (shared and self.share.count > 1):
            return self.any_devices()
        best = self._in_scope(self.scope, 0, 0, shared=shared)
        if best is None:
            raise unschedulable(NO_GPUS)
        return tuple((minor, self.share.each) for minor in best.minors)

    def any_devices(self) -> tuple[tuple[int, Amounts], ...]:
        """The devices with the best score, then the lowest number.

        Raises:
            Rejected: not enough devices.
        """
        chosen = []
        for _, minor in sorted((-self._score(minor), minor) for minor in self.free):
            if not nothing(self.free[minor]) and within(self.share.each, self.free[minor]):
                chosen.append((minor, self.share.each))
            if len(chosen) == self.share.count:
                return tuple(chosen)
        raise unschedulable(f"Insufficient {self.type} devices")

    def _score(self, minor: int) -> int:
        if self.scoring is None:
            return 0
        return score_device(self.scoring, self.share.each, self.total[minor], self.free[minor])

    def _in_scope(self, scope: Scope, depth: int, used_scopes: int, *, shared: bool) -> "_Found | None":
        """Return the best choice inside a scope: the deepest, then the one in the most used surroundings."""
        if len(scope.minors) < self.share.count:
            return None
        depth += 1
        used_scopes += not self.in_use.isdisjoint(scope.minors)
        best: _Found | None = None
        for child in scope.children:
            found = self._in_scope(child, depth, used_scopes, shared=shared)
            if found is None:
                continue
            if (
                best is None
                or (best.depth, best.used_scopes) < (found.depth, found.used_scopes)
                or (
                    shared
                    and (best.depth, best.used_scopes) == (found.depth, found.used_scopes)
                    and best.score < found.score
                )
            ):
                best = found
        if best is not None:
            return best
        fitting = [minor for minor in scope.minors if self._fits(minor)]
        if shared:
            fitting.sort(key=self._shared_score, reverse=True)
        if len(fitting) < self.share.count:
            return None
        score = self._shared_score(fitting[0]) if shared else -1
        return _Found(tuple(fitting[: self.share.count]), depth, used_scopes, score)

    def _fits(self, minor: int) -> bool:
        return not nothing(self.total.get(minor, {})) and within(self.share.each, self.free.get(minor, {}))

    def _shared_score(self, minor: int) -> int:
        """Score as upstream does, which swaps what is free and the total."""
        if self.scoring is None:
            return 0
        free, total = self.free.get(minor, {}), self.everything.get(minor, {})
        return score_device(self.scoring, self.share.each, free, total)


@dataclass(frozen=True, slots=True)
class _Found:
    """GPUs found in a scope."""

    minors: tuple[int, ...]
    depth: int
    used_scopes: int
    """Number of surrounding scopes, itself included, in which a GPU is in use."""
    score: int


def minors(given: DeviceAllocation, type_: str) -> frozenset[int]:
    """The devices of a type."""
    return frozenset(minor for minor, _ in given.get(type_, ()))
