"""A node of the topology-aware policy behind the protocol of placement models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.kubelet.machine import Machine, numas_of
from numazones.kubelet.pod import Pod
from numazones.placement import Decision, Given, Room, UnreadableNode
from numazones.placement.kubelet import KubeletPlacement, PlacementAboveKubelet
from numazones.placement.model import Model, NodeObjects, check_kubelet, metadata_of, readable
from numazones.placement.occupancy import Holder, Occupancy
from numazones_topology_aware.admission import Admission, admit, remove
from numazones_topology_aware.explanation import explain
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.identity import POLICIES
from numazones_topology_aware.live import configuration_of, node_from_cluster, published_pools
from numazones_topology_aware.model import MODEL
from numazones_topology_aware.node import Node

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class TopologyAwarePlacement(PlacementAboveKubelet[Node]):
    """A node on which the policy's plugin places all containers."""

    model: ClassVar[Model] = MODEL

    @property
    def room(self) -> Room:
        """Return what the smallest pools have left: CPU in milli-CPUs, memory in bytes."""
        leaves = [pool for pool in self.node.pools if pool.leaf]
        amounts = {
            CPU: {pool.id: max(self.node.cpus.free(pool), 0) for pool in leaves},
            MEMORY: {pool.id: max(self.node.free_memory(pool), 0) for pool in leaves},
        }
        cpus = {pool: amount // _MILLI for pool, amount in amounts[CPU].items()}
        return Room(amounts, cpus)

    def admit(self, pod: Pod) -> Decision:
        """Decide on a pod that is new to the node.

        Raises:
            NumazonesError: the policy's answer is not modelled.
        """
        admission = admit(self.node, pod)
        return Decision(
            self,
            admission.reason,
            admission.message,
            given=lambda: self._given(admission),
            explanation=lambda: explain(admission).lines(),
        )

    def _given(self, admission: Admission) -> Given:
        """Return what a pod's containers are given: CPUs of their own, and memory where it is accounted."""
        containers = admission.containers.values()
        cpus = cpuset.union(given.exclusive for given in containers)
        numas = numas_of(self._machine.cpus_of_numa, cpus)
        numas |= cpuset.union(given.memory_nodes for given in containers)
        return self.given(admission.node, cpus, numas)

    @property
    def _machine(self) -> Machine:
        return self.node.policy.topology.hardware.machine

    def without(self, uid: str) -> Node:
        """Return the state after a pod ended or was deleted."""
        return remove(self.node, uid)

    def occupancy(self, _names: Mapping[str, str] | None) -> Occupancy:
        """Return what each NUMA node has and who holds what."""
        policy = self.node.policy
        machine = self._machine
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
        accounted = {
            node.id: (min(_accounted(holders.values(), node.id), node.memory), node.memory)
            for node in machine.numa_nodes
        }
        return self.occupied(
            machine,
            holders.values(),
            reserved=policy.reserved,
            allocatable=policy.available,
            free=self._free_by_numa(),
            memory=accounted,
            placed_by="NRI topology-aware policy",
        )

    def _free_by_numa(self) -> dict[int, int]:
        """NUMA id → whole CPUs that its smallest pools have left."""
        left, cpus_of_numa = self.room.cpus, self._machine.cpus_of_numa
        found: dict[int, int] = {}
        for pool in self.node.pools:
            if pool.id in left:
                numa = next((numa for numa, cpus in cpus_of_numa.items() if cpus & pool.cpus), 0)
                found[numa] = found.get(numa, 0) + left[pool.id]
        return found


def _accounted(holders: Iterable[Holder], numa: int) -> int:
    """Return the memory that is charged to a NUMA node alone."""
    return sum(size for holder in holders for _, size, numas in holder.memory if numas == (numa,))


def read(objects: NodeObjects) -> TopologyAwarePlacement:
    """Read a node from its published pools, its pods and its record, if it has one.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other.
    """
    check_kubelet(objects.kubelet, MODEL.decider)
    bound = readable(objects.pods)
    topology = objects.topology or {}
    published_pools(topology)  # balloons are not modelled, whatever is configured
    metadata = objects.node["metadata"]
    configurations = tuple(objects.others.get(POLICIES.kind, ()))
    namespaces = sorted({str(metadata_of(one).get("namespace") or "") for one in configurations})
    if len(namespaces) > 1:
        raise UnreadableNode(
            f"there are TopologyAwarePolicy resources in the namespaces {', '.join(namespaces)}, and it "
            "is unknown in which of them the policy's plugin runs; remove the others"
        )
    config = configuration_of(configurations, node=metadata["name"], labels=metadata.get("labels") or {})
    if objects.kubelet is None:
        raise UnreadableNode(
            "the topology-aware policy's pools depend on the machine, which only NUMAZones describe, and "
            "no readable ones have been published for the node; check that the exporter is running there"
        )
    uncreated = {pod.kubelet_uid: pod.uncreated for pod in objects.pods if pod.uncreated}
    # Pods are Pending until their containers are created (``getPhase`` in ``pkg/kubelet/kubelet_pods.go``).
    silent = {pod.kubelet_uid for pod in objects.pods if pod.phase == "Pending" and not pod.uncreated}
    hardware = Hardware.of(objects.kubelet.machine)
    node = node_from_cluster(
        hardware, config, topology, bound, uncreated=uncreated, silent=silent, record=objects.record
    )
    return TopologyAwarePlacement(node, KubeletPlacement(objects.kubelet))
