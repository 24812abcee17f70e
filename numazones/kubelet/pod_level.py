"""Serving a pod with pod-level resources as a whole (gate PodLevelResourceManagers, scope pod).

Rules: ``AllocatePod`` of the CPU and Memory Manager of kubelet 1.36. The pod gets one set of CPUs and one
amount of memory for all its containers. Containers that would be Guaranteed by themselves get a part of
it for them alone; the others share what is left, so their sets overlap. Sidecars keep their part
from where they start, ordinary init containers give theirs back before the next container.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_distribution import take
from numazones.kubelet.cpu_packing import PackingStrategy
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.demand import Container, ContainerKind, Demand
from numazones.kubelet.machine_state import Block
from numazones.kubelet.memory_manager import Requests

Members = Sequence[tuple[Container, Demand]]
"""A pod's containers, init containers first, each with what it gets for itself alone."""


@dataclass(frozen=True, slots=True)
class EmptySharedPool:
    """Reason why a pod as a whole would leave nothing to those of its containers that share."""

    message: str
    """The kubelet's."""
    sentence: str
    """The same in plain words."""


def empty_cpu_pool(members: Members, total: int) -> EmptySharedPool | None:
    """Return why containers that share would be left without CPUs; None if they would not."""
    amounts = [(container.kind, {"cpu": demand.cpus} if demand.cpus else {}) for container, demand in members]
    return _empty_pool(amounts, {"cpu": total}, plural="cpus")


def empty_memory_pool(members: Members, total: Requests) -> EmptySharedPool | None:
    """Return the same for memory; of several types that are short the kubelet names any, here the first."""
    if any(demand.memory is None for _, demand in members):
        return EmptySharedPool(
            "[memorymanager] failed to represent quantity as int64",
            "a container requests an amount of memory that is not a whole number of bytes",
        )
    amounts = [(container.kind, dict(demand.memory or ())) for container, demand in members]
    return _empty_pool(amounts, dict(total), plural="memory")


def _empty_pool(
    members: Sequence[tuple[ContainerKind, Mapping[str, int]]], total: Mapping[str, int], *, plural: str
) -> EmptySharedPool | None:
    lasting = dict.fromkeys(total, 0)
    shared = False

    def used_up() -> str:
        return next((kind for kind, amount in sorted(total.items()) if lasting[kind] >= amount), "")

    for container, amounts in members:
        if container is ContainerKind.INIT:
            if not amounts and (kind := used_up()):
                noun = plural if kind == "cpu" else kind
                return EmptySharedPool(
                    f"pod rejected, pod has shared init containers but no {noun} available for them",
                    f"its sidecars take all the {kind} that the pod has as a whole, which leaves "
                    f"none for init containers without {kind} of their own",
                )
            continue
        shared = shared or not amounts
        for kind, amount in amounts.items():
            lasting[kind] = lasting.get(kind, 0) + amount
    if shared and (kind := used_up()):
        return EmptySharedPool(
            f"pod rejected, sum of exclusive container {kind} requests equals pod budget, "
            f"leaving no {plural} for shared containers",
            f"some of its containers take all the {kind} that the pod has as a whole, which leaves "
            f"none for containers without {kind} of their own",
        )
    return None


def divide_cpus(
    topology: CPUTopology, strategy: PackingStrategy, whole: CPUSet, members: Members
) -> dict[str, CPUSet]:
    """Return container → its CPUs out of those of the pod; containers that share have the same set.

    Raises:
        Rejection: the choice of CPUs fails inside the pod's set.
        KubeletHang: it would never end.
    """
    own: dict[str, CPUSet] = {}
    left = whole
    for container, demand in members:
        if demand.cpus:
            own[container.name] = take(topology, strategy, left, demand.cpus)
            if container.kind is not ContainerKind.INIT:
                left &= ~own[container.name]
        elif container.kind is ContainerKind.INIT:
            own[container.name] = left
    return {container.name: own.get(container.name, left) for container, _ in members}


def divide_memory(affinity: int, total: Requests, members: Members) -> dict[str, tuple[Block, ...]]:
    """Return container → its blocks out of the pod's memory; containers that share have the same ones."""

    def blocks(amounts: Mapping[str, int]) -> tuple[Block, ...]:
        return tuple(Block(affinity, kind, amount) for kind, amount in amounts.items() if amount > 0)

    own: dict[str, tuple[Block, ...]] = {}
    left = dict(total)
    for container, demand in members:
        if demand.memory:
            own[container.name] = blocks(dict(demand.memory))
            if container.kind is not ContainerKind.INIT:
                for kind, amount in demand.memory:
                    left[kind] = left.get(kind, 0) - amount
        elif container.kind is ContainerKind.INIT:
            own[container.name] = blocks(left)
    return {container.name: own.get(container.name, blocks(left)) for container, _ in members}
