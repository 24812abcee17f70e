"""The kinds that commands read of a live cluster; a dump may hold any of them."""

from collections.abc import Iterator
from typing import NamedTuple

from numazones.api.meta import NODE_LABEL
from numazones_client import resources
from numazones_client.resources import Resource


class Kind(NamedTuple):
    """A kind and whether an answer is possible without it."""

    kind: str
    resource: Resource
    needed: bool = False
    selector: str = ""
    """Labels of those that are read."""
    foreign: bool = False
    """Of another project; that it is not installed is no news."""


KINDS = (
    Kind("Node", resources.NODES, needed=True),
    Kind("Pod", resources.PODS, needed=True),
    Kind("NUMAZone", resources.NUMAZONES, needed=True),
    Kind("Namespace", resources.NAMESPACES),
    Kind("ReplicaSet", resources.REPLICA_SETS),
    Kind("StatefulSet", resources.STATEFUL_SETS),
    Kind("Job", resources.JOBS),
    Kind("PodDisruptionBudget", resources.BUDGETS),
    Kind("PriorityClass", resources.PRIORITY_CLASSES),
    Kind("PersistentVolumeClaim", resources.CLAIMS),
    Kind("RebalanceRecommendation", resources.REBALANCE_RECOMMENDATIONS),
    Kind("NodeResourceTopology", resources.NODE_RESOURCE_TOPOLOGIES, foreign=True),
    Kind("Device", resources.KOORDINATOR_DEVICES, foreign=True),
    Kind("TopologyAwarePolicy", resources.TOPOLOGY_AWARE_POLICIES, foreign=True),
)

DOCTORS = (
    *KINDS,
    Kind("Lease", resources.LEASES, selector=NODE_LABEL),
)
"""What is looked at besides when the installation is in question."""
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


def rights() -> Iterator[tuple[str, Resource, str]]:
    """Yield (verb, resource, subresource) of what commands ask of an API server, whatever runs in it."""
    for kind in DOCTORS:
        if not kind.foreign:
            yield "list", kind.resource, ""
    yield "list", resources.NODE_RESOURCE_TOPOLOGIES, ""
    yield "get", resources.DEFINITIONS, ""
