"""Why an admission went the way it did, in plain words with numbers.

The decision is made once more with an observer, which notes the hints of every resource and how
they were merged. For a refusal, the *nearest miss* names the set of NUMA nodes that came closest to
what was asked and what it lacked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numazones import cpuset
from numazones.kubelet.admission import Attempt, Manager, check_modelled
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.hints import Hint, ResourceHints, enumeration_order, masks_of_size
from numazones.kubelet.refusal import SMT_ALIGNMENT, TOPOLOGY_AFFINITY, Refusal
from numazones.node import Node
from numazones.pod import HUGEPAGES, Demand, Pod

# With more NUMA nodes than the kubelet takes by default, only preferred hints are listed.
_MOST_LISTED = 8
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of hints."""

    container: str
    """Empty: the pod as a whole (scope pod)."""
    hints: tuple[tuple[str, tuple[Hint, ...]], ...]
    """(resource, hints), in the order in which the managers were asked.

    On machines with more than 8 NUMA nodes only the preferred ones are listed.
    """
    merged: Hint
    admitted: bool


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a set of NUMA nodes lacks of one resource."""

    resource: str
    """cpu, memory, hugepages-… or a device resource."""
    needed: int
    """CPUs, bytes or devices."""
    offered: int
    numas: tuple[int, ...]
    """The NUMA nodes looked at."""
    possible: bool
    """Whether these NUMA nodes could give so much on an empty node."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for one decision."""

    admitted: bool
    merges: tuple[Merge, ...]
    refused_container: str | None = None
    """Container (empty: the pod as a whole) at which a refusal came about; None if admitted."""
    shortages: tuple[Shortage, ...] = ()
    """What the nearest set of NUMA nodes lacked; empty if admitted."""
    nearest_miss: str = ""
    """One plain sentence; empty if admitted."""

    def lines(self) -> tuple[str, ...]:
        """The whole story, one line per resource and merge."""
        told: list[str] = []
        for merge in self.merges:
            owner = f"container {merge.container}" if merge.container else "pod"
            told.extend(f"{owner}: {name} offers {_listed(hints)}" for name, hints in merge.hints)
            verdict = "admitted" if merge.admitted else "refused"
            told.append(f"{owner}: merged to {_hint(merge.merged)}, {verdict}")
        if self.nearest_miss:
            told.append(self.nearest_miss)
        return tuple(told)


def explain(node: Node, pod: Pod) -> Explanation:
    """Explain the decision that ``admit`` makes for the same node and pod.

    Raises:
        KubeletCrash, KubeletHang, UnmodelledFeature: as ``admit``.
    """
    check_modelled(node, pod)
    merges: list[Merge] = []

    def observe(container: str, hints: Sequence[ResourceHints], merged: Hint, admitted: bool) -> None:  # noqa: FBT001 - an Observer
        listable = node.machine.numa_mask.bit_count() <= _MOST_LISTED
        if listable and not admitted and node.kubelet.topology.policy != SINGLE_NUMA_NODE:
            merged = node.kubelet.topology.merge_non_preferred(hints)
        offers = tuple((resource.resource, _offers(resource, complete=listable)) for resource in hints)
        merges.append(Merge(container, offers, merged, admitted))

    attempt = Attempt(node, pod, observe)
    try:
        attempt.run()
    except Refusal as refusal:
        shortages, sentence = _Miss(attempt).told(refusal)
        return Explanation(False, tuple(merges), attempt.asking, shortages, sentence)
    return Explanation(True, tuple(merges))


@dataclass(frozen=True, slots=True)
class _Need:
    """One resource asked for."""

    resource: str
    amount: int
    width: int
    """NUMA nodes that it takes on an empty node."""


