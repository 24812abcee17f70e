"""A node of Koordinator's behind the protocol of placement models."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cpuset import CPUSet
from numazones.kubelet import machine
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
    Unknown,
    fragmentation,
)
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.kubelet import KubeletPlacement, admit_bound_above
from numazones.placement.models import NodeObjects, check_kubelet, readable
from numazones.placement.occupancy import Holder, Occupancy, ZoneUse, in_order
from numazones_koordinator.admission import Admission, admit
from numazones_koordinator.amounts import milli, whole
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.annotations import resource_status
from numazones_koordinator.explanation import explain
from numazones_koordinator.identity import DECIDER, DEVICE, NAME, SCHEDULER_SETTING, SOURCE
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import Scheduler

OTHER_SCHEDULER = "OtherScheduler"
"""Reason of a node for a pod that another scheduler places, where its kubelet is not known."""

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class KoordinatorPlacement:
    """A node on which koord-scheduler places its pods; all others are left to the kubelet."""

    node: Node
    beneath: KubeletPlacement | None = None
    """The node's kubelet; None: its zones can't be read."""

    model: ClassVar[str] = NAME
    decider: ClassVar[str] = DECIDER
    approximate: ClassVar[bool] = False
    movable: ClassVar[bool] = False
    filtered_by_scheduler: ClassVar[bool] = True
    kubelet: ClassVar[None] = None

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""
        return (NAME, self.node.state_key)

    @property
    def cpus_of_numa(self) -> Mapping[int, CPUSet]:
        """NUMA id → CPUs; empty where the node publishes no topology."""
        return {} if self.node.host.topology is None else self.node.host.topology.numas

    @property
    def largest_free_block(self) -> int:
        """The most whole CPUs that one NUMA node has left."""
        left = self._room().get(CPU, {})
        if self.node.host.topology is not None:
            free = self.node.free_cpus()
            left = {
                numa: min(amount, _MILLI * self.node.host.topology.in_numa(free, numa))
                for numa, amount in left.items()
            }
        return max(left.values(), default=0) // _MILLI

    @property
    def free_cpus(self) -> int:
        """Whole CPUs that NUMA nodes have left."""
        return sum(amount // _MILLI for amount in self._room().get(CPU, {}).values())

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
            f"{', '.join(sorted(names))}, or see whether the exporter runs there",
        )

    def admit(self, pod: Pod) -> "KoordinatorDecision":
        """Decide on a pod of Koordinator's scheduler that is new to the node.

        Raises:
            NumazonesError: the scheduler would crash, or a pod's annotations can't be followed.
        """
        return KoordinatorDecision(admit(self.node, pod), self.beneath)

    def after(self, pod: Pod, decision: Decision) -> Placement:
        """Return the placement with an admitted pod; one that the kubelet decided about is bound as well."""
        after = decision.placement
        if isinstance(after, KubeletPlacement):
            return replace(self, beneath=after, node=self.node.bind(pod))
        return after

    def admit_bound(self, pod: PodInfo, info: Info) -> BoundDecision:
        """Decide on a bound pod: the checks of its kubelet, where that is known, then the scheduler's.

        Raises:
            NumazonesError: no verdict is known.
        """
        without = replace(self, node=self.node.remove(pod.pod.uid))
        return admit_bound_above(self.beneath, pod, info, lambda: without.admit(pod.pod))

    def remove(self, uid: str) -> "KoordinatorPlacement":
        """Return the placement after a pod ended or was deleted."""
        beneath = None if self.beneath is None else self.beneath.remove(uid)
        return KoordinatorPlacement(self.node.remove(uid), beneath)

    def fragmentation(self, shape: Shape) -> Fragmentation:
        """Return how much of what is left further pods of a shape would use, each on one NUMA node."""
        room = self._room()
        cpus = {numa: amount // _MILLI for numa, amount in room.get(CPU, {}).items()}
        fitting = fragmentation.fitting_in(room, cpus, shape)
        return Fragmentation(sum(cpus.values()), fitting * shape.cpus, fitting)

    def fitting_by_amounts(self, _shape: Shape) -> None:
        """Return None: amounts alone don't tell."""

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; None without a CPU topology."""
        host, topology = self.node.host, self.node.host.topology
        if topology is None:
            return None
        zones = []
        left = self._room().get(CPU, {})
        for numa, cpus in sorted(topology.numas.items()):
            total = whole(host.zone_of.get(numa, {}).get(MEMORY, 0))
            held = whole((self.node.allocated_amounts(numa) or {}).get(MEMORY, 0))
            zones.append(
                ZoneUse(
                    numa,
                    ((self.node.used_cpus & cpus).bit_count(), (cpus & ~host.reserved).bit_count()),
                    left.get(numa, 0) // _MILLI,
                    ((MEMORY, held, total),) if total else (),
                )
            )
        return Occupancy(
            NAME,
            f"{DECIDER}, NUMA policy {host.topology_policy or 'none'}, "
            f"CPU bind policy {host.bind_policy.value}",
            tuple(machine.CPU(cpu.id, cpu.core, cpu.socket, 0, cpu.numa) for cpu in topology.cpus),
            tuple(zones),
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

    def _room(self) -> dict[str, dict[int, int]]:
        """Resource → NUMA id → what is left there: CPU in milli-CPUs, others in whole units."""
        free: dict[str, dict[int, int]] = {}
        for numa, left in self.node.available().items():
            for name, amount in left.items():
                free.setdefault(name, {})[numa] = max(milli(amount) if name == CPU else whole(amount), 0)
        return free


@dataclass(frozen=True, slots=True)
class KoordinatorDecision:
    """What koord-scheduler decided about a pod."""

    admission: Admission
    beneath: KubeletPlacement | None

    model: ClassVar[str] = NAME
    source: ClassVar[str] = SOURCE
    approximate: ClassVar[bool] = False
    closeness: ClassVar[float] = 0.0

    @property
    def admitted(self) -> bool:
        """Whether the pod can be placed there."""
        return self.admission.admitted

    @property
    def reason(self) -> str:
        """Of a rejection, the status code; empty if admitted."""
        return self.admission.reason

    @property
    def message(self) -> str:
        """Of a rejection, the scheduler's reasons; empty if admitted."""
        return self.admission.message

    @property
    def placement(self) -> KoordinatorPlacement:
        """What the next pod is decided on."""
        return KoordinatorPlacement(self.admission.node, self.beneath)

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes that the pod gets something of by Koordinator's books; none where it records nothing."""
        topology = self.admission.before.host.topology
        mask = cpuset.of(numa for numa, _ in self.admission.numa_resources)
        if topology is not None:
            mask |= machine.numas_of(topology.numas, self.admission.cpus)
        return tuple(cpuset.ids(mask))

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that the pod has for itself."""
        return self.admission.cpus

    @property
    def effect(self) -> Effect:
        """What an admitted pod does to the room that is left."""
        before, after = KoordinatorPlacement(self.admission.before), self.placement
        return Effect.of(before._room(), after._room(), after.largest_free_block)  # noqa: SLF001 - the same module's

    @property
    def outcome(self) -> str:
        """What would become of the pod: Admitted with what would be written on it, or the reason."""
        if not self.admission.admitted:
            return self.admission.reason
        return written_outcome(ADMITTED, dict(self.admission.annotations))

    def shortfall(self, _node: str) -> Shortfall:
        """Say why the scheduler rejects the pod."""
        return Shortfall.said_by(DECIDER, self.message or self.reason)

    def explain(self) -> tuple[str, ...]:
        """Explain the decision: hints, merges, scores."""
        return tuple(explain(self.admission).lines())


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
    check_kubelet(objects.kubelet, DECIDER)
    name = objects.settings.get(SCHEDULER_SETTING)
    scheduler = None if name is None else Scheduler(names=frozenset({name}))
    device = next(iter(objects.others.get(DEVICE.kind, ())), None)
    node = Node.read(objects.node, objects.topology, device, scheduler=scheduler)
    return KoordinatorPlacement(node, None if objects.kubelet is None else KubeletPlacement(objects.kubelet))


def written_outcome(verdict: str, annotations: Mapping[str, str]) -> str:
    """Return a verdict with what Koordinator's scheduler wrote on the pod that it gave it."""
    try:
        status = resource_status(annotations)
    except UnreadableAnnotation:  # anybody may have written it, and the kubelet decides without it
        return verdict
    numas = ", ".join(str(numa) for numa, _ in status.numa_resources)
    given = [f"CPUs {cpuset.format(status.cpus)}"] if status.cpus else []
    given += [f"amounts of NUMA nodes {numas}"] if numas else []
    return f"{verdict}: {' and '.join(given)}" if given else verdict
