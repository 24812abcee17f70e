"""NUMAZone: one NUMA node of one Kubernetes node, as ``kubectl get numazones`` shows it.

All zones of a node together hold the exact state from which the kubelet decides on the next pod
(see ``numazones.api.zones``), so every field here is either read by people or needed by admission.
Objects stay small: empty fields are left out, a container appears only in zones it touches, and
lists are replaced as a whole so that managedFields stay short. Facts and their names follow sysfs,
the kubelet's state files and its configuration (kubelet.config.k8s.io/v1beta1).
"""

from typing import Annotated, ClassVar

from pydantic import Field

from numazones.api.dynamic_resources import DynamicResources
from numazones.api.meta import (
    ATOMIC,
    IMMUTABLE,
    MAX_LABEL,
    MAX_NAME,
    NUMAID,
    APIModel,
    APIObject,
    Condition,
    CPUList,
    PrinterColumn,
    QuantityText,
    ResourceType,
    TimestampText,
    list_map,
    list_of,
    optional,
    text,
)

READY = "Ready"
"""Type of the condition that says whether everything about a NUMA node could be read."""
CPUS_EXCLUSIVE = "CPUsExclusive"
"""Type of the condition that is False where pods share exclusive CPUs, and absent elsewhere."""
DEVICES_COUNTED = "DevicesCounted"
"""Type of the condition that names resources with too many devices to list, and is absent elsewhere."""
KUBELET_DECIDES = "KubeletDecides"
"""Type of the condition that is False where the kubelet crashes, hangs or is slow on pods, else absent."""

# Bounds that no machine reaches (Linux: 8192 CPUs, 1024 NUMA nodes) and that keep validation cheap.
_MAX_CPUS = 8192
_MAX_ZONES = 1024
# Plugins for virtual machines offer a thousand devices for each of /dev/kvm, /dev/net/tun, …
_MAX_DEVICES = 16384
_MAX_IN_GROUP = 1 << 20
_MAX_RESOURCE_NAME = MAX_NAME + 1 + MAX_LABEL
MAX_RECORD = 1 << 18
"""Characters of a placement model's record; etcd takes objects of 1.5 MiB."""

ResourceName = Annotated[str, Field(max_length=_MAX_RESOURCE_NAME)]
OptionValue = Annotated[str, Field(max_length=256)]
OptionName = Annotated[str, Field(max_length=128)]


class NUMAZoneSpec(APIModel):
    """NUMA node of a Kubernetes node that the object describes; it never changes."""

    node_name: str = Field(min_length=1, max_length=MAX_NAME, description="Name of the Kubernetes node.")
    numa_id: NUMAID = Field(description="Id of the NUMA node as Linux numbers it; ids may have gaps.")


class CPUGroup(APIModel):
    """CPUs of this NUMA node that share a socket or a die."""

    id: int = Field(ge=-1, description="Id as the system reports it.")
    cpus: CPUList | None = optional("The NUMA node's CPUs in it; left out if that is all of them.")


class Cache(APIModel):
    """A cache and the CPUs of this NUMA node that share it."""

    level: int = Field(ge=1, le=8, description="Cache level, 3 for L3.")
    id: int = Field(
        ge=-1, description="Id, unique per level on the node; NUMA nodes that share a cache list the same id."
    )
    cpus: CPUList | None = optional("The NUMA node's CPUs that share it; left out if that is all of them.")
    uncore: bool = Field(
        default=False,
        description="Whether the kubelet treats it as an uncore cache; false if exactly the CPUs of the NUMA "
        "node share it.",
    )


class Distance(APIModel):
    """Relative cost of access from this NUMA node to the memory of another."""

    numa_id: NUMAID = Field(description="NUMA node accessed.")
    distance: int = Field(
        ge=0, le=65535, description="Distance as the firmware reports it (SLIT); 10 is local."
    )


