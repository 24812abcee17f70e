"""Koordinator's API in labels and annotations: keys, words, and the JSON in annotations.

Rules: ``apis/extension`` (numa_aware, priority, qos, node_reservation, system_qos,
node_resource_amplification, device_share). A reader raises ``UnreadableAnnotation``; what a
caller makes of it differs from place to place.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_koordinator.amounts import Amounts
from numazones_koordinator.annotation_json import Fields, UnreadableAnnotation, decode, objects
from numazones_koordinator.cpu_topology import CPUInfo

# Of pods.
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
QOS_CLASS = "koordinator.sh/qosClass"
PRIORITY_CLASS = "koordinator.sh/priority-class"
GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"

# Of nodes.
NODE_NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
NODE_CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
NODE_NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NODE_GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
NODE_GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
NODE_GPU_MODEL = "node.koordinator.sh/gpu-model"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"

# Of NodeResourceTopologies.
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
NODE_RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"
KUBELET_CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"

# Of Devices.
GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"

_MAX_RANGE_END = 4096
_MAX_SHOWN = 50
_RANGE = re.compile(r"(\+?[0-9]{1,19})(?:-(\+?[0-9]{1,19}))?")
_PRIORITIES = (
    (9000, 9999, "koord-prod"),
    (7000, 7999, "koord-mid"),
    (5000, 5999, "koord-batch"),
    (3000, 3999, "koord-free"),
)
_PRIORITY_CLASSES = frozenset(name for *_, name in _PRIORITIES)


class TopologyPolicy(StrEnum):
    """Alignment policy of a pod; any other word crashes the scheduler."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class Exclusive(StrEnum):
    """Exclusivity of a pod on NUMA nodes; any other word acts like none of these."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class CPUBindPolicy(StrEnum):
    """Placement of a pod's CPUs in cores."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class CPUExclusivePolicy(StrEnum):
    """Things that a bound pod must not share with pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NodeCPUBindPolicy(StrEnum):
    """Binding of all pods' CPUs on a node."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


MOST_ALLOCATED = "MostAllocated"
LEAST_ALLOCATED = "LeastAllocated"


@dataclass(frozen=True, slots=True)
class NUMATopologySpec:
    """A pod's ``numa-topology-spec``."""

    policy: str = ""
    exclusive: str = ""


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A pod's ``resource-spec``."""

    required_bind_policy: str = ""
    preferred_bind_policy: str = ""
    exclusive_policy: str = ""

    def json(self) -> str:
        """Return it as the scheduler writes it, without empty members."""
        named = {
            "requiredCPUBindPolicy": self.required_bind_policy,
            "preferredCPUBindPolicy": self.preferred_bind_policy,
            "preferredCPUExclusivePolicy": self.exclusive_policy,
        }
        return json.dumps({name: word for name, word in named.items() if word}, separators=(",", ":"))


NUMAResources = tuple[tuple[int, Amounts], ...]
"""(NUMA id, amounts) in the order of an annotation or by id."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """A pod's ``resource-status``: what it was given."""

    cpus: CPUSet = 0
    numa_resources: NUMAResources = ()


@dataclass(frozen=True, slots=True)
class KubeletCPUPolicy:
    """The kubelet's CPU Manager as koordlet reports it."""

    policy: str = ""
    options: Mapping[str, str] | None = None
    reserved_cpus: str = ""

    @property
    def full_pcpus_only(self) -> bool:
        """Return whether the static policy takes whole cores only."""
        return self.policy == "static" and (self.options or {}).get("full-pcpus-only") == "true"


def numa_topology_spec(annotations: Mapping[str, str]) -> NUMATopologySpec:
    """Read a pod's NUMA topology spec."""
    found = Fields.read(annotations, NUMA_TOPOLOGY_SPEC)
    return NUMATopologySpec(found.text("numaTopologyPolicy"), found.text("singleNUMANodeExclusive"))


def resource_spec(annotations: Mapping[str, str]) -> ResourceSpec:
    """Read a pod's resource spec."""
    found = Fields.read(annotations, RESOURCE_SPEC)
    return ResourceSpec(
        found.text("requiredCPUBindPolicy"),
        found.text("preferredCPUBindPolicy"),
        found.text("preferredCPUExclusivePolicy"),
    )


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """Read what a running pod was given."""
    found = Fields.read(annotations, RESOURCE_STATUS)
    given = tuple(
        (entry.integer("node"), entry.quantities("resources")) for entry in found.objects("numaNodeResources")
    )
    return ResourceStatus(cpu_list(RESOURCE_STATUS, found.text("cpuset")), given)


def cpu_topology(annotations: Mapping[str, str]) -> tuple[CPUInfo, ...]:
    """Read the CPUs of a node."""
    found = Fields.read(annotations, CPU_TOPOLOGY)
    return tuple(
        CPUInfo(*(cpu.integer(name) for name in ("id", "core", "socket", "node")))
        for cpu in found.objects("detail")
    )


def kubelet_cpu_policy(annotations: Mapping[str, str]) -> KubeletCPUPolicy:
    """Read the kubelet's CPU Manager policy."""
    found = Fields.read(annotations, KUBELET_CPU_MANAGER_POLICY)
    options = found.values.get("options") or {}
    words = options.values() if isinstance(options, Mapping) else [options]
    if not isinstance(options, Mapping) or not all(word is None or isinstance(word, str) for word in words):
        raise found.mismatch("options", options, "a map from strings to strings")
    return KubeletCPUPolicy(
        found.text("policy"),
        {name: option or "" for name, option in options.items()},
        found.text("reservedCPUs"),
    )


