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

    namespace: str
    name: str
    node: Annotated[str, "Empty where it has none."]
    phase: str


class Rejection(TypedDict):
    """What a kubelet said of a pod that it rejected."""

    node: str
    reason: str
    message: str


class NodeCounts(TypedDict):
    """How many nodes said what."""

    evaluated: Annotated[int, "Nodes that the scheduler could choose."]
    admissible: Annotated[int, "Of those, the ones that would admit the pod."]
    unknown: Annotated[int, "Nodes whose state is not known."]
    excluded: Annotated[int, "Nodes that the scheduler would not choose."]


class Reason(TypedDict):
    """Why nodes would not admit a pod."""

    reason: str
    source: Annotated[str, "Who says so: the scheduler's checks, or whoever decides on the node."]
    nodes: Annotated[int, "How many nodes say it; each counts once, by what stands in the way first."]
    example: Annotated[str, "The node that comes nearest."]
    message: Annotated[str, "In the words of kubelet or scheduler."]
    sentence: Annotated[str, "In plain words."]
    model: Annotated[str | None, "The placement model that decides there."]


class Amount(TypedDict):
    """How much of something is in use, of how much."""

    assigned: int
    allocatable: int


class MemoryAmount(TypedDict):
    """How much memory is assigned, of how much."""

    assigned: str
    allocatable: str


class DeviceAmount(TypedDict):
    """Devices of one resource."""

    resource: str
    free: Annotated[int, "Healthy ones that nobody holds."]
    total: int


class ZoneFigures(TypedDict):
    """One NUMA zone."""

    name: Annotated[str, "Of the NUMAZone."]
    node: str
    numa: int
    policy: str
    cpu: Annotated[Amount | None, "Exclusive CPUs; null where none are given exclusively."]
    memory: Annotated[MemoryAmount | None, "Null where nobody keeps books of it."]
    devices: list[DeviceAmount]


class UnknownNode(TypedDict):
    """A node that there are no figures of."""

    node: str
    message: str


class HeldRoomEntry(TypedDict):
    """Room that is held on a node for a pod on its way."""

    node: Annotated[str, "The pod may come to one of several; each has it."]
    numas: Annotated[list[int], "Empty where that cannot be told."]
    pod: str
    cpus: int
    way: Annotated[str, "Released from the gate, or nominated by a scheduler."]
    until: Annotated[str | None, "Null where it ends when the scheduler decides otherwise."]


class TopDocument(TypedDict):
    """``top``: the NUMA zones, in the order that was asked for."""

    items: list[ZoneFigures]
    unknown: Annotated[list[UnknownNode], "Nodes without figures, and why."]
    held: Annotated[list[HeldRoomEntry] | None, "Null for a dump, whose pods are not read for it."]


class MemoryBlock(TypedDict):
    """Memory that somebody holds."""

    type: Annotated[str, "memory, or hugepages-SIZE."]
    size: str
    numas: Annotated[list[int], "The NUMA nodes that the block lies on; several share its size."]


class HeldDevices(TypedDict):
    """Devices that somebody holds."""

    resource: str
    ids: list[str]


class HeldShare(TypedDict):
    """What a pod holds on one NUMA node."""

    numa: Annotated[int | None, "Null for devices that are near no NUMA node."]
    pod: str
    cpus: str
    memory: list[MemoryBlock]
    devices: list[HeldDevices]


class WhoDocument(TypedDict):
    """``who``: what each NUMA zone of a node holds exclusively, and for whom."""

    node: str
    items: list[HeldShare]


class Placement(TypedDict):
    """Where a pod would be."""

    node: str
    numas: list[int]
    cpus: str


class FitDocument(TypedDict):
    """``fit``: whether, where and how often a pod would be admitted."""

    verdict: Annotated[str, "Admissible if all replicas fit, Inadmissible if not, or Unknown."]
    replicas: Annotated[int, "How many were asked for."]
    fitting: int
    unknownNodes: int
    sentence: Annotated[str, "Why no more fit; empty if all do."]
    placements: list[Placement]


class Finding(TypedDict):
    """Something that is wrong or could be better."""

    severity: Annotated[str, "error, warning or hint."]
    check: str
    subjects: list[str]
    message: str
    cure: str


class DoctorDocument(TypedDict):
    """``doctor``: findings, and the checks that could not be made."""

    findings: list[Finding]
    notChecked: Annotated[dict[str, str], "Check → why it was not made."]


class Place(TypedDict):
    """A place on a node."""

    node: str
    numaIDs: list[int]


# `from` is a word of Python's
PlannedMove = TypedDict(
    "PlannedMove",
    {
        "pod": str,
        "from": Place,
        "to": Place,
        "affinity": Annotated[list[str], "Nodes that the replacement must be kept to."],
        "why": str,
    },
)
PlannedMove.__doc__ = "A pod to evict, and where its replacement goes."


class PlanFound(TypedDict):
    """One plan."""

    gain: int
    minimal: Annotated[bool, "Whether it is proven that fewer moves do not do."]
    cpus: Annotated[str, "CPUs that move."]
    moves: list[PlannedMove]


class PlannedGoal(TypedDict):
    """What was to be reached, and how."""

    goal: str
    before: int
    after: int
    evictions: int
    movable: int
    unmovable: Annotated[dict[str, int], "Rule → pods that stay because of it."]
    plans: list[PlanFound]
    reason: Annotated[str, "Why no more was found."]


class PlanDocument(TypedDict):
    """``plan``: goals and plans."""

    items: list[PlannedGoal]


class Difference(TypedDict):
    """A pod of which the kubelet and the model said different things."""

    node: str
    pod: str
    differences: list[str]


class RejectedAtRestart(TypedDict):
    """A running pod that its kubelet would reject if it restarted."""

    node: str
    pod: str
    reason: str


class ReplayDocument(TypedDict):
    """``replay``: a recorded history against the model."""

    outcomes: int
    agree: int
    outside: Annotated[int, "Outcomes that others than the model's parts decided."]
    differ: list[Difference]
    rejectedAtRestart: list[RejectedAtRestart]


class MachineCount(TypedDict):
    """How many machines it takes with some settings."""

    settings: dict[str, str]
    machines: Annotated[int | None, "Null where some pod fits not even an empty machine."]
    atLeast: Annotated[int | None, "A bound below which it cannot be done."]
    cpusLeft: int
    strandedCPUs: int | None
    podsAcrossNUMANodes: int
    misfit: Annotated[str, "The pod that fits no machine; empty where all do."]


class SizeDocument(TypedDict):
    """``size``: how many machines a list of pods needs."""

    best: MachineCount | None
    sizes: list[MachineCount]


DOCUMENTS: dict[str, Any] = {
    "top": TopDocument,
    "who": WhoDocument,
    "fit": FitDocument,
    "plan": PlanDocument,
    "doctor": DoctorDocument,
    "replay": ReplayDocument,
    "size": SizeDocument,
}
"""Command → what it answers."""