class Topology(APIModel):
    """The hardware of the NUMA node."""

    cpus: CPUList = Field(
        default="", description="Online CPUs in Linux list format; empty for a NUMA node without CPUs."
    )
    offline: CPUList = Field(default="", description="CPUs that are present but offline.")
    kubelet_id: int | None = optional(
        "The kubelet's id of the NUMA node if it is different: on a kernel without NUMA support, it is "
        "the id of the socket, such as -1."
    )
    counted_cpus: int | None = optional(
        "Number of CPUs that the kubelet counts on the node, if it differs from the number in the "
        "NUMAZones' cpus.",
        ge=0,
        le=65535,
    )
    isolated: CPUList = Field(
        default="", description="Online CPUs isolated from the Linux scheduler at boot (isolcpus)."
    )
    cores: tuple[CPUList, ...] = list_of(
        _MAX_CPUS, "One CPU list per physical core, with the online threads of the core."
    )
    sockets: tuple[CPUGroup, ...] = list_of(256, "Sockets that the NUMA node's CPUs are in.")
    dies: tuple[CPUGroup, ...] = list_of(
        1024, "Dies that the NUMA node's CPUs are in; left out if every socket has one."
    )
    caches: tuple[Cache, ...] = list_of(_MAX_CPUS, "Last-level caches.")
    distances: tuple[Distance, ...] = list_of(
        _MAX_ZONES, "Distance to every NUMA node of the machine; left out if the system reports none."
    )


class KubeletSettings(APIModel):
    """The settings of the node's kubelet that decide on NUMA placement.

    Policies are open strings: a policy of a newer kubelet is published and read as it is.
    """

    version: str = text(128, "Version of the kubelet, such as v1.36.2.")
    cpu_manager_policy: OptionName = Field(default="", description="CPU manager policy: none or static.")
    cpu_manager_policy_options: dict[str, OptionValue] = Field(
        default_factory=dict, max_length=64, description="Options of the CPU manager policy that are set."
    )
    memory_manager_policy: OptionName = Field(
        default="", description="Memory manager policy: None or Static."
    )
    topology_manager_policy: OptionName = Field(
        default="",
        description="Topology manager policy: none, best-effort, restricted or single-numa-node.",
    )
    topology_manager_scope: OptionName = Field(
        default="", description="Topology manager scope: container or pod."
    )
    topology_manager_policy_options: dict[str, OptionValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Options of the topology manager policy that are set.",
    )
    feature_gates: dict[str, bool] = Field(
        default_factory=dict,
        max_length=64,
        description="Feature gates set in the configuration that affect admission.",
    )
    workload_partitioning: bool = Field(
        default=False,
        description="Whether the kubelet keeps reserved CPUs out of the shared pool for OpenShift's workload "
        "partitioning.",
    )


class ZoneResource(APIModel):
    """Amounts of one resource on the NUMA node; an amount that could not be read is left out."""

    name: ResourceName = Field(
        description="cpu, memory, hugepages-<size> or a device plugin's resource, such as vendor.example/nic."
    )
    capacity: QuantityText | None = optional("Amount that the hardware has.")
    reserved: QuantityText | None = optional("Amount that the kubelet reserves on this NUMA node.")
    allocatable: QuantityText | None = optional(
        "Total amount that pods may be given: capacity minus reserved. For memory, also minus hugepages; "
        "for devices, only the healthy ones."
    )
    assigned: QuantityText | None = optional("Amount that containers hold exclusively.")
    available: QuantityText | None = optional("Amount that containers could still be given.")


class CPUSets(APIModel):
    """Use of the NUMA node's CPUs."""

    reserved: CPUList = Field(
        default="", description="CPUs the kubelet never gives to a container exclusively."
    )
    exclusive: CPUList = Field(default="", description="CPUs that containers hold exclusively.")
    shared: CPUList = Field(
        default="",
        description="CPUs of the shared pool except the reserved ones; they can still be given exclusively.",
    )
    default: CPUList | None = optional(
        "The CPU manager's default CPU set on this NUMA node. Left out if it is what the other sets imply: "
        "shared, plus reserved unless strict-cpu-reservation or workload partitioning is on."
    )


