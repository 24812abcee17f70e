"""RebalancePolicy and RebalanceRecommendation: what may be moved, and what should be.

A policy is written by people, a recommendation by the operator. Protections and limits keep the names of
the descheduler's DefaultEvictor and DeschedulerPolicy (v1alpha2). A recommendation is an immutable plan;
only ``spec.approved``, in mode Approve, and ``spec.rejected`` are for people.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from numazones.api.eviction_limits import EvictionLimits
from numazones.api.meta import (
    ATOMIC,
    IMMUTABLE,
    INT_OR_STRING,
    MAX_LABEL,
    MAX_NAME,
    NUMAID,
    APIModel,
    APIObject,
    Condition,
    PrinterColumn,
    QuantityText,
    ResourceType,
    TimestampText,
    list_map,
    list_of,
    optional,
    text,
)
from numazones.api.place import Place

_MAX_MESSAGE = 4096
_MAX_DOUBT = 512
_MAX_GOAL_KEY = 512
_MAX_LABEL_KEY = MAX_NAME + 1 + MAX_LABEL

DurationText = Annotated[str, Field(max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(h|ms|m|s))+$")]
"""A duration as Go writes it: 90s, 1h30m."""


class Mode(StrEnum):
    """Who decides whether a plan is executed."""

    RECOMMEND = "Recommend"
    APPROVE = "Approve"
    AUTO = "Auto"


class PlanPhase(StrEnum):
    """Phase of a recommendation."""

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    EXECUTING = "Executing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EXPIRED = "Expired"
    SUPERSEDED = "Superseded"
    REJECTED = "Rejected"


ACTIVE = (PlanPhase.PROPOSED, PlanPhase.APPROVED, PlanPhase.EXECUTING)
"""Phases of recommendations that may still be carried out, or are being."""
ENDED = frozenset(PlanPhase) - frozenset(ACTIVE)
"""Phases of recommendations that nothing follows."""


class MovePhase(StrEnum):
    """Phase of one move."""

    PENDING = "Pending"
    EVICTING = "Evicting"
    EVICTED = "Evicted"
    PLACED = "Placed"
    VERIFIED = "Verified"
    FAILED = "Failed"


ObjectName = Annotated[str, Field(max_length=MAX_NAME)]
Namespace = Annotated[str, Field(max_length=MAX_LABEL)]


def _one_of(*values: str) -> dict[str, Any]:
    """Let the API server reject other values; readers keep what they get."""
    return {"enum": list(map(str, values))}


_ABOVE_ZERO = (
    r"^\+?([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
)
ShapeAmount = Annotated[
    QuantityText, Field(json_schema_extra={**INT_OR_STRING, "pattern": _ABOVE_ZERO, "minimum": 1})
]
"""What one pod of a shape needs; the API server alone rejects amounts that are not above 0."""


class TargetShape(APIModel):
    """A pod shape that single NUMA nodes should have room for."""

    name: str = Field(min_length=1, max_length=MAX_LABEL, description="Name that plans and metrics use.")
    resources: dict[str, ShapeAmount] = Field(
        min_length=1,
        max_length=32,
        description="What one pod needs on one NUMA node, such as cpu, memory and vendor.example/nic.",
    )
    count: int | None = optional("How many of these pods should fit; as many as possible if left out.", ge=1)


class FreeZone(APIModel):
    """A node, or one NUMA node of it, that is to become free of pods."""

    node_name: str = Field(min_length=1, max_length=MAX_NAME, description="Name of the node.")
    numa_id: NUMAID | None = optional("NUMA node; the whole node if left out.")


class SelectorRequirement(APIModel):
    """One requirement of a label selector."""

    key: str = Field(max_length=_MAX_LABEL_KEY, description="Label.")
    operator: str = Field(
        max_length=16,
        description="In, NotIn, Exists or DoesNotExist.",
        json_schema_extra=_one_of("In", "NotIn", "Exists", "DoesNotExist"),
    )
    values: tuple[Annotated[str, Field(max_length=MAX_LABEL)], ...] = list_of(64, "Values for In and NotIn.")


class Selector(APIModel):
    """A label selector (metav1.LabelSelector); an empty one selects everything."""

    match_labels: dict[str, Annotated[str, Field(max_length=MAX_LABEL)]] = Field(
        default_factory=dict, max_length=64, description="Labels and the values they must have."
    )
    match_expressions: tuple[SelectorRequirement, ...] = list_of(64, "Further requirements.")


class PriorityThreshold(APIModel):
    """Pods of this priority or above are never moved; one of name and value."""

    name: str = text(MAX_NAME, "PriorityClass whose value is the threshold.")
    value: int | None = optional("The priority itself.", ge=-(2**31), le=2**31 - 1)


class Namespaces(APIModel):
    """Namespaces by name; one of include and exclude."""

    include: tuple[Namespace, ...] = list_of(256, "Only these namespaces.")
    exclude: tuple[Namespace, ...] = list_of(256, "All namespaces except these.")


class PendingPodSelector(APIModel):
    """Pending pods that plans make room for."""

    namespaces: Namespaces | None = optional("Namespaces of the pods; set either include or exclude.")
    label_selector: Selector | None = optional("Only pods with these labels.")
    min_priority: int | None = optional(
        "Only pods of this priority or above; 0 if left out.", ge=-(2**31), le=2**31 - 1
    )
    scheduler_names: tuple[ObjectName, ...] = list_of(
        16, "Only pods of these schedulers; default-scheduler and numazones if left out."
    )


class Goals(APIModel):
    """Goals of plans."""

    pending_pods: bool = Field(default=True, description="Make room for pending pods that no node admits.")
    pending_pod_selector: PendingPodSelector | None = optional(
        "Pending pods to make room for; if left out, those of priority 0 or above of the schedulers "
        "default-scheduler and numazones. No plan evicts a pod of higher priority than the one it makes "
        "room for."
    )
    shapes: tuple[TargetShape, ...] = list_of(
        32, "Increase the number of pods of these shapes that would fit.", list_map("name")
    )
    free: FreeZone | None = optional("Free one node or one NUMA node.")
    align: bool = Field(
        default=False,
        description="Bring together pods whose CPUs, memory or devices are on several NUMA nodes.",
    )


class StorageClassName(APIModel):
    """A storage class by name."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="Name of the storage class.")


