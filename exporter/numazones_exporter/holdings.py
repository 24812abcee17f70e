"""Resources held per container: state files and podresources joined, without ended pods.

The state files are the exact source: they alone know init containers' CPUs and how a memory block over
several NUMA nodes is split. Where one cannot be read, podresources are used instead. Memory of ended pods is
given back the way the memory manager does it (kubelet 1.36, static policy): block by block, NUMA nodes
ascending, as much from each as is reserved there; a node's group dissolves with its last assignment.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from numazones import cpuset
from numazones.api.snapshot import KnownDevice
from numazones.apimachinery.quantity import format_bytes
from numazones.cpuset import CPUSet
from numazones.kubelet.machine_state import Block
from numazones_exporter.assigned_pods import AssignedPods, assigned_pods
from numazones_exporter.assignments import POD, Assignments, state_file_assignments
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    DISAGREE,
    MEMORY_MANAGER_STATE,
    PODS,
    ContainerResources,
    Observation,
    PodResources,
)
from numazones_node.problems import Problem


@dataclass(frozen=True, slots=True)
class Holding:
    """Resources that one container holds; a whole pod where ``resources.name`` is empty."""

    namespace: str
    pod: str
    uid: str
    resources: ContainerResources

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the sort key of holdings."""
        return self.namespace, self.pod, self.uid, self.resources.name


@dataclass(frozen=True, slots=True)
class AssignedMemory:
    """Memory that the memory manager has assigned, per NUMA node."""

    assigned: Mapping[tuple[int, str], int]
    """(NUMA id, type) → bytes."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → mask of the nodes bound together with it."""
    assignments: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → number of blocks counted on it."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Everything that is held on the node."""

    containers: tuple[Holding, ...]
    cpus: CPUSet | None
    """All exclusively held CPUs; None where neither source could be read."""
    memory: AssignedMemory | None
    problems: tuple[Problem, ...]
    """Contradictions between sources, and figures that are not exact."""


def holdings_of(observation: Observation) -> Holdings:
    """Return who holds what."""
    assignments = state_file_assignments(observation)
    assigned = assigned_pods(observation, assignments)
    live = {uid: containers for uid, containers in assignments.items() if uid not in assigned.ended}
    joined = _container_holdings(observation, live, assigned)
    memory, estimates = _memory(observation, assignments, assigned.ended, joined)
    return Holdings(
        containers=joined,
        cpus=_exclusive_cpus(observation, joined),
        memory=memory,
        problems=(
            *_contradictions(observation, live, assigned),
            *_missing_init_containers(observation),
            *_unknown_endings(observation, assignments),
            *estimates,
        ),
    )


def _container_holdings(
    observation: Observation, live: Assignments, assigned: AssignedPods
) -> tuple[Holding, ...]:
    """Return what containers hold, by the state files, or by podresources where a file cannot be read."""
    joined: dict[tuple[str, str, str, str], Holding] = {}
    for uid, containers in live.items():
        namespace, pod = assigned.names.get(uid, ("", ""))
        for resources in containers.values():
            _add(joined, Holding(namespace, pod, uid, resources))
    uids = {name: uid for uid, name in assigned.names.items()}
    for listed in _active_pods(observation):
        uid = uids.get((listed.namespace, listed.name), "")
        for resources in _resources_of_podresources(observation, listed):
            _add(joined, Holding(listed.namespace, listed.name, uid, resources))
    return tuple(joined[key] for key in sorted(joined) if _holds_something(joined[key].resources))


def _add(joined: dict[tuple[str, str, str, str], Holding], holding: Holding) -> None:
    known = joined.get(holding.key)
    if known is None:
        joined[holding.key] = holding
        return
    first, second = known.resources, holding.resources
    resources = ContainerResources(
        first.name,
        first.cpus | second.cpus,
        first.memory + second.memory,
        first.devices + second.devices,
        first.claimed + second.claimed,
    )
    joined[holding.key] = replace(known, resources=resources)


def _holds_something(resources: ContainerResources) -> bool:
    return bool(resources.cpus or resources.memory or resources.devices or resources.claimed)


def _active_pods(observation: Observation) -> Iterator[PodResources]:
    """Pods that podresources lists, without those that kubelets before 1.34 list after their end."""
    if observation.podresources is None:
        return
    ended = {(pod.namespace, pod.name) for pod in observation.pods or () if not pod.active}
    ended -= {(pod.namespace, pod.name) for pod in observation.pods or () if pod.active}
    for pod in observation.podresources.pods:
        if (pod.namespace, pod.name) not in ended:
            yield pod


