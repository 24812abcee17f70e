"""Nodes that the default scheduler could choose for a pod, and every reason against the others.

Before the kubelet decides, the scheduler filters nodes. These are its filters that concern a node alone
(kube-scheduler 1.36: NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit), in its order and
with its words, so that a reason here reads like the events people know. Unlike the scheduler, which stops
at the first filter that fails, all failing reasons are returned. Filters that look at other pods or at
volumes (spreading, pod affinity, ports) are not covered; scheduling gates are set aside on purpose.

What dynamic resource allocation decides (KEP-4381, KEP-5004) is asked elsewhere: the scheduler's structured
allocator matches claims with the devices of ResourceSlices by expressions, counters and constraints. A node
that has an extended resource from there alone does not lack it; whether it has enough is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain

from numazones.apimachinery.resources import CPU, DEVICE_CLASS, HUGEPAGES, MEMORY, STORAGE, figures
from numazones.apimachinery.taints import Taint
from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.constraints import Constraints
from numazones.wording import enumeration

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"
PODS = "pods"

ALLOCATOR_DECIDES = "only the scheduler's allocator knows which nodes have such devices free"
NOT_ALLOCATED = "DevicesNotAllocated"
"""Reason where the scheduler still has to allocate devices of dynamic resource allocation."""

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_SIMILAR = 0.8
"""From this ratio on (difflib), a name is taken for another one misspelled."""
_SIMILAR_SIBLING = 0.6
"""The same for the short names of one vendor's resources."""
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which a node has less left than a pod asks for; cpu in milli-CPUs."""

    resource: str
    asked: int
    free: int
    total: int = 0
    """What the node has of it when no pod is there."""
    instead: str = ""
    """Where it has none: the resource that it has and whose name is nearly the same."""

    @property
    def reason(self) -> str:
        """The scheduler's words."""
        return TOO_MANY_PODS if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def share(self) -> float:
        """The part of the request that the node has; 1 would be enough."""
        return self.free / self.asked

    def __str__(self) -> str:
        asked, free = figures(self.resource, self.asked, self.free)
        meant = f" (did you mean {self.instead}?)" if self.instead else ""
        return f"{self.reason}: {asked} requested, {free} free{meant}"


def obstacles(constraints: Constraints, requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return all reasons for which the scheduler passes over the node; none means it could choose it."""
    return (*placement_obstacles(constraints, node), *resource_obstacles(requests, node))


def placement_obstacles(constraints: Constraints, node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons from cordons, taints, selectors and affinity."""
    reasons = []
    if node.unschedulable and not constraints.tolerates(_UNSCHEDULABLE_TAINT):
        reasons.append(UNSCHEDULABLE)
    untolerated = [
        taint for taint in node.taints if taint.effect in _KEEPS_AWAY and not constraints.tolerates(taint)
    ]
    if untolerated:
        reasons.append(UNTOLERATED)
    if not constraints.selects(node.name, node.labels):
        reasons.append(NOT_SELECTED)
    return tuple(reasons)


def resource_obstacles(requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons from pod slots and from allocatable resources not yet requested.

    Devices that are still to be allocated are among them: nobody may count on a node for them.
    """
    still = unallocated(requests, node)
    return (*(lack.reason for lack in lacks(requests, node)), *((NOT_ALLOCATED,) if still else ()))


def lacks(requests: Mapping[str, int], node: ClusterNode) -> tuple[Lack, ...]:
    """Return what a node has too little of, in the scheduler's order."""
    slots = node.pod_slots
    found = [Lack(PODS, 1, slots - node.pod_count, slots)] if node.pod_count + 1 > slots else []
    for resource, amount in requests.items():
        total = node.allocatable.get(resource, 0)
        free = total - node.requested.get(resource, 0)
        if amount > 0 and amount > free and not dynamic_resources({resource: amount}, node):
            instead = "" if total else _similar(resource, tuple(node.allocatable))
            found.append(Lack(resource, amount, max(free, 0), total, instead))
    return tuple(found)


@lru_cache(maxsize=256)
def _similar(resource: str, offered: tuple[str, ...]) -> str:
    """Return the resource that somebody may have meant; empty where none is nearly called so.

    Of one vendor's resources the vendor's name, which they share, says nothing. Another size of hugepages
    is not meant.
    """
    vendor, slash, own = resource.rpartition("/")
    siblings = [
        name.removeprefix(vendor + slash) for name in offered if slash and name.startswith(vendor + slash)
    ]
    if meant := get_close_matches(own, siblings, n=1, cutoff=_SIMILAR_SIBLING):
        return vendor + slash + meant[0]
    others = [name for name in offered if "/" in name and not name.startswith(vendor + slash)]
    if not slash:
        others = [name for name in (CPU, MEMORY, STORAGE, *offered) if name not in {resource, PODS}]
        if resource.startswith(HUGEPAGES):
            others = [name for name in others if name.lower() == resource.lower()]
    near = (get_close_matches(name, others, n=1, cutoff=_SIMILAR) for name in (resource, resource.lower()))
    return next(chain.from_iterable(near), "")


def dynamic_resources(requests: Mapping[str, int], node: ClusterNode) -> list[str]:
    """Return the extended resources that the scheduler serves on a node by dynamic resource allocation.

    It does where a DeviceClass names the resource and no device plugin offers it on the node
    (``shouldDelegateResourceToDRA`` of NodeResourcesFit; gate DRAExtendedResource, on since 1.36).
    """
    return [
        name
        for name, amount in requests.items()
        if amount > 0 >= node.allocatable.get(name, 0)
        and (name in node.device_classes or name.startswith(DEVICE_CLASS))
    ]


def classes_asked(requests: Mapping[str, int], node: ClusterNode) -> frozenset[str]:
    """Return the DeviceClasses of which devices are to be allocated for a pod's requests; mostly none."""
    return frozenset(
        node.device_classes.get(name, name.removeprefix(DEVICE_CLASS))
        for name in dynamic_resources(requests, node)
    )


def unallocated(requests: Mapping[str, int], node: ClusterNode) -> str:
    """Return the sentence that names what of a pod's requests is still to be allocated; mostly none."""
    found = dynamic_resources(requests, node)
    if not found:
        return ""
    classes = classes_asked(requests, node)
    return (
        f"it requests {enumeration(sorted(found))}, which dynamic resource allocation provides "
        f"(DeviceClass {enumeration(sorted(classes))}): {ALLOCATOR_DECIDES}"
    )
