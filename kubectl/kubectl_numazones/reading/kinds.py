"""The kinds that commands read of a live cluster; a dump may hold any of them."""

from collections.abc import Iterator
from typing import NamedTuple

from numazones.api.meta import NODE_LABEL
from numazones.placement import models
from numazones_client import resources
from numazones_client.resources import Resource

_PLANS, _REBALANCING, _MODELS = "uncertain plans", "no rebalancing", "no other models"
_DEVICES = "no DRA"


class NeededKind(NamedTuple):
    """A kind and whether an answer is possible without it."""

    kind: str
    resource: Resource
    needed: bool = False
    selector: str = ""
    """Labels of those that are read."""
    foreign: bool = False
    """Of another project; that it is not installed is no news."""
    without: str = ""
    """What follows where it is left out, in a few words."""


KINDS = (
    NeededKind("Node", resources.NODES, needed=True),
    NeededKind("Pod", resources.PODS, needed=True),
    NeededKind("NUMAZone", resources.NUMAZONES, needed=True),
    NeededKind("Namespace", resources.NAMESPACES, without=_PLANS),
    NeededKind("ReplicaSet", resources.REPLICA_SETS, without=_PLANS),
    NeededKind("StatefulSet", resources.STATEFUL_SETS, without=_PLANS),
    NeededKind("Job", resources.JOBS, without=_PLANS),
    NeededKind("PodDisruptionBudget", resources.BUDGETS, without=_PLANS),
    NeededKind("PriorityClass", resources.PRIORITY_CLASSES, without=_PLANS),
    NeededKind("PersistentVolumeClaim", resources.CLAIMS, without=_PLANS),
    NeededKind("RebalancePolicy", resources.REBALANCE_POLICIES, without=_REBALANCING),
    NeededKind("RebalanceRecommendation", resources.REBALANCE_RECOMMENDATIONS, without=_REBALANCING),
    NeededKind("NodeResourceTopology", resources.NODE_RESOURCE_TOPOLOGIES, foreign=True, without=_MODELS),
    NeededKind("DeviceClass", resources.DEVICE_CLASSES, foreign=True, without=_PLANS),
    NeededKind("ResourceSlice", resources.RESOURCE_SLICES, foreign=True, without=_DEVICES),
    NeededKind("ResourceClaim", resources.RESOURCE_CLAIMS, foreign=True, without=_DEVICES),
    NeededKind("ResourceClaimTemplate", resources.RESOURCE_CLAIM_TEMPLATES, foreign=True, without=_DEVICES),
    *(
        NeededKind(
            kind.kind,
            Resource(kind.group, kind.version, kind.plural, kind.namespaced),
            foreign=True,
            without=_MODELS,
        )
        for kind in models.object_kinds()
    ),
)

DOCTORS = (
    *KINDS,
    NeededKind("Lease", resources.LEASES, selector=NODE_LABEL),
)
"""What is looked at besides when the installation is in question."""
_FORESEEING = (
    resources.DEVICE_CLASSES,
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.RESOURCE_CLAIM_TEMPLATES,
)
"""Without these it is not known which devices the scheduler would allocate."""
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


def rights() -> Iterator[tuple[str, Resource, str]]:
    """Yield (verb, resource, subresource) of what commands ask of an API server, whatever runs in it.

    Only reading: who changes nothing lacks nothing. ``gate release`` and ``gate off`` say themselves what
    their user may not change.
    """
    for kind in DOCTORS:
        if not kind.foreign or kind.resource in _FORESEEING:
            yield "list", kind.resource, ""
    yield "list", resources.NODE_RESOURCE_TOPOLOGIES, ""
    yield "get", resources.DEFINITIONS, ""
