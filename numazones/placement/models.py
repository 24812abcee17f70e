"""What is asked of the placement models other than the kubelet: Koordinator and NRI's topology-aware policy.

Each is a package with a node as a value, ``admit``, ``remove`` and ``explain``. What they have in common is
little, and is said here: a node tells by its type whose it is; a decision about a pod is an ``Admission``
with ``admitted``, ``reason``, ``message``, ``node`` afterwards, ``pod`` and the node ``before``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from numazones import cpuset, fragmentation
from numazones.cluster import ClusterPod
from numazones.cpuset import CPUSet
from numazones.kubelet.config import BEST_EFFORT, POLICY_NONE
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import DECIDERS, Model, UnreadableNode
from numazones.pod import Pod
from numazones.resources import CPU, MEMORY
from numazones_koordinator import admission as koordinator
from numazones_koordinator import explanation as koordinator_explanation
from numazones_koordinator.amounts import milli, whole
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.scheduler import Scheduler
from numazones_topology_aware import admission as topology_aware
from numazones_topology_aware import explanation as topology_aware_explanation
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.live import (
    configuration_of,
    node_from_cluster,
    published_pools,
)
from numazones_topology_aware.node import Node as TopologyAwareNode

_MILLI = 1000


PolicyNode = KoordinatorNode | TopologyAwareNode
"""A node on which another model than the kubelet places pods."""
PolicyAdmission = koordinator.Admission | topology_aware.Admission


def admit(node: PolicyNode, pod: Pod) -> PolicyAdmission:
    """Decide on a pod with the node's own model.

    Raises:
        NumazonesError: the model gives no verdict; the message says why.
    """
    if isinstance(node, KoordinatorNode):
        return koordinator.admit(node, pod)
    return topology_aware.admit(node, pod)


def remove(node: PolicyNode, uid: str) -> PolicyNode:
    """Return the node after a pod ended or was deleted; unknown pods change nothing."""
    if isinstance(node, KoordinatorNode):
        return koordinator.remove(node, uid)
    return topology_aware.remove(node, uid)


def schedulers(node: PolicyNode) -> frozenset[str] | None:
    """Return the names of the schedulers for whose pods the model decides; None: it does for all pods."""
    return node.host.scheduler.names if isinstance(node, KoordinatorNode) else None


def bind(node: PolicyNode, pod: Pod) -> PolicyNode:
    """Return the node with a pod that its model has no say in (another scheduler's on Koordinator's node)."""
    return node.bind(pod) if isinstance(node, KoordinatorNode) else node


def explain(admission: PolicyAdmission) -> tuple[str, ...]:
    """Explain a decision, one line per fact.

    Raises:
        NumazonesError: as ``admit``.
    """
    if isinstance(admission, koordinator.Admission):
        return tuple(koordinator_explanation.explain(admission).lines())
    return tuple(topology_aware_explanation.explain(admission).lines())


def zones_of(admission: PolicyAdmission) -> tuple[int, ...]:
    """Return the NUMA nodes, ascending, that an admitted pod gets something of by the model's books.

    A pod that Koordinator records nothing for, or of which topology-aware accounts no memory and gives no
    CPU exclusively, has none.
    """
    if isinstance(admission, koordinator.Admission):
        topology = admission.before.host.topology
        mask = cpuset.of(numa for numa, _ in admission.numa_resources)
        if topology is not None:
            mask |= cpuset.of(numa for numa, cpus in topology.numas.items() if cpus & admission.cpus)
        return tuple(cpuset.ids(mask))
    machine = admission.before.policy.topology.hardware.machine
    mask = 0
    for given in admission.containers.values():
        mask |= given.memory_nodes
        mask |= cpuset.of(numa for numa, cpus in machine.cpus_of_numa.items() if cpus & given.exclusive)
    return tuple(cpuset.ids(mask))


def exclusive(admission: PolicyAdmission) -> CPUSet:
    """Return the CPUs that an admitted pod has for itself."""
    if isinstance(admission, koordinator.Admission):
        return admission.cpus
    return cpuset.union(given.exclusive for given in admission.containers.values())


def cpus_of_numa(node: PolicyNode) -> Mapping[int, CPUSet]:
    """Return NUMA id → CPUs; empty where a Koordinator node publishes no topology."""
    if isinstance(node, KoordinatorNode):
        return {} if node.host.topology is None else node.host.topology.numas
    return node.policy.topology.hardware.machine.cpus_of_numa


class Holding(NamedTuple):
    """What a pod holds of one NUMA node by its model's books."""

    numa: int
    uid: str
    cpus: CPUSet
    """Those of its own."""
    memory: int
    """Bytes accounted."""


def holdings(node: PolicyNode) -> Iterator[Holding]:
    """Yield what pods hold, NUMA node by NUMA node; memory accounted on several counts on the first."""
    given: dict[str, dict[int, int]] = {}
    cpus: dict[str, CPUSet] = {}
    if isinstance(node, KoordinatorNode):
        for uid, allocation in node.books.pods.items():
            cpus[uid] = allocation.cpus
            given[uid] = {numa: whole(amounts.get(MEMORY, 0)) for numa, amounts in allocation.numa_resources}
    else:
        for name, grant in node.grants.items():
            uid = node.containers[name].sandbox.uid
            cpus[uid] = cpus.get(uid, 0) | grant.exclusive
            first = next(iter(cpuset.ids(grant.zone)), 0)
            amounts_of = given.setdefault(uid, {})
            amounts_of[first] = amounts_of.get(first, 0) + grant.memory
    for numa, members in cpus_of_numa(node).items():
        for uid, held in cpus.items():
            share = Holding(numa, uid, held & members, given.get(uid, {}).get(numa, 0))
            if share.cpus or share.memory:
                yield share