class PVCProtection(APIModel):
    """Claims that the protection PodsWithPVC covers."""

    protected_storage_classes: tuple[StorageClassName, ...] = list_of(
        64, "Claims of these storage classes; all claims if left out."
    )


class PodProtectionConfig(APIModel):
    """Details of some protections."""

    pods_with_pvc: PVCProtection | None = optional("Details of PodsWithPVC.", alias="PodsWithPVC")


class PodProtections(APIModel):
    """Kinds of pods that are protected from eviction."""

    default_disabled: tuple[ObjectName, ...] = list_of(
        16, "Protections to lift: PodsWithLocalStorage, SystemCriticalPods, FailedBarePods, DaemonSetPods."
    )
    extra_enabled: tuple[ObjectName, ...] = list_of(
        16, "Protections to add: PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims."
    )
    config: PodProtectionConfig | None = optional("Details of some protections.")


class ProtectionSettings(APIModel):
    """Pods that are not moved, in the terms of the descheduler's DefaultEvictor."""

    pod_protections: PodProtections | None = optional(
        "Kinds of pods to protect; the descheduler's default kinds if left out."
    )
    priority_threshold: PriorityThreshold | None = optional("Pods of this priority or above are not moved.")
    label_selector: Selector | None = optional("Only pods with these labels may move.")
    namespaces: Namespaces | None = optional("Namespaces whose pods may be moved.")
    namespace_label_selector: Selector | None = optional(
        "Only pods in namespaces with these labels may move."
    )
    node_selector: Selector | None = optional("Only pods on nodes with these labels may move.")
    min_replicas: int | None = optional("Pods of workloads with fewer replicas are not moved.", ge=0)
    min_pod_age: DurationText | None = optional("Pods younger than this are not moved.")
    no_eviction_policy: str = Field(
        default="Preferred",
        max_length=16,
        description="Whether pods that ask not to be evicted move last (Preferred) or never (Mandatory).",
        json_schema_extra=_one_of("Preferred", "Mandatory"),
    )
    node_fit: bool = Field(
        default=False, description="Move only pods that the scheduler would place on another node."
    )


