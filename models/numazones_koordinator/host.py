"""Constant part of a node: its objects as koord-scheduler reads them.

Rules: ``nodenumaresource/topology_options`` (NodeResourceTopology v1alpha1) and ``util``
(amplification, policies). What can't be read in an annotation counts as not there, as upstream; only an
unreadable CPU topology crashes the scheduler.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, TypeVar

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones_koordinator import annotations as api
from numazones_koordinator.amounts import (
    MICRO,
    NANO,
    Amounts,
    Counted,
    milli,
    parse_amounts,
    scheduler_counts,
    whole,
)
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.annotations import (
    MOST_ALLOCATED,
    CPUBindPolicy,
    KubeletCPUPolicy,
    NodeCPUBindPolicy,
    TopologyPolicy,
)
from numazones_koordinator.cpu_topology import CPUTopology
from numazones_koordinator.device_inventory import Inventory
from numazones_koordinator.objects import items, mapping, quantities, texts, words
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import InvalidNode, SchedulerCrash

_MAX_AMPLIFIED = float(2**62)
_T = TypeVar("_T")
_ZONE_TYPE = "Node"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

# The only names of kubelets' policies that the scheduler knows.
_KNOWN_POLICIES = {
    "BestEffort": TopologyPolicy.BEST_EFFORT,
    "Restricted": TopologyPolicy.RESTRICTED,
    "SingleNUMANodePodLevel": TopologyPolicy.SINGLE_NUMA_NODE,
}
# What koordlet reports beside them, and what the design says it stands for.
_IGNORED_POLICIES = {
    "SingleNUMANodeContainerLevel": TopologyPolicy.SINGLE_NUMA_NODE,
    "RestrictedContainerLevel": TopologyPolicy.RESTRICTED,
    "RestrictedPodLevel": TopologyPolicy.RESTRICTED,
    "BestEffortContainerLevel": TopologyPolicy.BEST_EFFORT,
    "BestEffortPodLevel": TopologyPolicy.BEST_EFFORT,
}


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node with what pods can be given of it, amplified where the node is."""

    id: int
    resources: Amounts


