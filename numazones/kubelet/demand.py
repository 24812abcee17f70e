"""Demand of a pod as the kubelet's managers see it: QoS class, exclusive CPUs, memory, devices.

Rules: QoS class as in ``pkg/apis/core/v1/helper/qos``; a pod's total is max(over ordinary init
containers: sidecars started before it + itself; sum of app containers and sidecars), KEP-753;
exclusive CPUs only for integral requests of Guaranteed pods. What pod-level resources (KEP-2837,
``spec.resources``) change has gone through five stages, see ``PodLevel``; which release with which
gates stands at which is said in ``numazones.kubelet.versions``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property
from typing import NamedTuple

from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.resources import CPU, MEMORY, is_memory

Resources = tuple[tuple[str, Quantity], ...]
Counts = tuple[tuple[str, int], ...]
"""(resource, amount in whole units)"""


class QOSClass(StrEnum):
    """Quality-of-service class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(Enum):
    """Time at which a container of a pod runs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class PodLevel(Enum):
    """Treatment of pod-level resources by a kubelet."""

    DROPPED = "dropped"
    """The field is unknown or dropped: containers decide everything."""
    QOS_ONLY = "qos only"
    """They decide the QoS class; CPU and Memory Manager look at the containers alone."""
    LEFT_ALONE = "left alone"
    """They decide the QoS class; CPU and Memory Manager leave such a pod alone. The newest default."""
    LEFT_ALONE_UNSEEN = "left alone, unseen"
    """CPU and Memory Manager leave such a pod alone, though its containers decide the QoS class."""
    MANAGED = "managed"
    """CPU and Memory Manager serve such a pod as a whole (gate PodLevelResourceManagers)."""


_DECIDE_QOS = frozenset({PodLevel.QOS_ONLY, PodLevel.LEFT_ALONE, PodLevel.MANAGED})
# The resources that decide the QoS class; both have to be limited for Guaranteed.
_DECIDE_CLASS = frozenset({CPU, MEMORY})
_BOTH = len(_DECIDE_CLASS)
_SERVED = frozenset({PodLevel.DROPPED, PodLevel.QOS_ONLY, PodLevel.MANAGED})


class Container(NamedTuple):
    """One container: its kind and what it asks for.

    >>> from numazones import build
    >>> [container.name for container in build.pod(cpu=2, memory="1Gi").containers]
    ['main']
    """

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: Resources = ()
    limits: Resources = ()


@dataclass(frozen=True, slots=True)
class PodLevelResources:
    """Pod-level resources, ``spec.resources``."""

    requests: Resources = ()
    limits: Resources = ()

    @property
    def empty(self) -> bool:
        """Whether they name no resource at all."""
        return not self.requests and not self.limits

    @property
    def set(self) -> bool:
        """Return whether they name cpu, memory or hugepages, and so make the pod a pod-level pod."""
        return any(name == CPU or is_memory(name) for name, _ in (*self.requests, *self.limits))


class Demand(NamedTuple):
    """Demand of a container, or of a pod as a whole, as the kubelet's managers see it."""

    cpus: int
    """Exclusive CPUs; 0: the container runs in the shared pool."""
    memory: Counts | None
    """(type, bytes) by type; None where the kubelet cannot convert one of the quantities."""
    limits: Counts
    """(resource, count) of everything limited, by name: the Device Manager picks its own from it."""


@dataclass(frozen=True)
class PodDemand:
    """Demand of a pod as one kubelet sees it."""

    qos: QOSClass
    containers: tuple[Container, ...]
    demands: tuple[Demand, ...]
    """Per container, init containers first, in order."""
    served: bool = True
    """CPU and Memory Manager look at the pod; False: they leave it alone."""
    whole: PodLevelResources | None = None
    """The resources of a pod-level pod that the kubelet serves as a whole; None: it serves containers."""

    @property
    def managed(self) -> bool:
        """Return whether it is a pod-level pod, and the kubelet serves such pods as a whole."""
        return self.whole is not None

    @cached_property
    def total(self) -> Demand:
        """The demand of the pod as a whole, for scope pod."""
        if self.whole is not None:
            return _managed_total(self.whole, self.containers, guaranteed=self.qos is QOSClass.GUARANTEED)
        if len(self.containers) == 1 and self.containers[0].kind is ContainerKind.APP:
            return self.demands[0]
        return _total(self.containers, self.demands)


def read(
    containers: tuple[Container, ...],
    pod: PodLevelResources | None,
    level: PodLevel,
    *,
    qos: QOSClass | None = None,
) -> PodDemand:
    """Read a pod as a kubelet at stage ``level`` does; ``qos`` is the class in the pod's status."""
    whole = pod if level in _DECIDE_QOS else None
    qos = qos or (_qos_of_containers(containers) if whole is None else _qos_of_pod(whole))
    guaranteed = qos is QOSClass.GUARANTEED
    pod_level = pod is not None and pod.set
    if pod is not None and pod_level and level is PodLevel.MANAGED:
        demands = tuple([_exclusive(container, guaranteed=guaranteed) for container in containers])
        return PodDemand(qos, containers, demands, whole=pod)
    demands = tuple([_demand(container, guaranteed=guaranteed) for container in containers])
    return PodDemand(qos, containers, demands, served=not pod_level or level in _SERVED)


