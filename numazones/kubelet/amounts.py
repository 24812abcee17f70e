"""Decisions that follow from a node's amounts alone, so that nodes with equal amounts share them.

Hints and what is left on a NUMA node depend on how many CPUs are free there, not on which. Which ones the CPU
Manager takes matters only where it may take them from several NUMA nodes, or where a container gets CPUs that
an earlier one of its pod gave back. Thousands of nodes have a few hundred different amounts, so that most
decisions of a search over all of them need not be made.
"""

from dataclasses import dataclass, field
from typing import Any

from numazones.kubelet.admission import Admission
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.node import Node


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts that a node has and has assigned, by NUMA node; devices count one by one."""

    parts: tuple[Any, ...]
    _hash: int = field(init=False, repr=False, compare=False)
    """It is asked for by every kind of pod."""

    def __post_init__(self) -> None:
        """Work the hash out once."""
        object.__setattr__(self, "_hash", hash(self.parts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of texts differ between processes.
        return Amounts, (self.parts,)


def amounts_of(node: Node) -> Amounts:
    """Return the amounts of a node.

    >>> from numazones import admit, build
    >>> empty = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> one, two = (admit(empty, build.pod(name, cpu=2, memory="1Gi")).node for name in ("one", "two"))
    >>> amounts_of(one) == amounts_of(two), amounts_of(one) == amounts_of(empty)
    (True, False)
    """
    cpus, memory, devices = node.cpus, node.memory, node.devices
    manager = node.kubelet.cpus
    exclusive, available = cpus.exclusive_cpus(), manager.available(cpus)
    return Amounts(
        (
            node.machine,
            node.config,
            tuple(
                [
                    ((available & zone).bit_count(), (exclusive & zone).bit_count())
                    for zone in node.machine.cpus_of_numa.values()
                ]
            ),
            (cpus.default & ~manager.reserved_physical).bit_count(),
            memory.users,
            memory.groups,
            tuple(memory.free.items()),
            tuple(memory.reserved.items()),
            tuple(
                [
                    (name, item.registered, item.numa_masks, item.healthy, devices.allocated.get(name))
                    for name, item in node.kubelet.devices.resources.items()
                ]
            ),
        )
    )


def follows_from_amounts(admission: Admission) -> bool:
    """Return whether the decision is the same wherever a node's amounts are equal."""
    manager = admission.before.kubelet.cpus
    given = admission.node.cpus.assignments.get(admission.pod.uid)
    if not admission.admitted or not given:
        return admission.admitted
    containers, every_numa = admission.pod.containers, admission.before.machine.numa_mask
    if (
        manager.strategy.distributed
        or manager.align_by_socket
        or (manager.full_cores_only and len(containers) > 1)  # free whole cores depend on which CPUs went
        or admission.node.cpus.pods.get(admission.pod.uid)
        or any(container.kind is ContainerKind.INIT for container in containers)
    ):
        return False
    for name, cpus in given.items():
        affinity = admission.affinities[name].affinity
        numas = every_numa if affinity is None else affinity
        if numas.bit_count() != 1 or cpus & ~manager.topology.cpus_in(numas):
            return False
    return True