class ContainerName(APIModel):
    """A container of a pod."""

    namespace: str = text(MAX_LABEL, "Namespace of the pod.")
    pod: str = text(MAX_NAME, "Name of the pod.")
    container: str = text(MAX_LABEL, "Name of the container.")


class ZoneDevice(APIModel):
    """A device of a device plugin that is close to this NUMA node.

    A device of several NUMA nodes is listed in each of them, a device of none in the node's first NUMAZone.
    """

    resource: ResourceName = Field(description="Resource the device counts for, such as vendor.example/nic.")
    id: str = Field(
        max_length=1024,
        description="Id from the device plugin; for a group, a name that is unique on the node.",
    )
    count: int = Field(
        default=1,
        ge=1,
        le=_MAX_IN_GROUP,
        description="Number of equal devices in the group; set if a resource has too many devices to list.",
    )
    numa_ids: tuple[NUMAID, ...] | None = optional(
        "NUMA nodes the device is close to: left out if it is only this one, empty if the plugin reports "
        "none; 65535 stands for ids that no machine has, such as -1.",
        max_length=_MAX_ZONES,
        json_schema_extra=ATOMIC,
    )
    healthy: bool = Field(default=True, description="False if the device plugin reports a fault.")
    registered: bool = Field(
        default=True,
        description="False for a device that is still held although its plugin no longer lists it.",
    )
    assigned_to: ContainerName | None = optional(
        "Container that holds the device. If init containers passed it on, one of the containers involved."
    )

    @property
    def ids(self) -> tuple[str, ...]:
        """Return an id for each device that the entry stands for.

        >>> ZoneDevice(resource="vendor/gpu", id="group-0", count=2).ids
        ('group-0.0', 'group-0.1')
        """
        if self.count == 1:
            return (self.id,)
        return tuple(f"{self.id}.{number}" for number in range(self.count))


class MemoryBlock(APIModel):
    """Memory or hugepages that the memory manager has bound to NUMA nodes for a container."""

    type: ResourceName = Field(
        default="memory", description="memory, which may be left out, or hugepages-<size>."
    )
    bytes: int = Field(ge=0, description="Size of the block in bytes, over all its NUMA nodes together.")
    numa_ids: tuple[NUMAID, ...] | None = optional(
        "NUMA nodes the block is bound to; left out if it is only this one.",
        max_length=_MAX_ZONES,
        json_schema_extra=ATOMIC,
    )


class DeviceIDs(APIModel):
    """Devices of one resource that a container holds."""

    resource: ResourceName = Field(description="Resource, such as vendor.example/nic.")
    ids: tuple[Annotated[str, Field(max_length=1024)], ...] = Field(
        max_length=4096, description="Ids of the devices.", json_schema_extra=ATOMIC
    )


class Assignment(APIModel):
    """Resources that a container holds on this NUMA node; init containers appear while their pod lives."""

    namespace: str = text(MAX_LABEL, "Namespace of the pod.")
    pod: str = text(MAX_NAME, "Name of the pod.")
    uid: str = text(128, "UID of the pod.")
    container: str = text(MAX_LABEL, "Container; left out for what the pod holds as a whole.")
    cpus: CPUList = Field(
        default="", description="CPUs of this NUMA node that the container holds exclusively."
    )
    memory: tuple[MemoryBlock, ...] = list_of(
        64, "Memory blocks that include this NUMA node; a block of several NUMA nodes is listed in each."
    )
    devices: tuple[DeviceIDs, ...] = list_of(
        64, "Devices of this NUMA node that the container holds although assignedTo does not name it."
    )


class Headroom(APIModel):
    """The largest requests of one kind that this NUMA node alone could still take; left out if unknown."""

    exclusive_cpus: int | None = optional("Exclusive CPUs that one container could get.", ge=0, le=_MAX_CPUS)
    full_core_cpus: int | None = optional(
        "Exclusive CPUs that one container could get on whole physical cores; cores that are partly used "
        "or reserved do not count.",
        ge=0,
        le=_MAX_CPUS,
    )
    memory: QuantityText | None = optional("Memory without hugepages.")


