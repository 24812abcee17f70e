"""What the kubelet's admission needs of a core/v1 Pod, and the requests it derives from it.

Rules: QoS class as in ``pkg/apis/core/v1/helper/qos``; a pod's total is
max(over ordinary init containers: sidecars started before it + itself; sum of app containers and
sidecars), KEP-753; exclusive CPUs only for integral requests of Guaranteed pods; pod-level
resources (KEP-2837) take the whole pod out of the CPU and Memory Managers' hands while the gate
PodLevelResourceManagers is off, as it is by default in 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from numazones import quantity
from numazones.errors import NumazonesError
from numazones.quantity import Quantity
from numazones.resources import CPU, is_memory

Resources = tuple[tuple[str, Quantity], ...]

_MIRROR = "kubernetes.io/config.mirror"


class InvalidPod(NumazonesError):
    """A mapping is no pod that a kubelet could get; the message names the field."""


class QOSClass(StrEnum):
    """Quality-of-service class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(Enum):
    """When a container of a pod runs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class Container:
    """One container: its kind and what it asks for."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: Resources = ()
    limits: Resources = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """What the kubelet's managers read out of a container, or out of a pod as a whole."""

    cpus: int
    """Exclusive CPUs; 0: the container runs in the shared pool."""
    memory: tuple[tuple[str, int], ...] | None
    """(type, bytes) by type; None where the kubelet cannot convert one of the quantities."""
    limits: tuple[tuple[str, int], ...]
    """(resource, count) of everything limited, by name: the Device Manager picks its own from it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the kubelet admits it; ``containers`` holds init containers first, in order."""

    name: str
    namespace: str
    uid: str
    containers: tuple[Container, ...]
    pod_requests: Resources = ()
    pod_limits: Resources = ()
    has_pod_resources: bool = False
    """``spec.resources`` is present, be it empty."""
    qos_class: QOSClass | None = None
    """As the status says; None: computed."""
    claimed_resources: frozenset[tuple[str, str]] = frozenset()
    """(container, extended resource) pairs that dynamic resource allocation serves (``status``)."""

    created: str = ""
    """Creation time as the API writes it (RFC 3339), which sorts as text."""
    labels: tuple[tuple[str, str], ...] = ()
    """(key, value) by key. The kubelet's managers read neither these nor the next three; other placers do."""
    annotations: tuple[tuple[str, str], ...] = ()
    """(key, value) by key."""
    overhead: Resources = ()
    """Of the runtime class, on top of the containers."""
    priority: int | None = None

    qos: QOSClass = field(init=False, compare=False, repr=False)
    pod_level: bool = field(init=False, compare=False, repr=False)
    """Pod-level resources are set: cpu, memory or hugepages in ``spec.resources``."""
    demands: tuple[Demand, ...] = field(init=False, compare=False, repr=False)
    """Per container, in the order of ``containers``."""
    total: Demand = field(init=False, compare=False, repr=False)
    """Of the pod as a whole, for scope pod."""

    def __post_init__(self) -> None:
        pod_level = any(name == CPU or is_memory(name) for name, _ in (*self.pod_requests, *self.pod_limits))
        qos = self.qos_class or _qos_class(self)
        demands = tuple(
            _demand(container, guaranteed=qos is QOSClass.GUARANTEED) for container in self.containers
        )
        object.__setattr__(self, "pod_level", pod_level)
        object.__setattr__(self, "qos", qos)
        object.__setattr__(self, "demands", demands)
        object.__setattr__(self, "total", _total(self.containers, demands))

    @classmethod
    def from_api(cls, pod: Mapping[str, Any]) -> "Pod":
        """Read a pod as the API server serves it (defaults filled in, quantities canonical).

        The uid is the kubelet's: of a static pod, the API has but a mirror with a uid of its own.

        Raises:
            InvalidPod: a field that admission needs is missing or has the wrong shape.
            InvalidQuantity: a resource is no quantity.
        """
        metadata = _mapping(pod, "metadata")
        spec = _mapping(pod, "spec")
        status = _mapping(pod, "status")
        qos = status.get("qosClass") or None
        if qos is not None and qos not in list(QOSClass):
            raise InvalidPod(f"pod {metadata.get('name')!r}: unknown qosClass {qos!r}")
        containers = tuple(_containers(spec))
        if not containers:
            raise InvalidPod(f"pod {metadata.get('name')!r} has no containers")
        return cls(
            name=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace", "")),
            uid=str(_mapping(metadata, "annotations").get(_MIRROR) or metadata.get("uid", "")),
            containers=containers,
            pod_requests=_resources(spec, "requests"),
            pod_limits=_resources(spec, "limits"),
            has_pod_resources=spec.get("resources") is not None,
            qos_class=None if qos is None else QOSClass(qos),
            claimed_resources=frozenset(_claimed(status)),
            created=str(metadata.get("creationTimestamp") or ""),
            labels=_pairs(metadata, "labels"),
            annotations=_pairs(metadata, "annotations"),
            overhead=_amounts(spec, "overhead"),
            priority=_priority(spec),
        )

    @classmethod
    def from_manifest(cls, pod: Mapping[str, Any]) -> "Pod":
        """Read a pod as a user writes it: requests default to limits, quantities are normalised."""
        spec = dict(_mapping(pod, "spec"))
        for part in ("initContainers", "containers"):
            spec[part] = [
                {**container, "resources": _defaulted(container)} for container in _listed(spec, part)
            ]
        if spec.get("resources") is not None:
            spec["resources"] = _defaulted(spec)
        return cls.from_api({**pod, "spec": spec})


