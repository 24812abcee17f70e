"""Our admission policies, as far as it matters whether they are in force.

One reserves the annotations that our programs write (``podpolicies.yaml`` in ``manifests/operator``): while
it is in force, ``numazones.io/admission-released`` on a pod is proof that the gate released it. Only pods
that were created after policy and binding count, as an earlier pod may carry whatever its owner wrote; the
API server sets these times. The other gives new pods the scheduling gate (``manifests/gate-injection``), so
that templates need not carry it. A policy that is bound to less than all that it matches counts as one that
is not there, and so does one that may not be read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery import timestamp
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import relevant
from numazones_client import Decoder, Resource
from numazones_client.table import Table

RESERVING = "numazones-reserved-annotations"
INJECTING = "numazones-admission-gate"
OWN_SCHEDULER = "numazones"
"""Its pods are asked about when they are scheduled, and get no gate."""
SETTLE_SECONDS = 60.0
"""API servers take some seconds until they evaluate a policy that was created."""

_GROUP = "admissionregistration.k8s.io"
_VALIDATING = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
_MUTATING = "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Parts of a policy that decide which requests it evaluates."""

    name: str
    created: float
    """Seconds since the epoch."""
    operations: frozenset[str]
    """On pods; none for a policy that leaves some of them out, or is being deleted."""
    fails: bool
    """Whether a request is denied for which it cannot be evaluated."""
    namespaces: LabelSelector | None
    """Labels of the namespaces that it is for; None: all."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "AdmissionPolicy":
        """Read a policy, validating or mutating."""
        metadata, spec = body["metadata"], body.get("spec") or {}
        matched = spec.get("matchConstraints") or {}
        limited = (
            spec.get("paramKind") or matched.get("excludeResourceRules") or matched.get("objectSelector")
        )
        rules = () if limited or metadata.get("deletionTimestamp") else matched.get("resourceRules") or ()
        return cls(
            metadata["name"],
            _created(metadata),
            frozenset(operation for rule in rules if _is_for_pods(rule) for operation in rule["operations"]),
            spec.get("failurePolicy") != "Ignore",
            LabelSelector.optional(matched.get("namespaceSelector") or None),
        )


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """Parts of a binding that decide whether its policy is in force everywhere."""

    name: str
    policy: str
    created: float
    acts: bool

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "PolicyBinding":
        """Read a binding, of either kind."""
        metadata, spec = body["metadata"], body.get("spec") or {}
        limits = {
            key: part for key, part in (spec.get("matchResources") or {}).items() if key != "matchPolicy"
        }
        denies = "Deny" in (spec.get("validationActions") or ("Deny",))
        acts = denies and not any(limits.values()) and not spec.get("paramRef")
        acts = acts and not metadata.get("deletionTimestamp")
        return cls(metadata["name"], spec.get("policyName") or "", _created(metadata), acts)


class AdmissionPolicies:
    """The policies and bindings of the cluster as last read."""

    def __init__(self) -> None:
        self.known: Callable[[], bool] = lambda: False
        """Whether the tables are up to date."""
        self._policies = {kinds: _policies() for kinds in (_VALIDATING, _MUTATING)}
        self._bindings = {kinds: _bindings() for kinds in (_VALIDATING, _MUTATING)}

    def mirrored(self, *, injection: bool) -> Iterator[tuple[Resource, Decoder[Any], Table[Any]]]:
        """Yield the resources that reflectors keep up to date; without ``injection`` no mutating ones."""
        for kinds in (_VALIDATING, _MUTATING) if injection else (_VALIDATING,):
            policies, bindings = (Resource(_GROUP, "v1", plural, namespaced=False) for plural in kinds)
            yield policies, Decoder(AdmissionPolicy.from_api), self._policies[kinds]
            yield bindings, Decoder(PolicyBinding.from_api), self._bindings[kinds]

    def proves(self, pod: ClusterPod) -> bool:
        """Return whether only our programs can have written a pod's reserved annotations."""
        policy = self._policies[_VALIDATING].get(RESERVING) if self.known() else None
        if policy is None or not policy.fails or policy.namespaces is not None:
            return False
        if not policy.operations >= {"CREATE", "UPDATE"} and "*" not in policy.operations:
            return False
        since = self._bound_since(_VALIDATING, RESERVING)
        if since is None or not pod.created:
            return False
        return timestamp.parse(pod.created).timestamp() >= max(policy.created, since) + SETTLE_SECONDS

    def gates(self, pod: ClusterPod, namespace: Mapping[str, str]) -> bool:
        """Return whether a new pod like this one would get our scheduling gate when it is created.

        Args:
            pod: as its owner would make it; that the policy's conditions say the same, a test shows.
            namespace: labels of its namespace.
        """
        policy = self._policies[_MUTATING].get(INJECTING) if self.known() else None
        if policy is None or not policy.operations & {"CREATE", "*"}:
            return False
        if policy.namespaces is not None and not policy.namespaces.matches(namespace):
            return False
        if self._bound_since(_MUTATING, INJECTING) is None:
            return False
        of_daemon_set = pod.controller is not None and pod.controller.kind == "DaemonSet"
        ours = pod.constraints.scheduler_name == OWN_SCHEDULER
        return relevant(pod) and not ours and not of_daemon_set

    def _bound_since(self, kinds: tuple[str, str], policy: str) -> float | None:
        """Return since when some binding has put a policy to work; None if none does."""
        bound = (one.created for one in self._bindings[kinds] if one.policy == policy and one.acts)
        return min(bound, default=None)


def _policies() -> Table[AdmissionPolicy]:
    return Table(lambda item: item.name)


def _bindings() -> Table[PolicyBinding]:
    return Table(lambda item: item.name)


def _created(metadata: Mapping[str, Any]) -> float:
    return timestamp.parse(metadata["creationTimestamp"]).timestamp()


def _is_for_pods(rule: Mapping[str, Any]) -> bool:
    named = rule.get("resourceNames") or rule.get("scope") == "Cluster"
    groups, kinds = rule.get("apiGroups") or (), rule.get("resources") or ()
    return not named and bool({"", "*"} & {*groups}) and bool({"pods", "*", "*/*"} & {*kinds})
