"""Changes that would let a rejected pod in, each proven by deciding again.

A rejection says what is missing; an operator asks what to do. Four things can be changed: what the pod asks
for, how the node's Topology Manager is set, who else is on the node, and what keeps the scheduler from
choosing a node that would take the pod. A change is named here only after ``admit`` (or the scheduler's
filters) has let the changed pod in, on the same state of the node; nothing is guessed from amounts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from numazones import cpuset, quantity, scheduling
from numazones.cluster import ClusterNode, ClusterPod
from numazones.demand import Container, Demand
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import (
    BEST_EFFORT,
    RESTRICTED,
    SCOPE_CONTAINER,
    SCOPE_POD,
    SINGLE_NUMA_NODE,
    KubeletConfiguration,
)
from numazones.kubelet.explanation import explain
from numazones.kubelet.node import Node
from numazones.kubelet.topology_manager import TopologyManager
from numazones.placement import Unknown
from numazones.pod import Pod
from numazones.prediction import deciding, newcomer
from numazones.resources import CPU, MEMORY, is_memory

_MEBI = 1 << 20
# Policies by how much they let through, strictest first.
_LOOSER = {SINGLE_NUMA_NODE: (RESTRICTED, BEST_EFFORT), RESTRICTED: (BEST_EFFORT,)}
_MAX_EVICTIONS = 3
# Reasons of the scheduler's that a label, a toleration or an uncordoning would remove.
_REMOVABLE = {
    scheduling.NOT_SELECTED: (
        "the pod's node selector or affinity keeps it away: label the node to match, or widen it"
    ),
    scheduling.UNTOLERATED: "an untolerated taint keeps it away: tolerate the taint, or remove it",
    scheduling.UNSCHEDULABLE: "it is cordoned: kubectl uncordon",
}


class Change(StrEnum):
    """What is to be changed."""

    REQUEST = "request"
    SETTING = "setting"
    EVICTION = "eviction"
    PLACEMENT = "placement"


@dataclass(frozen=True, slots=True)
class Advice:
    """One change after which the pod would be admitted."""

    change: Change
    sentence: str
    proof: Admission = field(repr=False, compare=False)
    """The decision about the changed pod, or on the changed node."""


def advise(rejection: Admission, names: Mapping[str, str]) -> tuple[Advice, ...]:
    """Return the changes that would let a rejected pod in, on the node that rejected it.

    ``names`` gives a name to the UIDs of the pods on the node; pods without one are not proposed for
    eviction.
    """
    return (
        *_smaller_requests(rejection),
        *_other_settings(rejection),
        *_evictions(rejection, names),
    )


def advise_on(pod: ClusterPod, node: ClusterNode) -> tuple[Advice, ...]:
    """Return the changes that would let a pod in on a node; nothing where its kubelet does not reject it."""
    placement = deciding(pod.constraints, node)
    state = None if isinstance(placement, Unknown) else placement.kubelet
    if pod.admission is None or state is None:
        return ()
    try:
        decision = admit(state, newcomer(pod.admission))
    except NumazonesError:
        return ()
    return () if decision.admitted else advise(decision, node.pod_names)


def advise_on_scheduling(pod: ClusterPod, node: ClusterNode) -> Advice | None:
    """Return what keeps the scheduler from choosing a node whose kubelet would admit the pod, and its cure.

    None where the kubelet would not admit it, its state is not known, or amounts stand in the way as well.
    """
    if node.state is None or pod.admission is None:
        return None
    reasons = scheduling.placement_obstacles(pod.constraints, node)
    if not reasons or scheduling.resource_obstacles(pod.requests, node):
        return None
    admission = _admission(node.state, pod.admission)
    if admission is None:
        return None
    cures = "; ".join(_REMOVABLE[reason] for reason in reasons)
    return Advice(Change.PLACEMENT, f"{node.name} would admit it, but {cures}", admission)


def _admission(node: Node, pod: Pod) -> Admission | None:
    """Return the admission of a pod; None for a rejection, and where the kubelet's decision is not known."""
    try:
        admission = admit(node, pod)
    except NumazonesError:
        return None
    return admission if admission.admitted else None


# What the pod asks for


def _smaller_requests(rejection: Admission) -> Iterator[Advice]:
    """Yield, per resource, the largest request that would be admitted; then a smaller request for each."""
    explanation = explain(rejection)
    pod, node = rejection.pod, rejection.before
    alone = False
    for container, demand in zip(pod.containers, node.kubelet.reading(pod).demands, strict=True):
        if explanation.rejected_container not in {"", container.name}:
            continue
        for resource, amount in managed_amounts(demand):
            found = _largest_admitted(node, pod, container, resource, amount)
            if found is not None:
                alone = True
                smaller, admission = found
                yield Advice(Change.REQUEST, _request_advice(container, resource, smaller, amount), admission)
    if alone or not explanation.rejected_container:
        return
    offers = {short.resource: short.offered for short in explanation.shortages if short.offered > 0}
    named = next(item for item in pod.containers if item.name == explanation.rejected_container)
    eased = pod
    for resource, offered in offers.items():
        eased = with_request(eased, named.name, resource, _round_down(resource, offered))
    together = _admission(node, eased) if len(offers) > 1 else None
    if together is not None:
        amounts = " and ".join(
            _amount_with_resource(resource, _round_down(resource, offered))
            for resource, offered in offers.items()
        )
        yield Advice(Change.REQUEST, f"ask for {amounts} in container {named.name}", together)