def room(node: PolicyNode) -> dict[str, dict[int, int]]:
    """Return resource → NUMA id (of topology-aware: smallest pool) → what is left there, CPU in thousandths.

    Amounts of one resource are in one unit; which one, only CPU's readers need to know.
    """
    free: dict[str, dict[int, int]] = {}
    if isinstance(node, KoordinatorNode):
        for numa, left in node.available().items():
            for name, amount in left.items():
                free.setdefault(name, {})[numa] = max(milli(amount), 0)
        return free
    leaves = [pool for pool in node.pools if pool.leaf]
    free[CPU] = {pool.id: max(node.cpus.free(pool), 0) for pool in leaves}
    free["memory"] = {pool.id: max(node.free_memory(pool), 0) for pool in leaves}
    return free


def packing(admission: PolicyAdmission) -> float:
    """Score from 0 to 1 how well a placement keeps large free blocks whole, as ``fragmentation.packing``."""
    return fragmentation.packing(room(admission.before), room(admission.node))


def largest_free_block(node: PolicyNode) -> int:
    """Return the most whole CPUs that one NUMA node (of topology-aware: smallest pool) has left."""
    left = room(node).get(CPU, {})
    if isinstance(node, KoordinatorNode) and node.host.topology is not None:
        free = node.free_cpus()
        left = {
            numa: min(amount, _MILLI * node.host.topology.in_numa(free, numa))
            for numa, amount in left.items()
        }
    return max(left.values(), default=0) // _MILLI


# Nodes of a running cluster


def read(
    model: Model,
    node: Mapping[str, Any],
    topology: Mapping[str, Any] | None,
    *,
    pods: Iterable[ClusterPod],
    kubelet_node: KubeletNode | None,
    device: Mapping[str, Any] | None,
    configurations: Iterable[Mapping[str, Any]],
    scheduler: Scheduler | None,
) -> PolicyNode:
    """Read the state of a node on which a model other than the kubelet places pods, as ``seen`` does.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other; the message says which.
    """
    _check_kubelet(kubelet_node, model)
    pods = tuple(pods)
    bound = [readable(pod) for pod in pods]
    if model is Model.KOORDINATOR:
        found = KoordinatorNode.read(node, topology, device, scheduler=scheduler)
        for pod in sorted(bound, key=lambda pod: pod.created):
            found = found.bind(pod)
        return found
    uncreated = {pod.kubelet_uid: pod.uncreated for pod in pods if pod.uncreated}
    return _topology_aware(node, topology or {}, bound, uncreated, kubelet_node, configurations)


def readable(pod: ClusterPod) -> Pod:
    """Return a pod as the models take it.

    Raises:
        UnreadableNode: it makes no sense, so nobody knows what it holds of its node.
    """
    if pod.admission is None:
        raise UnreadableNode(
            f"pod {pod.full_name} on the node cannot be read, so what it holds is not known: {pod.problem}"
        )
    return pod.admission


def _topology_aware(
    node: Mapping[str, Any],
    topology: Mapping[str, Any],
    pods: Iterable[Pod],
    uncreated: Mapping[str, Collection[str]],
    kubelet_node: KubeletNode | None,
    configurations: Iterable[Mapping[str, Any]],
) -> TopologyAwareNode:
    published_pools(topology)  # balloons are not modelled, whatever is configured
    metadata = _metadata(node)
    configurations = tuple(configurations)
    namespaces = sorted({str(_metadata(one).get("namespace") or "") for one in configurations})
    if len(namespaces) > 1:
        raise UnreadableNode(
            f"there are TopologyAwarePolicy resources in the namespaces {', '.join(namespaces)}, and which "
            "one the policy's plugin runs in is not known; remove what is left of the others"
        )
    config = configuration_of(configurations, node=metadata["name"], labels=metadata.get("labels") or {})
    if kubelet_node is None:
        raise UnreadableNode(
            "the topology-aware policy's pools depend on the machine, which only NUMAZones tell, and none "
            "that can be read have been published for the node; see whether the exporter runs there"
        )
    hardware = Hardware.of(kubelet_node.machine)
    return node_from_cluster(hardware, config, topology, pods, uncreated=uncreated)


def _check_kubelet(node: KubeletNode | None, model: Model) -> None:
    """Two deciders on one node are not modelled."""
    if node is None:
        return
    config = node.config
    if (
        node.kubelet.cpus.static
        or node.memory.free
        or config.topology_manager_policy not in {POLICY_NONE, BEST_EFFORT}
    ):
        raise UnreadableNode(
            f"{DECIDERS[model]} and the kubelet's managers both place pods on the node (cpuManagerPolicy "
            f"{config.cpu_manager_policy}, memoryManagerPolicy {config.memory_manager_policy}, "
            f"topologyManagerPolicy {config.topology_manager_policy}), which is not modelled; leave "
            "placement to one of them"
        )


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found = body.get("metadata") or {}
    return found if isinstance(found, Mapping) else {}