@dataclass(frozen=True, slots=True)
class Host:
    """A node without its pods, and the scheduler that decides about it."""

    scheduler: Scheduler = field(default_factory=Scheduler)
    name: str = ""
    allocatable: Counted = field(default_factory=dict)
    """Of the Node object; on amplified nodes amplified already."""
    topology: CPUTopology | None = None
    """None: there is no NodeResourceTopology. Without CPUs: it has no CPU topology."""
    zones: tuple[Zone, ...] = ()
    """By id."""
    reserved: CPUSet = 0
    topology_policy: str = ""
    """Of the node's label, else of its NodeResourceTopology; a word of no policy crashes the scheduler."""
    bind_policy: NodeCPUBindPolicy = NodeCPUBindPolicy.NONE
    most_allocated: bool = False
    """CPUs are taken from the fullest NUMA node that has enough."""
    ratio: float = 0.0
    """Amplification of CPU in the zones; none at 1 or below."""
    ratio_error: str = ""
    """Why the amplification of the zones can't be read."""
    node_ratio: float | None = 0.0
    """Amplification of CPU by the node's own annotation; None: unreadable."""
    inventory: Inventory | None = None
    """Devices; None: the node has no Device object."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that say how GPUs are shared."""
    warnings: tuple[str, ...] = ()
    """What of the node's objects the scheduler silently ignores."""

    numa_ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """NUMA nodes of the zones, ascending."""
    zone_of: Mapping[int, Amounts] = field(init=False, repr=False, compare=False)
    """NUMA id → what pods can be given of it; of zones with the same id the first counts."""
    capacity: Mapping[str, Mapping[int, int]] = field(init=False, repr=False, compare=False)
    """Resource that a zone lists → NUMA id → all of it there; 0 where it is not listed."""
    fingerprint: Hashable = field(init=False, repr=False, compare=False)
    """Equal for hosts on which everything is decided alike, whatever their names."""

    def __post_init__(self) -> None:
        alike = (
            self.scheduler,
            frozenset(self.allocatable.items()),
            self.topology,
            tuple((zone.id, frozenset(zone.resources.items())) for zone in self.zones),
            self.reserved,
            self.topology_policy,
            self.bind_policy,
            self.most_allocated,
            self.ratio,
            self.ratio_error,
            self.node_ratio,
            None if self.inventory is None else self.inventory.fingerprint,
            frozenset(self.labels.items()),
        )
        object.__setattr__(self, "numa_ids", tuple(zone.id for zone in self.zones))
        zone_of = {zone.id: zone.resources for zone in reversed(self.zones)}
        listed = {name for zone in self.zones for name in zone.resources}
        capacity = {
            name: {numa: resources.get(name, 0) for numa, resources in zone_of.items()} for name in listed
        }
        object.__setattr__(self, "zone_of", zone_of)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "fingerprint", alike)

    @classmethod
    def read(
        cls,
        node: Mapping[str, Any],
        nrt: Mapping[str, Any] | None = None,
        device: Mapping[str, Any] | None = None,
        *,
        scheduler: Scheduler | None = None,
    ) -> "Host":
        """Read a Node, its NodeResourceTopology and its Device object.

        Raises:
            InvalidNode: an object has not the shape of its kind.
            InvalidQuantity: an amount is no quantity.
            SchedulerCrash: the scheduler would crash on the NodeResourceTopology.
        """
        scheduler = scheduler or Scheduler()
        metadata = mapping(node, "metadata")
        labels = texts(metadata, "labels")
        annotations = texts(metadata, "annotations")
        ratios, ratio_error = _ratios(annotations)
        host = cls(
            scheduler=scheduler,
            name=str(metadata.get("name", "")),
            allocatable=scheduler_counts(quantities(mapping(node, "status"), "allocatable")),
            topology_policy=labels.get(api.NODE_NUMA_TOPOLOGY_POLICY, ""),
            bind_policy=_bind_policy(labels, KubeletCPUPolicy()),
            most_allocated=_takes_fullest_first(labels, scheduler),
            ratio=(ratios or {}).get(CPU, 0.0),
            ratio_error=ratio_error,
            node_ratio=None if ratio_error else (ratios or {}).get(CPU, 0.0),
            inventory=None if device is None else Inventory.read(device),
            labels={key: value for key, value in labels.items() if "gpu-" in key},
        )
        return host if nrt is None else host._with_topology(nrt, labels, ratios)

    def _with_topology(
        self, nrt: Mapping[str, Any], labels: Mapping[str, str], ratios: Mapping[str, float] | None
    ) -> "Host":
        """Return the host with what its NodeResourceTopology says."""
        annotations = texts(mapping(nrt, "metadata"), "annotations")
        try:
            cpus = api.cpu_topology(annotations)
        except UnreadableAnnotation as error:
            raise SchedulerCrash(
                f"node {self.name}: koord-scheduler crashes on the NodeResourceTopology's annotation "
                f"{error.key}: {error.why}"
            ) from None
        for cpu in cpus:
            if not 0 <= cpu.id <= cpuset.MAX_ID:
                raise InvalidNode(f"node {self.name}: {cpu.id} is not a CPU id (0 to {cpuset.MAX_ID})")
        topology = CPUTopology(cpus)
        warnings: list[str] = []
        kubelet = _lenient(warnings, KubeletCPUPolicy(), api.kubelet_cpu_policy, annotations)
        reserved = _reserved_cpus(annotations, kubelet, warnings)
        own_ratios, own_error = _ratios(annotations)
        if own_error:
            warnings.append(f"{api.AMPLIFICATION_RATIO} of the NodeResourceTopology is ignored: {own_error}")
        zones = _zones(nrt, topology, reserved)
        if own_ratios is None:
            zones = tuple(Zone(zone.id, amplify_amounts(zone.resources, ratios or {})) for zone in zones)
        policies = words(nrt, "topologyPolicies")
        return replace(
            self,
            topology=topology,
            zones=zones,
            reserved=reserved,
            topology_policy=self._policy(policies, warnings),
            bind_policy=_bind_policy(labels, kubelet),
            ratio=self.ratio if own_ratios is None else own_ratios.get(CPU, 0.0),
            ratio_error=self.ratio_error if own_ratios is None else "",
            warnings=tuple(warnings),
        )

    def _policy(self, reported: list[str], warnings: list[str]) -> str:
        """The node's topology policy: the label goes before what is reported of the kubelet."""
        mapped = next((_KNOWN_POLICIES[policy] for policy in reported if policy in _KNOWN_POLICIES), "")
        warnings.extend(
            f"koord-scheduler ignores the topology policy {policy} of the NodeResourceTopology, "
            f"which stands for {_IGNORED_POLICIES[policy]}"
            for policy in reported
            if policy in _IGNORED_POLICIES
        )
        return self.topology_policy or mapped

    @property
    def required_bind_policy(self) -> str:
        """Return how the node binds the CPUs of every pod; empty if it does not."""
        if self.bind_policy is NodeCPUBindPolicy.FULL_PCPUS_ONLY:
            return CPUBindPolicy.FULL_PCPUS
        return CPUBindPolicy.SPREAD_BY_PCPUS if self.bind_policy is NodeCPUBindPolicy.SPREAD_BY_PCPUS else ""


