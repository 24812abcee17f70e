"""Explain a rejection with numbers: the set of NUMA nodes that came closest, and what it lacked.

Looks at the states of the managers as they were when the pod was rejected, and puts into one
sentence with numbers what the kubelet's message leaves out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numazones import cpuset
from numazones.apimachinery.resources import CPU, figures, is_memory
from numazones.kubelet.admission import Attempt, Manager
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.demand import Demand
from numazones.kubelet.hints import masks_of_size
from numazones.kubelet.machine import name_numas
from numazones.kubelet.node import Node
from numazones.kubelet.rejection import EMPTY_POD_SHARED_POOL, SMT_ALIGNMENT, TOPOLOGY_AFFINITY, Rejection
from numazones.wording import enumeration, pluralize

# With more NUMA nodes than the kubelet takes by default, not all their sets are looked at.
_MAX_NUMAS_SEARCHED = 8
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Shortage:
    """Amount of one resource that a set of NUMA nodes lacks."""

    resource: str
    """cpu, memory, hugepages-… or a device resource."""
    needed: int
    """CPUs, bytes or devices."""
    offered: int
    numas: tuple[int, ...]
    """The NUMA nodes looked at."""
    possible: bool
    """Whether these NUMA nodes could give so much on an empty node."""

    def written(self, amount: int) -> str:
        """Write an amount of the resource for people: ``8 exclusive CPUs``."""
        return _amount(self.resource, amount)

    def __str__(self) -> str:
        needed, offered = _figures(self.resource, self.needed, self.offered)
        requested = f"{needed} {_noun(self.resource, self.needed)} requested"
        return f"{requested}, {offered} free on {name_numas(cpuset.of(self.numas))}"


@dataclass(frozen=True, slots=True)
class KubeletShortfall:
    """Shortfall that made the kubelet reject a pod."""

    sentence: str
    shortages: tuple[Shortage, ...] = ()
    """What the nearest set of NUMA nodes lacked; empty where it is not a matter of amounts."""


def holders_of(shortage: Shortage, node: Node) -> Iterator[tuple[str, int]]:
    """Yield (UID, amount) for the pods that hold of the resource on the NUMA nodes looked at, most first.

    CPUs and devices that containers took over from init containers count once.
    """
    mask = cpuset.of(shortage.numas)
    held: dict[str, int] = {}
    if shortage.resource == CPU:
        here = node.kubelet.cpus.topology.cpus_in(mask)
        for uid, cpus in node.cpus.assignments.items():
            held[uid] = (cpuset.union(cpus.values()) & here).bit_count()
    elif is_memory(shortage.resource):
        for uid, containers in node.memory.assignments.items():
            blocks = [block for part in containers.values() for block in part if block.affinity & mask]
            held[uid] = sum(block.size for block in blocks if block.type == shortage.resource)
    else:
        device = node.kubelet.devices.resources[shortage.resource]
        near = device.devices_near(mask)
        if mask == node.kubelet.machine.numa_mask:
            near |= device.without_topology
        for uid, parts in node.devices.assignments.items():
            members = cpuset.union(part.get(shortage.resource, 0) for part in parts.values())
            held[uid] = (members & near).bit_count()
    yield from sorted(
        ((uid, amount) for uid, amount in held.items() if amount), key=lambda one: (-one[1], one[0])
    )


def shortfall_of(attempt: Attempt, rejection: Rejection) -> KubeletShortfall:
    """Return what an attempt lacked that ended in a rejection."""
    return _Inspection(attempt).shortfall(rejection)


@dataclass(frozen=True, slots=True)
class _Need:
    """One resource asked for."""

    resource: str
    amount: int
    width: int
    """NUMA nodes that it takes on an empty node."""


class _Inspection:
    """Looks at a rejected attempt, as its states were when it was rejected."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.kubelet = attempt.kubelet
        self.needs = tuple(self._needs(attempt.demand))

    def shortfall(self, rejection: Rejection) -> KubeletShortfall:
        """Return what was short, and the sentence about it."""
        emptied = self.attempt.empty_pool
        if emptied is not None and rejection.reason in {TOPOLOGY_AFFINITY, EMPTY_POD_SHARED_POOL}:
            return KubeletShortfall(emptied.sentence)
        if rejection.reason == SMT_ALIGNMENT:
            return self._whole_cores()
        if rejection.reason == TOPOLOGY_AFFINITY:
            return self._alignment()
        if self.attempt.serving is Manager.MEMORY:
            return self._memory(rejection)
        everywhere = self.kubelet.machine.numa_mask
        pinned = self.attempt.serving is Manager.CPU
        shortages = self._shortages(
            everywhere, [need for need in self.needs if (need.resource == CPU) is pinned]
        )
        shortages = tuple(short for short in shortages if pinned or not is_memory(short.resource))
        if not shortages:
            return KubeletShortfall(rejection.message)
        return KubeletShortfall(f"needs {'; needs '.join(map(_free_text, shortages))}", shortages)

    def _needs(self, demand: Demand) -> list[_Need]:
        attempt, kubelet = self.attempt, self.kubelet
        needs = []
        if attempt.pins_cpus and demand.cpus:
            needs.append(_Need(CPU, demand.cpus, kubelet.cpus.topology.fewest_numas(demand.cpus)))
        if attempt.pins_memory and demand.memory:
            width = kubelet.memory.fewest_numas(demand.memory)
            needs.extend(_Need(kind, amount, width) for kind, amount in demand.memory)
        for resource, count in kubelet.devices.requests(attempt.devices, demand.limits):
            needs.append(_Need(resource.name, count, kubelet.devices.fewest_numas(resource, count)))
        return needs

    def _offer(self, resource: str, mask: int) -> int:
        attempt, kubelet = self.attempt, self.kubelet
        if resource == CPU:
            return kubelet.cpus.offer(attempt.cpus, mask, attempt.reusable_cpus)
        if is_memory(resource):
            return kubelet.memory.offer(attempt.memory, resource, mask, attempt.reusable_memory)
        device = kubelet.devices.resources[resource]
        if not device.hosting or mask == kubelet.machine.numa_mask:
            reusable = attempt.reusable_devices.get(resource, 0)
            return (kubelet.devices.available(attempt.devices, device) | reusable).bit_count()
        return kubelet.devices.offer(attempt.devices, device, mask, attempt.reusable_devices.get(resource, 0))

    def _possible(self, need: _Need, mask: int) -> bool:
        kubelet = self.kubelet
        if need.resource == CPU:
            return kubelet.cpus.capacity(mask) >= need.amount
        if is_memory(need.resource):
            return kubelet.memory.total_allocatable(need.resource, mask) >= need.amount
        device = kubelet.devices.resources[need.resource]
        return not device.hosting or device.devices_near(mask).bit_count() >= need.amount

    def _shortages(self, mask: int, needs: Sequence[_Need]) -> tuple[Shortage, ...]:
        found = []
        for need in needs:
            offered = self._offer(need.resource, mask)
            if offered < need.amount:
                numas = tuple(cpuset.ids(mask))
                found.append(Shortage(need.resource, need.amount, offered, numas, self._possible(need, mask)))
        return tuple(found)

    def _whole_cores(self) -> KubeletShortfall:
        manager = self.kubelet.cpus
        wanted, per_core = self.attempt.demand.cpus, manager.topology.cpus_per_core
        if wanted % per_core:
            return KubeletShortfall(
                f"requests {pluralize(wanted, 'CPU')}, which is not a multiple of {per_core}, "
                "the threads per core"
            )
        whole = (self.attempt.cpus.default & ~manager.reserved_physical).bit_count()
        possible = (manager.topology.all_cpus & ~manager.reserved_physical).bit_count() >= wanted
        shortage = Shortage(CPU, wanted, whole, tuple(cpuset.ids(self.kubelet.machine.numa_mask)), possible)
        return KubeletShortfall(
            f"needs {_amount(CPU, wanted)} in whole cores; "
            f"{pluralize(whole, 'CPU')} {'is' if whole == 1 else 'are'} left on cores without reserved CPUs",
            (shortage,),
        )

    def _memory(self, rejection: Rejection) -> KubeletShortfall:
        """Return the shortfall where memory cannot be had around the affinity that was settled on."""
        attempt, manager = self.attempt, self.kubelet.memory
        if attempt.demand.memory is None:
            return KubeletShortfall("requests an amount of memory that is not a whole number of bytes")
        affinity = self._affinity()
        if not attempt.demand.memory:
            if affinity:
                return KubeletShortfall(f"must use {name_numas(affinity)} together; {self._groups_text()}")
            return KubeletShortfall(
                "requests no memory, which the static Memory Manager accepts only if other resources bind "
                "the container to NUMA nodes"
            )
        needs = [need for need in self.needs if is_memory(need.resource)]
        per_mask = {
            mask: self._shortages(mask, needs)
            for size in self._sizes()
            for mask, _ in masks_of_size(manager.numa_mask, size)
            if affinity & ~mask == 0 and not manager.is_blocked(attempt.memory, mask)
        }
        wanted = [(need.resource, need.amount) for need in needs]
        amounts = enumeration(_amount(*one) for one in wanted)
        needs_words = f"needs {amounts}"
        if affinity:
            amounts = enumeration(f"{_figures(*need)[0]} of {need[0]}" for need in wanted)
            verb = "is" if len(wanted) == 1 else "are"
            needs_words = (
                f"the Topology Manager chose {name_numas(affinity)} for it, but {amounts} "
                f"{verb} not available there, even together with other NUMA nodes"
            )
        if not per_mask:
            return KubeletShortfall(f"{needs_words}; {self._groups_text()}")
        nearest = min(
            per_mask, key=lambda mask: (len(per_mask[mask]), _gap(per_mask[mask]), mask.bit_count(), mask)
        )
        if not per_mask[nearest]:
            return KubeletShortfall(f"{needs_words}; {self._groups_text() or rejection.message}")
        offers = enumeration(_amount(short.resource, short.offered) for short in per_mask[nearest])
        why = f" ({self._groups_text()})" if self._groups_text() else ""
        verb = "is" if len(per_mask[nearest]) == 1 else "are"
        most = f"at most {offers} {verb} free, on {name_numas(nearest)}"
        return KubeletShortfall(f"{needs_words}; {most}{why}", per_mask[nearest])

    def _affinity(self) -> int:
        """Return the NUMA nodes chosen for the container, or for the pod as a whole; 0 for none."""
        hints = self.attempt.affinities
        hint = hints.get(self.attempt.asking) or next(iter(hints.values()))
        return hint.affinity or 0

    def _sizes(self) -> Sequence[int]:
        """Return how many NUMA nodes to look at together; not every number where there are many."""
        count = len(self.kubelet.memory.numas)
        return range(1, count + 1) if count <= _MAX_NUMAS_SEARCHED else (1, count)

    def _alignment(self) -> KubeletShortfall:
        """Return what the nearest set of NUMA nodes lacks, where no set is preferred by all resources."""
        policy = self.kubelet.topology.policy
        needs = [need for need in self.needs if self._cares(need)]
        for need in needs:
            if self._is_nowhere(need):
                return KubeletShortfall(
                    f"needs {_amount(need.resource, need.amount)}, but the plugin reports them on NUMA nodes "
                    "that this machine does not have, so no set of NUMA nodes offers any"
                )
        widths = sorted({need.width for need in needs})
        if policy != SINGLE_NUMA_NODE and len(widths) > 1:
            return self._different_widths(needs, widths)
        width = 1 if policy == SINGLE_NUMA_NODE or not widths else widths[0]
        everywhere = [mask for mask, _ in masks_of_size(self.kubelet.machine.numa_mask, width)]
        masks = [mask for mask in everywhere if self._holds_reusable(mask, needs)]
        if not masks:
            return KubeletShortfall(
                f"must reuse what its init containers had, which spans more than {_nodes(width)}"
            )
        bound = "" if len(masks) == len(everywhere) else " (it must reuse what init containers left there)"
        per_mask = {mask: self._shortages(mask, needs) for mask in masks}
        for need in needs:
            lacking = [
                short for shorts in per_mask.values() for short in shorts if short.resource == need.resource
            ]
            if len(lacking) == len(masks):
                return self._too_little(lacking, width, bound)
        nearest = min(masks, key=lambda mask: (len(per_mask[mask]), _gap(per_mask[mask]), mask))
        if not per_mask[nearest]:
            return KubeletShortfall(self._groups_text() or "no set of NUMA nodes suits all resources")
        lacks = enumeration(
            f"{_figures(short.resource, short.needed - short.offered)[0]} of the "
            f"{_amount(short.resource, short.needed)}"
            for short in per_mask[nearest]
        )
        sets = "no NUMA node has" if width == 1 else f"no {_nodes(width)} have"
        sentence = f"{sets} everything free at once; the closest, {name_numas(nearest)}, lacks {lacks}{bound}"
        return KubeletShortfall(sentence, per_mask[nearest])

    def _different_widths(self, needs: Sequence[_Need], widths: Sequence[int]) -> KubeletShortfall:
        """Return the shortfall where resources take different numbers of NUMA nodes even when empty."""
        narrow, wide = (
            enumeration(need.resource for need in needs if need.width == width)
            for width in (widths[0], widths[-1])
        )
        sentence = (
            f"{narrow} would fit on {_nodes(widths[0])}, {wide} only on {_count(widths[-1])}; "
            f"policy {self.kubelet.topology.policy} requires the same NUMA nodes for all"
        )
        short = tuple(best for need in needs if (best := self._best(need)) is not None)
        if not short:
            return KubeletShortfall(sentence)
        now = enumeration(
            f"{offered} of {needed} {_noun(one.resource, one.needed)} on {name_numas(cpuset.of(one.numas))}"
            for one in short
            for needed, offered in [_figures(one.resource, one.needed, one.offered)]
        )
        return KubeletShortfall(f"on an empty node {sentence}; now at most {now} are free", short)

    def _best(self, need: _Need) -> Shortage | None:
        """Return the largest offer of a resource on as many NUMA nodes as it takes; None if one suffices."""
        best: Shortage | None = None
        for mask, _ in masks_of_size(self.kubelet.machine.numa_mask, need.width):
            short = self._shortages(mask, [need])
            if not short:
                return None
            if best is None or short[0].offered > best.offered:
                best = short[0]
        return best

    def _holds_reusable(self, mask: int, needs: Sequence[_Need]) -> bool:
        """Return whether NUMA nodes hold all that init containers left for reuse, as hints have to."""
        attempt, kubelet = self.attempt, self.kubelet
        for need in needs:
            if need.resource == CPU and kubelet.cpus.topology.numas_of(attempt.reusable_cpus) & ~mask:
                return False
            device = kubelet.devices.resources.get(need.resource)
            if device is not None and not is_memory(need.resource):
                reusable = attempt.reusable_devices.get(need.resource, 0) & ~device.without_topology
                if reusable & ~device.devices_near(mask):
                    return False
        return True

    def _cares(self, need: _Need) -> bool:
        device = self.kubelet.devices.resources.get(need.resource)
        return (
            is_memory(need.resource) or need.resource == CPU or (device is not None and bool(device.hosting))
        )

    def _is_nowhere(self, need: _Need) -> bool:
        """Return whether devices are near NUMA nodes alone that the machine lacks, such as -1."""
        device = self.kubelet.devices.resources.get(need.resource)
        return (
            device is not None
            and bool(device.hosting)
            and not device.hosting & self.kubelet.machine.numa_mask
        )

    def _too_little(self, lacking: Sequence[Shortage], width: int, bound: str) -> KubeletShortfall:
        """Return the shortfall where no set of NUMA nodes offers enough of a resource."""
        best = max(lacking, key=lambda short: short.offered)
        needed, offered = _figures(best.resource, best.needed, best.offered)
        sentence = f"needs {needed} {_noun(best.resource, best.needed)} on {_nodes(width)}"
        need = _Need(best.resource, best.needed, width)
        everywhere = masks_of_size(self.kubelet.machine.numa_mask, width)
        if not any(self._possible(need, mask) for mask, _ in everywhere):
            sentence += ", more than any has even when empty"
        if best.offered == 0:
            blocked = f" ({self._groups_text()})" if is_memory(best.resource) and self._groups_text() else ""
            return KubeletShortfall(f"{sentence}; none is free{blocked}", (best,))
        where = f"{_nodes(width)} ({name_numas(cpuset.of(best.numas))})"
        free = f"{offered} {_are(best.resource, best.offered)} free on {where}"
        return KubeletShortfall(f"{sentence}; at most {free}{bound}", (best,))

    def _groups_text(self) -> str:
        """Say how memory in use binds NUMA nodes together; empty if none is in use."""
        memory = self.attempt.memory
        groups = sorted({group for group, users in zip(memory.groups, memory.users, strict=True) if users})
        if not groups:
            return ""
        bound = enumeration(
            f"{name_numas(group)} {'by itself' if group.bit_count() == 1 else 'together'}" for group in groups
        )
        return (
            f"memory in use binds {bound}, and other pods can use memory there only in the same combination"
        )