def _mapping(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidPod(f"the pod's {name} is no mapping but {type(value).__name__}")
    return value


def _listed(parent: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = parent.get(name) or []
    if not isinstance(items, list | tuple) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidPod(f"the pod's {name} is no list of mappings")
    return list(items)


def _resources(owner: Mapping[str, Any], kind: str) -> Resources:
    return _amounts(_mapping(owner, "resources"), kind)


def _amounts(owner: Mapping[str, Any], kind: str) -> Resources:
    amounts = _mapping(owner, kind)
    return tuple(sorted((str(name), quantity.parse(amount)) for name, amount in amounts.items()))


def _pairs(metadata: Mapping[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(value)) for key, value in _mapping(metadata, kind).items()))


def _priority(spec: Mapping[str, Any]) -> int | None:
    priority = spec.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise InvalidPod(f"the pod's priority is no integer but {priority!r:.50}")
    return priority


def _defaulted(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Requests default to limits and quantities get their canonical text, as the API server does it."""
    limits = _mapping(_mapping(owner, "resources"), "limits")
    requests = {**limits, **_mapping(_mapping(owner, "resources"), "requests")}
    return {
        "requests": {name: quantity.parse(amount).canonical() for name, amount in requests.items()},
        "limits": {name: quantity.parse(amount).canonical() for name, amount in limits.items()},
    }


def _containers(spec: Mapping[str, Any]) -> Iterator[Container]:
    for part in ("initContainers", "containers"):
        for container in _listed(spec, part):
            if part == "containers":
                kind = ContainerKind.APP
            else:
                kind = (
                    ContainerKind.SIDECAR
                    if container.get("restartPolicy") == "Always"
                    else ContainerKind.INIT
                )
            if "name" not in container:
                raise InvalidPod(f"one of the pod's {part} has no name")
            requests, limits = _resources(container, "requests"), _resources(container, "limits")
            yield Container(str(container["name"]), kind, requests, limits)


def _claimed(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for mapping in _listed(_mapping(status, "extendedResourceClaimStatus"), "requestMappings"):
        yield str(mapping.get("containerName", "")), str(mapping.get("resourceName", ""))


def _qos_class(pod: Pod) -> QOSClass:
    guaranteed = True
    if pod.has_pod_resources:
        requests, limits = _positive([pod.pod_requests]), _positive([pod.pod_limits])
        if pod.pod_limits:
            guaranteed = len(limits) == 2  # noqa: PLR2004 - cpu and memory
    else:
        requests = _positive(container.requests for container in pod.containers)
        limits = _positive(container.limits for container in pod.containers)
        guaranteed = all(len(_positive([container.limits])) == 2 for container in pod.containers)  # noqa: PLR2004
    if not requests and not limits:
        return QOSClass.BEST_EFFORT
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(limits.get(name) == sum_ for name, sum_ in requests.items())
    ):
        return QOSClass.GUARANTEED
    return QOSClass.BURSTABLE


def _positive(lists: Iterable[Resources]) -> dict[str, int]:
    """Sums (in nano units) of the positive amounts of cpu and memory."""
    sums: dict[str, int] = {}
    for resources in lists:
        for name, amount in resources:
            if name in {"cpu", "memory"} and amount.nanos > 0:
                sums[name] = sums.get(name, 0) + amount.nanos
    return sums


def _demand(container: Container, *, guaranteed: bool) -> Demand:
    cpus = 0
    memory: list[tuple[str, int]] | None = []
    for name, amount in container.requests:
        if name == "cpu":
            whole = amount.value()
            if guaranteed and whole * 1000 == amount.milli():
                cpus = whole
        elif is_memory(name):
            integer = amount.as_int()
            if integer is None or memory is None:
                memory = None
            else:
                memory.append((name, integer))
    return Demand(
        cpus=cpus,
        memory=None if memory is None else tuple(memory),
        limits=tuple((name, amount.value()) for name, amount in container.limits),
    )


def _total(containers: tuple[Container, ...], demands: tuple[Demand, ...]) -> Demand:
    memory = None
    if all(demand.memory is not None for demand in demands):
        app_types = {
            name
            for container, demand in zip(containers, demands, strict=True)
            if container.kind is ContainerKind.APP
            for name, _ in demand.memory or ()
        }
        sums = _effective((c.kind, d.memory or ()) for c, d in zip(containers, demands, strict=True))
        # A type that only init containers ask for is left out, as the kubelet leaves it out.
        memory = tuple((name, amount) for name, amount in sums if name in app_types)
    cpus = dict(_effective((c.kind, (("cpu", d.cpus),)) for c, d in zip(containers, demands, strict=True)))
    limits = _effective((c.kind, tuple((n, a.nanos) for n, a in c.limits)) for c in containers)
    return Demand(
        cpus=cpus.get("cpu", 0),
        memory=memory,
        limits=tuple((name, Quantity(nanos).value()) for name, nanos in limits),
    )


def _effective(
    parts: Iterable[tuple[ContainerKind, tuple[tuple[str, int], ...]]],
) -> tuple[tuple[str, int], ...]:
    """The pod's need per resource: the larger of the start-up peak and the long-running sum (KEP-753)."""
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
    return tuple(sorted((name, max(peak.get(name, 0), running.get(name, 0))) for name in {*peak, *running}))
