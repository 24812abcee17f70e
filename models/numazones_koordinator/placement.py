"""A node of Koordinator's behind the protocol of placement models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cpuset import CPUSet
from numazones.kubelet import machine
from numazones.kubelet.pod import Pod
from numazones.placement import ADMITTED, Decision, Placement, Room, Unknown
from numazones.placement.kubelet import KubeletPlacement, PlacementAboveKubelet
from numazones.placement.model import Model, NodeObjects, check_kubelet, readable
from numazones.placement.occupancy import Holder, Occupancy, in_order, zone_uses
from numazones_koordinator.admission import Admission, admit
from numazones_koordinator.amounts import milli, whole
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.annotations import resource_status
from numazones_koordinator.explanation import explain
from numazones_koordinator.identity import DEVICE, SCHEDULER_SETTING
from numazones_koordinator.model import MODEL
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import Scheduler

OTHER_SCHEDULER = "OtherScheduler"
"""Reason of a node for a pod that another scheduler places, where its kubelet is not known."""

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class KoordinatorPlacement(PlacementAboveKubelet[Node]):
    """A node on which koord-scheduler places its pods; all others are left to the kubelet."""

    model: ClassVar[Model] = MODEL

    @property
    def room(self) -> Room:
        """Return what NUMA nodes have left: CPU in milli-CPUs, other resources in whole units."""
        amounts: dict[str, dict[int, int]] = {}
        for numa, left in self.node.available().items():
            for name, amount in left.items():
                amounts.setdefault(name, {})[numa] = max(milli(amount) if name == CPU else whole(amount), 0)
        cpus = {numa: amount // _MILLI for numa, amount in amounts.get(CPU, {}).items()}
        blocks, topology = None, self.node.host.topology
        if topology is not None:
            free = self.node.free_cpus()
            blocks = {numa: min(count, topology.in_numa(free, numa)) for numa, count in cpus.items()}
        return Room(amounts, cpus, blocks)

    def for_scheduler(self, name: str) -> Placement | Unknown:
        """Return who decides about the pods of a scheduler: Koordinator about those of its own."""
        names = self.node.host.scheduler.names
        if name in names:
            return self
        if self.beneath is not None:
            return self.beneath
        return Unknown(
            OTHER_SCHEDULER,
            f"the pod's scheduler is {name}, so koord-scheduler does not place it on NUMA nodes here, and "
            "what the kubelet does is not known without NUMAZones; set spec.schedulerName to "
            f"{', '.join(sorted(names))}, or check that the exporter is running there",
        )

    def admit(self, pod: Pod) -> Decision:
        """Decide on a pod of Koordinator's scheduler that is new to the node.

        Raises:
            NumazonesError: the scheduler would crash, or a pod's annotations can't be followed.
        """
        admission = admit(self.node, pod)
        return Decision(
            self,
            admission.reason,
            admission.message,
            given=lambda: self.given(admission.node, admission.cpus, _numas(admission)),
            written=lambda: admission.annotations,
            explanation=lambda: explain(admission).lines(),
        )

    def after(self, pod: Pod, decision: Decision) -> Placement:
        """Return the placement with an admitted pod; one that the kubelet decided about is bound as well."""
        after = decision.placement
        if isinstance(after, KubeletPlacement):
            return replace(self, beneath=after, node=self.node.bind(pod))
        return after

    def without(self, uid: str) -> Node:
        """Return the state after a pod ended or was deleted."""
        return self.node.remove(uid)

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; None without a CPU topology."""
        host, topology = self.node.host, self.node.host.topology
        if topology is None:
            return None
        memory = {
            numa: (
                whole((self.node.allocated_amounts(numa) or {}).get(MEMORY, 0)),
                whole(host.zone_of.get(numa, {}).get(MEMORY, 0)),
            )
            for numa in topology.numas
        }
        zones = zone_uses(
            dict(sorted(topology.numas.items())),
            held=self.node.used_cpus,
            allocatable=~host.reserved,
            free=self.room.cpus,
            memory=memory,
        )
        return Occupancy(
            MODEL.name,
            f"{MODEL.decider}, NUMA policy {host.topology_policy or 'none'}, "
            f"CPU bind policy {host.bind_policy.value}",
            tuple(machine.CPU(cpu.id, cpu.core, cpu.socket, 0, cpu.numa) for cpu in topology.cpus),
            zones,
            () if names is None else in_order(self._holder(uid, names) for uid in self.node.books.pods),
            reserved=host.reserved,
            settings=(
                ("Placement", "Koordinator's scheduler"),
                ("NUMA policy", host.topology_policy or "none"),
                ("CPU bind policy", host.bind_policy.value),
            ),
        )

    def _holder(self, uid: str, names: Mapping[str, str]) -> Holder:
        given = self.node.books.pods[uid]
        member = self.node.members.get(uid)
        name = names.get(uid) or (f"uid {uid}" if member is None else "/".join(member.key))
        memory = tuple(
            (MEMORY, whole(amounts[MEMORY]), (numa,))
            for numa, amounts in given.numa_resources
            if amounts.get(MEMORY)
        )
        return Holder(name, uid, given.cpus, memory)


def _numas(admission: Admission) -> CPUSet:
    """Return the NUMA nodes that a pod gets something of by Koordinator's books, as a mask."""
    topology = admission.before.host.topology
    recorded = cpuset.of(numa for numa, _ in admission.numa_resources)
    return recorded | (0 if topology is None else machine.numas_of(topology.numas, admission.cpus))


def read(objects: NodeObjects) -> KoordinatorPlacement:
    """Read a node with its pods, in the order of their creation.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other.
    """
    found = read_empty(objects)
    bound = readable(objects.pods)
    node = found.node
    for pod in sorted(bound, key=lambda pod: pod.created):
        node = node.bind(pod)
    return replace(found, node=node)


def read_empty(objects: NodeObjects) -> KoordinatorPlacement:
    """Read a node without its pods.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other.
    """
    check_kubelet(objects.kubelet, MODEL.decider)
    name = objects.settings.get(SCHEDULER_SETTING)
    scheduler = None if name is None else Scheduler(names=frozenset({name}))
    device = objects.own(DEVICE)
    node = Node.read(objects.node, objects.topology, device, scheduler=scheduler)
    return KoordinatorPlacement(node, None if objects.kubelet is None else KubeletPlacement(objects.kubelet))


def written_outcome(verdict: str, annotations: Mapping[str, str]) -> str:
    """Return a verdict, of an admitted pod with what Koordinator's scheduler wrote on it that it gave it."""
    if verdict != ADMITTED:
        return verdict
    try:
        status = resource_status(annotations)
    except UnreadableAnnotation:  # anybody may have written it, and the kubelet decides without it
        return verdict
    numas = ", ".join(str(numa) for numa, _ in status.numa_resources)
    given = [f"CPUs {cpuset.format(status.cpus)}"] if status.cpus else []
    given += [f"amounts of NUMA nodes {numas}"] if numas else []
    return f"{verdict}: {' and '.join(given)}" if given else verdict