class Summary(APIModel):
    """Figures rounded for the columns of kubectl get; programs read resources and conditions instead."""

    state: str = text(32, "NotReady or Unknown, from the condition Ready; left out if the condition is True.")
    assigned: str = text(32, "CPUs that containers hold exclusively.")
    free: str = text(32, "CPUs that can still be given exclusively.")
    memory: str = text(32, "Memory of the NUMA node.")
    memory_free: str = text(32, "Memory that pods could still be given.")
    memory_max: str = text(
        32,
        "Written only by exporters of release 0.2; kept so that the API server accepts what they write.",
    )
    devices: str = text(
        256,
        "Free and allocatable devices, by the last part of the resource's name; @ precedes the NUMA "
        "nodes if devices are close to several; ? means unknown; +1 means one more resource.",
    )


UNKNOWN_MODEL = "unknown"
"""In place of a model's name where a node shows more than one."""


class ModelAmounts(APIModel):
    """Amounts of one resource on the NUMA node by the books of a placement model."""

    assigned: QuantityText | None = optional("Amount that pods hold.")
    available: QuantityText | None = optional("Amount that pods could still be given.")


class ZonePlacement(APIModel):
    """The placement model that decides about the NUMA node instead of the kubelet, and what its books say.

    kubectl get shows these figures instead of the kubelet's, who gives nothing exclusively there.
    """

    model: str = Field(
        min_length=1,
        max_length=MAX_LABEL,
        description="Name of the model that decides; unknown if the node shows more than one.",
    )
    decider: str = text(128, "Name of the model as used in sentences.")
    cpu: ModelAmounts | None = optional(
        "CPUs that pods hold exclusively, and whole CPUs that could still be given to single pods; left "
        "out where unknown."
    )
    memory: ModelAmounts | None = optional("Memory; left out if the model does not track it.")
    assigned: str = text(32, "CPUs held exclusively, for the columns of kubectl get; ? where unknown.")
    free: str = text(32, "CPUs that could still be given, for the columns of kubectl get; ? where unknown.")
    memory_free: str = text(
        32, "Memory that could still be given, rounded for the columns of kubectl get; ? where unknown."
    )
    objects: tuple[ResourceName, ...] = list_of(
        64, "Kinds of objects that the model reads in addition to nodes, pods and NUMAZones."
    )
    record: str = text(
        MAX_RECORD,
        "State of the model that cannot be rebuilt from objects, as JSON in the model's format; only on "
        "the NUMAZone with the lowest NUMA id.",
    )
    unknown: str = text(1024, "Why the model's state is unknown; left out if it is known.")


class Silence(APIModel):
    """The note that the NUMAZone may be out of date, since its exporter does not renew its Lease."""

    state: str = Field(
        max_length=32,
        description="Always Silent, which kubectl get shows as STATE; the condition Ready does not change.",
    )
    since: TimestampText | None = optional("When the Lease was last renewed; left out if that is unknown.")
    message: str = text(1024, "What is wrong, in a sentence, and what to do about it.")


class NUMAZoneStatus(APIModel):
    """Contents of the NUMA node, and their holders."""

    snapshot: str = text(
        64,
        "Identifier shared by all NUMAZones of a node that were written in the same cycle. Do not combine "
        "NUMAZones with different identifiers.",
    )
    zones: int = Field(default=0, ge=0, le=_MAX_ZONES, description="Number of the node's NUMAZones.")
    topology: Topology | None = optional("The hardware of the NUMA node.")
    kubelet: KubeletSettings | None = optional("The kubelet's settings; left out if they could not be read.")
    resources: tuple[ZoneResource, ...] = list_of(256, "Amounts by resource.", list_map("name"))
    cpus: CPUSets | None = optional("How the CPUs are used; left out if the CPU manager's state is unknown.")
    memory_group: tuple[NUMAID, ...] = list_of(
        _MAX_ZONES, "NUMA nodes the memory manager has bound together with this one, this one included."
    )
    memory_assignments: int | None = optional(
        "Memory blocks the memory manager counts on this NUMA node; only with policy Static.", ge=0
    )
    devices: tuple[ZoneDevice, ...] = list_of(_MAX_DEVICES, "Devices of device plugins.")
    assignments: tuple[Assignment, ...] = list_of(4096, "What containers hold on this NUMA node.")
    headroom: Headroom | None = optional(
        "The largest requests that this NUMA node alone could still satisfy."
    )
    summary: Summary | None = optional("Figures rounded for the columns of kubectl get.")
    pods_fingerprint: str = text(
        64, "Checksum of the names of the node's pods, as schedulers compute it (pfp0v001…)."
    )
    conditions: tuple[Condition, ...] = list_of(
        16, "Ready is False or Unknown, with a reason, when something could not be read.", list_map("type")
    )
    silence: Silence | None = optional(
        "Written only by the operator, while the node's exporter is not renewing its Lease."
    )
    placement: ZonePlacement | None = optional(
        "Written only by the operator, if a placement model other than the kubelet decides."
    )
    dynamic_resources: DynamicResources | None = optional(
        "Written only by the operator, if drivers publish devices of dynamic resource allocation (DRA)."
    )


