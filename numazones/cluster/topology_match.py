"""Verdict of NodeResourceTopologyMatch, of kubernetes-sigs/scheduler-plugins, on a node.

It is the filter that people would otherwise have their scheduler use against rejections: it reads a
NodeResourceTopology and asks whether one zone has enough. Rules as its filter has them (commit 903da7df),
found by its verdicts (conformance/nrt-match): it looks only at single-numa-node; each container's requests
must fit one zone, which is the first that has them; init containers are asked alone and take nothing;
under scope pod the whole pod must fit one zone.
"""

from collections.abc import Collection, Iterable

from numazones.api.noderesourcetopology import NodeResourceTopology, policy_and_scope
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, MEMORY, STORAGE, is_memory
from numazones.kubelet.config import SCOPE_POD, SINGLE_NUMA_NODE
from numazones.kubelet.demand import Container, ContainerKind, QOSClass, Resources
from numazones.kubelet.pod import Pod

RequestedAmounts = dict[str, int]
"""Resource → billionths of CPUs, bytes or devices."""

_PREFIX = "node-"
_NATIVE_DOMAIN = "kubernetes.io/"


def matches(pod: Pod, topology: NodeResourceTopology, allocatable: Collection[str]) -> bool:
    """Return whether the filter lets a pod pass.

    ``allocatable``: names of the resources that the node's status lists as allocatable.
    """
    policy, scope = policy_and_scope(topology)
    if policy != SINGLE_NUMA_NODE:
        return True
    qos = pod.qos
    if qos is QOSClass.BEST_EFFORT and not any(_is_extended(name) for name in _names(pod)):
        return True
    zones = _Zones(topology, allocatable, guaranteed=qos is QOSClass.GUARANTEED)
    if scope == SCOPE_POD:
        return zones.fitting(_effective(pod.containers)) is not None
    for container in pod.containers:
        request = _request(container)
        zone = zones.fitting(request)
        if zone is None:
            return False
        if container.kind is ContainerKind.APP:
            zones.take(request, zone)
    return True


class _Zones:
    """Amounts that the zones have left while the containers of a pod are matched."""

    def __init__(
        self, topology: NodeResourceTopology, allocatable: Collection[str], *, guaranteed: bool
    ) -> None:
        self._zones = {
            int(zone.name.removeprefix(_PREFIX)): {
                info.name: quantity.parse(info.available).nanos for info in zone.resources
            }
            for zone in topology.zones
        }
        self._allocatable = allocatable
        self._guaranteed = guaranteed

    def fitting(self, request: RequestedAmounts) -> int | None:
        """Return the lowest zone that has all of a request; None: no zone has."""
        suitable = set(self._zones)
        for resource, amount in request.items():
            if not amount:
                continue
            if resource not in self._allocatable:
                return None
            having = {zone for zone, amounts in self._zones.items() if resource in amounts}
            if not having and _is_of_the_host(resource):
                continue
            suitable &= {
                zone for zone in having if not self._counts(resource) or self._zones[zone][resource] >= amount
            }
        return min(suitable, default=None)

    def take(self, request: RequestedAmounts, zone: int) -> None:
        """Take the amounts of a container from its zone."""
        amounts = self._zones[zone]
        for resource, amount in request.items():
            if resource in amounts and self._counts(resource):
                amounts[resource] -= amount

    def _counts(self, resource: str) -> bool:
        """Return whether the amount matters; CPU and memory matter to Guaranteed pods alone."""
        return self._guaranteed or not (resource == CPU or is_memory(resource))


def _request(container: Container) -> RequestedAmounts:
    return _amounts(container.requests) or _amounts(container.limits)


def _amounts(resources: Resources) -> RequestedAmounts:
    return {name: amount.nanos for name, amount in resources}


def _effective(containers: Iterable[Container]) -> RequestedAmounts:
    """Return the larger of each init container's request and the sum of the others'."""
    total: RequestedAmounts = {}
    first: RequestedAmounts = {}
    for container in containers:
        for name, amount in _request(container).items():
            if container.kind is ContainerKind.APP:
                total[name] = total.get(name, 0) + amount
            else:
                first[name] = max(first.get(name, 0), amount)
    return {name: max(total.get(name, 0), first.get(name, 0)) for name in (*total, *first)}


def _names(pod: Pod) -> set[str]:
    return {name for container in pod.containers for name, _ in (*container.requests, *container.limits)}


def _is_extended(resource: str) -> bool:
    return "/" in resource and _NATIVE_DOMAIN not in resource


def _is_of_the_host(resource: str) -> bool:
    """Return whether a resource that no zone lists may be taken anywhere on the node."""
    return resource in (STORAGE, "storage") or not (resource in (CPU, MEMORY) or is_memory(resource))
