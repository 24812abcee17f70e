"""Requests that just miss what a machine gives, and room that nobody can use, found before a pod is rejected.

``advice`` says what would let one rejected pod in, on a node as it is. Here a request is compared with the
empty node: fifteen CPUs where the kubelet gives whole cores of two threads, sixteen where a NUMA
node gives fifteen because one is reserved, one and a half that pin nothing. Each other amount that is
proposed has been admitted by the model on the empty node.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from numazones.apimachinery.resources import CPU, MEMORY, is_memory
from numazones.cluster.other_requests import (
    amount_in_words,
    amount_with_resource,
    managed_amounts,
    with_request,
)
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import POLICY_NONE, SCOPE_POD
from numazones.kubelet.demand import Container, PodDemand, QOSClass
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.fragmentation import Shape, full_core_cpus, room, zones_of

_LITTLE = 8
"""A request misses by little that is over by at most this part of it."""
_WORTH_TELLING = 8
"""Free CPUs are worth telling about from this part of a zone on."""
_MEBI = 1 << 20
_CPU_MILLIS = 1000


@dataclass(frozen=True, slots=True)
class Misfit:
    """A request that is a little off whole cores, or a little more than one NUMA node gives."""

    container: str
    resource: str
    asked: int
    """CPUs or bytes."""
    granule: int
    """Threads of a core where only whole cores are given; 0: the request is more than a NUMA node has."""
    widest: int
    """The most that one NUMA node gives when it is empty."""
    rejected: bool
    """Whether even the empty node rejects the pod; it spans several NUMA nodes otherwise."""
    instead: tuple[int, ...]
    """What to ask for instead, the nearest first; with any of it the empty node aligns the pod."""

    @property
    def why(self) -> str:
        """Return what is wrong with the request."""
        if self.granule:
            given = f"the kubelet only assigns whole cores of {self.granule} threads (full-pcpus-only)"
        else:
            most = amount_in_words(self.resource, self.widest)
            given = f"a NUMA node can provide at most {most}, even when it is empty"
        return (
            f"container {self.container} requests {amount_with_resource(self.resource, self.asked)}; {given}"
        )

    @property
    def cure(self) -> str:
        """Return what to do about it."""
        *others, last = self.instead
        amounts = [amount_in_words(self.resource, amount) for amount in others]
        return f"request {' or '.join((*amounts, amount_with_resource(self.resource, last)))}"


@dataclass(frozen=True, slots=True)
class StrandedZone:
    """A NUMA node with free CPUs that no pod of the known shapes can use."""

    numa: int
    cpus: int
    """Free ones."""
    lacking: str
    """The resource that keeps most shapes out."""


def without_pods(node: Node) -> Node:
    """Return the node without pods."""
    for uid in node.pods:
        node = remove(node, uid)
    return node


def misfits(pod: Pod, empty: Node) -> Iterator[Misfit]:
    """Yield the requests of a pod that an empty node just misses."""
    pod_demand = empty.kubelet.demand_of(pod)
    if not empty.kubelet.cpus.static or not pod_demand.served:
        return
    uneven = list(_partial_cores(pod, empty, pod_demand))
    yield from uneven
    if not uneven and empty.config.topology_manager_policy != POLICY_NONE:
        yield from _wider_than_zone(pod, empty, pod_demand)


def _partial_cores(pod: Pod, empty: Node, pod_demand: PodDemand) -> Iterator[Misfit]:
    """Yield requests for a part of a core where the kubelet gives whole cores only."""
    manager = empty.kubelet.cpus
    per_core = manager.topology.cpus_per_core if manager.full_cores_only else 1
    for container, demand in zip(pod.containers, pod_demand.demands, strict=True):
        over = demand.cpus % per_core
        nearest = (demand.cpus + per_core - over, demand.cpus - over)
        if over:
            yield from _aligned_misfit(pod, empty, container, (CPU, demand.cpus), nearest, granule=per_core)


def _wider_than_zone(pod: Pod, empty: Node, pod_demand: PodDemand) -> Iterator[Misfit]:
    """Yield requests for a little more than one NUMA node has."""
    manager = empty.kubelet.cpus
    per_core = manager.topology.cpus_per_core if manager.full_cores_only else 1
    whole = empty.config.topology_manager_scope == SCOPE_POD
    for container, demand in zip(pod.containers, pod_demand.demands, strict=True):
        for resource, amount in managed_amounts(demand):
            if resource != CPU and not is_memory(resource):
                continue
            asked = dict(managed_amounts(pod_demand.total if whole else demand)).get(resource, 0)
            over = asked - _widest(empty, resource)
            if 0 < over <= max(1, asked // _LITTLE):
                smaller = amount - over
                smaller -= smaller % (per_core if resource == CPU else _MEBI)
                yield from _aligned_misfit(pod, empty, container, (resource, amount), (smaller,), granule=0)


def unpinned_containers(pod: Pod, node: Node) -> tuple[str, ...]:
    """Return the containers of a Guaranteed pod that ask for more than one CPU, but no whole number of them.

    Empty where some container of the pod gets CPUs of its own. The static CPU manager pins whole numbers
    only; such a pod pays for Guaranteed and floats.
    """
    pod_demand = node.kubelet.demand_of(pod)
    if (
        not node.kubelet.cpus.static
        or pod_demand.qos is not QOSClass.GUARANTEED
        or any(demand.cpus for demand in pod_demand.demands)
    ):
        return ()
    return tuple(
        container.name
        for container in pod.containers
        if (millis := _millis(container)) > _CPU_MILLIS and millis % _CPU_MILLIS
    )


def shape_of(pod: Pod, node: Node) -> Shape | None:
    """Return what a pod asks of the managers of a node as a whole; None without exclusive CPUs."""
    total = node.kubelet.demand_of(pod).total
    return Shape(tuple(sorted(managed_amounts(total)))) if total.cpus else None


def stranded_zones(node: Node, shapes: Collection[Shape]) -> Iterator[StrandedZone]:
    """Yield the NUMA nodes of which an eighth or more is free, and that no pod of the shapes could use alone.

    A NUMA node that has no memory is none of them where memory is taken by NUMA node: pods use it beside
    another, however much is free.
    """
    free, manager = room(node), node.kubelet.cpus
    bare = {numa.id for numa in node.machine.numa_nodes if not numa.memory} if MEMORY in free else set()
    usable = full_core_cpus(node) if manager.full_cores_only else free.get(CPU, {})
    hosted = [shape for shape in shapes if all(name in free or name == MEMORY for name, _ in shape.resources)]
    for numa, cpus in usable.items():
        left = free[CPU][numa]
        if not hosted or numa in bare or left == 0 or left * _WORTH_TELLING < manager.capacity(1 << numa):
            continue
        offers = {name: zones[numa] for name, zones in free.items()} | {CPU: cpus}
        lacking = [_missing_resource(shape, offers) for shape in hosted]
        if all(lacking):
            yield StrandedZone(numa, left, Counter(lacking).most_common(1)[0][0])


def _missing_resource(shape: Shape, offers: dict[str, int]) -> str:
    """Return the first resource that a zone has too little of; empty where the shape fits."""
    return next((name for name, amount in shape.resources if offers.get(name, amount) < amount), "")


def _aligned_misfit(
    pod: Pod,
    empty: Node,
    container: Container,
    request: tuple[str, int],
    candidates: tuple[int, ...],
    *,
    granule: int,
) -> Iterator[Misfit]:
    """Yield the misfit if one of the candidates would be aligned."""
    resource, asked = request
    instead = tuple(
        amount
        for amount in candidates
        if amount > 0 and _is_aligned(_admission(empty, with_request(pod, container.name, resource, amount)))
    )
    as_it_is = _admission(empty, pod)
    if instead and as_it_is is not None:
        widest = _widest(empty, resource)
        yield Misfit(container.name, resource, asked, granule, widest, not as_it_is.admitted, instead)


def _is_aligned(admission: Admission | None) -> bool:
    """Return whether a pod is admitted, and on one NUMA node."""
    return (
        admission is not None and admission.admitted and len(zones_of(admission.node, admission.pod.uid)) <= 1
    )


def _admission(node: Node, pod: Pod) -> Admission | None:
    try:
        return admit(node, pod)
    except NumazonesError:
        return None


def _widest(empty: Node, resource: str) -> int:
    """Return the most of a resource that one NUMA node of an empty node gives; 0 where it is not bound."""
    if resource == CPU and empty.kubelet.cpus.full_cores_only:
        return max(full_core_cpus(empty).values(), default=0)
    return max(room(empty).get(resource, {}).values(), default=0)


def _millis(container: Container) -> int:
    return next((amount.milli() for name, amount in container.requests if name == CPU), 0)
