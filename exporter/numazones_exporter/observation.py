"""Observation from one reading of a node: plain values, and what could not be read.

An ``Observation`` is the only thing that passes from the sources (which do I/O and may fail one by one)
to ``zones.build`` (which is pure). A source that failed is ``None`` here and has a ``Problem``.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from numazones.api.snapshot import KnownDevice
from numazones.cpuset import CPUSet
from numazones.kubelet.checkpoints import (
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
)
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine_state import Block
from numazones_node.problems import Problem
from numazones_node.sysfs import SYSFS, Hardware

PODRESOURCES = "podresources"
KUBELET_CONFIG = "kubelet-config"
CPU_MANAGER_STATE = "cpu_manager_state"
MEMORY_MANAGER_STATE = "memory_manager_state"
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"
PODS = "pods"
NODE = "node"
ORDER = (
    SYSFS,
    KUBELET_CONFIG,
    PODRESOURCES,
    CPU_MANAGER_STATE,
    MEMORY_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    PODS,
    NODE,
)
"""The sources, in the order in which problems are shown."""
KUBELET_FILES = frozenset({PODRESOURCES, CPU_MANAGER_STATE, MEMORY_MANAGER_STATE, DEVICE_CHECKPOINT})
"""Those of them that are files or sockets of the kubelet, which are there as long as it runs."""

DISAGREE = "SourcesDisagree"
"""Reason of a problem that is a contradiction between two sources."""
NOT_ASKED = "NotAsked"
"""Reason of a problem that is a source switched off by the settings."""
NOT_FOUND = "NotFound"
"""Reason of a problem that is a file which is not there."""
SOCKET_MISSING = "SocketMissing"
"""Reason of a problem that is a socket which is not there."""
FILES_MISSING = "KubeletFilesMissing"
"""Reason of problems that are one: nothing of a kubelet is where it was looked for."""


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """Resources of one container as podresources reports them (of a pod: ``name`` is empty)."""

    name: str
    cpus: CPUSet
    memory: tuple[Block, ...]
    devices: tuple[KnownDevice, ...]
    claimed: tuple[tuple[str, str], ...] = ()
    """Dynamic resources (DRA): (driver, ``pool/device``); podresources does not tell their NUMA nodes."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Memory that is really held: blocks of size zero are left-overs."""
        return tuple(block for block in self.memory if block.size)

    @property
    def device_ids(self) -> frozenset[tuple[str, str]]:
        """(resource, id) of the devices of device plugins."""
        return frozenset((device.resource, device.id) for device in self.devices)


@dataclass(frozen=True, slots=True)
class PodResources:
    """Resources of one pod as podresources reports them."""

    namespace: str
    name: str
    containers: tuple[ContainerResources, ...]
    pod_level: ContainerResources | None = None
    """Pod-level CPUs and memory; they overlap the containers'."""


@dataclass(frozen=True, slots=True)
class PodResourcesAnswer:
    """Both answers of podresources v1 in one cycle."""

    pods: tuple[PodResources, ...]
    allocatable_cpus: CPUSet
    allocatable_memory: tuple[Block, ...]
    allocatable_devices: tuple[KnownDevice, ...]


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod bound to this node, as far as it matters here."""

    namespace: str
    name: str
    uid: str
    """As the kubelet knows it: of a mirror pod, the static pod's."""
    phase: str
    qos_class: str
    deleting: bool = False
    """Whether its deletion was asked for."""
    static: bool = False
    """Whether its kubelet has it from a file, not from the API server."""
    created: str = field(default="", compare=False)
    """When it was created, in UTC, as the API server writes it."""

    @property
    def active(self) -> bool:
        """Return whether the kubelet may still hold something for the pod: neither succeeded nor failed."""
        return self.phase not in {"Succeeded", "Failed"}


class NodeObject(NamedTuple):
    """Facts read from the Node in the API; empty where unknown."""

    uid: str = ""
    kubelet_version: str = ""
    partitioned: bool | None = None
    """Whether it is under OpenShift's workload partitioning."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of a node; every part may be missing."""

    node_name: str
    node_uid: str | None = None
    """metadata.uid of the Node, for the owner reference; None where no API server was asked."""
    kubelet_version: str | None = None
    partitioned: bool | None = None
    """Whether Node or machine show OpenShift's workload partitioning; None where neither could be asked."""
    hardware: Hardware | None = None
    podresources: PodResourcesAnswer | None = None
    kubelet: KubeletConfiguration | None = None
    cpu_manager: CPUManagerCheckpoint | None = None
    memory_manager: MemoryManagerCheckpoint | None = None
    devices: DeviceManagerCheckpoint | None = None
    pods: tuple[NodePod, ...] | None = None
    """This node's pods; None where they were not asked for or could not be read."""
    problems: tuple[Problem, ...] = ()
    durations: tuple[tuple[str, float], ...] = ()
    """(source, seconds); never part of the zones."""

    @property
    def listed_pods(self) -> tuple[PodResources, ...] | None:
        """The pods that the kubelet takes for active; None where it does not say.

        A kubelet that was restarted (1.36) answers podresources a second or more before it has its pods from
        the API server. Until then it lists none but static ones, though its containers run and its state
        files hold what they held; ended pods would leave at least the exporter's own in the list.
        """
        if self.podresources is None:
            return None
        present = {(pod.namespace, pod.name) for pod in self.podresources.pods}
        running = [
            (pod.namespace, pod.name)
            for pod in self.pods or ()
            if pod.phase == "Running" and not pod.deleting and not pod.static
        ]
        unheard = running and present.isdisjoint(running)
        return None if unheard else self.podresources.pods
