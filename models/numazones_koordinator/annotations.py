"""Koordinator's API in labels and annotations: keys, words, and the JSON in annotations.

Rules: ``apis/extension`` (numa_aware, priority, qos, node_reservation, system_qos,
node_resource_amplification, device_share). A reader raises ``GoJSONError`` with the text that the
scheduler would log or give as the reason; what a caller makes of it differs from place to place.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isinf
from typing import Any

from numazones import cpuset, quantity
from numazones.cpuset import CPUSet
from numazones_koordinator import amounts
from numazones_koordinator.amounts import Amounts
from numazones_koordinator.cpu_topology import CPUInfo
from numazones_koordinator.go_json import (
    GoJSONError,
    boolean,
    decode,
    integer,
    kind,
    members,
    mismatch,
    text,
)

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

_LARGEST_RANGE_END = 4096
_INT32 = re.compile(r"[+-]?[0-9]{1,19}")
_PRIORITIES = (
    (9000, 9999, "koord-prod"),
    (7000, 7999, "koord-mid"),
    (5000, 5999, "koord-batch"),
    (3000, 3999, "koord-free"),
)
_PRIORITY_CLASSES = frozenset(name for *_, name in _PRIORITIES)


class TopologyPolicy(StrEnum):
    """How a pod's resources are to be aligned; any other word crashes the scheduler."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class Exclusive(StrEnum):
    """Whether a pod minds NUMA nodes used the other way; any other word acts like none of these."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class CPUBindPolicy(StrEnum):
    """How a pod's CPUs are to lie in cores."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class CPUExclusivePolicy(StrEnum):
    """What a bound pod does not want to share with pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NodeCPUBindPolicy(StrEnum):
    """How a node binds the CPUs of all pods."""

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
        """As the scheduler writes it, without empty members."""
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
        """The static policy takes whole cores only."""
        return self.policy == "static" and (self.options or {}).get("full-pcpus-only") == "true"


def numa_topology_spec(annotations: Mapping[str, str]) -> NUMATopologySpec:
    """Read a pod's NUMA topology spec."""
    found = _object(annotations, NUMA_TOPOLOGY_SPEC, "extension.NUMATopologySpec")
    struct = "NUMATopologySpec"
    return NUMATopologySpec(
        text(found, "numaTopologyPolicy", f"{struct}.numaTopologyPolicy", "extension.NUMATopologyPolicy"),
        text(
            found,
            "singleNUMANodeExclusive",
            f"{struct}.singleNUMANodeExclusive",
            "extension.NumaTopologyExclusive",
        ),
    )


def resource_spec(annotations: Mapping[str, str]) -> ResourceSpec:
    """Read a pod's resource spec."""
    found = _object(annotations, RESOURCE_SPEC, "extension.ResourceSpec")

    def word(name: str, type_: str) -> str:
        return text(found, name, f"ResourceSpec.{name}", f"extension.{type_}")

    return ResourceSpec(
        word("requiredCPUBindPolicy", "CPUBindPolicy"),
        word("preferredCPUBindPolicy", "CPUBindPolicy"),
        word("preferredCPUExclusivePolicy", "CPUExclusivePolicy"),
    )


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """Read what a running pod was given."""
    found = _object(annotations, RESOURCE_STATUS, "extension.ResourceStatus")
    given = []
    for item in _list(found, "numaNodeResources", "ResourceStatus.numaNodeResources"):
        entry = members(item, "extension.NUMANodeResource")
        numa = integer(entry, "node", "ResourceStatus.numaNodeResources.node")
        given.append((numa, _quantities(entry, "resources")))
    return ResourceStatus(cpu_list(text(found, "cpuset", "ResourceStatus.cpuset")), tuple(given))


