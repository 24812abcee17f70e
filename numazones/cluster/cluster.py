"""The cluster as a value: nodes with their pods, cheap to derive from.

What prediction and rebalancing reason about. A node carries what the scheduler filters by, the pods that
hold a slot of it, and its admission state (``kubelet.node.Node``), or the reason why that is unknown:
a node whose state is unknown admits nothing, and says so. Deriving a cluster with one pod moved shares
everything else, so a search over many moves costs little more than the moves themselves.

Only the fields that some rule needs are kept of a pod; amounts are integers, cpu in milli-CPUs and
everything else in whole units (bytes, devices).
"""

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from numazones.apimachinery.api_object import CURE, MALFORMED, invalid, parts_of
from numazones.apimachinery.taints import Taint
from numazones.cluster import requests
from numazones.cluster.pod_manifest import InvalidManifest, created_pod
from numazones.dra.uses import PodClaim, Uses, claims_of, uses_of
from numazones.errors import NumazonesError
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import (
    CREATE_CONTAINER_ERROR,
    STATUS_PREFIX,
    KubeletCrash,
    KubeletHang,
)
from numazones.placement import Placement, Unknown, models
from numazones.placement.kubelet import KubeletPlacement
from numazones.placement.occupancy import Occupancy

if TYPE_CHECKING:  # many clusters have no such devices
    from numazones.api.claimed_devices import ClaimedDevices
    from numazones.dra.amounts import NodeDevices
    from numazones.dra.cluster_devices import ClusterDevices
    from numazones.dra.device_classes import DeviceClass

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod's image in the API; its value is the UID that the kubelet knows the pod by."""
_POD_FAILED = "PodFailed"
"""Reason of the conditions of a pod that its kubelet takes for failed, whatever its phase says yet."""

_KEPT_ANNOTATIONS = (
    "numazones.io/",
    "kubernetes.io/config.",
    "descheduler.alpha.kubernetes.io/",
    "controller.kubernetes.io/",
)
_USES_NONE: Mapping[str, Uses] = {}
"""Of most pods, one for all."""
_TERMINAL = frozenset({"Succeeded", "Failed"})
_PRESSURES = ("DiskPressure", "MemoryPressure", "PIDPressure")


_Part = TypeVar("_Part")


class KeepEqual(Protocol):
    """Returns an equal value or flat mapping that is kept already."""

    def __call__(self, part: _Part, /) -> _Part:
        """Return the one to keep."""


NO_ZONES = Unknown(
    "NoZones", "no NUMAZones have been published for the node; check that the exporter is running there"
)


OTHER_MODEL = "OtherModel"
"""Reason of a node on which the kubelet does not decide where pods go."""
UNDECIDED = "UndecidedByModel"
"""Reason where the model declines, such as a feature that is not modelled; see ``why_undecided``."""


def why_undecided(error: NumazonesError) -> str:
    """Return the reason of a verdict that the model declines, such as KubeletCrash or KubeletHang."""
    return type(error).__name__ if isinstance(error, KubeletCrash | KubeletHang) else UNDECIDED


class NoSuchNode(NumazonesError):
    """A pod is to be put on a node that the cluster does not have; the message names both."""


class Owner(NamedTuple):
    """An entry of ``metadata.ownerReferences``."""

    kind: str
    name: str
    uid: str
    controller: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """Common part of a template's pods: where they may go and what they request."""

    constraints: Constraints
    requests: Mapping[str, int]
    """What the scheduler counts."""
    admission: Pod | None
    """What the kubelet's admission needs; None where the pod cannot be read."""
    problem: str = ""
    """Why it cannot be read."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read a core/v1 Pod."""
        constraints = Constraints.from_api(body.get("spec") or {})
        try:
            return cls(constraints, requests.effective_requests(body), Pod.from_api(body))
        except NumazonesError as error:
            return cls(constraints, {}, None, str(error))