class Schedule(APIModel):
    """Times at which plans are made."""

    interval: DurationText = Field(
        default="5m",
        description="Time between two searches; newly stuck pods start a search within half a minute.",
    )
    suspend: bool = Field(default=False, description="Pause the policy: neither make nor run plans.")


class RebalancePolicySpec(APIModel):
    """Goals of plans, what may move, and who decides."""

    mode: str = Field(
        default=Mode.RECOMMEND.value,
        max_length=16,
        description=(
            "Recommend only writes recommendations, Approve runs those that people approve, Auto runs "
            "them without approval."
        ),
        json_schema_extra=_one_of(*Mode),
    )
    goals: Goals = Field(default_factory=Goals, description="What plans are for.")
    target: str = Field(
        default="Any",
        max_length=16,
        description="Where replacements may go: Other nodes, the Same node, or Any.",
        json_schema_extra=_one_of("Other", "Same", "Any"),
    )
    protections: ProtectionSettings = Field(
        default_factory=ProtectionSettings, description="Which pods are not moved."
    )
    limits: EvictionLimits = Field(
        default_factory=EvictionLimits, description="How many evictions one plan may contain."
    )
    min_gain: int = Field(
        default=1, ge=1, description="Minimum gain; plans that gain less are not made (hysteresis)."
    )
    cooldown: DurationText = Field(
        default="1h", description="How long an owner's pods stay on a node after one of them was moved."
    )
    schedule: Schedule = Field(default_factory=Schedule, description="When plans are made.")
    search_time: DurationText = Field(default="10s", description="How long the search for one plan may take.")
    expiry: DurationText = Field(default="15m", description="How long a recommendation is valid.")


class UnmovablePods(APIModel):
    """Pods that one rule keeps where they are."""

    rule: str = Field(
        max_length=64, description="Name of the protection, or another reason such as Cooldown."
    )
    pods: int = Field(ge=0, description="Number of pods; a pod counts for each rule that keeps it.")


class PolicyConflict(APIModel):
    """Conflict in which this policy's plans would undo those of another policy."""

    policy: str = Field(max_length=MAX_NAME, description="The other policy.")
    nodes: tuple[ObjectName, ...] = list_of(
        64, "Nodes on which the other policy's plans made room that this policy's plans would fill."
    )
    until: TimestampText = Field(description="When plans of this policy may fill them.")


class RebalancePolicyStatus(APIModel):
    """Evaluation of the policy by the operator."""

    observed_generation: int | None = optional("The metadata.generation that was evaluated.", ge=0)
    last_search: TimestampText | None = optional("When the last search ended.")
    recommendation: str = text(MAX_NAME, "Name of the active recommendation.")
    message: str = text(_MAX_MESSAGE, "What the last search found for each goal, or why it found nothing.")
    movable: int | None = optional("How many pods the last search could have moved.", ge=0)
    unmovable: tuple[UnmovablePods, ...] = list_of(
        64, "Rules that keep the other pods in place, most frequent first."
    )
    conflicts: tuple[PolicyConflict, ...] = list_of(
        64,
        "Policies whose plans would have been undone by the plans that the last search found.",
        list_map("policy"),
    )
    conditions: tuple[Condition, ...] = list_of(
        16,
        "Ready is False, with a reason, when the policy cannot be followed; Conflicted is True while its "
        "plans and those of another policy would undo each other.",
        list_map("type"),
    )