def cpu_topology(annotations: Mapping[str, str]) -> tuple[CPUInfo, ...]:
    """Read the CPUs of a node."""
    found = _object(annotations, CPU_TOPOLOGY, "extension.CPUTopology")
    cpus = []
    for item in _list(found, "detail", "CPUTopology.detail"):
        entry = members(item, "extension.CPUInfo")
        fields = (
            integer(entry, name, f"CPUTopology.detail.{name}") for name in ("id", "core", "socket", "node")
        )
        cpus.append(CPUInfo(*fields))
    return tuple(cpus)


def kubelet_cpu_policy(annotations: Mapping[str, str]) -> KubeletCPUPolicy:
    """Read the kubelet's CPU Manager policy."""
    found = _object(annotations, KUBELET_CPU_MANAGER_POLICY, "extension.KubeletCPUManagerPolicy")
    struct = "KubeletCPUManagerPolicy"
    options = found.get("options") or {}
    if not isinstance(options, Mapping):
        raise mismatch(options, f"{struct}.options", "map[string]string")
    for option in options.values():
        if option is not None and not isinstance(option, str):
            raise mismatch(option, f"{struct}.options", "string")
    return KubeletCPUPolicy(
        text(found, "policy", f"{struct}.policy"),
        {name: option or "" for name, option in options.items()},
        text(found, "reservedCPUs", f"{struct}.reservedCPUs"),
    )


def kubelet_managed_cpus(annotations: Mapping[str, str]) -> CPUSet:
    """CPUs that the kubelet gave to its own pods; entries that can't be read don't count."""
    if POD_CPU_ALLOCS not in annotations:
        return 0
    listed = decode(annotations[POD_CPU_ALLOCS])
    if listed is not None and not isinstance(listed, list):
        raise GoJSONError(
            f"json: cannot unmarshal {kind(listed)} into Go value of type extension.PodCPUAllocs"
        )
    cpus = 0
    for item in listed or ():
        entry = members(item, "extension.PodCPUAlloc")
        managed = boolean(entry, "managedByKubelet", "PodCPUAlloc.managedByKubelet")
        uid = text(entry, "uid", "PodCPUAlloc.uid", "types.UID")
        taken = text(entry, "cpuset", "PodCPUAlloc.cpuset")
        if managed and uid:
            try:
                cpus |= cpu_list(taken)
            except GoJSONError:
                continue
    return cpus


def reserved_cpus(annotations: Mapping[str, str]) -> str:
    """The CPU list of a node reservation; its amounts reserve no CPU in particular."""
    if not annotations.get(NODE_RESERVATION):
        return ""
    found = _object(annotations, NODE_RESERVATION, "extension.NodeReservation")
    _quantities(found, "resources")
    text(found, "applyPolicy", "NodeReservation.applyPolicy", "extension.NodeReservationApplyPolicy")
    return text(found, "reservedCPUs", "NodeReservation.reservedCPUs")


def system_qos_cpus(annotations: Mapping[str, str]) -> CPUSet:
    """CPUs for pods of class SYSTEM alone."""
    found = _object(annotations, SYSTEM_QOS_RESOURCE, "extension.SystemQOSResource")
    taken = text(found, "cpuset", "SystemQOSResource.cpuset")
    exclusive = boolean(found, "cpusetExclusive", "SystemQOSResource.cpusetExclusive")
    return cpu_list(taken) if exclusive is not False else 0


def amplification_ratios(annotations: Mapping[str, str]) -> Mapping[str, float] | None:
    """Resource → ratio; None where the annotation is absent or null."""
    if AMPLIFICATION_RATIO not in annotations:
        return None
    try:
        return _ratios(decode(annotations[AMPLIFICATION_RATIO]))
    except GoJSONError as error:
        raise GoJSONError(f"failed to unmarshal node resource amplification ratio: {error}") from None


