"""The NUMA zones of a cluster in figures, as ``top`` and ``live`` show them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from numazones.cluster import ClusterNode
from numazones.fragmentation import room
from numazones.resources import CPU, MEMORY


class Zone(NamedTuple):
    """One zone, in figures."""

    node: str
    numa: int
    policy: str
    cpus: tuple[int, int] | None
    """(held exclusively, allocatable)"""
    memory: tuple[int, int] | None
    devices: str

    @property
    def load(self) -> float:
        """The part of the CPUs that is held exclusively, from 0 to 1."""
        return share(self.cpus)

    @property
    def free(self) -> int:
        """CPUs that can still be given exclusively."""
        return self.cpus[1] - self.cpus[0] if self.cpus else 0


ORDERS: dict[str, Callable[[Zone], Any]] = {
    "node": lambda zone: (zone.node, zone.numa),
    "cpu": lambda zone: (-zone.load, zone.node, zone.numa),
    "free": lambda zone: (-zone.free, zone.node, zone.numa),
    "memory": lambda zone: (-share(zone.memory), zone.node, zone.numa),
}
"""Name of an order → what zones are sorted by."""


def zones_of(node: ClusterNode) -> Iterator[Zone]:
    """Yield the zones of a node; none of one whose state is unknown."""
    state = node.state
    if state is None:
        return
    free, kubelet = room(state), state.kubelet
    for position, numa in enumerate(state.machine.by_numa):
        cpus = memory = None
        if CPU in free:
            allocatable = (kubelet.cpus.allocatable() & state.machine.cpus_of_numa[numa]).bit_count()
            cpus = (allocatable - free[CPU][numa], allocatable)
        if MEMORY in free:
            whole = kubelet.memory.allocatable[MEMORY][position]
            memory = (whole - free[MEMORY][numa], whole)
        devices = " ".join(
            f"{name.rpartition('/')[2]}:{left[numa]}/{(resource.devices_near(1 << numa)).bit_count()}"
            for name, resource in kubelet.devices.resources.items()
            if (left := free.get(name)) is not None and resource.devices_near(1 << numa)
        )
        yield Zone(node.name, numa, state.config.topology_manager_policy, cpus, memory, devices)


def share(used: tuple[int, int] | None) -> float:
    """Return the part in use of (used, allocatable), from 0 to 1."""
    return used[0] / used[1] if used and used[1] else 0.0
