"""What ``-o json`` and ``-o yaml`` answer: one document per command, field by field.

Numbers are numbers, amounts of memory are quantities as Kubernetes writes them, sets of CPUs are lists as the
kernel writes them (``0-3,8``), and what is not known is null. ``make reference`` writes the page from here;
the tests hold every command's answer against it. Fields may be added; those that are there keep their
meaning.
"""

from typing import Annotated, Any

from typing_extensions import TypedDict  # the tests' validator cannot read that of Python 3.11

Verdict = Annotated[str, "Admissible, Inadmissible or Unknown."]


class PodReference(TypedDict):
    """A pod."""

    namespace: Annotated[str, "Its namespace."]
    name: Annotated[str, "Its name."]
    node: Annotated[str, "Empty where it has none."]
    phase: Annotated[str, "Pending, Running, Succeeded, Failed or Unknown."]


class Rejection(TypedDict):
    """What a kubelet said of a pod that it rejected."""

    node: Annotated[str, "Whose kubelet it was."]
    reason: Annotated[str, "The pod's status.reason."]
    message: Annotated[str, "The pod's status.message."]


class NodeCounts(TypedDict):
    """How many nodes said what."""

    evaluated: Annotated[int, "Nodes that the scheduler could choose."]
    admissible: Annotated[int, "Of those, the ones that would admit the pod."]
    unknown: Annotated[int, "Nodes whose state is not known."]
    excluded: Annotated[int, "Nodes that the scheduler would not choose."]


class Reason(TypedDict):
    """Why nodes would not admit a pod."""

    reason: Annotated[str, "In one word, or in those of the scheduler."]
    source: Annotated[str, "Who says so: the scheduler's checks, or whoever decides on the node."]
    nodes: Annotated[int, "How many nodes say it; each counts once, by what stands in the way first."]
    example: Annotated[str, "The node that comes nearest."]
    message: Annotated[str, "In the words of kubelet or scheduler."]
    sentence: Annotated[str, "In plain words."]
    model: Annotated[str | None, "The placement model that decides there."]


class Waiting(TypedDict):
    """Something that a pod waits for beside a node."""

    reason: Annotated[str, "In one word: SchedulingGate, NotOptedIn, MissingClaim, NoScheduler and others."]
    sentence: Annotated[str, "The same in a sentence, with the cure where there is one."]


class Change(TypedDict):
    """A change after which the pod would be admitted."""

    node: Annotated[str, "Where it would be."]
    change: Annotated[str, "What is changed: request, placement, eviction or setting."]
    sentence: Annotated[str, "What to do, in words."]


class WhyNotAligned(TypedDict):
    """Why a pod that runs is not aligned."""

    alignment: Annotated[str, "remote or spanning: that of the worst of its containers."]
    sentence: Annotated[str, "The same in few words."]
    alignable: Annotated[str, "Whether its node could hold it aligned: now, emptier, never or unknown."]
    why: Annotated[list[str], "How it lies, what let it in, what its node could do."]
    help: Annotated[list[str], "What would help; each was tried on a copy."]


class WhyDocument(TypedDict):
    """``why POD``: why a pod is stuck or was rejected, and what would help."""

    pod: Annotated[
        PodReference, "Of an owner's pods the most telling one: one that waits, else one rejected."
    ]
    others: Annotated[list[PodReference], "Pods of the same owner that the answer is about, too."]
    rejected: Annotated[Rejection | None, "Null if no kubelet has rejected it."]
    then: Annotated[list[str], "What was missing when it was rejected, as its AdmissionPrediction says."]
    waits: Annotated[list[Waiting], "What it waits for, whatever the nodes say."]
    scheduler: Annotated[str, "The scheduler's last word on it; empty if none is known."]
    held: Annotated[list[str], "Whom room is held for on nodes that would admit it otherwise."]
    verdict: Annotated[Verdict, "What the nodes say together, as things are now."]
    sentence: Annotated[str, "The same in a sentence."]
    nodes: Annotated[NodeCounts, "How many nodes said what."]
    reasons: Annotated[list[Reason], "Why nodes would not admit it; the first is the headline."]
    advice: Annotated[list[Change], "What would help, the cheapest first; each was tried on a copy."]
    recommendations: Annotated[list[str], "RebalanceRecommendations in force that place it."]
    notAligned: Annotated[
        WhyNotAligned | None, "Null for a pod that does not run or is aligned, or if that is not known."
    ]


class WhyListDocument(TypedDict):
    """``why``: of several pods, the same of each, what hurts most first."""

    items: Annotated[list[WhyDocument], "One for each pod, or owner of pods."]


class Amount(TypedDict):
    """How much of something is in use, of how much."""

    assigned: Annotated[int, "In use."]
    allocatable: Annotated[int, "Of how much."]


