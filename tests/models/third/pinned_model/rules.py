"""The rules: which CPUs a pod gets."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones.kubelet.demand import effective
from numazones.kubelet.machine import Machine
from numazones.kubelet.pod import Pod


@dataclass(frozen=True, slots=True)
class Node:
    """A node's CPUs, and which pod has which."""

    machine: Machine
    reserved: CPUSet = 0
    given: Mapping[str, CPUSet] = field(default_factory=dict, hash=False)
    """UID → CPUs."""

    @property
    def free(self) -> dict[int, CPUSet]:
        """NUMA id → CPUs that nobody has."""
        taken = self.reserved | cpuset.union(self.given.values())
        return {numa: cpus & ~taken for numa, cpus in self.machine.cpus_of_numa.items()}

    @property
    def state_key(self) -> Hashable:
        """Nodes with equal keys give equal CPUs to pods that are new to them."""
        return tuple(self.free.items())

    def with_pod(self, uid: str, cpus: CPUSet) -> "Node":
        """The node after a pod was given CPUs."""
        return replace(self, given={**self.given, uid: cpus})

    def without_pod(self, uid: str) -> "Node":
        """The node after a pod has ended; it changes nothing where the pod is unknown."""
        if uid not in self.given:
            return self
        return replace(self, given={other: cpus for other, cpus in self.given.items() if other != uid})


def needed_cpus(pod: Pod) -> int:
    """Return how many CPUs a pod gets: its requests, rounded up."""
    milli = effective(
        (container.kind, [(name, amount.milli()) for name, amount in container.requests if name == CPU])
        for container in pod.containers
    )
    return -(-dict(milli).get(CPU, 0) // 1000)


def choose_cpus(node: Node, count: int) -> CPUSet | None:
    """Return the lowest free CPUs of the NUMA node that is left with the fewest; None: no one has enough."""
    fitting = [(cpus.bit_count(), numa) for numa, cpus in node.free.items() if cpus.bit_count() >= count]
    if not fitting:
        return None
    _, numa = min(fitting)
    return cpuset.of(list(cpuset.ids(node.free[numa]))[:count])
