"""A node under Koordinator as a value: host, what its pods request, and what they were given."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones.kubelet.pod import Pod
from numazones_koordinator import annotations as api
from numazones_koordinator.amounts import (
    MICRO,
    Amounts,
    Counted,
    milli,
    minus,
    plus,
    requests,
    scheduler_counts,
)
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.books import Allocation, Books, Use
from numazones_koordinator.cpu_topology import CPUTopology
from numazones_koordinator.device_books import DeviceAllocation, DeviceBooks
from numazones_koordinator.host import Host, amplify
from numazones_koordinator.scheduler import Scheduler

_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Member:
    """A pod on a node."""

    key: tuple[str, str]
    """(namespace, name)."""
    counted: Counted
    """Its requests."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its pods. Nodes are immutable: changes return a new one that shares what stays."""

    host: Host = field(repr=False)
    books: Books = field(default_factory=Books)
    devices: DeviceBooks | None = None
    """None: the scheduler knows of no device there."""
    members: Mapping[str, Member] = field(default_factory=dict)
    """Uid → pod; all of them, also those that have nothing recorded."""
    requested: Counted = field(default_factory=dict)
    """By all pods."""

    @classmethod
    def fresh(cls, host: Host) -> "Node":
        """Return a node without pods."""
        return cls(host, devices=None if host.inventory is None else DeviceBooks(host.inventory))

    @classmethod
    def read(
        cls,
        node: Mapping[str, Any],
        nrt: Mapping[str, Any] | None = None,
        device: Mapping[str, Any] | None = None,
        *,
        pods: Iterable[Mapping[str, Any]] = (),
        scheduler: Scheduler | None = None,
    ) -> "Node":
        """Read a Node, its NodeResourceTopology (v1alpha1), its Device object, and the pods bound to it.

        Pods are taken in the order of their creation; those that have ended hold nothing.

        Raises:
            InvalidNode, InvalidPod, InvalidQuantity: an object is none that the API server could serve.
            SchedulerCrash: the scheduler would crash on the NodeResourceTopology.
        """
        read = cls.fresh(Host.read(node, nrt, device, scheduler=scheduler))
        bound = (Pod.from_api(pod) for pod in pods if not _has_ended(pod))
        for pod in sorted(bound, key=lambda pod: pod.created):
            read = read.bind(pod)
        return read

    @property
    def name(self) -> str:
        """The node's name."""
        return self.host.name

    def holds(self, uid: str) -> bool:
        """Return whether the pod is on the node."""
        return uid in self.members

    def bind(self, pod: Pod) -> "Node":
        """Return the node with a pod that runs there and holds what its annotations say, if anything."""
        node = self._with_member(pod)
        annotations = dict(pod.annotations)
        try:
            status = api.resource_status(annotations)
            spec = api.resource_spec(annotations)
            if status.cpus or status.numa_resources:
                given = Allocation(status.cpus, status.numa_resources, spec.exclusive_policy)
                node = node.record(pod.uid, given)
        except UnreadableAnnotation:
            pass
        try:
            devices = api.device_allocations(annotations)
        except UnreadableAnnotation:
            return node
        return node.record_devices(pod, devices)

    def place(self, pod: Pod, given: Allocation | None, devices: DeviceAllocation) -> "Node":
        """Return the node with an admitted pod and what it was given (None: nothing is written on it)."""
        node = self._with_member(pod)
        if given is not None:
            node = node.record(pod.uid, given)
        return node.record_devices(pod, devices)

    def record(self, uid: str, given: Allocation) -> "Node":
        """Return the node with an allocation; without a CPU topology nothing is ever recorded."""
        topology = self.host.topology
        if topology is None or not topology.valid:
            return self
        return replace(self, books=self.books.add(uid, given, topology))

    def remove_record(self, uid: str) -> "Node":
        """Return the node without the allocation of a pod that was not placed in the end."""
        topology = self.host.topology
        return self if topology is None else replace(self, books=self.books.remove(uid, topology))

    def record_devices(self, pod: Pod, given: DeviceAllocation) -> "Node":
        """Return the node with devices given to a pod."""
        if not given:
            return self
        return replace(self, devices=(self.devices or DeviceBooks()).add((pod.namespace, pod.name), given))

    def remove(self, uid: str) -> "Node":
        """Return the node after a pod ended or was deleted; unknown pods change nothing."""
        member = self.members.get(uid)
        if member is None:
            return self
        topology = self.host.topology
        requested = dict(self.requested)
        for name, amount in member.counted.items():
            requested[name] -= amount
        return replace(
            self,
            books=self.books if topology is None else self.books.remove(uid, topology),
            devices=None if self.devices is None else self.devices.remove(member.key),
            members={other: kept for other, kept in self.members.items() if other != uid},
            requested=requested,
        )

    def _with_member(self, pod: Pod) -> "Node":
        amounts = scheduler_counts(requests(pod))
        before = self.remove(pod.uid)
        return replace(
            before,
            members={**before.members, pod.uid: Member((pod.namespace, pod.name), amounts)},
            requested=plus(before.requested, amounts),
        )

    @property
    def state_key(self) -> Hashable:
        """Equal for nodes that decide alike on pods new to them, whatever their pods are called."""
        books, host = self.books, self.host
        devices = None if self.devices is None else _hashable(self.devices.used)
        numas = {*range(len(host.zones)), *host.numa_ids}
        return (
            host.fingerprint,
            books.used,
            books.core_exclusive,
            books.numa_exclusive,
            tuple(self.use(numa) for numa in sorted(numas)),
            frozenset([(numa, frozenset(given.items())) for numa, given in books.recorded.items()]),
            frozenset(self.requested.items()),
            devices,
        )

    # What is free.

    @property
    def used_cpus(self) -> CPUSet:
        """CPUs in any pod's set."""
        return self.books.used

    def free_cpus(self) -> CPUSet:
        """CPUs that a bound pod can be given."""
        topology = self.host.topology
        return 0 if topology is None else topology.all & ~self.books.used & ~self.host.reserved

    def allocated_amounts(self, numa: int) -> Amounts | None:
        """Return what counts as taken of a NUMA node; None: nothing was ever recorded there.

        On an amplified node CPUs in pods' sets count amplified, also those of pods without recorded amounts.
        """
        recorded = self.books.recorded.get(numa)
        topology, ratio = self.host.topology, self.host.ratio
        if recorded is None or ratio <= 1 or topology is None:
            return recorded
        exclusive = topology.in_numa(self.books.used, numa) * 1000
        taken = milli(recorded.get(CPU, 0)) - exclusive + amplify(exclusive, ratio)
        return {**recorded, CPU: taken * MICRO}

    def available(self) -> dict[int, dict[str, int]]:
        """NUMA id → what is left."""
        return {
            zone.id: minus(zone.resources, self.allocated_amounts(zone.id) or {}) for zone in self.host.zones
        }

    def use(self, numa: int) -> Use:
        """Return how a NUMA node is used, as exclusivity counts it."""
        return self.books.use(numa)


def valid_topology(host: Host) -> CPUTopology | None:
    """The CPUs of a host; None if there are none."""
    return host.topology if host.topology is not None and host.topology.valid else None


def merged_policy(node: str, pod: str) -> str | None:
    """Return the effective policy of a node's and a pod's; None: they are incompatible."""
    if node and pod and node != pod:
        return None
    return pod or node


def _hashable(value: object) -> Hashable:
    """Return a mapping, or mappings of mappings, as a value that can be a key."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return value


def _has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod object has ended."""
    status = pod.get("status")
    return isinstance(status, Mapping) and status.get("phase") in _FINISHED