REBALANCE_POLICY = ResourceType(
    kind="RebalancePolicy",
    plural="rebalancepolicies",
    singular="rebalancepolicy",
    short_names=("rbp",),
    scope="Cluster",
    description="Goals of rebalancing, the pods that it may move, and who approves the plans.",
    by_people=True,
    columns=(
        PrinterColumn("Mode", ".spec.mode", "Recommend, Approve or Auto"),
        PrinterColumn("Target", ".spec.target", "Where replacements may go"),
        PrinterColumn(
            "Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether the policy can be followed"
        ),
        PrinterColumn("Recommendation", ".status.recommendation", "Active recommendation"),
        PrinterColumn("Last-Search", ".status.lastSearch", "Time since the last search", type="date"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", type="date"),
        PrinterColumn("Interval", ".spec.schedule.interval", "Time between searches", priority=1),
        PrinterColumn(
            "Suspended",
            ".spec.schedule.suspend",
            "Whether the policy is suspended",
            type="boolean",
            priority=1,
        ),
    ),
)


class RebalancePolicy(APIObject):
    """Policy that says what rebalancing may do."""

    RESOURCE: ClassVar[ResourceType] = REBALANCE_POLICY

    spec: RebalancePolicySpec = Field(
        description="Goals of plans, the pods that they may move, and who approves them."
    )
    status: RebalancePolicyStatus | None = optional("State of the policy, as the operator sees it.")


class PodReference(APIModel):
    """A pod, and no other of the same name."""

    namespace: str = Field(max_length=MAX_LABEL, description="Namespace.")
    name: str = Field(max_length=MAX_NAME, description="Name.")
    uid: str = text(128, "UID.")

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


class OwnerOfPod(APIModel):
    """The controller that replaces an evicted pod."""

    kind: str = Field(max_length=MAX_LABEL, description="Kind, such as ReplicaSet.")
    name: str = Field(max_length=MAX_NAME, description="Name.")
    uid: str = Field(max_length=128, description="UID.")


class RecommendedMove(APIModel):
    """One pod to evict, and where its replacement should run."""

    pod: PodReference = Field(description="Pod to evict.")
    owner: OwnerOfPod | None = optional("Owner that replaces it.")
    source: Place = Field(description="Where it runs.")
    target: Place = Field(description="Where its replacement should run.")
    affinity: tuple[ObjectName, ...] = list_of(
        64, "Nodes that the replacement must be confined to; otherwise the plan may fail."
    )
    after_pending: bool = Field(
        default=False, description="Whether pending pods must be placed before the replacement is."
    )
    why: str = text(1024, "What the move achieves.")


class RecommendedPlacement(APIModel):
    """A pending pod and where it runs after the plan."""

    pod: PodReference = Field(
        description="Pending pod. If each pod that its owner creates is rejected immediately, the UID is the "
        "owner's."
    )
    target: Place = Field(description="Where it should run.")


class Gain(APIModel):
    """Count of the goal before and after the plan."""

    before: int = Field(description="Value now.")
    after: int = Field(description="Value after all moves.")
    total: int = Field(description="The difference.")
    minimal: bool = Field(
        default=False, description="True if no known plan reaches the same gain with fewer evictions."
    )


class DisruptionCost(APIModel):
    """Disruption caused by all evictions together."""

    evictions: int = Field(ge=0, description="Number of evictions.")
    cpus: QuantityText = Field(description="CPUs that are moved.")
    priority: int = Field(default=0, description="Sum of the pods' priorities.")
    reluctant: int = Field(default=0, ge=0, description="Pods that ask not to be evicted.")
    cost: int = Field(default=0, description="Sum of the pods' eviction costs.")


class RebalanceRecommendationSpec(APIModel):
    """The plan, which never changes, and its approval."""

    policy: str = Field(
        max_length=MAX_NAME, description="Policy that the plan follows.", json_schema_extra=IMMUTABLE
    )
    goal: str = Field(
        max_length=1024, description="What the plan is for, in one line.", json_schema_extra=IMMUTABLE
    )
    goal_key: str = Field(
        default="",
        max_length=_MAX_GOAL_KEY,
        description="Goal of the policy that the plan is for: shape/NAME, free/NODE or free/NODE/ZONE; "
        "pods/NAMESPACE/NAME for pending pods like the one named.",
        json_schema_extra=IMMUTABLE,
    )
    moves: tuple[RecommendedMove, ...] = Field(
        max_length=256,
        description="Moves in the order in which they must be made.",
        json_schema_extra=ATOMIC | IMMUTABLE,
    )
    placements: tuple[RecommendedPlacement, ...] = list_of(
        256, "Pending pods that will fit.", ATOMIC | IMMUTABLE
    )
    gain: Gain = Field(description="What the plan gains.", json_schema_extra=IMMUTABLE)
    disruption: DisruptionCost = Field(description="What the plan costs.", json_schema_extra=IMMUTABLE)
    doubts: tuple[Annotated[str, Field(max_length=_MAX_DOUBT)], ...] = list_of(
        16,
        "What is uncertain about the plan because a kubelet's release is not fully known.",
        ATOMIC | IMMUTABLE,
    )
    digest: str = Field(
        max_length=64,
        description="Digest of the plan; plans that would do the same have the same digest.",
        json_schema_extra=IMMUTABLE,
    )
    expires: TimestampText | None = optional("When the plan is no longer valid.")
    approved: bool = Field(default=False, description="Set this to true to let the operator run the plan.")
    rejected: bool = Field(
        default=False,
        description="Set this to true to reject or stop the plan: no more pods are evicted for it, and no "
        "other plan repeats its moves until the policy's cooldown is over.",
    )


class MoveProgress(APIModel):
    """Progress of one move."""

    pod: PodReference = Field(description="Pod of the move.")
    phase: str = Field(max_length=32, description="Pending, Evicting, Evicted, Placed, Verified or Failed.")
    since: TimestampText | None = optional("When the eviction was requested.")
    replacement: PodReference | None = optional("The pod that took its place.")
    node: str = text(MAX_NAME, "Where the replacement runs.")
    message: str = text(_MAX_MESSAGE, "What happened.")


class RebalanceRecommendationStatus(APIModel):
    """Progress and outcome of the plan."""

    phase: str = text(
        32, "Proposed, Approved, Executing, Succeeded, Failed, Expired, Superseded or Rejected."
    )
    mode: str = text(16, "Mode of the policy when the plan was made.")
    message: str = text(_MAX_MESSAGE, "Reason for the phase, in one sentence.")
    evictions: int = Field(default=0, ge=0, description="Evictions made so far.")
    progress: tuple[MoveProgress, ...] = list_of(256, "Progress of each move.")
    realized: int | None = optional(
        "Value of the goal after the last move, according to the published NUMAZones."
    )
    superseded_by: str = text(MAX_NAME, "Recommendation that replaces this one.")
    conditions: tuple[Condition, ...] = list_of(
        16, "State for programs; Complete is True once the plan has ended.", list_map("type")
    )


REBALANCE_RECOMMENDATION = ResourceType(
    kind="RebalanceRecommendation",
    plural="rebalancerecommendations",
    singular="rebalancerecommendation",
    short_names=("rbr",),
    scope="Cluster",
    description="Moves of pods that were proven by simulation to reach a goal.",
    columns=(
        PrinterColumn("Goal", ".spec.goal", "What the plan is for"),
        PrinterColumn("Moves", ".spec.disruption.evictions", "Pods to move", type="integer"),
        PrinterColumn("Evicted", ".status.evictions", "Pods evicted so far", type="integer"),
        PrinterColumn("Gain", ".spec.gain.total", "How much the goal gains", type="integer"),
        PrinterColumn("Phase", ".status.phase", "Current phase"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was made", type="date"),
        PrinterColumn("Policy", ".spec.policy", "Policy that it follows", priority=1),
        PrinterColumn("Expires", ".spec.expires", "When it is no longer valid", priority=1),
    ),
)


class RebalanceRecommendation(APIObject):
    """Moves after which more pods would fit, or a node would be free."""

    RESOURCE: ClassVar[ResourceType] = REBALANCE_RECOMMENDATION

    spec: RebalanceRecommendationSpec = Field(
        description="The plan, its approval and its rejection; only the last two can be changed."
    )
    status: RebalanceRecommendationStatus | None = optional("State of the plan.")