class MemoryAmount(TypedDict):
    """How much memory is assigned, of how much."""

    assigned: Annotated[str, "In use, as a quantity."]
    allocatable: Annotated[str, "Of how much, as a quantity."]


class DeviceAmount(TypedDict):
    """Devices of one resource."""

    resource: Annotated[str, "Its name, as pods ask for it."]
    free: Annotated[int, "Healthy ones that nobody holds."]
    total: Annotated[int, "All there are, unhealthy ones too."]


class ZoneFigures(TypedDict):
    """One NUMA zone."""

    name: Annotated[str, "Of the NUMAZone."]
    node: Annotated[str, "Its node."]
    numa: Annotated[int, "Id of the NUMA node, as Linux numbers it."]
    policy: Annotated[str, "Topology Manager policy, or the placement model that decides instead."]
    cpu: Annotated[Amount | None, "Exclusive CPUs; null where none are given exclusively."]
    memory: Annotated[MemoryAmount | None, "Null where nobody keeps books of it."]
    devices: Annotated[list[DeviceAmount], "Those near the zone."]
    notAligned: Annotated[int | None, "Pods that hold something of it and are not aligned; null: not known."]


class UnknownNode(TypedDict):
    """A node that there are no figures of."""

    node: Annotated[str, "Its name."]
    message: Annotated[str, "Why, in words."]


