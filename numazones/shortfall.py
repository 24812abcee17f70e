"""What a node that refuses a pod lacks, as a person would say it.

The kubelet says "Resources cannot be allocated with Topology locality"; people want to know how much of
what is missing where. The amounts here explain a verdict that the admission model has given, they never
make one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from numazones import fragmentation, quantity
from numazones.kubelet.config import RESTRICTED, SCOPE_POD, SINGLE_NUMA_NODE
from numazones.node import Node
from numazones.pod import Demand, Pod


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a node lacks, as a person would say it."""

    resource: str
    """Empty where no single resource is short, only all of them on the same NUMA nodes."""
    needed: int
    """CPUs, bytes or devices."""
    zones: int
    """On how many NUMA nodes at most the pod must find it."""
    offered: int
    """The most that so many NUMA nodes of the node could give."""
    numa_ids: tuple[int, ...] = ()
    """Those NUMA nodes."""


def sentence_of(short: Shortfall, node: str) -> str:
    """Say what is missing: ``needs 16 CPUs on one NUMA node; the fullest offer is 12, worker-3 zone 1``."""
    where = "one NUMA node" if short.zones == 1 else f"{short.zones} NUMA nodes"
    if not short.resource:
        return f"needs everything on {where} at once; {node} has each resource, but on different ones"
    needed, offered = (
        amount_of(short.resource, short.needed),
        amount_of(short.resource, short.offered, bare=True),
    )
    return f"needs {needed} on {where}; the fullest offer is {offered}, {node} {_zones(short.numa_ids)}"


def _zones(numa_ids: tuple[int, ...]) -> str:
    if len(numa_ids) == 1:
        return f"zone {numa_ids[0]}"
    *most, last = numa_ids
    return f"zones {', '.join(map(str, most))} and {last}"


def amount_of(resource: str, amount: int, *, bare: bool = False) -> str:
    """Write an amount with its unit: ``16 CPUs``, ``32Gi of memory``, ``2 vendor.example/nic``."""
    if fragmentation.is_bytes(resource):
        text = quantity.format_bytes(amount)
        return text if bare else f"{text} of {resource}"
    if bare:
        return str(amount)
    if resource == "cpu":
        return f"{amount} CPU{'' if amount == 1 else 's'}"
    return f"{amount} {resource}"


def shortfall(pod: Pod, node: Node) -> Shortfall | None:
    """Work out what a refusing node lacks; None where amounts do not explain the refusal."""
    free = fragmentation.room(node)
    if node.kubelet.cpus.full_cores_only:
        free["cpu"] = fragmentation.full_core_cpus(node)
    whole: tuple[Demand, ...] = (pod.total,)
    demands = whole if node.config.topology_manager_scope == SCOPE_POD else pod.demands
    zones = 1 if node.config.topology_manager_policy == SINGLE_NUMA_NODE else len(node.machine.numa_nodes)
    for demand in demands:
        needs = dict(demand.limits) | dict(demand.memory or ()) | {"cpu": demand.cpus}
        wanted = {name: needs[name] for name in free if needs.get(name, 0) > 0}
        if node.config.topology_manager_policy == RESTRICTED:
            zones = _fewest_zones(wanted, node)
        worst = min(
            (_offer(name, amount, free[name], zones) for name, amount in wanted.items()),
            key=lambda item: item.offered / item.needed,
            default=None,
        )
        if worst is not None and worst.offered < worst.needed:
            return worst
    if zones < len(node.machine.numa_nodes) and any(demand.cpus or demand.limits for demand in demands):
        return Shortfall("", 0, zones, 0)
    return None


def _offer(resource: str, amount: int, free: Mapping[int, int], zones: int) -> Shortfall:
    fullest = sorted(free, key=lambda numa: (-free[numa], numa))[:zones]
    return Shortfall(resource, amount, zones, sum(free[numa] for numa in fullest), tuple(sorted(fullest)))


def _fewest_zones(wanted: Mapping[str, int], node: Node) -> int:
    """The fewest NUMA nodes whose capacity suffices: what policy restricted insists on."""
    fewest = 1
    for resource, amount in wanted.items():
        sizes = sorted(_capacity(node, resource).values(), reverse=True)
        held, zones = 0, 0
        while held < amount and zones < len(sizes):
            held += sizes[zones]
            zones += 1
        fewest = max(fewest, zones)
    return fewest


def _capacity(node: Node, resource: str) -> Mapping[int, int]:
    kubelet = node.kubelet
    if resource == "cpu":
        return {numa: cpus.bit_count() for numa, cpus in node.machine.cpus_of_numa.items()}
    if resource in kubelet.memory.allocatable:
        return dict(zip(kubelet.memory.numas, kubelet.memory.allocatable[resource], strict=True))
    devices = kubelet.devices.resources[resource]
    return {numa: devices.touching(1 << numa).bit_count() for numa in node.machine.by_numa}