_TEMPLATE_SPEC = (
    "affinity",
    "nodeSelector",
    "os",
    "overhead",
    "priority",
    "resources",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod's spec that a ``Template`` is read from, beside its containers."""


def template_key(body: Mapping[str, Any]) -> bytes:
    """Return what a ``Template`` is read from, names and times aside; equal keys, equal templates.

    Of marshal's formats the second is that in which equal values look alike, whoever refers to them.

    Raises:
        ValueError: the body holds what JSON cannot.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    containers = [
        [
            (item.get("name"), item.get("resources"), item.get("restartPolicy"), item.get("ports"))
            for item in spec.get(part) or ()
        ]
        for part in ("initContainers", "containers")
    ]
    resized = [
        (item.get("name"), item.get("resources"), item.get("allocatedResources"))
        for part in ("initContainerStatuses", "containerStatuses")
        for item in status.get(part) or ()
        if item.get("resources")
    ]
    pending = [
        item.get("reason")
        for item in status.get("conditions") or ()
        if item.get("type") == "PodResizePending"
    ]
    rest = (status.get("qosClass"), status.get("extendedResourceClaimStatus"))
    return marshal.dumps((containers, resized, pending, *rest, *map(spec.get, _TEMPLATE_SPEC)), 2)


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """A pod as far as placement is concerned.

    >>> from numazones import build
    >>> ClusterPod.from_api(build.pod_body("web", cpu=2)).full_name
    'default/web'
    """

    KIND: ClassVar[str] = "Pod"

    namespace: str
    name: str
    uid: str
    node: str = ""
    """Name of the node it is bound to; empty while it has none."""
    nominated: str = ""
    """``status.nominatedNodeName``: where a scheduler wants to put it once there is room."""
    phase: str = "Pending"
    reason: str = ""
    """``status.reason``; the kubelet writes here why it rejected the pod."""
    message: str = field(default="", repr=False)
    created: str = ""
    """Creation time as the API writes it (RFC 3339, UTC), which sorts as text."""
    started: str = ""
    """``status.startTime``, the same way; empty until the kubelet has seen the pod."""
    deleting: bool = False
    """True if its deletion was requested; to the scheduler it holds its resources until it is gone."""
    stopped: bool = False
    """True if it is being deleted and its containers have ended: the kubelet has its share back already."""
    ready: bool = False
    acknowledged: bool = False
    """Whether the kubelet reports containers of a pod that it has not rejected."""
    create_error: str = field(default="", repr=False)
    """Message of a container that could not be created; empty: there is none."""
    uncreated: tuple[str, ...] = field(default=(), repr=False)
    """Names of the containers that the runtime could not create; they are tried again, the others are not."""
    priority: int | None = None
    preempts: bool = True
    """Whether the scheduler may preempt less important pods for it."""
    owners: tuple[Owner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Those that some rule reads; the others are dropped."""
    constraints: Constraints = field(default_factory=Constraints)
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    """What the scheduler counts."""
    local_storage: bool = False
    """Whether it has an emptyDir or hostPath volume."""
    volume_claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims it mounts."""
    resource_claims: bool = False
    """Whether it claims devices through dynamic resource allocation."""
    claims: tuple[PodClaim, ...] = field(default=(), repr=False)
    """What it claims, in its order."""
    claim_uses: Mapping[str, Uses] = field(default_factory=dict, hash=False, repr=False)
    """Container → what it uses of claims."""
    scheduled: tuple[str, str, str] | None = field(default=None, compare=False, repr=False)
    """Status, reason and message of the condition PodScheduled, while it has no node."""
    admission: Pod | None = field(default=None, repr=False)
    """What the kubelet's admission needs; None where the pod cannot be read, ``problem`` says why."""
    problem: str = ""

    @classmethod
    def from_api(
        cls,
        body: Mapping[str, Any],
        *,
        template_of: Callable[[Mapping[str, Any]], Template] = Template.of,
        share: KeepEqual = lambda part: part,
    ) -> Self:
        """Read a core/v1 Pod; one that no kubelet could receive is kept with its ``problem``.

        Defaults are not filled in: read what people wrote with ``from_manifest``.

        Args:
            body: the pod as the API server serves it.
            template_of: reads what pods of a template have alike; who reads many pods of few templates passes
                a function that remembers.
            share: may return an equal part that is kept already.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.

        >>> ClusterPod.from_api({"metadata": {"labels": {"app": "web"}}})
        Traceback (most recent call last):
        ...
        numazones.apimachinery.api_object.InvalidObject: Pod (unnamed) is malformed: it has no
        metadata.name; pass it as the API server serves it
        """
        metadata, spec, status = parts_of(body, "Pod")
        try:
            return cls._of_parts(body, metadata, spec, status, template_of, share)
        except MALFORMED as error:
            raise invalid(body, "Pod", error) from error

    @classmethod
    def from_manifest(cls, body: Mapping[str, Any], *, exact: bool = True) -> Self:
        """Read a core/v1 Pod as people write it, and fill in what the API server does: requests from limits.

        What LimitRanges, RuntimeClasses, PriorityClasses or webhooks would change is not known here.

        Args:
            body: the pod, or the pod template of a workload.
            exact: reject every field that pods do not have; False: only those of resources.

        Raises:
            InvalidManifest: it is not a pod, or the API server would reject it; the message names the field.

        >>> container = {"name": "main", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        >>> pod = ClusterPod.from_manifest({"metadata": {"name": "web"}, "spec": {"containers": [container]}})
        >>> pod.requests["cpu"]
        2000
        >>> ClusterPod.from_manifest({"kind": "Deployment"})
        Traceback (most recent call last):
        ...
        numazones.cluster.pod_manifest.InvalidManifest: expected a Pod, not a Deployment; pass its pod
        template
        """
        created = created_pod(body, exact=exact)
        try:
            pod = cls.from_api(created)
            hash(pod.constraints)  # what is compared later, such as schedulerName, is no list
        except MALFORMED as error:
            raise InvalidManifest(
                f"this is not a valid manifest ({str(error).removesuffix(CURE)})"
            ) from error
        if pod.problem:
            raise InvalidManifest(pod.problem)
        return pod

    @classmethod
    def _of_parts(
        cls,
        body: Mapping[str, Any],
        metadata: Mapping[str, Any],
        spec: Mapping[str, Any],
        status: Mapping[str, Any],
        template_of: Callable[[Mapping[str, Any]], Template],
        share: KeepEqual,
    ) -> Self:
        volumes = spec.get("volumes") or ()
        template = template_of(body)
        errors = tuple(_create_errors(status))
        kept = (*_KEPT_ANNOTATIONS, *models.pod_annotations())
        return cls(
            namespace=share(metadata.get("namespace", "")),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=share(spec.get("nodeName") or ""),
            nominated=share(status.get("nominatedNodeName") or ""),
            phase=status.get("phase") or "Pending",
            reason=status.get("reason") or "",
            message=status.get("message") or "",
            created=metadata.get("creationTimestamp") or "",
            started=status.get("startTime") or "",
            deleting=metadata.get("deletionTimestamp") is not None,
            stopped=metadata.get("deletionTimestamp") is not None and _all_have_ended(status),
            ready=is_true(status, "Ready"),
            acknowledged=_is_acknowledged(status),
            create_error=errors[0][1] if errors else "",
            uncreated=tuple(name for name, _ in errors),
            priority=spec.get("priority"),
            preempts=spec.get("preemptionPolicy") != "Never",
            owners=share(_owners(metadata)),
            labels=share(metadata.get("labels") or {}),
            annotations=share(
                {
                    key: value
                    for key, value in (metadata.get("annotations") or {}).items()
                    if key.startswith(kept)
                }
            ),
            constraints=template.constraints,
            requests=template.requests,
            local_storage=any("emptyDir" in volume or "hostPath" in volume for volume in volumes),
            volume_claims=tuple(
                volume["persistentVolumeClaim"].get("claimName", "")
                for volume in volumes
                if volume.get("persistentVolumeClaim")
            ),
            resource_claims=bool(spec.get("resourceClaims")),
            claims=claims_of(metadata.get("namespace") or "default", spec, status)
            if spec.get("resourceClaims") or status.get("extendedResourceClaimStatus")
            else (),
            claim_uses=_claim_uses(metadata, spec, status),
            scheduled=None if spec.get("nodeName") else _scheduled(status),
            admission=template.admission,
            problem=template.problem,
        )

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """Return whether the pod has ended; it then holds neither a slot nor resources."""
        return self.phase in _TERMINAL

    @property
    def active(self) -> bool:
        """Return whether the pod is bound to a node and holds, or is about to hold, resources there."""
        return bool(self.node) and not self.terminal

    @property
    def kubelet_uid(self) -> str:
        """The UID in the kubelet's own records, which differs for static pods."""
        return self.annotations.get(MIRROR, self.uid)

    @property
    def mirrors(self) -> bool:
        """Return whether it mirrors a static pod, which its kubelet reads from a file and runs without it."""
        return MIRROR in self.annotations

    @property
    def info(self) -> PodInfo:
        """The pod as its kubelet's checks see it; one that cannot be read asks for nothing."""
        pod = self.admission or Pod(self.name, self.namespace, self.kubelet_uid, ())
        return PodInfo(pod, self.constraints, self.requests)

    @property
    def controller(self) -> Owner | None:
        """The owner that replaces the pod when it goes."""
        return next((owner for owner in self.owners if owner.controller), None)

    def placed(self, node: str) -> "ClusterPod":
        """The pod bound to another node.

        Args:
            node: its name; empty: the pod is bound to none.

        >>> from numazones import build
        >>> ClusterPod.from_api(build.pod_body("web", cpu=2)).placed("worker-1").node
        'worker-1'
        """
        return replace(self, node=node)


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node and the pods on it.

    >>> from numazones import build
    >>> state = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> node = ClusterNode("worker-1", allocatable={"cpu": 14000}).with_state(state)
    >>> node.known is None
    False
    """

    KIND: ClassVar[str] = "Node"

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    pod_slots: int = 110
    placement: Placement | Unknown = field(default=NO_ZONES, repr=False)
    """Who places pods on its NUMA nodes, and what that decides from; or why this is not known."""
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """What placement models read of the Node object."""
    pods: Mapping[str, ClusterPod] = field(default_factory=dict, hash=False, repr=False)
    """UID → pod, for the pods that hold a slot."""
    requested: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Sum of the pods' requests."""
    pressures: tuple[str, ...] = ()
    """Conditions of pressure that hold, such as MemoryPressure."""
    os: str = "linux"
    kubelet_version: str = ""
    """As its kubelet reports it; empty: not known."""
    device_classes: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Extended resource → DeviceClass of the cluster that maps it to devices (KEP-5004)."""
    device_selectors: Mapping[str, "DeviceClass"] = field(default_factory=dict, hash=False, repr=False)
    """Name of a DeviceClass of the cluster → which devices it selects."""
    dra: "NodeDevices | None" = field(default=None, hash=False, repr=False)
    """Its devices of dynamic resource allocation, and who has them; None: not known."""
    cluster_devices: "ClusterDevices | None" = field(default=None, compare=False, repr=False)
    """What the scheduler allocates the cluster's devices from; None: not known."""
    claimed: "ClaimedDevices" = field(default_factory=dict, hash=False, repr=False)
    """UID as the kubelet knows it → container → devices that it holds through claims."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read a core/v1 Node, without pods and with its admission state unknown.

        Args:
            body: the node as the API server serves it.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.

        >>> body = {"metadata": {"name": "worker-1"}, "status": {"allocatable": {"cpu": "15500m"}}}
        >>> ClusterNode.from_api(body).allocatable
        {'cpu': 15500}
        """
        metadata, spec, status = parts_of(body, "Node")
        try:
            return cls._of_parts(metadata, spec, status)
        except (NumazonesError, *MALFORMED) as error:
            raise invalid(body, "Node", error) from error

    @classmethod
    def _of_parts(
        cls, metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]
    ) -> Self:
        allocatable = requests.amounts(status.get("allocatable"))
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            labels=metadata.get("labels") or {},
            taints=tuple(Taint.from_api(taint) for taint in spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            ready=is_true(status, "Ready"),
            pod_slots=allocatable.pop("pods", 0),
            allocatable=allocatable,
            pressures=tuple(name for name in _PRESSURES if is_true(status, name)),
            os=(status.get("nodeInfo") or {}).get("operatingSystem") or "linux",
            kubelet_version=(status.get("nodeInfo") or {}).get("kubeletVersion") or "",
            body={
                "metadata": {
                    "name": metadata["name"],
                    "labels": metadata.get("labels") or {},
                    "annotations": {
                        key: value
                        for key, value in (metadata.get("annotations") or {}).items()
                        if key.startswith(models.node_annotations())
                    },
                },
                "status": {"allocatable": status.get("allocatable") or {}},
            },
        )

    def info(self, state: Node, *, beside: str) -> NodeInfo:
        """The node as its kubelet sees it when a pod comes.

        Args:
            state: what the managers are taken to have assigned then, usually ``self.state``.
            beside: UID of that pod; the others count.

        >>> from numazones import build
        >>> state = build.node(build.machine(cores=8, memory="16Gi"))
        >>> ClusterNode("worker-1").with_state(state).info(state, beside="web").name
        'worker-1'
        """
        others = [pod for pod in self.pods.values() if pod.uid != beside]
        return NodeInfo(
            state,
            allocatable=self.allocatable,
            pod_slots=self.pod_slots,
            pods={pod.kubelet_uid: pod.info for pod in others if not pod.stopped},
            ended=frozenset(pod.kubelet_uid for pod in others if pod.stopped),
            name=self.name,
            labels=self.labels,
            taints=self.taints,
            pressures=self.pressures,
            os=self.os,
        )

    @property
    def pod_names(self) -> dict[str, str]:
        """UID in the kubelet's records → NAMESPACE/NAME."""
        return {pod.kubelet_uid: pod.full_name for pod in self.pods.values()}

    @property
    def pod_count(self) -> int:
        """Return how many pods hold a slot."""
        return len(self.pods)

    @property
    def known(self) -> Placement | None:
        """The placement, where it is known."""
        return None if isinstance(self.placement, Unknown) else self.placement

    @property
    def unknown(self) -> Unknown | None:
        """Return why the placement is unknown; None if it is known."""
        return self.placement if isinstance(self.placement, Unknown) else None

    @property
    def state(self) -> Node | None:
        """Return the state that the kubelet decides from, if the kubelet alone decides and it is known."""
        return None if isinstance(self.placement, Unknown) else self.placement.kubelet

    @property
    def why_no_state(self) -> Unknown | None:
        """Return why ``state`` is None: nothing is known, or another model decides; None if it is known."""
        placement = self.placement
        if isinstance(placement, Unknown):
            return placement
        if placement.kubelet is not None:
            return None
        message = f"{placement.model.decider}, not the kubelet, places pods on this node's NUMA nodes"
        return Unknown(OTHER_MODEL, message)

    @property
    def approximate(self) -> bool:
        """Return whether only amounts are known (from a NodeResourceTopology), so that answers may be off."""
        return not isinstance(self.placement, Unknown) and self.placement.approximate

    @property
    def movable(self) -> bool:
        """Return whether plans may move pods from and to the node."""
        placement = self.known
        return placement is not None and placement.model.movable and not placement.approximate

    @property
    def occupancy(self) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; None if that is unknown."""
        placement = self.placement
        return None if isinstance(placement, Unknown) else placement.occupancy(self.pod_names)

    def with_placement(self, placement: Placement | Unknown) -> "ClusterNode":
        """The node with another placement.

        Args:
            placement: who places pods on its NUMA nodes, and what that decides from; or why it is not known.

        >>> node = ClusterNode("worker-1").with_placement(Unknown("Stale", "the exporter is gone"))
        >>> node.unknown.message
        'the exporter is gone'
        """
        return replace(self, placement=placement)

    def with_state(self, state: Node, *, approximate: bool = False) -> "ClusterNode":
        """The node with a known state of its kubelet, who alone decides there.

        Args:
            state: what the kubelet's admission decides from.
            approximate: whether only amounts are known, so that answers may be off.

        >>> from numazones import build
        >>> ClusterNode("worker-1").with_state(build.node(build.machine(cores=8, memory="16Gi"))).approximate
        False
        """
        return replace(self, placement=KubeletPlacement(state, approximate))

    def with_pods(self, pods: Iterable[ClusterPod]) -> "ClusterNode":
        """The node with exactly these pods; its admission state stays as it is.

        Args:
            pods: those that have ended hold nothing and are left out.

        >>> from numazones import build
        >>> pods = [ClusterPod.from_api(build.pod_body(name, cpu=2)) for name in ("one", "two")]
        >>> ClusterNode("worker-1").with_pods(pods).requested
        {'cpu': 4000}
        """
        held = {pod.uid: pod for pod in pods if not pod.terminal}
        requested: dict[str, int] = {}
        for pod in held.values():
            for resource, amount in pod.requests.items():
                requested[resource] = requested.get(resource, 0) + amount
        return replace(self, pods=held, requested=requested)

    def with_pod(self, pod: ClusterPod, placement: Placement | None = None) -> "ClusterNode":
        """The node with a pod added, or renewed if it was there.

        Args:
            pod: one that has ended is taken away.
            placement: the one with the pod; without it, the admission state stays as it is.

        >>> from numazones import build
        >>> ClusterNode("worker-1").with_pod(ClusterPod.from_api(build.pod_body("web", cpu=2))).pod_count
        1
        """
        if pod.terminal:
            return self.without_pod(pod.uid, placement)
        node = self.without_pod(pod.uid)
        return replace(
            node,
            pods={**node.pods, pod.uid: pod},
            requested=_with_amounts(node.requested, pod.requests, sign=1),
            placement=self.placement if placement is None else placement,
        )

    def without_pod(self, uid: str, placement: Placement | None = None) -> "ClusterNode":
        """The node without a pod.

        Args:
            uid: the pod's; an unknown one changes nothing.
            placement: the one without the pod; without it, the admission state stays as it is.

        >>> from numazones import build
        >>> node = ClusterNode("worker-1").with_pod(ClusterPod.from_api(build.pod_body("web", cpu=2)))
        >>> node.without_pod("web").pod_count
        0
        """
        pod = self.pods.get(uid)
        if pod is None:
            return self
        return replace(
            self,
            pods={key: other for key, other in self.pods.items() if key != uid},
            requested=_with_amounts(self.requested, pod.requests, sign=-1),
            placement=self.placement if placement is None else placement,
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes, and the pods that have none yet.

    >>> from numazones import build
    >>> pods = [ClusterPod.from_api(build.pod_body("web", cpu=2))]
    >>> list(Cluster.of([ClusterNode("worker-1")], pods).pending)
    ['web']
    """

    nodes: Mapping[str, ClusterNode] = field(default_factory=dict, hash=False)
    """Name → node."""
    pending: Mapping[str, ClusterPod] = field(default_factory=dict, hash=False)
    """UID → pod without a node."""

    @classmethod
    def of(cls, nodes: Iterable[ClusterNode], pods: Iterable[ClusterPod]) -> Self:
        """Put pods on the nodes they name.

        Args:
            nodes: what they hold already counts for nothing.
            pods: those that have ended, or whose node is not among the nodes, are left out.

        >>> from numazones import build
        >>> pod = ClusterPod.from_api(build.pod_body("web", cpu=2))
        >>> cluster = Cluster.of([ClusterNode("worker-1")], [pod.placed("worker-1")])
        >>> list(cluster.nodes["worker-1"].pods), list(cluster.pending)
        (['web'], [])
        """
        by_node: dict[str, list[ClusterPod]] = {}
        for pod in pods:
            if not pod.terminal:
                by_node.setdefault(pod.node, []).append(pod)
        return cls(
            nodes={node.name: node.with_pods(by_node.get(node.name, ())) for node in nodes},
            pending={pod.uid: pod for pod in by_node.get("", ())},
        )

    def with_node(self, node: ClusterNode) -> "Cluster":
        """The cluster with a node added or replaced.

        Args:
            node: with its pods.

        >>> list(Cluster().with_node(ClusterNode("worker-1")).nodes)
        ['worker-1']
        """
        return replace(self, nodes={**self.nodes, node.name: node})

    def without_node(self, name: str) -> "Cluster":
        """The cluster without a node and its pods.

        Args:
            name: the node's; an unknown one changes nothing.

        >>> list(Cluster().with_node(ClusterNode("worker-1")).without_node("worker-1").nodes)
        []
        """
        return replace(self, nodes={key: node for key, node in self.nodes.items() if key != name})

    def with_pod(self, pod: ClusterPod) -> "Cluster":
        """The cluster with a pod added on the node it names, or to the pending ones.

        Admission states stay as they are: who adds a pod decides whether and how the kubelet admits it.

        Args:
            pod: with the name of its node, or with none.

        Raises:
            NoSuchNode: the cluster has no node of that name.

        >>> from numazones import build
        >>> list(Cluster().with_pod(ClusterPod.from_api(build.pod_body("web", cpu=2))).pending)
        ['web']
        """
        if not pod.node:
            return replace(self, pending={**self.pending, pod.uid: pod})
        node = self.nodes.get(pod.node)
        if node is None:
            raise NoSuchNode(f"pod {pod.full_name} is bound to node {pod.node}, which does not exist")
        return self.with_node(node.with_pod(pod))

    def without_pod(self, pod: ClusterPod) -> "Cluster":
        """The cluster without a pod; unchanged if it is not there. Admission states stay as they are.

        Args:
            pod: with the name of its node, or with none.

        >>> from numazones import build
        >>> pod = ClusterPod.from_api(build.pod_body("web", cpu=2))
        >>> Cluster().with_pod(pod).without_pod(pod) == Cluster()
        True
        """
        if not pod.node:
            if pod.uid not in self.pending:
                return self
            return replace(self, pending={key: it for key, it in self.pending.items() if key != pod.uid})
        node = self.nodes.get(pod.node)
        return self if node is None else self.with_node(node.without_pod(pod.uid))