def kubelet_managed_cpus(annotations: Mapping[str, str]) -> CPUSet:
    """CPUs that the kubelet gave to its own pods; entries that can't be read don't count."""
    if POD_CPU_ALLOCS not in annotations:
        return 0
    listed = decode(POD_CPU_ALLOCS, annotations[POD_CPU_ALLOCS])
    cpus = 0
    for entry in () if listed is None else objects(POD_CPU_ALLOCS, "the value", listed):
        managed, uid, taken = entry.boolean("managedByKubelet"), entry.text("uid"), entry.text("cpuset")
        if managed and uid:
            with suppress(UnreadableAnnotation):
                cpus |= cpu_list(POD_CPU_ALLOCS, taken)
    return cpus


def reserved_cpus(annotations: Mapping[str, str]) -> str:
    """The CPU list of a node reservation; its amounts reserve no CPU in particular."""
    if not annotations.get(NODE_RESERVATION):
        return ""
    found = Fields.read(annotations, NODE_RESERVATION)
    found.quantities("resources")
    found.text("applyPolicy")
    return found.text("reservedCPUs")


def system_qos_cpus(annotations: Mapping[str, str]) -> CPUSet:
    """CPUs for pods of class SYSTEM alone."""
    found = Fields.read(annotations, SYSTEM_QOS_RESOURCE)
    taken, exclusive = found.text("cpuset"), found.boolean("cpusetExclusive")
    return cpu_list(SYSTEM_QOS_RESOURCE, taken) if exclusive is not False else 0


def amplification_ratios(annotations: Mapping[str, str]) -> Mapping[str, float] | None:
    """Resource → ratio; None where the annotation is absent or null.

    Raises:
        UnreadableAnnotation: with the words that the scheduler puts in front.
    """
    if AMPLIFICATION_RATIO not in annotations:
        return None
    try:
        return _ratios(decode(AMPLIFICATION_RATIO, annotations[AMPLIFICATION_RATIO]))
    except UnreadableAnnotation as error:
        message = f"failed to unmarshal node resource amplification ratio: {error.why}"
        raise UnreadableAnnotation(AMPLIFICATION_RATIO, error.why, message) from None


def _ratios(listed: Any) -> Mapping[str, float] | None:
    if listed is None:
        return None
    if not isinstance(listed, Mapping):
        raise UnreadableAnnotation(AMPLIFICATION_RATIO, "it is not an object")
    return {name: _ratio(name, 0 if ratio is None else ratio) for name, ratio in listed.items()}


def _ratio(name: str, ratio: Any) -> float:
    """Return the number as a float64; it is finite."""
    if not isinstance(ratio, bool) and isinstance(ratio, int | float):
        with suppress(OverflowError):
            if isfinite(ratio):
                return float(ratio)
    raise UnreadableAnnotation(AMPLIFICATION_RATIO, f"{name} is not a number that fits 64 bits")


def device_allocations(annotations: Mapping[str, str]) -> Mapping[str, tuple[tuple[int, Amounts], ...]]:
    """Device type → (minor, amounts) of a running pod."""
    if DEVICE_ALLOCATED not in annotations:
        return {}
    value = decode(DEVICE_ALLOCATED, annotations[DEVICE_ALLOCATED])
    if value is not None and not isinstance(value, Mapping):
        raise UnreadableAnnotation(DEVICE_ALLOCATED, "it is not an object")
    return {
        type_: tuple(
            (entry.integer("minor"), entry.quantities("resources"))
            for entry in objects(DEVICE_ALLOCATED, type_, items)
        )
        for type_, items in (value or {}).items()
        if items is not None
    }


def cpu_list(key: str, listed: str) -> CPUSet:
    """Read a CPU list in the annotation ``key``: no spaces; a range that runs backwards is empty.

    Rules: ``pkg/util/cpuset``, which bounds the end of a range only.

    Raises:
        UnreadableAnnotation: it is not a list of CPUs; also for CPU ids that no Linux machine has.
    """
    cpus: CPUSet = 0
    for part in listed.split(",") if listed else ():
        found = _RANGE.fullmatch(part)
        if found is None:
            raise UnreadableAnnotation(key, f"{part[:_MAX_SHOWN]!r} is not a CPU or a range of CPUs")
        first, last = int(found[1]), int(found[2] or found[1])
        if first > cpuset.MAX_ID or (found[2] is not None and last > _MAX_RANGE_END):
            raise UnreadableAnnotation(key, f"{part!r} is beyond the largest CPU that koord-scheduler reads")
        if first <= last:
            cpus |= (1 << last + 1) - (1 << first)
    return cpus


def may_bind_cpus(labels: Mapping[str, str], priority: int | None) -> bool:
    """Return whether the pod is LSE or LSR with production priority, the default for these classes."""
    if labels.get(QOS_CLASS) not in {"LSE", "LSR"}:
        return False
    return _priority_class(labels, priority) in {"", "koord-prod"}


def _priority_class(labels: Mapping[str, str], priority: int | None) -> str:
    if PRIORITY_CLASS in labels:
        named = labels[PRIORITY_CLASS]
        return named if named in _PRIORITY_CLASSES else ""
    for least, most, name in _PRIORITIES:
        if priority is not None and least <= priority <= most:
            return name
    return ""
