"""A core/v1 Pod as far as the kubelet's admission looks at it.

What the kubelet's managers read out of it differs by release and gates where pod-level resources
are set; every such demand (``numazones.kubelet.demand``) is worked out once, with the pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from numazones.apimachinery import quantity
from numazones.errors import NumazonesError
from numazones.kubelet.demand import (
    Container,
    ContainerKind,
    PodDemand,
    PodLevel,
    PodLevelResources,
    QOSClass,
    Resources,
    read,
)

Pairs = tuple[tuple[str, str], ...]
"""(key, value) by key."""

_MIRROR = "kubernetes.io/config.mirror"
_LEVELS = tuple(PodLevel)
# Without pod-level resources all kubelets read the same.
_ALIKE = (PodLevel.DROPPED,)


class InvalidPod(NumazonesError):
    """A mapping is not a pod that a kubelet could receive; the message names the field.

    >>> Pod.from_api({"metadata": {"name": "web"}, "spec": {}})
    Traceback (most recent call last):
    ...
    numazones.kubelet.pod.InvalidPod: pod 'web' has no containers
    """


def sorted_pairs(labels: Mapping[str, Any]) -> Pairs:
    """Return labels or annotations as (key, value), by key."""
    return tuple(sorted([(str(key), str(value)) for key, value in labels.items()]))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the kubelet admits it; ``containers`` holds init containers first, in order.

    >>> from numazones import build
    >>> Pod.from_api(build.pod_body("web", cpu=2, memory="1Gi")).qos.value
    'Guaranteed'
    """

    name: str
    namespace: str
    uid: str
    containers: tuple[Container, ...]
    resources: PodLevelResources | None = None
    """Pod-level resources; None: ``spec.resources`` is absent."""
    qos_class: QOSClass | None = None
    """As the status says; None: computed."""
    claimed_resources: frozenset[tuple[str, str]] = frozenset()
    """(container, extended resource) pairs that dynamic resource allocation serves (``status``)."""

    created: str = ""
    """Creation time as the API writes it (RFC 3339), which sorts as text."""
    labels: Pairs = ()
    """The kubelet's managers read neither these nor the next three; other placers do."""
    annotations: Pairs = ()
    overhead: Resources = ()
    """Of the runtime class, on top of the containers."""
    priority: int | None = None

    _demands: tuple[PodDemand, ...] = field(init=False, compare=False, repr=False)
    """One per level, or a single one where they are all alike."""

    def __post_init__(self) -> None:
        levels = _ALIKE if self.resources is None else _LEVELS
        demands = [read(self.containers, self.resources, level, qos=self.qos_class) for level in levels]
        object.__setattr__(self, "_demands", tuple(demands))

    def demand(self, level: PodLevel = PodLevel.LEFT_ALONE) -> PodDemand:
        """Return what a kubelet sees in the pod.

        Who knows the node asks its kubelet instead (``KubeletManagers.demand_of``).

        Args:
            level: what the kubelet makes of pod-level resources; by default what the reference release does.

        >>> from numazones import build
        >>> build.pod(cpu=2, memory="1Gi").demand().total.cpus
        2
        """
        return self._demands[0 if self.resources is None else _LEVELS.index(level)]

    @property
    def qos(self) -> QOSClass:
        """QoS class as the API server sees it."""
        return self.demand().qos

    @classmethod
    def from_api(cls, pod: Mapping[str, Any]) -> "Pod":
        """Read a pod as the API server serves it (defaults filled in, quantities canonical).

        The uid is the kubelet's: of a static pod, the API has but a mirror with a uid of its own.

        Args:
            pod: a core/v1 Pod.

        Raises:
            InvalidPod: a field that admission needs is missing or has the wrong shape.
            InvalidQuantity: a resource is not a quantity.

        >>> from numazones import build
        >>> Pod.from_api(build.pod_body("web", cpu=2, memory="1Gi")).uid
        'web'
        """
        if not isinstance(pod, Mapping):
            raise InvalidPod(f"a pod must be a mapping, not {type(pod).__name__}")
        metadata = _map_field(pod, "metadata")
        spec = _map_field(pod, "spec")
        status = _map_field(pod, "status")
        qos = status.get("qosClass") or None
        if qos is not None and qos not in list(QOSClass):
            raise InvalidPod(f"pod {metadata.get('name')!r}: unknown qosClass {qos!r}")
        containers = (*_containers(spec, "initContainers"), *_containers(spec, "containers"))
        if not containers:
            raise InvalidPod(f"pod {metadata.get('name')!r} has no containers")
        return cls(
            name=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace", "")),
            uid=_kubelet_uid(metadata),
            containers=containers,
            resources=(
                None
                if spec.get("resources") is None
                else PodLevelResources(
                    _amounts(_map_field(spec, "resources"), "requests"),
                    _amounts(_map_field(spec, "resources"), "limits"),
                )
            ),
            qos_class=None if qos is None else QOSClass(qos),
            claimed_resources=frozenset(_claimed_resources(status)) if status else frozenset(),
            created=str(metadata.get("creationTimestamp") or ""),
            labels=sorted_pairs(_map_field(metadata, "labels")),
            annotations=sorted_pairs(_map_field(metadata, "annotations")),
            overhead=_amounts(spec, "overhead"),
            priority=_priority(spec),
        )

    def with_metadata(
        self, metadata: Mapping[str, Any], *, pairs_of: Callable[[Mapping[str, Any]], Pairs] = sorted_pairs
    ) -> "Pod":
        """Return the pod with the name, labels and times of other metadata; nothing else is read again.

        Args:
            metadata: of a core/v1 Pod of the same template.
            pairs_of: may remember what ``sorted_pairs`` made of an equal mapping.

        >>> from numazones import build
        >>> build.pod("web-1", cpu=2).with_metadata({"name": "web-2", "uid": "web-2"}).uid
        'web-2'
        """
        pod, put = Pod.__new__(Pod), object.__setattr__
        for name in _OF_TEMPLATE:
            put(pod, name, getattr(self, name))
        put(pod, "name", str(metadata.get("name", "")))
        put(pod, "namespace", str(metadata.get("namespace", "")))
        put(pod, "uid", _kubelet_uid(metadata))
        put(pod, "created", str(metadata.get("creationTimestamp") or ""))
        put(pod, "labels", pairs_of(_map_field(metadata, "labels")))
        put(pod, "annotations", pairs_of(_map_field(metadata, "annotations")))
        return pod

    @classmethod
    def from_manifest(cls, pod: Mapping[str, Any]) -> "Pod":
        """Read a pod as a user writes it: requests default to limits, quantities are normalised.

        Args:
            pod: a core/v1 Pod, as in a manifest.

        Raises:
            InvalidPod, InvalidQuantity: as ``from_api``.

        >>> container = {"name": "main", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        >>> Pod.from_manifest({"metadata": {"name": "web"}, "spec": {"containers": [container]}}).qos.value
        'Guaranteed'
        """
        spec = dict(_map_field(pod, "spec"))
        for part in ("initContainers", "containers"):
            spec[part] = [
                {**container, "resources": _with_default_requests(container)}
                for container in _list_field(spec, part)
            ]
        if spec.get("resources") is not None:
            spec["resources"] = _with_default_requests(spec)
        return cls.from_api({**pod, "spec": spec})