class HeldRoomEntry(TypedDict):
    """Room that is held on a node for a pod on its way."""

    node: Annotated[str, "The pod may come to one of several; each has it."]
    numas: Annotated[list[int], "Empty where that cannot be told."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    cpus: Annotated[int, "Exclusive CPUs that it will hold."]
    way: Annotated[str, "Released from the gate, or nominated by a scheduler."]
    until: Annotated[str | None, "Null where it ends when the scheduler decides otherwise."]


class TopDocument(TypedDict):
    """``top``: the NUMA zones, in the order that was asked for."""

    items: Annotated[list[ZoneFigures], "One for each zone."]
    unknown: Annotated[list[UnknownNode], "Nodes without figures, and why."]
    held: Annotated[list[HeldRoomEntry] | None, "Null for a dump, whose pods are not read for it."]


class HeldOfNuma(TypedDict):
    """What a pod holds of one NUMA node."""

    numa: Annotated[int, "Id of the NUMA node, as Linux numbers it."]
    cpus: Annotated[int, "Exclusive CPUs."]
    memory: Annotated[
        str, "Promised, hugepages included; a promise of several NUMA nodes counts in equal parts."
    ]


class NearDevices(TypedDict):
    """Devices that a container holds."""

    container: Annotated[str, "Its name."]
    resource: Annotated[str, "Its name, as pods ask for it."]
    numas: Annotated[list[int], "NUMA nodes that they are near."]


class AlignedPod(TypedDict):
    """How what a pod holds lies."""

    namespace: Annotated[str, "Its namespace."]
    name: Annotated[str, "Its name."]
    node: Annotated[str, "Where it runs."]
    alignment: Annotated[str, "aligned, remote or spanning: that of the worst of its containers."]
    numas: Annotated[list[int], "NUMA nodes that it uses."]
    distance: Annotated[
        int | None, "The largest between two of them in one container; null: one, or not known."
    ]
    remoteCPUs: Annotated[
        int, "Exclusive CPUs that are not on the NUMA node that has most of their container."
    ]
    remoteMemory: Annotated[str, "The same of memory promised."]
    remote: Annotated[list[str], "Resources that are not all there: cpu, memory, names of devices."]
    held: Annotated[list[HeldOfNuma], "What it holds, by NUMA node."]
    devices: Annotated[list[NearDevices], "Devices that it holds, by container."]
    alignable: Annotated[
        str | None,
        "Whether its node could hold it aligned: yes (it is), now, emptier (if others left) or never; null: "
        "not known.",
    ]


class AlignedOwner(TypedDict):
    """How what the pods of an owner hold lies."""

    namespace: Annotated[str, "Its namespace."]
    kind: Annotated[str, "Deployment, not ReplicaSet; Pod for one that nobody owns."]
    name: Annotated[str, "Its name."]
    pods: Annotated[dict[str, int], "Pods that hold something of NUMA nodes: aligned, remote, spanning."]
    alignable: Annotated[
        dict[str, int],
        "Pods that are not aligned, by whether their nodes could hold them aligned: now, emptier, never, "
        "unknown.",
    ]
    cpus: Annotated[int, "Exclusive CPUs."]
    remoteCPUs: Annotated[
        int, "Those of them that are not on the NUMA node that has most of their container."
    ]
    memory: Annotated[str, "Promised, hugepages included."]
    remoteMemory: Annotated[str, "That of it which is not there."]


class AlignedDocument(TypedDict):
    """``aligned``: the pods that hold something of NUMA nodes, the worst first."""

    items: Annotated[list[AlignedPod], "One for each pod; empty with `--by owner`."]
    owners: Annotated[list[AlignedOwner], "One for each owner, the worst first; empty without `--by owner`."]
    unknown: Annotated[list[UnknownNode], "Nodes of which is not known who holds what, and why."]


class MemoryBlock(TypedDict):
    """Memory that somebody holds."""

    type: Annotated[str, "memory, or hugepages-SIZE."]
    size: Annotated[str, "As a quantity."]
    numas: Annotated[list[int], "The NUMA nodes that the block lies on; several share its size."]


class HeldDevices(TypedDict):
    """Devices that somebody holds."""

    resource: Annotated[str, "Its name, as pods ask for it."]
    ids: Annotated[list[str], "As the device plugin names them."]


class HeldShare(TypedDict):
    """What a pod holds on one NUMA node."""

    numa: Annotated[int | None, "Null for devices that are near no NUMA node."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    cpus: Annotated[str, "Exclusive CPUs, as a list."]
    memory: Annotated[list[MemoryBlock], "Blocks that the memory manager gave."]
    devices: Annotated[list[HeldDevices], "By resource."]
    alignment: Annotated[
        str | None,
        "Of the whole pod, on whatever NUMA nodes it is: aligned, remote or spanning; null: not known.",
    ]


class WhoDocument(TypedDict):
    """``who``: what each NUMA zone of a node holds exclusively, and for whom."""

    node: Annotated[str, "Its name."]
    items: Annotated[list[HeldShare], "One for each pod and NUMA node."]


class Placement(TypedDict):
    """Where a pod would be."""

    node: Annotated[str, "Its name."]
    numas: Annotated[list[int], "Ids of the NUMA nodes it gets something of."]
    cpus: Annotated[str, "Exclusive CPUs, as a list; empty for the shared pool."]


class FitDocument(TypedDict):
    """``fit``: whether, where and how often a pod would be admitted."""

    verdict: Annotated[str, "Admissible if all replicas fit, Inadmissible if not, or Unknown."]
    replicas: Annotated[int, "How many were asked for."]
    fitting: Annotated[int, "How many of them fit."]
    unknownNodes: Annotated[int, "Nodes that could not be asked."]
    sentence: Annotated[str, "Why no more fit; empty if all do."]
    placements: Annotated[list[Placement], "Where those that fit would be, in their order."]
    reasons: Annotated[
        list[Reason], "Why nodes do not take the first; where not all fit, why none takes another."
    ]


class Finding(TypedDict):
    """Something that is wrong or could be better."""

    severity: Annotated[str, "error, warning or hint."]
    check: Annotated[str, "Which check found it."]
    subjects: Annotated[list[str], "What it is about: nodes, zones, pods and others."]
    message: Annotated[str, "What is wrong."]
    cure: Annotated[str, "What to do."]


class DoctorDocument(TypedDict):
    """``doctor``: findings, and the checks that could not be made."""

    findings: Annotated[list[Finding], "All that the checks found."]
    notChecked: Annotated[dict[str, str], "Check → why it was not made."]


class Place(TypedDict):
    """A place on a node."""

    node: Annotated[str, "Its name."]
    numaIDs: Annotated[list[int], "Ids of its NUMA nodes."]


# `from` is a word of Python's
PlannedMove = TypedDict(
    "PlannedMove",
    {
        "pod": Annotated[str, "NAMESPACE/NAME."],
        "from": Annotated[Place, "Where it is."],
        "to": Annotated[Place, "Where its replacement goes."],
        "affinity": Annotated[list[str], "Nodes that the replacement must be kept to."],
        "why": Annotated[str, "What the move brings."],
    },
)
PlannedMove.__doc__ = "A pod to evict, and where its replacement goes."


class PlanFound(TypedDict):
    """One plan."""

    gain: Annotated[int, "How many more of what is wanted fit afterwards."]
    minimal: Annotated[bool, "Whether it is proven that fewer moves do not do."]
    cpus: Annotated[str, "CPUs that move, as a quantity."]
    moves: Annotated[list[PlannedMove], "In their order."]


class PlannedGoal(TypedDict):
    """What was to be reached, and how."""

    goal: Annotated[str, "In words."]
    before: Annotated[int, "How many of what is wanted fit now."]
    after: Annotated[int, "How many fit after all plans."]
    evictions: Annotated[int, "Of all plans."]
    movable: Annotated[int, "Pods that may be moved."]
    unmovable: Annotated[dict[str, int], "Rule → pods that stay because of it."]
    plans: Annotated[list[PlanFound], "To be carried out one after the other."]
    reason: Annotated[str, "Why no more was found."]


class PlanDocument(TypedDict):
    """``plan``: goals and plans."""

    items: Annotated[list[PlannedGoal], "One for each goal."]


class Difference(TypedDict):
    """A pod of which the kubelet and the model said different things."""

    node: Annotated[str, "Whose kubelet it was."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    differences: Annotated[list[str], "What the kubelet did, and what the model says."]


class RejectedAtRestart(TypedDict):
    """A running pod that its kubelet would reject if it restarted."""

    node: Annotated[str, "Its node."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    reason: Annotated[str, "As the kubelet would say it."]


class ReplayDocument(TypedDict):
    """``replay``: a recorded history against the model."""

    outcomes: Annotated[int, "Decisions of kubelets that were compared."]
    agree: Annotated[int, "Those in which the model says the same."]
    outside: Annotated[int, "Outcomes that others than the model's parts decided."]
    differ: Annotated[list[Difference], "Those in which it does not."]
    rejectedAtRestart: Annotated[list[RejectedAtRestart], "Pods that a restart of their kubelet would end."]


class MachineCount(TypedDict):
    """How many machines it takes with some settings."""

    settings: Annotated[dict[str, str], "Of the kubelet."]
    machines: Annotated[int | None, "Null where some pod fits not even an empty machine."]
    atLeast: Annotated[int | None, "A bound below which it cannot be done."]
    cpusLeft: Annotated[int, "CPUs that stay free on these machines."]
    strandedCPUs: Annotated[int | None, "Of those, what no further pod can use; null if not known."]
    podsAcrossNUMANodes: Annotated[int, "Pods that get CPUs of several NUMA nodes."]
    misfit: Annotated[str, "The pod that fits no machine; empty where all do."]


class SizeDocument(TypedDict):
    """``size``: how many machines a list of pods needs."""

    best: Annotated[MachineCount | None, "Those that need the fewest machines; null where none will do."]
    sizes: Annotated[list[MachineCount], "One for each combination of settings."]


class Estimate(TypedDict):
    """A measure over the runs, with its 95 % interval."""

    mean: Annotated[float, "Over the runs."]
    low: Annotated[float, "Where the interval begins."]
    high: Annotated[float, "Where it ends."]


class EstimatedDifference(Estimate):
    """What differs from the first variant, within the same run."""

    more: Annotated[int, "Runs in which there was more."]
    less: Annotated[int, "Runs in which there was less."]


class VariantFigures(TypedDict):
    """One combination of settings."""

    settings: Annotated[dict[str, str], "Those that are changed."]
    measures: Annotated[dict[str, Estimate], "Of CPUs and pods, as their names say."]
    differences: Annotated[dict[str, EstimatedDifference], "Empty for the first variant."]


class ComparisonDocument(TypedDict):
    """``whatif``: the same pods under several settings."""

    seed: Annotated[int, "Of the random runs."]
    runs: Annotated[int, "Runs that were made."]
    asked: Annotated[int, "Runs that were to be made."]
    shape: Annotated[str | None, "CPUs that no further such pod can use are stranded."]
    variants: Annotated[list[VariantFigures], "The first is what the others are compared with."]


class SweepDocument(ComparisonDocument):
    """``sweep``: the same as ``whatif``, of every combination."""


class GateInjection(TypedDict):
    """Whether new pods get the gate."""

    on: Annotated[bool | None, "Null where that could not be found out."]
    message: Annotated[str, "The same in words."]


class GatedPod(TypedDict):
    """A pod at the gate."""

    namespace: Annotated[str, "Its namespace."]
    name: Annotated[str, "Its name."]
    since: Annotated[str, "When it was made."]
    why: Annotated[str, "Why nobody has taken the gate away."]


class GateDocument(TypedDict):
    """``gate``: who waits at the scheduling gate, and why."""

    injection: Annotated[GateInjection, "Whether new pods get the gate."]
    operator: Annotated[str, "Whether it runs, in a sentence."]
    waiting: Annotated[list[GatedPod], "The longest first."]


DOCUMENTS: dict[str, Any] = {
    "aligned": AlignedDocument,
    "why": WhyDocument,
    "why, of several pods": WhyListDocument,
    "top": TopDocument,
    "who": WhoDocument,
    "fit": FitDocument,
    "plan": PlanDocument,
    "whatif": ComparisonDocument,
    "sweep": SweepDocument,
    "doctor": DoctorDocument,
    "gate": GateDocument,
    "replay": ReplayDocument,
    "size": SizeDocument,
}
"""Command, and form of it → what it answers."""