def _resource(name: str, amount: str) -> str:
    return f'.status.resources[?(@.name=="{name}")].{amount}'


NUMAZONE = ResourceType(
    kind="NUMAZone",
    plural="numazones",
    singular="numazone",
    short_names=("nz",),
    scope="Cluster",
    description="One NUMA node of a Kubernetes node: its hardware, what pods hold and what is free.",
    columns=(
        # Of several results the API server shows the first that is there (apiextensions' tableconvertor).
        PrinterColumn(
            "Policy",
            ".status['placement','kubelet']['model','topologyManagerPolicy']",
            "Placement model that decides; for the kubelet, the topology manager policy",
        ),
        PrinterColumn("CPU", _resource("cpu", "capacity"), "CPUs of the NUMA node"),
        PrinterColumn(
            "Free", ".status['placement','summary'].free", "CPUs that can still be given exclusively"
        ),
        PrinterColumn(
            "Mem-Free", ".status['placement','summary'].memoryFree", "Memory that pods could still be given"
        ),
        PrinterColumn(
            "Devices",
            ".status.summary.devices",
            "Free and allocatable devices; @0-1: close to NUMA nodes 0 and 1",
        ),
        PrinterColumn(
            "State",
            ".status['silence','summary'].state",
            "Empty if there is no problem; NotReady or Unknown if not everything could be read, Silent if "
            "the exporter is not renewing its Lease",
        ),
        PrinterColumn("Reserved", _resource("cpu", "reserved"), "CPUs reserved on the NUMA node", priority=1),
        PrinterColumn(
            "Assigned", ".status['placement','summary'].assigned", "CPUs held exclusively", priority=1
        ),
        PrinterColumn("Memory", ".status.summary.memory", "Memory of the NUMA node", priority=1),
        PrinterColumn(
            "Silent",
            ".status.silence.since",
            "Time since the exporter last renewed its Lease",
            type="date",
            priority=1,
        ),
        PrinterColumn(
            "Age",
            ".metadata.creationTimestamp",
            "Time since the NUMAZone was first published",
            type="date",
            priority=1,
        ),
        PrinterColumn("Scope", ".status.kubelet.topologyManagerScope", "Topology manager scope", priority=1),
        PrinterColumn(
            "Cores",
            ".status.headroom.fullCoreCPUs",
            "Largest request for CPUs on whole cores",
            type="integer",
            priority=1,
        ),
    ),
)


class NUMAZone(APIObject):
    """One NUMA node of a Kubernetes node."""

    RESOURCE: ClassVar[ResourceType] = NUMAZONE

    spec: NUMAZoneSpec = Field(
        description="The NUMA node that this object describes; immutable.",
        json_schema_extra=IMMUTABLE,
    )
    status: NUMAZoneStatus | None = optional("What the NUMA node has, and what pods hold on it.")


def zone_name(node_name: str, numa_id: int) -> str:
    """Return the object name of a zone, ``<node>-numa-<id>``."""
    return f"{node_name}-numa-{numa_id}"