def _ratios(listed: Any) -> Mapping[str, float] | None:
    if listed is None:
        return None
    if not isinstance(listed, Mapping):
        type_ = "map[v1.ResourceName]extension.Ratio"
        raise GoJSONError(f"json: cannot unmarshal {kind(listed)} into Go value of type {type_}")
    for ratio in listed.values():
        if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, int | float)):
            raise GoJSONError(f"json: cannot unmarshal {kind(ratio)} into Go value of type extension.Ratio")
    return {name: _float(ratio or 0) for name, ratio in listed.items()}


def _float(number: float) -> float:
    """The number as a float64; Go refuses larger ones."""
    try:
        converted = float(number)
    except OverflowError:
        converted = inf
    if isinf(converted):
        raise GoJSONError("json: cannot unmarshal number into Go value of type extension.Ratio")
    return converted


def device_allocations(
    annotations: Mapping[str, str],
) -> Mapping[str, tuple[tuple[int, Amounts], ...]]:
    """Device type → (minor, amounts) of a running pod."""
    given = {}
    for type_, items in _object(
        annotations, DEVICE_ALLOCATED, "extension.DeviceAllocations", keep_case=True
    ).items():
        if not isinstance(items, list):
            raise GoJSONError(
                f"json: cannot unmarshal {kind(items)} into Go value of type []*extension.DeviceAllocation"
            )
        entries = [members(item, "extension.DeviceAllocation") for item in items]
        given[type_] = tuple(
            (integer(entry, "minor", "DeviceAllocation.minor"), _quantities(entry, "resources"))
            for entry in entries
        )
    return given


def cpu_list(listed: str) -> CPUSet:
    """Read a CPU list as ``pkg/util/cpuset`` does: no spaces; a range that runs backwards is empty.

    Raises:
        GoJSONError: with Go's message; also for CPU ids that no Linux machine has.
    """
    cpus: CPUSet = 0
    for part in listed.split(",") if listed else ():
        bounds = part.split("-")
        if len(bounds) > 2:  # noqa: PLR2004 - a range has two ends
            raise GoJSONError(f"invalid format: {part}")
        first, last = _int32(bounds[0]), _int32(bounds[-1])
        if len(bounds) == 2 and last > _LARGEST_RANGE_END:  # noqa: PLR2004
            raise GoJSONError(f"end {last} exceed the maximum available CPU count: {_LARGEST_RANGE_END}")
        if max(first, last) > cpuset.MAX_ID or first < 0:
            raise GoJSONError(f"CPU {max(first, last)} is beyond the largest supported CPU {cpuset.MAX_ID}")
        if first <= last:
            cpus |= (1 << last + 1) - (1 << first)
    return cpus


def may_bind_cpus(labels: Mapping[str, str], priority: int | None) -> bool:
    """The pod is LSE or LSR with production priority, which is the default for these classes."""
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


def _object(
    annotations: Mapping[str, str], key: str, type_: str, *, keep_case: bool = False
) -> dict[str, Any]:
    if key not in annotations:
        return {}
    value = decode(annotations[key])
    found = members(value, type_)
    if keep_case and isinstance(value, Mapping):
        return {name: member for name, member in value.items() if member is not None}
    return found


def _list(found: Mapping[str, Any], name: str, field: str) -> list[Any]:
    items = found.get(name.lower(), [])
    if not isinstance(items, list):
        raise mismatch(items, field, "array")
    return items


def _quantities(found: Mapping[str, Any], name: str) -> Amounts:
    listed = found.get(name.lower(), {})
    if not isinstance(listed, Mapping):
        raise mismatch(listed, name, "v1.ResourceList")
    try:
        return amounts.parsed({key: "0" if amount is None else amount for key, amount in listed.items()})
    except (quantity.InvalidQuantity, AttributeError, TypeError) as error:
        raise GoJSONError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _int32(digits: str) -> int:
    if not _INT32.fullmatch(digits):
        raise GoJSONError(f'strconv.ParseInt: parsing "{digits}": invalid syntax')
    value = int(digits)
    if not -(2**31) <= value < 2**31:
        raise GoJSONError(f'strconv.ParseInt: parsing "{digits}": value out of range')
    return value
