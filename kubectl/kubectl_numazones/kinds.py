"""The kinds that commands read of a live cluster; a dump may hold any of them."""

from collections.abc import Iterator
from typing import NamedTuple

from numazones.api.meta import NODE_LABEL
from numazones_client.resources import (
    KOORDINATOR_DEVICES,
    LEASES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    NUMAZONES,
    PODS,
    TOPOLOGY_AWARE_POLICIES,
    Resource,
)


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
    Kind("Node", NODES, needed=True),
    Kind("Pod", PODS, needed=True),
    Kind("NUMAZone", NUMAZONES, needed=True),
    Kind("Namespace", Resource("", "v1", "namespaces", namespaced=False)),
    Kind("ReplicaSet", Resource("apps", "v1", "replicasets")),
    Kind("StatefulSet", Resource("apps", "v1", "statefulsets")),
    Kind("Job", Resource("batch", "v1", "jobs")),
    Kind("PodDisruptionBudget", Resource("policy", "v1", "poddisruptionbudgets")),
    Kind("PriorityClass", Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)),
    Kind("PersistentVolumeClaim", Resource("", "v1", "persistentvolumeclaims")),
    Kind(
        "RebalanceRecommendation",
        Resource("numazones.io", "v1alpha1", "rebalancerecommendations", namespaced=False),
    ),
    Kind("NodeResourceTopology", NODE_RESOURCE_TOPOLOGIES, foreign=True),
    Kind("Device", KOORDINATOR_DEVICES, foreign=True),
    Kind("TopologyAwarePolicy", TOPOLOGY_AWARE_POLICIES, foreign=True),
)

DOCTORS = (
    *KINDS,
    Kind("Lease", LEASES, selector=NODE_LABEL),
)
"""What is looked at besides when the installation is in question."""
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


def rights() -> Iterator[tuple[str, Resource, str]]:
    """Yield (verb, resource, subresource) of everything that commands ask of an API server."""
    for kind in DOCTORS:
        if not kind.foreign:
            yield "list", kind.resource, ""
    yield "list", NODE_RESOURCE_TOPOLOGIES, ""
    yield "get", DEFINITIONS, ""
    yield "get", NODES, "proxy"
