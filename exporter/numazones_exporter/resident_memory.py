"""Per-node totals of memory that is local or remote to its pod's exclusive CPUs.

What the kernel counts changes all the time, so it is shown as metrics when Prometheus asks and is no part of
the zones. Containers without exclusive CPUs run wherever their control group lets them: mostly on every NUMA
node, and then their memory is nowhere remote. Some are confined, as by
dra-driver-cpu or a plugin of the runtime.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from numazones import cpuset
from numazones.api.snapshot import ContainerHolding
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import Machine, numas_of
from numazones_exporter.sources.cgroups import ContainerGroup, PodMemory

LOCAL, REMOTE = "local", "remote"
_NOTABLE = 10
"""A pod has notable memory elsewhere if that is more than one part in so many."""


@dataclass(frozen=True, slots=True)
class ResidentMemory:
    """Sums over the pods of a node that have exclusive CPUs or are confined to some NUMA nodes."""

    bytes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """(NUMA id, local or remote) → bytes, huge pages included."""
    pods: int = 0
    """Pods that were found."""
    remote_pods: int = 0
    """Those of them with more than a tenth of their memory where they have no CPUs."""
    confined: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → containers without exclusive CPUs that run there, and not on every NUMA node."""


def homes(holders: Iterable[ContainerHolding], machine: Machine) -> dict[str, int]:
    """Return pod uid → mask of the NUMA nodes of its exclusive CPUs, of pods that have some."""
    cpus: dict[str, int] = {}
    for holder in holders:
        if holder.cpus:
            cpus[holder.uid] = cpus.get(holder.uid, 0) | holder.cpus
    return {uid: numas_of(machine.cpus_of_numa, mask) for uid, mask in cpus.items()}


def confines(cpus_of_numa: Mapping[int, CPUSet]) -> Callable[[CPUSet], bool]:
    """Return what tells whether a set of CPUs leaves out a NUMA node that has some."""
    everywhere = numas_of(cpus_of_numa, cpuset.union(cpus_of_numa.values()))
    return lambda cpus: numas_of(cpus_of_numa, cpus) not in {0, everywhere}


def resident_memory(
    home_of: Mapping[str, int],
    found: Mapping[str, PodMemory],
    confined: Iterable[ContainerGroup] = (),
    cpus_of_numa: Mapping[int, CPUSet] = MappingProxyType({}),
) -> ResidentMemory:
    """Add up what lies where the pods' CPUs are, and what does not; pods without a group are left out.

    Args:
        home_of: pod uid → mask of the NUMA nodes of its exclusive CPUs.
        found: what these pods have.
        confined: containers of other pods that do not run on every NUMA node.
        cpus_of_numa: the machine's.
    """
    parts = [(uid, home, found[uid]) for uid, home in home_of.items() if uid in found]
    containers = [(one.uid, numas_of(cpus_of_numa, one.cpus), one.memory) for one in confined]
    parts += containers
    total: dict[tuple[int, str], int] = {}
    of_pods: dict[str, tuple[int, int]] = {}
    for uid, home, memory in parts:
        whole, remote = of_pods.get(uid, (0, 0))
        for part in (memory.resident, memory.hugepages):
            for numa, size in part.items():
                here = home >> numa & 1
                key = numa, LOCAL if here else REMOTE
                total[key] = total.get(key, 0) + size
                whole += size
                remote += 0 if here else size
        of_pods[uid] = whole, remote
    homes_of_all = cpuset.union([*home_of.values(), *(home for _, home, _ in parts)])
    for numa in {numa for numa, _ in total} | set(cpuset.ids(homes_of_all)):
        for placement in (LOCAL, REMOTE):
            total.setdefault((numa, placement), 0)
    remote_pods = sum(remote * _NOTABLE > whole for whole, remote in of_pods.values())
    counts = {numa: sum(home >> numa & 1 for _, home, _ in containers) for numa in cpus_of_numa}
    return ResidentMemory(dict(sorted(total.items())), len(of_pods), remote_pods, counts)