def _qos_of_pod(pod: PodLevelResources) -> QOSClass:
    requests, limits = [_positive(pod.requests)], [_positive(pod.limits)]
    return _qos(requests, limits, complete=len(limits[0]) == _BOTH or not pod.limits)


def _qos_of_containers(containers: tuple[Container, ...]) -> QOSClass:
    requests, limits, complete = [], [], True
    for container in containers:
        asked = limited = _positive(container.requests)
        if container.limits is not container.requests:
            limited = _positive(container.limits)
        requests.append(asked)
        limits.append(limited)
        complete = complete and len(limited) == _BOTH
    return _qos(requests, limits, complete=complete)


def _qos(requests: list[dict[str, int]], limits: list[dict[str, int]], *, complete: bool) -> QOSClass:
    """Return the class by the amounts of all parts; Guaranteed if requests and limits add up to the same."""
    if not any(requests) and not any(limits):
        return QOSClass.BEST_EFFORT
    guaranteed = complete and (requests == limits or _sums(requests) == _sums(limits))
    return QOSClass.GUARANTEED if guaranteed else QOSClass.BURSTABLE


def _positive(resources: Resources) -> dict[str, int]:
    """Return the positive amounts (in nano units) of cpu and memory."""
    return {name: amount.nanos for name, amount in resources if name in _DECIDE_CLASS and amount.nanos > 0}


def _sums(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for amounts in parts:
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _demand(container: Container, *, guaranteed: bool) -> Demand:
    cpus = _whole_cpus(container.requests) if guaranteed else 0
    return Demand(cpus, _bytes(container.requests), _counts(container.limits))


def _counts(limits: Resources) -> Counts:
    return tuple([(name, amount.value()) for name, amount in limits])


def _exclusive(container: Container, *, guaranteed: bool) -> Demand:
    """Return what a container of a pod-level pod gets of its own: nothing unless Guaranteed by itself."""
    requests = _positive(container.requests)
    if len(requests) == _BOTH and requests == _positive(container.limits):
        return _demand(container, guaranteed=guaranteed)
    return Demand(0, (), _counts(container.limits))


def _whole_cpus(requests: Resources) -> int:
    """Return the number of CPUs requested if it is a whole number, else 0."""
    for name, amount in requests:
        if name == CPU:
            whole, rest = divmod(amount.milli(), 1000)
            return 0 if rest else whole
    return 0


def _bytes(requests: Resources) -> Counts | None:
    memory: list[tuple[str, int]] = []
    for name, amount in requests:
        if is_memory(name):
            integer = amount.as_int()
            if integer is None:
                return None
            memory.append((name, integer))
    return tuple(memory)


def _positive_bytes(requests: Resources) -> Counts | None:
    memory = _bytes(requests)
    return None if memory is None else tuple((name, amount) for name, amount in memory if amount > 0)


def _managed_total(pod: PodLevelResources, containers: tuple[Container, ...], *, guaranteed: bool) -> Demand:
    return Demand(
        cpus=_whole_cpus(pod.requests) if guaranteed else 0,
        memory=_positive_bytes(pod.requests),
        limits=_total_limits(containers),
    )


def _total(containers: tuple[Container, ...], demands: tuple[Demand, ...]) -> Demand:
    kinds = [container.kind for container in containers]
    sums = effective(
        [
            (kind, ((CPU, demand.cpus), *(demand.memory or ())))
            for kind, demand in zip(kinds, demands, strict=True)
        ]
    )
    memory = None
    if all(demand.memory is not None for demand in demands):
        of_apps = {
            name
            for kind, demand in zip(kinds, demands, strict=True)
            if kind is ContainerKind.APP
            for name, _ in demand.memory or ()
        }
        # A type that only init containers ask for is left out, as the kubelet leaves it out.
        memory = tuple([(name, amount) for name, amount in sums if name in of_apps])
    return Demand(dict(sums).get(CPU, 0), memory, _total_limits(containers))


def _total_limits(containers: tuple[Container, ...]) -> Counts:
    limits = effective([(c.kind, [(name, amount.nanos) for name, amount in c.limits]) for c in containers])
    return tuple([(name, quantity.whole(nanos)) for name, nanos in limits])


def effective(
    parts: Iterable[tuple[ContainerKind, Iterable[tuple[str, int]]]],
) -> Counts:
    """Return the pod's need per resource: the larger of start-up peak and long-running sum (KEP-753)."""
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    running: dict[str, int] = {}
    for kind, amounts in parts:
        for name, amount in amounts:
            if kind is ContainerKind.INIT:
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
                continue
            running[name] = running.get(name, 0) + amount
            if kind is ContainerKind.SIDECAR:
                sidecars[name] = sidecars.get(name, 0) + amount
    for name, amount in peak.items():
        running[name] = max(amount, running.get(name, 0))
    return tuple(sorted(running.items()))