def managed_amounts(demand: Demand) -> Iterator[tuple[str, int]]:
    """Yield what a container asks of the managers: resource, and number of CPUs, bytes or devices."""
    if demand.cpus:
        yield CPU, demand.cpus
    yield from demand.memory or ()
    for resource, count in demand.limits:
        if resource not in {CPU, "ephemeral-storage"} and not is_memory(resource):
            yield resource, count


def _largest_admitted(
    node: Node, pod: Pod, container: Container, resource: str, amount: int
) -> tuple[int, Admission] | None:
    for smaller in _candidates(node, resource, amount):
        admission = _admission(node, with_request(pod, container.name, resource, smaller))
        if admission is not None:
            return smaller, admission
    return None


def _candidates(node: Node, resource: str, amount: int) -> Iterator[int]:
    """Yield amounts worth trying, the best first: the next whole cores, then all smaller amounts."""
    if is_memory(resource):
        free = {_round_down(resource, left) for left in node.memory.free.get(resource, ())}
        yield from sorted((left for left in free if 0 < left < amount), reverse=True)
        return
    if resource == CPU and node.kubelet.cpus.full_cores_only:
        per_core = node.kubelet.cpus.topology.cpus_per_core
        if amount % per_core:
            yield amount + per_core - amount % per_core
    yield from range(amount - 1, 0, -1)


def with_request(pod: Pod, container: str, resource: str, amount: int) -> Pod:
    """Return the pod with another request (and limit, where there is one) for one of its containers."""
    value = quantity.parse(quantity.format_bytes(amount) if is_memory(resource) else amount)

    def renewed(
        amounts: tuple[tuple[str, quantity.Quantity], ...],
    ) -> tuple[tuple[str, quantity.Quantity], ...]:
        return tuple((name, value if name == resource else old) for name, old in amounts)

    return replace(
        pod,
        containers=tuple(
            item._replace(requests=renewed(item.requests), limits=renewed(item.limits))
            if item.name == container
            else item
            for item in pod.containers
        ),
    )


def _round_down(resource: str, amount: int) -> int:
    """Round plain memory down to whole MiB, which people can write."""
    return amount // _MEBI * _MEBI if resource == MEMORY else amount


def _request_advice(container: Container, resource: str, amount: int, before: int) -> str:
    instead = f"instead of {_amount(resource, before)} in container {container.name}"
    return f"ask for {_amount_with_resource(resource, amount)} {instead}"


def _amount_with_resource(resource: str, amount: int) -> str:
    if resource == CPU:
        return f"{amount} CPU" if amount == 1 else f"{amount} CPUs"
    return f"{_amount(resource, amount)} {resource}"


def _amount(resource: str, amount: int) -> str:
    return quantity.format_bytes(amount) if is_memory(resource) else str(amount)


# How the node is set


def _other_settings(rejection: Admission) -> Iterator[Advice]:
    """Yield Topology Manager settings under which the same node, in the same state, would admit the pod."""
    node, pod = rejection.before, rejection.pod
    config = node.config
    other = SCOPE_POD if config.topology_manager_scope == SCOPE_CONTAINER else SCOPE_CONTAINER
    changes = [("topologyManagerScope", other, replace(config, topology_manager_scope=other))]
    changes += [
        ("topologyManagerPolicy", policy, replace(config, topology_manager_policy=policy))
        for policy in _LOOSER.get(config.topology_manager_policy, ())
    ]
    for name, value, changed in changes:
        try:
            admission = _admission(with_topology_settings(node, changed), pod)
        except NumazonesError:
            continue  # options of the node that go with one policy only
        if admission is not None:
            yield Advice(Change.SETTING, f"set {name}: {value} on the node", admission)
            if name == "topologyManagerPolicy":
                return


def with_topology_settings(node: Node, config: KubeletConfiguration) -> Node:
    """Return the node with other Topology Manager settings; what is assigned stays, as over a restart.

    Raises:
        InvalidConfiguration: the kubelet would not start with them.
    """
    topology = TopologyManager.start(config, node.machine)
    return replace(node, kubelet=replace(node.kubelet, config=config, topology=topology))


# Who else is there


def _evictions(rejection: Admission, names: Mapping[str, str]) -> Iterator[Advice]:
    """Yield the pods of which one alone would have to go, the smallest first."""
    node, pod = rejection.before, rejection.pod
    found = []
    for uid in _by_size(node, names):
        admission = _admission(remove(node, uid), pod)
        if admission is not None:
            held = _exclusive_cpus(node, uid)
            what = f", which holds {_amount_with_resource(CPU, held)}" if held else ""
            found.append(Advice(Change.EVICTION, f"move {names[uid]} away{what}", admission))
            if len(found) == _MAX_EVICTIONS:
                break
    yield from found


def _by_size(node: Node, names: Mapping[str, str]) -> Iterable[str]:
    return sorted(
        (uid for uid in node.pods if uid in names),
        key=lambda uid: (
            _exclusive_cpus(node, uid),
            names[uid],
        ),
    )


def _exclusive_cpus(node: Node, uid: str) -> int:
    """Return how many CPUs a pod has exclusively; those taken over from init containers count once."""
    return cpuset.union(node.cpus.assignments.get(uid, {}).values()).bit_count()
