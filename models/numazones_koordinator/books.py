"""Allocations that NodeNUMAResource has recorded on a node: CPU sets, amounts per NUMA node, and their use.

Rules: ``nodenumaresource/node_allocation``. Books are immutable; changes share what stays. A CPU may be in
the sets of several running pods, whose annotations nobody checks. NUMA nodes that ever had something
recorded stay listed, with 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_koordinator.amounts import Amounts, minus, plus
from numazones_koordinator.annotations import CPUExclusivePolicy, NUMAResources
from numazones_koordinator.cpu_topology import CPUTopology


class Use(StrEnum):
    """Use of a NUMA node by pods."""

    IDLE = "idle"
    SINGLE = "single"
    """By pods that use no other one."""
    SHARED = "shared"
    """By a pod that spans several."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Resources that one pod was given."""

    cpus: CPUSet = 0
    numa_resources: NUMAResources = ()
    exclusive_policy: str = ""
    """The word in its ``preferredCPUExclusivePolicy``, whether it counted for the pod itself or not."""


@dataclass(frozen=True, slots=True)
class Books:
    """The records of one node."""

    pods: Mapping[str, Allocation] = field(default_factory=dict)
    """By uid."""
    used: CPUSet = 0
    """CPUs in any pod's set."""
    shared: Mapping[int, int] = field(default_factory=dict)
    """CPU → number of pods, where more than one."""
    core_exclusive: CPUSet = 0
    """Used CPUs whose last pod has the policy PCPULevel."""
    numa_exclusive: CPUSet = 0
    """Used CPUs whose last pod has the policy NUMANodeLevel."""
    single: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → number of pods with CPUs on it alone."""
    spanning: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → number of pods with CPUs on it and on others."""
    recorded: Mapping[int, Amounts] = field(default_factory=dict)
    """NUMA id → amounts given to pods."""

    def add(self, uid: str, given: Allocation, topology: CPUTopology) -> "Books":
        """Return the books with a pod's allocation, which replaces an earlier one of that pod."""
        books = self.remove(uid, topology)
        shared = dict(books.shared)
        for cpu in cpuset.ids(books.used & given.cpus):
            shared[cpu] = shared.get(cpu, 1) + 1
        core_exclusive = given.cpus if given.exclusive_policy == CPUExclusivePolicy.PCPU_LEVEL else 0
        numa_exclusive = given.cpus if given.exclusive_policy == CPUExclusivePolicy.NUMA_NODE_LEVEL else 0
        recorded = dict(books.recorded)
        for numa, resources in given.numa_resources:
            recorded[numa] = plus(recorded.get(numa, {}), resources)
        single, spanning = books.single, books.spanning
        numas = topology.numas_touched(given.cpus) if given.cpus else ()
        if len(numas) > 1:
            spanning = _changed_counts(spanning, numas, 1)
        else:
            single = _changed_counts(single, numas, 1)
        return Books(
            pods={**books.pods, uid: given},
            used=books.used | given.cpus,
            shared=shared,
            core_exclusive=books.core_exclusive & ~given.cpus | core_exclusive,
            numa_exclusive=books.numa_exclusive & ~given.cpus | numa_exclusive,
            single=single,
            spanning=spanning,
            recorded=recorded,
        )

    def remove(self, uid: str, topology: CPUTopology) -> "Books":
        """Return the books without a pod's allocation; unknown pods change nothing."""
        given = self.pods.get(uid)
        if given is None:
            return self
        shared, free = dict(self.shared), given.cpus
        for cpu in cpuset.ids(given.cpus & cpuset.of(shared)):
            free &= ~(1 << cpu)
            shared[cpu] -= 1
            if shared[cpu] == 1:
                del shared[cpu]
        recorded = dict(self.recorded)
        for numa, resources in given.numa_resources:
            recorded[numa] = minus(recorded[numa], resources)
        numas = topology.numas_touched(given.cpus) if given.cpus else ()
        single, spanning = self.single, self.spanning
        if len(numas) > 1:
            spanning = _changed_counts(spanning, numas, -1)
        else:
            single = _changed_counts(single, numas, -1)
        return replace(
            self,
            pods={other: held for other, held in self.pods.items() if other != uid},
            used=self.used & ~free,
            shared=shared,
            core_exclusive=self.core_exclusive & ~free,
            numa_exclusive=self.numa_exclusive & ~free,
            single=single,
            spanning=spanning,
            recorded=recorded,
        )

    def use(self, numa: int) -> Use:
        """Return how a NUMA node is used, as the scheduler sees it: by CPU sets alone."""
        if numa in self.spanning:
            return Use.SHARED
        return Use.SINGLE if numa in self.single else Use.IDLE


def _changed_counts(counts: Mapping[int, int], numas: Iterable[int], step: int) -> Mapping[int, int]:
    """Return the counts with those of some NUMA nodes changed, without zeros."""
    if not numas:
        return counts
    changed = dict(counts)
    for numa in numas:
        changed[numa] = changed.get(numa, 0) + step
        if not changed[numa]:
            del changed[numa]
    return changed