def _resources_of_podresources(observation: Observation, pod: PodResources) -> Iterator[ContainerResources]:
    """Yield what podresources add for a pod: dynamic resources always, the rest for unreadable state."""
    cpus, memory = observation.cpu_manager is None, observation.memory_manager is None
    devices = observation.devices is None
    whole = pod.pod_level
    for container in pod.containers:
        yield ContainerResources(
            name=container.name,
            cpus=container.cpus if cpus else 0,
            memory=container.memory if memory and whole is None else (),
            devices=container.devices if devices else (),
            claimed=container.claimed,
        )
    if whole is not None:  # overlaps the containers' values, so memory counts here and not there
        yield ContainerResources(POD, whole.cpus if cpus else 0, whole.memory if memory else (), ())


def _exclusive_cpus(observation: Observation, joined: Iterable[Holding]) -> CPUSet | None:
    """All exclusively held CPUs; None where no source says."""
    unknown = observation.cpu_manager is None and observation.podresources is None
    if unknown and (observation.kubelet is None or observation.kubelet.cpu_manager_policy != "none"):
        return None
    cpus = 0
    for holding in joined:
        cpus |= holding.resources.cpus
    return cpus


def _memory(
    observation: Observation, assignments: Assignments, ended: Iterable[str], joined: Iterable[Holding]
) -> tuple[AssignedMemory | None, list[Problem]]:
    """Return what the memory manager has assigned, and how far it had to be estimated."""
    if observation.memory_manager is not None:
        tables = _MemoryTables(observation)
        for uid in sorted(ended):
            tables.free(assignments[uid])
        return tables.assigned_memory(), []
    if observation.podresources is not None:
        return _memory_of_podresources(observation, joined)
    if observation.kubelet is not None and observation.kubelet.memory_manager_policy == "None":
        return AssignedMemory({}), []
    return None, []


class _MemoryTables:
    """The memory manager's tables, while ended pods' blocks are given back."""

    def __init__(self, observation: Observation) -> None:
        state = observation.memory_manager
        assert state is not None  # noqa: S101 - the caller asked
        self._assigned: dict[tuple[int, str], int] = {}
        self._groups: dict[int, int] = {}
        self._assignments: dict[int, int] = {}
        for numa, node in state.machine.items():
            self._groups[numa] = node.cells
            self._assignments[numa] = node.assignments
            for kind, table in node.memory.items():
                self._assigned[numa, kind] = table.reserved

    def free(self, containers: Mapping[str, ContainerResources]) -> None:
        """Free what a pod holds; pod-level blocks stand for those of the pod's containers."""
        whole = containers.get(POD)
        for resources in [whole] if whole is not None else containers.values():
            for block in resources.memory:
                self._free(block)

    def _free(self, block: Block) -> None:
        left = block.size
        for numa in cpuset.ids(block.affinity):
            if numa not in self._assignments:
                continue
            self._assignments[numa] -= 1
            if self._assignments[numa] <= 0:
                self._assignments[numa] = 0
                self._groups[numa] = 1 << numa
            returned = min(left, self._assigned.get((numa, block.type), 0))
            if returned:
                self._assigned[numa, block.type] -= returned
                left -= returned

    def assigned_memory(self) -> AssignedMemory:
        return AssignedMemory(self._assigned, self._groups, self._assignments)


def _memory_of_podresources(
    observation: Observation, joined: Iterable[Holding]
) -> tuple[AssignedMemory, list[Problem]]:
    """Read assigned memory from podresources; blocks over several NUMA nodes fill them in ascending order."""
    assert observation.podresources is not None  # noqa: S101 - the caller asked
    room = {(block.affinity, block.type): block.size for block in observation.podresources.allocatable_memory}
    assigned: dict[tuple[int, str], int] = {}
    groups: dict[int, int] = {}
    assignments: dict[int, int] = {}
    split = False
    blocks = [block for holding in joined for block in holding.resources.memory]
    for block in sorted(blocks, key=lambda block: (block.affinity.bit_count(), block.affinity, block.type)):
        left = block.size
        *others, last = cpuset.ids(block.affinity) if block.affinity else (-1,)
        for numa in others:
            free = room.get((1 << numa, block.type), 0) - assigned.get((numa, block.type), 0)
            part = max(0, min(left, free))
            assigned[numa, block.type] = assigned.get((numa, block.type), 0) + part
            left -= part
        if last >= 0:
            assigned[last, block.type] = assigned.get((last, block.type), 0) + left
        split = split or bool(others)
        for numa in cpuset.ids(block.affinity):
            groups[numa] = block.affinity
            assignments[numa] = assignments.get(numa, 0) + 1
    problems = []
    if split:
        message = (
            "podresources do not show how memory is split across several NUMA nodes; until "
            "memory_manager_state can be read, the split is estimated, lowest NUMA node first"
        )
        problems.append(Problem(MEMORY_MANAGER_STATE, "EstimatedSplit", message))
    return AssignedMemory(assigned, groups, assignments), problems