def amplify_amounts(resources: Amounts, ratios: Mapping[str, float]) -> dict[str, int]:
    """Amounts multiplied by the ratios above 1, rounded up to what the scheduler counts in."""
    larger = dict(resources)
    for name, amount in resources.items():
        ratio = ratios.get(name, 0.0)
        if ratio > 1 and amount:
            if name == CPU:
                larger[name] = amplify(milli(amount), ratio) * MICRO
            else:
                larger[name] = amplify(whole(amount), ratio) * NANO
    return larger


def amplify(count: int, ratio: float) -> int:
    """A count multiplied by a ratio above 1, rounded up."""
    return ceil(min(float(count) * ratio, _MAX_AMPLIFIED)) if ratio > 1 else count


def _lenient(warnings: list[str], default: _T, reader: Callable[..., _T], *arguments: Any) -> _T:
    """Return what a reader makes of an annotation; where it cannot be read, the default and a warning."""
    try:
        return reader(*arguments)
    except UnreadableAnnotation as error:
        warnings.append(
            f"koord-scheduler ignores the NodeResourceTopology's annotation {error.key}: {error.why}"
        )
        return default


def _reserved_cpus(annotations: Mapping[str, str], kubelet: KubeletCPUPolicy, warnings: list[str]) -> CPUSet:
    """CPUs that no pod gets from this scheduler."""
    reserved = _lenient(warnings, 0, api.kubelet_managed_cpus, annotations)
    reserved |= _lenient(warnings, 0, api.cpu_list, api.KUBELET_CPU_MANAGER_POLICY, kubelet.reserved_cpus)
    listed = _lenient(warnings, "", api.reserved_cpus, annotations)
    reserved |= _lenient(warnings, 0, api.cpu_list, api.NODE_RESERVATION, listed)
    reserved |= _lenient(warnings, 0, api.system_qos_cpus, annotations)
    return reserved


def _zones(nrt: Mapping[str, Any], topology: CPUTopology, reserved: CPUSet) -> tuple[Zone, ...]:
    """The NUMA nodes that the object lists, less the CPUs reserved."""
    zones = []
    for zone in items(nrt, "zones"):
        parts = str(zone.get("name", "")).split("node-")
        if zone.get("type") != _ZONE_TYPE or len(parts) != 2 or not _INTEGER.fullmatch(parts[1]):  # noqa: PLR2004
            continue
        numa = int(parts[1])
        resources = parse_amounts(
            {str(item.get("name", "")): item.get("allocatable", "0") for item in items(zone, "resources")}
        )
        if resources.get(CPU):
            taken = (reserved & topology.numas.get(numa, 0)).bit_count()
            resources[CPU] = milli(resources[CPU]) * MICRO - taken * NANO
        zones.append(Zone(numa, resources))
    return tuple(sorted(zones, key=lambda zone: zone.id))


def _ratios(annotations: Mapping[str, str]) -> tuple[Mapping[str, float] | None, str]:
    try:
        return api.amplification_ratios(annotations), ""
    except UnreadableAnnotation as error:
        return None, str(error)


def _bind_policy(labels: Mapping[str, str], kubelet: KubeletCPUPolicy) -> NodeCPUBindPolicy:
    word = labels.get(api.NODE_CPU_BIND_POLICY, "")
    if word == NodeCPUBindPolicy.FULL_PCPUS_ONLY or kubelet.full_pcpus_only:
        return NodeCPUBindPolicy.FULL_PCPUS_ONLY
    if word == NodeCPUBindPolicy.SPREAD_BY_PCPUS:
        return NodeCPUBindPolicy.SPREAD_BY_PCPUS
    return NodeCPUBindPolicy.NONE


def _takes_fullest_first(labels: Mapping[str, str], scheduler: Scheduler) -> bool:
    """Return whether the fullest comes first; every other word in the label means the emptiest."""
    word = labels.get(api.NODE_NUMA_ALLOCATE_STRATEGY, "")
    return word == MOST_ALLOCATED if word else scheduler.numa_scoring.most_allocated