def _gap(shortages: Sequence[Shortage]) -> float:
    return sum((short.needed - short.offered) / short.needed for short in shortages)


def _free_text(short: Shortage) -> str:
    needed, offered = _figures(short.resource, short.needed, short.offered)
    free = f"only {offered} {_are(short.resource, short.offered)}" if short.offered else "none is"
    return f"{needed} {_noun(short.resource, short.needed)}, but {free} free"


def _are(resource: str, amount: int) -> str:
    return "is" if amount == 1 or is_memory(resource) else "are"


def _amount(resource: str, amount: int) -> str:
    return f"{_figures(resource, amount)[0]} {_noun(resource, amount)}"


def _noun(resource: str, amount: int) -> str:
    if resource == CPU:
        return "exclusive CPU" if amount == 1 else "exclusive CPUs"
    return resource


def _figures(resource: str, *amounts: int) -> tuple[str, ...]:
    """Write counts, or bytes in a binary unit; CPUs are whole ones here."""
    return tuple(map(str, amounts)) if resource == CPU else figures(resource, *amounts)


def _count(count: int) -> str:
    return _COUNTS[count] if count < len(_COUNTS) else str(count)


def _nodes(count: int) -> str:
    return f"{_count(count)} NUMA node" + ("" if count == 1 else "s")
