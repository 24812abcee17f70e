"""A node of the topology-aware policy behind the protocol of placement models."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import numas_of
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.pod import Pod
from numazones.placement import (
    ADMITTED,
    BoundDecision,
    Decision,
    Effect,
    Info,
    Placement,
    Shortfall,
    UnreadableNode,
    fragmentation,
)
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.kubelet import KubeletPlacement, admit_bound_above
from numazones.placement.models import NodeObjects, check_kubelet, metadata_of, readable
from numazones.placement.occupancy import (
    Holder,
    Occupancy,
    ZoneUse,
    distances_of,
    in_order,
    memory_of,
)
from numazones_topology_aware.admission import Admission, admit, remove
from numazones_topology_aware.explanation import explain
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.identity import DECIDER, NAME, POLICIES, SOURCE
from numazones_topology_aware.live import configuration_of, node_from_cluster, published_pools
from numazones_topology_aware.node import Node

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class TopologyAwarePlacement:
    """A node on which the policy's plugin places all containers."""

    node: Node
    beneath: KubeletPlacement | None = None
    """The node's kubelet, which leaves placement alone but makes its own checks; None: not known."""

    model: ClassVar[str] = NAME
    decider: ClassVar[str] = DECIDER
    approximate: ClassVar[bool] = False
    movable: ClassVar[bool] = False
    filtered_by_scheduler: ClassVar[bool] = False
    kubelet: ClassVar[None] = None

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""
        return (NAME, self.node.state_key)

    @property
    def cpus_of_numa(self) -> Mapping[int, CPUSet]:
        """NUMA id → CPUs."""
        return self.node.policy.topology.hardware.machine.cpus_of_numa

    @property
    def largest_free_block(self) -> int:
        """The most whole CPUs that one smallest pool has left."""
        return max(self._room()[CPU].values(), default=0) // _MILLI

    @property
    def free_cpus(self) -> int:
        """Whole CPUs that the smallest pools have left."""
        return sum(amount // _MILLI for amount in self._room()[CPU].values())

    def for_scheduler(self, _name: str) -> Self:
        """Return itself: the plugin places the containers of all pods."""
        return self

    def admit(self, pod: Pod) -> "TopologyAwareDecision":
        """Decide on a pod that is new to the node.

        Raises:
            NumazonesError: the policy's answer is not modelled.
        """
        return TopologyAwareDecision(admit(self.node, pod), self.beneath)

    def after(self, _pod: Pod, decision: Decision) -> Placement:
        """Return the placement with an admitted pod."""
        return decision.placement

    def admit_bound(self, pod: PodInfo, info: Info) -> BoundDecision:
        """Decide on a bound pod: the checks of its kubelet, where that is known, then the policy's.

        Raises:
            NumazonesError: no verdict is known.
        """
        without = replace(self, node=remove(self.node, pod.pod.uid))
        return admit_bound_above(self.beneath, pod, info, lambda: without.admit(pod.pod))

    def remove(self, uid: str) -> "TopologyAwarePlacement":
        """Return the placement after a pod ended or was deleted."""
        beneath = None if self.beneath is None else self.beneath.remove(uid)
        return TopologyAwarePlacement(remove(self.node, uid), beneath)

    def fragmentation(self, shape: Shape) -> Fragmentation:
        """Return how much of what is left further pods of a shape would use, each in one smallest pool."""
        room = self._room()
        cpus = {pool: amount // _MILLI for pool, amount in room[CPU].items()}
        fitting = fragmentation.fitting_in(room, cpus, shape)
        return Fragmentation(sum(cpus.values()), fitting * shape.cpus, fitting)

    def fitting_by_amounts(self, _shape: Shape) -> None:
        """Return None: amounts alone don't tell."""

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy:
        """Return what each NUMA node has and who holds what."""
        policy = self.node.policy
        machine = policy.topology.hardware.machine
        holders: dict[str, Holder] = {}
        for name, grant in self.node.grants.items():
            container = self.node.containers[name]
            sandbox = container.sandbox
            held = holders.get(sandbox.uid) or Holder(f"{sandbox.namespace}/{sandbox.name}", sandbox.uid)
            memory = ((MEMORY, grant.memory, tuple(cpuset.ids(grant.zone))),) if grant.memory else ()
            own = Holder(container.spec.name, sandbox.uid, grant.exclusive, memory)
            holders[sandbox.uid] = replace(
                held,
                cpus=held.cpus | own.cpus,
                memory=(*held.memory, *memory),
                containers=(*held.containers, own),
            )
        given = cpuset.union(holder.cpus for holder in holders.values())
        free = self._free_by_numa()
        zones = []
        for numa, cpus in machine.cpus_of_numa.items():
            total = machine.by_numa[numa].memory
            used = sum(
                size for holder in holders.values() for _, size, numas in holder.memory if numas == (numa,)
            )
            allocatable = policy.available & ~policy.reserved & cpus
            zones.append(
                ZoneUse(
                    numa,
                    ((given & cpus).bit_count(), allocatable.bit_count()),
                    free.get(numa, 0),
                    ((MEMORY, min(used, total), total),) if total else (),
                )
            )
        return Occupancy(
            NAME,
            DECIDER,
            machine.cpus,
            tuple(zones),
            () if names is None else in_order(holders.values()),
            reserved=policy.reserved,
            settings=(("Placement", "NRI topology-aware policy"),),
            total_memory=memory_of(machine),
            distances=distances_of(machine),
        )

    def _free_by_numa(self) -> dict[int, int]:
        """NUMA id → whole CPUs that its smallest pools have left."""
        left = self._room()[CPU]
        found: dict[int, int] = {}
        for pool in self.node.pools:
            if pool.id in left:
                numa = next((numa for numa, cpus in self.cpus_of_numa.items() if cpus & pool.cpus), 0)
                found[numa] = found.get(numa, 0) + left[pool.id] // _MILLI
        return found

    def _room(self) -> dict[str, dict[int, int]]:
        """Resource → smallest pool → what is left there: CPU in milli-CPUs, memory in bytes."""
        leaves = [pool for pool in self.node.pools if pool.leaf]
        return {
            CPU: {pool.id: max(self.node.cpus.free(pool), 0) for pool in leaves},
            MEMORY: {pool.id: max(self.node.free_memory(pool), 0) for pool in leaves},
        }


@dataclass(frozen=True, slots=True)
class TopologyAwareDecision:
    """What the policy's plugin decided about a pod's containers."""

    admission: Admission
    beneath: KubeletPlacement | None

    model: ClassVar[str] = NAME
    source: ClassVar[str] = SOURCE
    approximate: ClassVar[bool] = False
    closeness: ClassVar[float] = 0.0

    @property
    def admitted(self) -> bool:
        """Whether all containers could be created."""
        return self.admission.admitted

    @property
    def reason(self) -> str:
        """Of a rejection, ``CreateContainerError``; empty if admitted."""
        return self.admission.reason

    @property
    def message(self) -> str:
        """Container and reason of the first rejection; empty if admitted."""
        return self.admission.message

    @property
    def placement(self) -> TopologyAwarePlacement:
        """What the next pod is decided on."""
        return TopologyAwarePlacement(self.admission.node, self.beneath)

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes that the pod's memory is accounted on, or that it has CPUs of for itself."""
        machine = self.admission.before.policy.topology.hardware.machine
        mask = 0
        for given in self.admission.containers.values():
            mask |= given.memory_nodes
            mask |= numas_of(machine.cpus_of_numa, given.exclusive)
        return tuple(cpuset.ids(mask))

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that the pod has for itself."""
        return cpuset.union(given.exclusive for given in self.admission.containers.values())

    @property
    def effect(self) -> Effect:
        """What an admitted pod does to the room that is left."""
        before, after = TopologyAwarePlacement(self.admission.before), self.placement
        return Effect.of(before._room(), after._room(), after.largest_free_block)  # noqa: SLF001 - the same module's

    @property
    def outcome(self) -> str:
        """What would become of the pod: Admitted or the reason."""
        return ADMITTED if self.admission.admitted else self.admission.reason

    def shortfall(self, _node: str) -> Shortfall:
        """Say why the policy rejects a container."""
        return Shortfall.said_by(DECIDER, self.message or self.reason)

    def explain(self) -> tuple[str, ...]:
        """Explain the decision: pools, ranks, grants."""
        return tuple(explain(self.admission).lines())


def read(objects: NodeObjects) -> TopologyAwarePlacement:
    """Read a node from its published pools, its pods and its record, if it has one.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other.
    """
    check_kubelet(objects.kubelet, DECIDER)
    bound = readable(objects.pods)
    topology = objects.topology or {}
    published_pools(topology)  # balloons are not modelled, whatever is configured
    metadata = objects.node["metadata"]
    configurations = tuple(objects.others.get(POLICIES.kind, ()))
    namespaces = sorted({str(metadata_of(one).get("namespace") or "") for one in configurations})
    if len(namespaces) > 1:
        raise UnreadableNode(
            f"there are TopologyAwarePolicy resources in the namespaces {', '.join(namespaces)}, and which "
            "one the policy's plugin runs in is not known; remove what is left of the others"
        )
    config = configuration_of(configurations, node=metadata["name"], labels=metadata.get("labels") or {})
    if objects.kubelet is None:
        raise UnreadableNode(
            "the topology-aware policy's pools depend on the machine, which only NUMAZones tell, and none "
            "that can be read have been published for the node; see whether the exporter runs there"
        )
    uncreated = {pod.kubelet_uid: pod.uncreated for pod in objects.pods if pod.uncreated}
    # Pods are Pending until their containers are created (``getPhase`` in ``pkg/kubelet/kubelet_pods.go``).
    silent = {pod.kubelet_uid for pod in objects.pods if pod.phase == "Pending" and not pod.uncreated}
    hardware = Hardware.of(objects.kubelet.machine)
    node = node_from_cluster(
        hardware, config, topology, bound, uncreated=uncreated, silent=silent, record=objects.record
    )
    return TopologyAwarePlacement(node, KubeletPlacement(objects.kubelet))
