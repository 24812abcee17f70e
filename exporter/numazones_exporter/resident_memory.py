"""Whether the memory of pods with CPUs of their own is where their CPUs are, in sums over a node.

What the kernel counts changes all the time, so it is shown as metrics when Prometheus asks and is no part of
the zones. Pods without exclusive CPUs run anywhere, and their memory is nowhere remote.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from numazones import cpuset
from numazones.api.snapshot import Holder
from numazones.machine import Machine, numas_of
from numazones_exporter.sources.cgroups import PodMemory

LOCAL, REMOTE = "local", "remote"
_NOTABLE = 10
"""A pod has notable memory elsewhere if that is more than one part in so many."""


@dataclass(frozen=True, slots=True)
class ResidentMemory:
    """Sums over the pods of a node that have exclusive CPUs."""

    bytes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """(NUMA id, local or remote) → bytes, huge pages included."""
    pods: int = 0
    """Pods that were found."""
    remote_pods: int = 0
    """Those of them with more than a tenth of their memory where they have no CPUs."""


def homes(holders: Iterable[Holder], machine: Machine) -> dict[str, int]:
    """Return pod uid → mask of the NUMA nodes of its exclusive CPUs, of pods that have some."""
    cpus: dict[str, int] = {}
    for holder in holders:
        if holder.cpus:
            cpus[holder.uid] = cpus.get(holder.uid, 0) | holder.cpus
    return {uid: numas_of(machine.cpus_of_numa, mask) for uid, mask in cpus.items()}


def resident_memory(home_of: Mapping[str, int], found: Mapping[str, PodMemory]) -> ResidentMemory:
    """Add up what lies where the pods' CPUs are, and what does not; pods without a group are left out."""
    total: dict[tuple[int, str], int] = {}
    pods = remote_pods = 0
    for uid, home in home_of.items():
        memory = found.get(uid)
        if memory is None:
            continue
        pods += 1
        whole = remote = 0
        for part in (memory.resident, memory.hugepages):
            for numa, size in part.items():
                here = home >> numa & 1
                key = numa, LOCAL if here else REMOTE
                total[key] = total.get(key, 0) + size
                whole += size
                remote += 0 if here else size
        remote_pods += remote * _NOTABLE > whole
    for numa in {numa for numa, _ in total} | set(cpuset.ids(cpuset.union(home_of.values()))):
        for placement in (LOCAL, REMOTE):
            total.setdefault((numa, placement), 0)
    return ResidentMemory(dict(sorted(total.items())), pods, remote_pods)
