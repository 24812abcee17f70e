"""Sums of alignment over the pods of an owner, as metrics and tables show them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, Self

from numazones.alignment.alignable import Alignable, alignable
from numazones.alignment.pod_alignment import Alignment, PodAlignment, of_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.owners import owner_of


class OwnerName(NamedTuple):
    """Owner of pods."""

    namespace: str
    kind: str
    """Empty for pods that nobody owns."""
    name: str

    @classmethod
    def of(cls, pod: ClusterPod) -> Self:
        """Return the owner of a pod."""
        return cls(pod.namespace, *owner_of(pod))


@dataclass(frozen=True, slots=True)
class AlignmentSum:
    """Amounts that some pods hold, by alignment."""

    pods: Mapping[Alignment, int] = field(default_factory=dict)
    """Alignment → pods that hold something of NUMA nodes."""
    alignable: Mapping[Alignable, int] = field(default_factory=dict)
    """Whether their nodes could hold them aligned → pods that are not."""
    cpus: int = 0
    """Exclusive CPUs."""
    remote_cpus: int = 0
    """Those of them that are not at their container's home."""
    memory: int = 0
    """Bytes promised, hugepages included."""
    remote_memory: int = 0
    """Those of them that are not at their container's home."""

    @classmethod
    def of(cls, found: PodAlignment, could: Alignable) -> Self:
        """Return the sum of one pod."""
        return cls(
            {found.alignment: 1},
            {} if found.aligned else {could: 1},
            sum(found.cpus.values()),
            found.remote_cpus,
            sum(found.memory.values()),
            found.remote_memory,
        )

    def __add__(self, other: "AlignmentSum") -> "AlignmentSum":
        return AlignmentSum(
            Counter(self.pods) + Counter(other.pods),
            Counter(self.alignable) + Counter(other.alignable),
            self.cpus + other.cpus,
            self.remote_cpus + other.remote_cpus,
            self.memory + other.memory,
            self.remote_memory + other.remote_memory,
        )

    @property
    def total(self) -> int:
        """All the pods."""
        return sum(self.pods.values())

    @property
    def misaligned(self) -> int:
        """Pods that are not aligned."""
        return self.total - self.pods.get(Alignment.ALIGNED, 0)

    @property
    def badness(self) -> tuple[int, int, int]:
        """Return the sort key of owners, worst first: pods not aligned, remote CPUs, remote memory."""
        return (self.misaligned, self.remote_cpus, self.remote_memory)


NOTHING = AlignmentSum()


def sums_by_owner(node: ClusterNode) -> dict[OwnerName, AlignmentSum] | None:
    """Return how what the pods of a node hold lies, by owner; None where it is not known who holds what."""
    lying = of_node(node)
    if lying is None:
        return None
    return merged(
        (OwnerName.of(pod), AlignmentSum.of(found, alignable(node, pod, found))) for pod, found in lying
    )


def merged(parts: Iterable[tuple[OwnerName, AlignmentSum]]) -> dict[OwnerName, AlignmentSum]:
    """Add up sums of the same owners."""
    found: dict[OwnerName, AlignmentSum] = {}
    for owner, part in parts:
        found[owner] = found.get(owner, NOTHING) + part
    return found


def worst_first(sums: Mapping[OwnerName, AlignmentSum]) -> Iterator[tuple[OwnerName, AlignmentSum]]:
    """Yield owners and sums, the worst first; equal ones by name."""
    yield from sorted(sums.items(), key=lambda item: (*(-part for part in item[1].badness), item[0]))


def total(sums: Iterable[AlignmentSum]) -> AlignmentSum:
    """Return the sum of all."""
    return reduce(AlignmentSum.__add__, sums, NOTHING)
