"""Moves and plans as values, and what a move does to a node.

A move is an eviction and the placement of the replacement that the pod's owner makes from its template. The
two halves are ``evict`` and ``place``; both the search and the proof are built of them and of nothing else.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from numazones.api.place import Place
from numazones.apimachinery.answer import Named
from numazones.apimachinery.defaulting import Defaults, created_spec
from numazones.apimachinery.quantity import format_milli
from numazones.cluster import scheduling
from numazones.cluster.cluster import OTHER_MODEL, ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.dra.uses import PodClaim
from numazones.errors import About, NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.placement import Decision, fragmentation
from numazones.placement.kubelet import decision_of
from numazones.prediction.forecast import NodeAnswer, verdict_of
from numazones.prediction.joined_verdict import with_devices
from numazones.rebalance.filter import PREFER_NO_EVICTION, eviction_cost, qos_rank
from numazones.rebalance.goals import is_known
from numazones.rebalance.history import Relocation

if TYPE_CHECKING:  # few pods have claims
    from numazones.dra.devices import Key


class Disruption(NamedTuple):
    """Disruption by one eviction or several; compared and added up field by field."""

    priority: int = 0
    qos: int = 0
    """Burstable pods count one, Guaranteed ones two."""
    reluctant: int = 0
    """Pods that ask not to be evicted."""
    cost: int = 0
    """Sum of the eviction costs that annotations give pods."""

    @classmethod
    def of(cls, pod: ClusterPod) -> "Disruption":
        """Return what evicting a pod disturbs."""
        return cls(
            pod.priority or 0, qos_rank(pod), int(PREFER_NO_EVICTION in pod.annotations), eviction_cost(pod)
        )

    def plus(self, other: "Disruption") -> "Disruption":
        """Return both together."""
        return Disruption(*map(sum, zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Move:
    """A pod to evict, and where its replacement goes."""

    TITLE: ClassVar = "PlannedMove"
    ANSWER: ClassVar = ("name", "source", "target", "affinity", "why")
    pod: ClusterPod
    """As it runs now."""
    replacement: ClusterPod
    """As its owner will make it, without a node."""
    node: str
    """Where the replacement is to run; may be the node it leaves."""
    zones: tuple[int, ...] = ()
    """NUMA nodes the pod holds something of now."""
    target_zones: tuple[int, ...] = ()
    """Those that the replacement will get, if nothing else happens."""
    affinity: Annotated[tuple[str, ...], "Nodes that the replacement must be confined to."] = ()
    """For the plan to hold; empty: any choice is right."""
    after_pending: bool = False
    """Whether the pending pods must be placed before the replacement is."""
    why: Annotated[str, "What the move gains."] = ""

    @property
    def name(self) -> Annotated[str, "NAMESPACE/NAME.", Named("pod")]:
        """The pod's."""
        return self.pod.full_name

    @property
    def source(self) -> Annotated[Place, "Where it is.", Named("from")]:
        """Return the place where the pod runs now."""
        return Place(self.pod.node, self.zones)

    @property
    def target(self) -> Annotated[Place, "Where its replacement will run.", Named("to")]:
        """Return the place where the replacement must run."""
        return Place(self.node, self.target_zones)

    @property
    def cpus(self) -> int:
        """Milli-CPUs that are moved."""
        return self.pod.requests.get("cpu", 0)


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pending pod and the node that takes it once the plan is carried out."""

    pod: ClusterPod
    node: str
    zones: tuple[int, ...] = ()
    affinity: tuple[str, ...] = ()

    @property
    def target(self) -> Place:
        """Return the place where the pod must run."""
        return Place(self.node, self.zones)


@dataclass(frozen=True, slots=True)
class PlanFound:
    """One plan."""

    ANSWER: ClassVar = ("gain", "minimal", "cpus", "moves")
    moves: Annotated[tuple[Move, ...], "The moves, in order."]
    before: int
    """What the goal counts now."""
    after: int
    """What it counts when all moves are made."""
    placements: tuple[PlacedPod, ...] = ()
    minimal: Annotated[bool, "True if it is proven that fewer moves are not enough."] = False

    @property
    def gain(self) -> Annotated[int, "How many more pods or shapes fit afterwards."]:
        """Return how much the plan gains."""
        return self.after - self.before

    @property
    def disruption(self) -> Disruption:
        """Return the disruption of all evictions together."""
        total = Disruption()
        for move in self.moves:
            total = total.plus(Disruption.of(move.pod))
        return total

    @property
    def cpus(self) -> Annotated[int, "CPUs that move, as a quantity.", format_milli]:
        """Milli-CPUs that are moved."""
        return sum(move.cpus for move in self.moves)

    @property
    def digest(self) -> str:
        """A digest, equal for plans that would do the same to the same pods."""
        text = "\n".join(f"{move.pod.uid} {move.node}" for move in self.moves)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A node with one more pod, or why the pod cannot run there."""

    node: ClusterNode | None
    rejections: tuple[str, ...] = field(default=())


def replacement(pod: ClusterPod, templates: Mapping[str, ClusterPod]) -> ClusterPod:
    """Return the pod that the owner will make in place of one that is evicted.

    ``templates`` holds, by the owner's UID, a pod made from the owner's template; without one, the
    running pod stands for its template. The real name and UID are not known yet.
    """
    owner = pod.controller
    model = pod if owner is None else templates.get(owner.uid, pod)
    uid = f"{pod.uid}~"
    return replace(
        model,
        namespace=pod.namespace,
        name=pod.name,
        uid=uid,
        node="",
        phase="Pending",
        reason="",
        message="",
        started="",
        ready=False,
        acknowledged=False,
        owners=pod.owners,
        claims=tuple(_claim_made_again(one, pod.namespace) for one in model.claims),
        claim_uses={},
        admission=None if model.admission is None else replace(model.admission, uid=uid),
    )