class _Miss:
    """Looks at a refused attempt, as its states were when it was refused."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.kubelet = attempt.kubelet
        self.needs = tuple(self._needs(attempt.demand))

    def told(self, refusal: Refusal) -> tuple[tuple[Shortage, ...], str]:
        """What was short, and the sentence about it."""
        if refusal.reason == SMT_ALIGNMENT:
            return self._whole_cores()
        if refusal.reason == TOPOLOGY_AFFINITY:
            return self._alignment()
        if self.attempt.serving is Manager.MEMORY:
            return self._memory(refusal)
        everywhere = self.kubelet.machine.numa_mask
        pinned = self.attempt.serving is Manager.CPU
        shortages = self._shortages(
            everywhere, [need for need in self.needs if (need.resource == "cpu") is pinned]
        )
        shortages = tuple(short for short in shortages if pinned or not _is_memory(short.resource))
        if not shortages:
            return (), refusal.message
        return shortages, f"needs {_all(self._left(short) for short in shortages)}"

    def _needs(self, demand: Demand) -> list[_Need]:
        attempt, kubelet = self.attempt, self.kubelet
        needs = []
        if attempt.pins_cpus and demand.cpus:
            needs.append(_Need("cpu", demand.cpus, kubelet.cpus.topology.fewest_numas(demand.cpus)))
        if attempt.pins_memory and demand.memory:
            width = kubelet.memory.fewest_numas(demand.memory)
            needs.extend(_Need(kind, amount, width) for kind, amount in demand.memory)
        for resource, count in kubelet.devices.requests(attempt.devices, demand.limits):
            needs.append(_Need(resource.name, count, kubelet.devices.fewest_numas(resource, count)))
        return needs

    def _offer(self, resource: str, mask: int) -> int:
        attempt, kubelet = self.attempt, self.kubelet
        if resource == "cpu":
            return kubelet.cpus.offer(attempt.cpus, mask, attempt.reusable_cpus)
        if _is_memory(resource):
            return kubelet.memory.offer(attempt.memory, resource, mask, attempt.reusable_memory)
        device = kubelet.devices.resources[resource]
        if not device.hosting or mask == kubelet.machine.numa_mask:
            reusable = attempt.reusable_devices.get(resource, 0)
            return (kubelet.devices.available(attempt.devices, device) | reusable).bit_count()
        return kubelet.devices.offer(attempt.devices, device, mask, attempt.reusable_devices.get(resource, 0))

    def _possible(self, need: _Need, mask: int) -> bool:
        kubelet = self.kubelet
        if need.resource == "cpu":
            return kubelet.cpus.capacity(mask) >= need.amount
        if _is_memory(need.resource):
            return kubelet.memory.total_allocatable(need.resource, mask) >= need.amount
        device = kubelet.devices.resources[need.resource]
        return not device.hosting or device.touching(mask).bit_count() >= need.amount

    def _shortages(self, mask: int, needs: Sequence[_Need]) -> tuple[Shortage, ...]:
        found = []
        for need in needs:
            offered = self._offer(need.resource, mask)
            if offered < need.amount:
                numas = tuple(cpuset.ids(mask))
                found.append(Shortage(need.resource, need.amount, offered, numas, self._possible(need, mask)))
        return tuple(found)

    def _whole_cores(self) -> tuple[tuple[Shortage, ...], str]:
        manager = self.kubelet.cpus
        wanted, per_core = self.attempt.demand.cpus, manager.topology.cpus_per_core
        if wanted % per_core:
            return (
                (),
                f"asks for {wanted} exclusive CPUs, which is no multiple of the {per_core} threads of a core",
            )
        whole = (self.attempt.cpus.default & ~manager.reserved_physical).bit_count()
        possible = (manager.topology.all_cpus & ~manager.reserved_physical).bit_count() >= wanted
        shortage = Shortage("cpu", wanted, whole, tuple(cpuset.ids(self.kubelet.machine.numa_mask)), possible)
        return (shortage,), (
            f"needs {wanted} exclusive CPUs in whole cores; "
            f"{whole} CPUs are left on cores without reserved CPUs"
        )

    def _memory(self, refusal: Refusal) -> tuple[tuple[Shortage, ...], str]:
        """Memory cannot be had around the affinity that was settled on."""
        attempt, manager = self.attempt, self.kubelet.memory
        if attempt.demand.memory is None:
            return (), "asks for a fraction of a byte, or for an amount that is not written as a whole number"
        affinity = attempt.affinities[attempt.asking].affinity or 0
        needs = [need for need in self.needs if _is_memory(need.resource)]
        per_mask = {
            mask: self._shortages(mask, needs)
            for size in range(1, len(manager.numas) + 1)
            for mask, _ in masks_of_size(manager.numa_mask, size)
            if affinity & ~mask == 0 and not manager.blocked(attempt.memory, mask)
        }
        wanted = _all(_amount(need.resource, need.amount) for need in needs)
        including = f" including {_numas(affinity)}" if affinity else ""
        if not per_mask:
            return (), f"needs {wanted}{including}; {self._groups()}"
        nearest = min(
            per_mask, key=lambda mask: (len(per_mask[mask]), _gap(per_mask[mask]), mask.bit_count(), mask)
        )
        if not per_mask[nearest]:
            return (), f"needs {wanted}{including}; {self._groups() or refusal.message}"
        offers = _all(_amount(short.resource, short.offered) for short in per_mask[nearest])
        return per_mask[
            nearest
        ], f"needs {wanted}{including}; the most that may be used is {offers}, on {_numas(nearest)}"

    def _alignment(self) -> tuple[tuple[Shortage, ...], str]:
        """No set of NUMA nodes is preferred by all resources: the nearest one, and what it lacks."""
        policy = self.kubelet.topology.policy
        needs = [need for need in self.needs if self._cares(need)]
        widths = sorted({need.width for need in needs})
        if policy != SINGLE_NUMA_NODE and len(widths) > 1:
            narrow, wide = (
                _all(need.resource for need in needs if need.width == width)
                for width in (widths[0], widths[-1])
            )
            return (), (
                f"{narrow} would fit on {_nodes(widths[0])}, {wide} only on {_count(widths[-1])}; "
                f"policy {policy} wants all on the same NUMA nodes"
            )
        width = 1 if policy == SINGLE_NUMA_NODE or not widths else widths[0]
        everywhere = [mask for mask, _ in masks_of_size(self.kubelet.machine.numa_mask, width)]
        masks = [mask for mask in everywhere if self._holds_reusable(mask, needs)]
        if not masks:
            return (), f"has to reuse what its init containers left on more than {_nodes(width)}"
        bound = "" if len(masks) == len(everywhere) else " (bound there by what its init containers left)"
        per_mask = {mask: self._shortages(mask, needs) for mask in masks}
        for need in needs:
            lacking = [
                short for shorts in per_mask.values() for short in shorts if short.resource == need.resource
            ]
            if len(lacking) == len(masks):
                return self._fullest(lacking, width, bound)
        nearest = min(masks, key=lambda mask: (len(per_mask[mask]), _gap(per_mask[mask]), mask))
        if not per_mask[nearest]:
            return (
                (),
                self._groups()
                or "every resource could be had, but not on the NUMA nodes that all others prefer",
            )
        lacks = _all(
            f"{_figure(short.resource, short.needed - short.offered)} of the "
            f"{_amount(short.resource, short.needed)}"
            for short in per_mask[nearest]
        )
        sets = "no NUMA node offers" if width == 1 else f"no {_nodes(width)} offer"
        return per_mask[
            nearest
        ], f"{sets} everything at once; the nearest, {_numas(nearest)}, lacks {lacks}{bound}"

    def _holds_reusable(self, mask: int, needs: Sequence[_Need]) -> bool:
        """Whether NUMA nodes hold all that init containers left for reuse, as hints have to."""
        attempt, kubelet = self.attempt, self.kubelet
        for need in needs:
            if need.resource == "cpu" and kubelet.cpus.topology.numas_of(attempt.reusable_cpus) & ~mask:
                return False
            device = kubelet.devices.resources.get(need.resource)
            if device is not None and not _is_memory(need.resource):
                reusable = attempt.reusable_devices.get(need.resource, 0) & ~device.without_topology
                if reusable & ~device.touching(mask):
                    return False
        return True

    def _cares(self, need: _Need) -> bool:
        device = self.kubelet.devices.resources.get(need.resource)
        return (
            _is_memory(need.resource)
            or need.resource == "cpu"
            or (device is not None and bool(device.hosting))
        )

    def _fullest(
        self, lacking: Sequence[Shortage], width: int, bound: str
    ) -> tuple[tuple[Shortage, ...], str]:
        """A resource that no set of NUMA nodes offers enough of."""
        best = max(lacking, key=lambda short: short.offered)
        sentence = f"needs {_amount(best.resource, best.needed)} on {_nodes(width)}"
        need = _Need(best.resource, best.needed, width)
        everywhere = masks_of_size(self.kubelet.machine.numa_mask, width)
        if not any(self._possible(need, mask) for mask, _ in everywhere):
            sentence += ", more than any holds even when empty"
        if best.offered == 0:
            blocked = f" ({self._groups()})" if _is_memory(best.resource) and self._groups() else ""
            return (best,), f"{sentence}; nothing is left on any{blocked}"
        offer = f"{_figure(best.resource, best.offered)}, on {_numas(cpuset.of(best.numas))}"
        return (best,), f"{sentence}; the fullest offer is {offer}{bound}"

    def _left(self, short: Shortage) -> str:
        left = _figure(short.resource, short.offered)
        return f"{_amount(short.resource, short.needed)}, of which {left} could be had"

    def _groups(self) -> str:
        """How memory in use binds NUMA nodes; empty if none is in use."""
        memory = self.attempt.memory
        groups = sorted({group for group, users in zip(memory.groups, memory.users, strict=True) if users})
        if not groups:
            return ""
        bound = _all(_numas(group) for group in groups)
        return f"memory in use binds {bound}, which others may only share as they are"


def _offers(resource: ResourceHints, *, complete: bool) -> tuple[Hint, ...]:
    if complete or resource.any_numa is not None:
        return resource.all()
    return tuple(Hint(mask, preferred=True) for mask in sorted(resource.preferred, key=enumeration_order))


def _is_memory(resource: str) -> bool:
    return resource == "memory" or resource.startswith(HUGEPAGES)


def _gap(shortages: Sequence[Shortage]) -> float:
    return sum((short.needed - short.offered) / short.needed for short in shortages)


def _amount(resource: str, amount: int) -> str:
    name = resource
    if resource == "cpu":
        name = "exclusive CPU" if amount == 1 else "exclusive CPUs"
    return f"{_figure(resource, amount)} {name}"


def _figure(resource: str, amount: int) -> str:
    """A count, or bytes in a binary unit, rounded down to a tenth."""
    if not _is_memory(resource):
        return str(amount)
    unit = min(max(amount.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    whole, rest = divmod(amount, 1 << 10 * unit)
    tenths = rest * 10 >> 10 * unit
    return f"{whole}.{tenths}{_UNITS[unit]}" if tenths else f"{whole}{_UNITS[unit]}"


def _count(count: int) -> str:
    return _COUNTS[count] if count < len(_COUNTS) else str(count)


def _nodes(count: int) -> str:
    return f"{_count(count)} NUMA node" + ("" if count == 1 else "s")


def _numas(mask: int) -> str:
    return ("NUMA node " if mask.bit_count() == 1 else "NUMA nodes ") + cpuset.format(mask)


def _all(parts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(parts))
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def _hint(hint: Hint) -> str:
    where = "any NUMA node" if hint.affinity is None else _numas(hint.affinity)
    return f"{where} ({'preferred' if hint.preferred else 'not preferred'})"


def _listed(hints: Sequence[Hint]) -> str:
    if hints == (Hint(None, True),):
        return "no preference"
    if hints == (Hint(None, False),):
        return "nothing that fits"
    return ", ".join(_hint(hint) for hint in hints)