def _with_amounts(total: Mapping[str, int], amounts: Mapping[str, int], *, sign: int) -> Mapping[str, int]:
    changed = dict(total)
    for resource, amount in amounts.items():
        changed[resource] = changed.get(resource, 0) + sign * amount
    return changed


def is_true(status: Mapping[str, Any], condition: str) -> bool:
    """Return whether a condition of an object's status is True."""
    for item in status.get("conditions") or ():
        if item.get("type") == condition and item.get("status") == "True":
            return True
    return False


def _scheduled(status: Mapping[str, Any]) -> tuple[str, str, str] | None:
    for item in status.get("conditions") or ():
        if item.get("type") == "PodScheduled":
            return item.get("status") or "", item.get("reason") or "", item.get("message") or ""
    return None


def _is_acknowledged(status: Mapping[str, Any]) -> bool:
    """Return whether a status shows that the kubelet admitted the pod.

    A rejected pod that is deleted at the same moment gets container statuses, too (kubelet 1.36): first with
    its old phase, and only the condition Ready says ``PodFailed``; then with the rejection.
    """
    if not (status.get("containerStatuses") or status.get("initContainerStatuses")):
        return False
    if status.get("phase") == "Failed":
        return not (status.get("message") or "").startswith(STATUS_PREFIX)
    return status.get("phase") != "Pending" or not any(
        item.get("type") == "Ready" and item.get("reason") == _POD_FAILED
        for item in status.get("conditions") or ()
    )


def _all_have_ended(status: Mapping[str, Any]) -> bool:
    """Return whether all containers that were started have ended."""
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return bool(statuses) and all("terminated" in (item.get("state") or {}) for item in statuses)


def create_error(status: Mapping[str, Any]) -> str:
    """Return the runtime's error for a container that it does not create."""
    return next((message for _, message in _create_errors(status)), "")


def _create_errors(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield container and message where the runtime does not create one.

    The kubelet says so until a later attempt succeeds (``reasonCache`` in ``pkg/kubelet/reason_cache.go``).
    """
    for item in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (item.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") == CREATE_CONTAINER_ERROR:
            name = str(item.get("name") or "")
            yield name, waiting.get("message") or f"container {name} could not be created"


def _claim_uses(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Mapping[str, Uses]:
    if not spec.get("resourceClaims") and not status.get("extendedResourceClaimStatus"):
        return _USES_NONE
    return uses_of(metadata.get("namespace", ""), spec, status)


def _owners(metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
    return tuple(
        Owner(
            owner.get("kind", ""),
            owner.get("name", ""),
            owner.get("uid", ""),
            owner.get("controller") is True,
        )
        for owner in metadata.get("ownerReferences") or ()
    )