def _claim_made_again(one: PodClaim, namespace: str) -> PodClaim:
    """The claim of a replacement: another one of its template, or the same if pods use it by its name."""
    claim, template = (f"{namespace}/{name.partition('/')[2]}" for name in (one.claim, one.template))
    return one._replace(claim="", template=template) if one.template else one._replace(claim=claim)


def relocation(pod: ClusterPod, node: str) -> Relocation | None:
    """Return the key under which history keeps a move of a pod; None for a pod that no owner replaces."""
    owner = pod.controller
    return None if owner is None else (owner.uid, pod.node, node)


def evict(node: ClusterNode, pod: ClusterPod) -> ClusterNode:
    """Return the node without the pod."""
    with About(pod, node):
        without = _without_devices(node.without_pod(pod.uid), pod)
        return without if node.state is None else without.with_state(remove(node.state, pod.kubelet_uid))


def obstacles(node: ClusterNode, pod: ClusterPod) -> tuple[str, ...]:
    """Return why the scheduler could not choose a node for a pod; none: it could."""
    with About(pod, node):
        return scheduling.obstacles(pod.constraints, pod.requests, node)


def _without_devices(node: ClusterNode, pod: ClusterPod) -> ClusterNode:
    """The node with the devices of claims that are deleted with the pod; those of others stay allocated."""
    used = {claim for uses in pod.claim_uses.values() for claim, _ in uses}
    kept = {one.claim for one in pod.claims if not one.template}
    own = ({one.claim for one in pod.claims} | used) - kept
    if node.cluster_devices is None or not own:
        return node
    claimed = {uid: held for uid, held in node.claimed.items() if uid != pod.kubelet_uid}
    return replace(node, claimed=claimed, cluster_devices=node.cluster_devices.without(own))


def place(node: ClusterNode, pod: ClusterPod) -> PlacementResult:
    """Return the node with the pod, if the scheduler could choose it and the kubelet admits the pod."""
    with About(pod, node):
        return _place(node, pod)


def _place(node: ClusterNode, pod: ClusterPod) -> PlacementResult:
    if not is_known(node) or node.state is None:
        return PlacementResult(None, (why_not_known(node),))
    if pod.admission is None:
        return PlacementResult(None, (pod.problem or "the pod cannot be read",))
    if found := obstacles(node, pod):
        return PlacementResult(None, found)
    try:
        admission = admit(node.state, pod.admission)
    except NumazonesError as error:
        return PlacementResult(None, (str(error),))
    if not admission.admitted:
        return PlacementResult(None, (f"{admission.reason}: {admission.message}",))
    placed = node.with_state(admission.node).with_pod(pod.placed(node.name))
    return _with_devices(node, placed, pod, decision_of(admission))


def _with_devices(
    node: ClusterNode, placed: ClusterNode, pod: ClusterPod, decision: Decision
) -> PlacementResult:
    """Return a node that the kubelet has placed a pod on, with the devices that its claims would get."""
    kind = PodKind.of(pod)
    if kind is None or not (kind.claims or kind.requires_alignment):
        return PlacementResult(placed)
    verdict = with_devices(kind, node, verdict_of(decision, decision.shares))
    if verdict.answer is not NodeAnswer.ADMITS:
        reason, message = verdict.obstacles[0]
        return PlacementResult(None, (verdict.sentence or f"{reason}: {message}",))
    found = verdict.devices
    if found is None:
        return PlacementResult(placed)
    if found.elsewhere:
        return PlacementResult(None, ("it claims devices that are shared with other nodes or pods",))
    held: dict[str, set[Key]] = {}
    for one in found.devices:
        for container in one.containers:
            held.setdefault(container, set()).add((one.driver, one.pool, one.device))
    own = {container: frozenset(keys) for container, keys in held.items()}
    claimed = {**placed.claimed, pod.kubelet_uid: own}
    return PlacementResult(replace(placed, claimed=claimed, cluster_devices=found.after))


def why_not_known(node: ClusterNode) -> str:
    """Say why no pod is moved from or to a node of which ``is_known`` is not true."""
    why = node.why_no_state
    if why is None:
        return f"the state of node {node.name} is not known for certain"
    if why.reason != OTHER_MODEL:
        return f"the state of node {node.name} is not known: {why.message}"
    return f"pods are not moved from or to node {node.name} yet: {why.message}"


def zones_of(node: ClusterNode, pod: ClusterPod) -> tuple[int, ...]:
    """Return the NUMA nodes that a pod on the node holds something of."""
    with About(pod, node):
        return () if node.state is None else fragmentation.zones_of(node.state, pod.kubelet_uid)


def pod_from_template(owner: Mapping[str, Any], defaults: Defaults) -> ClusterPod:
    """Return the pod that a ReplicaSet, StatefulSet or Job would make.

    Templates are stored as people wrote them; defaults are filled in on the pods. Read as it stands, a
    template with limits only would make a Burstable pod without CPUs, whose replacement seems to fit
    anywhere. A template that is not valid gives a pod that cannot be read, with the problem.
    """
    metadata, template = owner["metadata"], owner["spec"].get("template") or {}
    namespace, spec = metadata["namespace"], template.get("spec") or {}
    with suppress(NumazonesError):  # whoever reads it names the problem
        spec = created_spec(spec, namespace=namespace, defaults=defaults)
    name = {"namespace": namespace, "name": metadata["name"], "uid": f"template/{metadata['uid']}"}
    return ClusterPod.from_api({"metadata": {**(template.get("metadata") or {}), **name}, "spec": spec})
