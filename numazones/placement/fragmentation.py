"""Free amounts of single NUMA nodes, and how much of them is too scattered to be of use.

Free CPUs are worth little where no pod of the wanted shape fits beside them. For a shape (say 16 CPUs,
32 GiB and one NIC on one NUMA node) the fragmentation of a set of nodes is the share of their free
exclusive CPUs that no further pod of the shape could use. Zones count only with what the kubelet's managers
bind to them: memory with the Memory Manager's policy Static, whole cores only under full-pcpus-only, and
nothing at all on a node whose CPU Manager gives no exclusive CPUs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, MEMORY, is_memory
from numazones.errors import NumazonesError
from numazones.kubelet.machine import numas_of
from numazones.kubelet.node import Node
from numazones.wording import did_you_mean

_PLENTIFUL = frozenset({CPU, MEMORY})
"""What every NUMA node has, as a rule."""

_SHARED = "such a pod runs on the shared pool, without exclusive CPUs"


class InvalidShape(NumazonesError):
    """A text describes no shape; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Amounts that one NUMA node must have at once; CPUs and devices by number, memory in bytes.

    >>> Shape.parse("cpu=4,memory=8Gi").cpus
    4
    """

    resources: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``cpu=16,memory=32Gi,vendor.example/nic=1``.

        Args:
            text: resources with whole amounts; CPUs must be among them.

        Raises:
            InvalidShape: the text is not in this form, or asks for no CPUs.

        >>> str(Shape.parse("memory=1024Mi, cpu=2"))
        'cpu=2,memory=1Gi'
        """
        resources: dict[str, int] = {}
        for part in text.split(","):
            name, separator, amount = (piece.strip() for piece in part.partition("="))
            try:
                number = quantity.parse(amount)
            except quantity.InvalidQuantity:
                number = quantity.ZERO
            if name == CPU and number.nanos > 0 and number.milli() % 1000:
                raise InvalidShape(f"cpu={amount} is not whole CPUs: {_SHARED}; use cpu=16, for example")
            if not separator or not name or number.nanos <= 0 or number.milli() % 1000:
                wrong = (
                    f"invalid quantity {amount!r} for {name}"
                    if separator and name
                    else f"invalid shape {text!r}"
                )
                raise InvalidShape(
                    f"{wrong}: use whole amounts, for example cpu=16,memory=32Gi,vendor.example/nic=1"
                    f"{quantity.unit_meant(amount)}"
                )
            resources[name] = number.value()
        if CPU not in resources:
            meant = next(filter(None, (did_you_mean(name, [CPU]) for name in resources)), "")
            raise InvalidShape(
                f"shape {text!r} requests no CPUs" + (meant or f": {_SHARED}; add cpu=16, for example")
            )
        return cls(tuple(sorted(resources.items())))

    @property
    def cpus(self) -> int:
        """Exclusive CPUs."""
        return dict(self.resources)[CPU]

    def __str__(self) -> str:
        return ",".join(
            f"{name}={quantity.format_bytes(amount) if is_memory(name) else amount}"
            for name, amount in self.resources
        )


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Fragmentation of some zones for one shape.

    >>> from numazones import build
    >>> node = build.node(build.machine(numa=2, cores=8, threads=1, memory="16Gi"))
    >>> found = fragmentation(node, Shape.parse("cpu=4,memory=1Gi"))
    >>> found.free, found.fitting
    (7, 1)
    """

    free: int = 0
    """CPUs that could still be given exclusively."""
    usable: int = 0
    """Those of them that further pods of the shape would use."""
    fitting: int = 0
    """How many further pods of the shape fit, each within one zone."""

    @property
    def share(self) -> float:
        """Share of the free CPUs that no pod of the shape can use; 0 where none are free."""
        return 1 - self.usable / self.free if self.free else 0.0

    def __add__(self, other: "Fragmentation") -> "Fragmentation":
        return Fragmentation(self.free + other.free, self.usable + other.usable, self.fitting + other.fitting)

    def __sub__(self, other: "Fragmentation") -> "Fragmentation":
        return Fragmentation(self.free - other.free, self.usable - other.usable, self.fitting - other.fitting)


def room(node: Node) -> dict[str, dict[int, int]]:
    """Return resource → NUMA id → what the zone could still give exclusively.

    A resource that the node's managers do not bind to zones is missing. A device of several NUMA nodes
    counts in each of them.
    """
    kubelet = node.kubelet
    free: dict[str, dict[int, int]] = {}
    if kubelet.cpus.static:
        available = kubelet.cpus.available(node.cpus)
        free[CPU] = {numa: (available & cpus).bit_count() for numa, cpus in node.machine.cpus_of_numa.items()}
    for kind, column in node.memory.free.items():
        free[kind] = dict(zip(kubelet.memory.numas, column, strict=True))
    for name, resource in kubelet.devices.resources.items():
        if resource.hosting:
            idle = kubelet.devices.available(node.devices, resource)
            free[name] = {
                numa: (resource.devices_near(1 << numa) & idle).bit_count() for numa in node.machine.by_numa
            }
    return free


def full_core_cpus(node: Node) -> dict[int, int]:
    """Return NUMA id → CPUs on cores of which every thread is free; empty without exclusive CPUs."""
    if not node.kubelet.cpus.static:
        return {}
    available = node.kubelet.cpus.available(node.cpus)
    counts = dict.fromkeys(node.machine.cpus_of_numa, 0)
    for (numa, _, _), cpus in node.machine.cpus_of_core.items():
        if cpus & ~available == 0:
            counts[numa] += cpus.bit_count()
    return counts


def largest_free_block(node: Node) -> int:
    """Return the most exclusive CPUs that one zone could still give."""
    return max(room(node).get(CPU, {0: 0}).values(), default=0)


def fragmentation(node: Node, shape: Shape) -> Fragmentation:
    """Return how much of a node's free CPUs further pods of a shape would use."""
    free = room(node)
    if CPU not in free:
        return Fragmentation()
    cpus = full_core_cpus(node) if node.kubelet.cpus.full_cores_only else free[CPU]
    if any(name not in free and not is_memory(name) for name, _ in shape.resources):
        return Fragmentation(free=sum(free[CPU].values()))  # a device that the node does not have
    needed = [(free[name], amount) for name, amount in shape.resources if name in free and name != CPU]
    fitting = sum(
        min((count // shape.cpus, *(amounts.get(numa, 0) // amount for amounts, amount in needed)))
        for numa, count in cpus.items()
    )
    return Fragmentation(free=sum(free[CPU].values()), usable=fitting * shape.cpus, fitting=fitting)


def exclusive_cpus(node: Node) -> dict[int, int]:
    """Return NUMA id → CPUs that containers hold exclusively; zones without any count 0 (KEP-2902)."""
    assigned = node.cpus.exclusive_cpus()
    return {numa: (assigned & cpus).bit_count() for numa, cpus in node.machine.cpus_of_numa.items() if cpus}


def zones_of(node: Node, uid: str) -> tuple[int, ...]:
    """Return the NUMA nodes, ascending, that a pod holds CPUs, memory or devices of."""
    cpus = node.cpus.held_by(uid)
    mask = numas_of(node.machine.cpus_of_numa, cpus)
    for blocks in node.memory.assignments.get(uid, {}).values():
        mask |= cpuset.union(block.affinity for block in blocks)
    for held in node.devices.assignments.get(uid, {}).values():
        for name, devices in held.items():
            resource = node.kubelet.devices.resources[name]
            mask |= cpuset.of(numa for numa in resource.numas(devices) if numa in node.machine.by_numa)
    return tuple(cpuset.ids(mask))


def packing(before: Mapping[str, Mapping[int, int]], after: Mapping[str, Mapping[int, int]]) -> float:
    """Score from 0 to 1 how well a placement keeps large free blocks whole; 0 where it takes nothing.

    A free block's worth grows with the square of its size, so that one of 16 CPUs is worth more than two
    of 8. Taking n of a zone with f free loses f² - (f-n)²; the least that any zone could lose is n², where
    the pod fills a block exactly. Their ratio is 1 for the exact fit and falls as the block that is broken
    grows: KEP-6007's "prefer the most allocated NUMA node", carried over to the choice of the node.
    Placements that need k zones score 1/k at best. With several resources, the mean counts.
    """
    scores = []
    for resource, zones in before.items():
        left = after.get(resource, {})
        taken = [(free, free - left.get(numa, 0)) for numa, free in zones.items() if left.get(numa, 0) < free]
        if taken:
            loss = sum(free**2 - (free - amount) ** 2 for free, amount in taken)
            scores.append(sum(amount for _, amount in taken) ** 2 / loss / len(taken) ** 2)
    return sum(scores) / len(scores) if scores else 0.0


def stranding(before: Mapping[str, Mapping[int, int]], after: Mapping[str, Mapping[int, int]]) -> int:
    """Return how many idle devices and huge pages lose CPUs or memory beside them to a pod that uses none.

    Counted are kinds: of each resource other than CPUs and memory of which the pod takes nothing, the NUMA
    nodes that still have some idle and that the pod takes CPUs or memory of. A pod that needs such a resource
    needs CPUs and memory beside it, so that these are not for pods without.
    """
    taken_from = {
        numa
        for name in (CPU, MEMORY)
        for numa, free in before.get(name, {}).items()
        if after.get(name, {}).get(numa, 0) < free
    }
    return sum(
        sum(1 for numa in taken_from if zones.get(numa, 0))
        for name, zones in before.items()
        if name not in _PLENTIFUL and zones == after.get(name)
    )


def total(parts: Iterable[Fragmentation]) -> Fragmentation:
    """Add up."""
    result = Fragmentation()
    for part in parts:
        result += part
    return result
