"""Names and paths of the resources the project reads and writes.

Path rules: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:  # what reads no other models does not load them
    from numazones.placement.model import ObjectKind


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type of the API; ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @classmethod
    def of_kind(cls, kind: "ObjectKind") -> "Resource":
        """Return the resource of objects that a placement model reads."""
        return cls(kind.group, kind.version, kind.plural, namespaced=kind.namespaced)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name RBAC and people use: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or of the collection where no name is given.

        Raises:
            ValueError: an object of a namespaced resource is addressed without namespace, or a
                cluster-wide one with it.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.full_name} have no namespace; omit namespace={namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.full_name} {name!r} needs a namespace; pass namespace=")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts += subresource.split("/")
        return "/" + "/".join(quote(part, safe="") for part in parts)


NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
NUMAZONES = Resource("numazones.io", "v1alpha1", "numazones", namespaced=False)
NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", namespaced=False
)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
EVENTS = Resource("", "v1", "events")
CONFIG_MAPS = Resource("", "v1", "configmaps")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
JOBS = Resource("batch", "v1", "jobs")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
ADMISSION_PREDICTIONS = Resource("numazones.io", "v1alpha1", "admissionpredictions")
REBALANCE_POLICIES = Resource("numazones.io", "v1alpha1", "rebalancepolicies", namespaced=False)
REBALANCE_RECOMMENDATIONS = Resource("numazones.io", "v1alpha1", "rebalancerecommendations", namespaced=False)
