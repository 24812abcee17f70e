"""Kinds of pods: what verdicts depend on, so that thousands of pods of few templates are asked about once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from numazones.cluster.cluster import ClusterPod
from numazones.dra.uses import PodClaim
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.demand import PodLevel, QOSClass
from numazones.kubelet.node_info import OS_LABEL
from numazones.kubelet.pod import Pod
from numazones.placement import models

if TYPE_CHECKING:  # few pods have claims
    from numazones.dra.claims import DeviceClaim
    from numazones.dra.cluster_devices import ClusterDevices

ALIGNMENT = "numazones.io/alignment"
"""Annotation of a pod: whether all that it gets has to lie on one NUMA node."""
REQUIRED = "required"
"""Its one value that means anything."""

_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
# Stands for every pod of a kind, also beside pods of the kind that a node holds already.
_NEWCOMER = "newcomer"


@dataclass(frozen=True, slots=True)
class PodKind:
    """Everything about a pod that verdicts depend on: pods of one template are of one kind."""

    admission: Pod = field(compare=False)
    constraints: Constraints
    requests: tuple[tuple[str, int], ...]
    needs: tuple[Any, ...]
    """What tells apart admission's view of two pods, their names aside."""
    marks: tuple[Any, ...] = ()
    """What the other placement models read beside: their labels and annotations, priority and namespace."""
    claims: bool = False
    """True if it claims devices through dynamic resource allocation."""
    allocated: bool = False
    """Whether the scheduler has said of the nodes in question that they have the devices it claims."""
    claimed: tuple[PodClaim, ...] = ()
    """What it claims, in its order; empty for most pods."""
    read: "tuple[DeviceClaim | None, ...]" = ()
    """The same as it was read (``settled``); empty: it was not looked up."""
    alignment: str = ""
    """Value of the annotation ``numazones.io/alignment``."""
    amounts: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """``requests`` by resource."""
    _hash: int = field(init=False, repr=False, compare=False)
    """It is asked for with every verdict that is looked up."""

    def __post_init__(self) -> None:
        """Work out once what is asked for with every node."""
        object.__setattr__(self, "amounts", dict(self.requests))
        parts: tuple[Any, ...] = (
            self.constraints,
            self.requests,
            self.needs,
            self.marks,
            self.claims,
            self.allocated,
        )
        if self.claimed or self.alignment:
            parts = (*parts, self.claimed, self.read, self.alignment)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of texts differ between processes.
        return PodKind, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def requires_alignment(self) -> bool:
        """Return whether only nodes will do where all that it gets lies on one NUMA node."""
        return self.alignment == REQUIRED

    def settled(self, devices: "ClusterDevices | None") -> "PodKind":
        """Return the kind with its claims as they are now; another one, once they are others.

        Who keeps answers by kinds needs it: an answer depends on the claims that a pod names.
        """
        if devices is None or not self.claimed:
            return self
        claimed = tuple(map(devices.settled, self.claimed))
        read = tuple(
            None if found is None else replace(found, pods=frozenset())
            for found in map(devices.read, claimed)
        )
        return replace(self, claimed=claimed, read=read)

    def requesting(self, admission: Pod, requests: Mapping[str, int]) -> "PodKind":
        """Return the kind of a pod that differs only in its requests; ``requests``: the scheduler's sums."""
        return replace(
            self, admission=admission, requests=tuple(sorted(requests.items())), needs=_needs(admission)
        )

    @classmethod
    def of(cls, pod: ClusterPod, *, by_namespace: bool = False, allocated: bool = False) -> "PodKind | None":
        """Return the kind of a pod, or None if the pod cannot be read.

        ``by_namespace``: tell pods of different namespaces and priorities apart, as some placement models do
        (``Model.tells_namespaces_apart``); needed where verdicts of their nodes are to be shared.
        ``allocated``: take the devices that it claims for allocated, as after the scheduler's own filters.
        """
        admission = pod.admission
        if admission is None:
            return None
        return cls(
            admission,
            pod.constraints,
            tuple(sorted(pod.requests.items())),
            _needs(admission),
            _marks(admission, by_namespace=by_namespace),
            claims=pod.resource_claims,
            allocated=allocated,
            claimed=() if allocated else pod.claims,
            alignment=pod.annotations.get(ALIGNMENT, ""),
        )


def _needs(admission: Pod) -> tuple[Any, ...]:
    return (
        admission.containers,
        admission.resources,
        admission.qos_class,
        dict(admission.labels).get(OS_LABEL),
        admission.claimed_resources,
    )


def _marks(pod: Pod, *, by_namespace: bool) -> tuple[Any, ...]:
    """Nothing for pods without a mark, so that pods of equal templates stay of one kind."""
    marks = _model_marks(pod)
    return (pod.priority, pod.namespace, *sorted(marks)) if marks or by_namespace else ()


def _model_marks(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Labels and annotations that placement models other than the kubelet read."""
    return tuple(
        pair
        for pair in (*pod.labels, *pod.annotations)
        if any(mark in pair[0] for mark in models.pod_marks())
    )


def relevant(pod: ClusterPod) -> bool:
    """Return whether NUMA placement concerns the pod: Guaranteed, or requesting hugepages or devices.

    Guaranteed to some kubelet is enough, since releases read pod-level resources differently.

    A pod that cannot be read is relevant, so that somebody hears of it; and one that carries a label or an
    annotation that another placement model reads, which may place other pods, too. One that requires
    alignment wants to know where it is.
    """
    admission = pod.admission
    if admission is None or _model_marks(admission) or pod.annotations.get(ALIGNMENT) == REQUIRED:
        return True
    if any(admission.demand(level).qos is QOSClass.GUARANTEED for level in PodLevel):
        return True
    asked = (*admission.containers, *(() if admission.resources is None else (admission.resources,)))
    return any(
        name not in _PLAIN and amount.nanos > 0
        for resources in asked
        for name, amount in (*resources.requests, *resources.limits)
    )


def newcomer(pod: Pod) -> Pod:
    """Return a pod like this one that no node knows yet, neither by its UID nor by its name.

    This one may run meanwhile, and some models take a pod's place for that of another one of its name.
    """
    return replace(pod, uid=_NEWCOMER, name=f"like {pod.name}")