_MAX_NAMED = 3
"""Contradictions named one by one; the rest is counted, so that conditions stay short."""


def _contradictions(observation: Observation, live: Assignments, assigned: AssignedPods) -> list[Problem]:
    """Compare the state files with podresources, container by container."""
    uids = {name: uid for uid, name in assigned.names.items() if uid in live}
    found: dict[str, list[str]] = {}
    for pod in _active_pods(observation):
        recorded = live.get(uids.get((pod.namespace, pod.name), ""), {})
        for container in pod.containers:
            known = recorded.get(container.name, ContainerResources(container.name, 0, (), ()))
            for source, stated, listed in _differences(observation, known, container):
                found.setdefault(source, []).append(
                    f"{pod.namespace}/{pod.name} container {container.name} holds {stated or 'nothing'} "
                    f"according to {source} and {listed or 'nothing'} according to podresources"
                )
    return [Problem(source, DISAGREE, _first_messages(messages)) for source, messages in found.items()]


def _differences(
    observation: Observation, recorded: ContainerResources, listed: ContainerResources
) -> Iterator[tuple[str, str, str]]:
    """(state file, what it says, what podresources say) for each part that differs."""
    if observation.cpu_manager is not None and recorded.cpus != listed.cpus:
        yield CPU_MANAGER_STATE, _cpus_text(recorded.cpus), _cpus_text(listed.cpus)
    if observation.memory_manager is not None and recorded.blocks != listed.blocks:
        yield MEMORY_MANAGER_STATE, _memory_text(recorded.blocks), _memory_text(listed.blocks)
    if observation.devices is not None and recorded.device_ids != listed.device_ids:
        yield DEVICE_CHECKPOINT, _devices_text(recorded.devices), _devices_text(listed.devices)


def _cpus_text(cpus: CPUSet) -> str:
    return f"CPUs {cpuset.format(cpus)}" if cpus else ""


def _memory_text(blocks: Iterable[Block]) -> str:
    return " + ".join(
        f"{format_bytes(block.size)} of {block.type} on NUMA node {cpuset.format(block.affinity)}"
        for block in blocks
    )


def _devices_text(devices: Iterable[KnownDevice]) -> str:
    return " + ".join(sorted({f"{device.resource} {device.id}" for device in devices}))


def _first_messages(messages: list[str]) -> str:
    more = len(messages) - _MAX_NAMED
    return "; ".join(messages[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _unknown_endings(observation: Observation, assignments: Assignments) -> Iterator[Problem]:
    """Name what keeps ended pods from being recognised: no source, or a wrong name of the node."""
    if assignments and observation.pods is None and observation.podresources is None:
        yield Problem(
            PODS,
            "EndedPodsUnknown",
            "neither the node's pods nor podresources could be read; the state files are used "
            "unfiltered and may include pods that have ended",
        )
    listed = observation.podresources.pods if observation.podresources is not None else None
    if observation.pods == () and (listed or (listed is None and assignments)):
        yield Problem(
            PODS,
            "NoPodsOfNode",
            f"no pod is bound to node {observation.node_name}, but the kubelet has pods; check that "
            f"--node-name is the name that kubectl get nodes shows",
        )


def _missing_init_containers(observation: Observation) -> Iterator[Problem]:
    """Name what is missing where podresources are used instead of a state file."""
    if observation.podresources is None or observation.cpu_manager is not None:
        return
    if any(container.cpus for pod in observation.podresources.pods for container in pod.containers):
        yield Problem(
            CPU_MANAGER_STATE,
            "InitContainersUnseen",
            "CPUs that init containers hold are not counted: cpu_manager_state could not be read, and "
            "podresources, which are used instead, do not list them",
        )