_OF_METADATA = {"name", "namespace", "uid", "created", "labels", "annotations"}
_OF_TEMPLATE = tuple(field.name for field in fields(Pod) if field.name not in _OF_METADATA)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _map_field(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    if not value:
        return _NOTHING
    if not isinstance(value, (dict, Mapping)):  # a dict is told at once, other mappings slowly
        raise InvalidPod(f"the pod's {name} must be a mapping, not {type(value).__name__}")
    return value


def _list_field(parent: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    items = parent.get(name) or ()
    if isinstance(items, (list, tuple)):
        for item in items:
            if not isinstance(item, (dict, Mapping)):
                break
        else:
            return items
    raise InvalidPod(f"the pod's {name} is not a list of mappings")


def _amounts(owner: Mapping[str, Any], kind: str) -> Resources:
    amounts = _map_field(owner, kind)
    if not amounts:
        return ()
    return tuple(sorted([(str(name), quantity.parse(amount)) for name, amount in amounts.items()]))


def _kubelet_uid(metadata: Mapping[str, Any]) -> str:
    return str(_map_field(metadata, "annotations").get(_MIRROR) or metadata.get("uid", ""))


def _priority(spec: Mapping[str, Any]) -> int | None:
    priority = spec.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise InvalidPod(f"the pod's priority must be an integer, not {priority!r:.50}")
    return priority


def _with_default_requests(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Let requests default to limits, and write quantities canonically, as the API server does."""
    limits = _map_field(_map_field(owner, "resources"), "limits")
    requests = {**limits, **_map_field(_map_field(owner, "resources"), "requests")}
    return {
        "requests": {name: quantity.parse(amount).canonical() for name, amount in requests.items()},
        "limits": {name: quantity.parse(amount).canonical() for name, amount in limits.items()},
    }


def _containers(spec: Mapping[str, Any], part: str) -> list[Container]:
    containers = []
    for container in _list_field(spec, part):
        if "name" not in container:
            raise InvalidPod(f"one of the pod's {part} has no name")
        if part == "containers":
            kind = ContainerKind.APP
        else:
            kind = ContainerKind.SIDECAR if container.get("restartPolicy") == "Always" else ContainerKind.INIT
        resources = _map_field(container, "resources")
        requests = _amounts(resources, "requests")
        # Those of Guaranteed pods are the same texts twice, which need to be read but once.
        alike = resources.get("limits") == resources.get("requests")
        limits = requests if alike else _amounts(resources, "limits")
        containers.append(Container(str(container["name"]), kind, requests, limits))
    return containers


def _claimed_resources(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for mapping in _list_field(_map_field(status, "extendedResourceClaimStatus"), "requestMappings"):
        yield str(mapping.get("containerName", "")), str(mapping.get("resourceName", ""))
