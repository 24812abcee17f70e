"""Pods in the kubelet's state files that still hold their entries, and their names.

State files lag: cpu_manager_state keeps ended pods until the kubelet reconciles, memory_manager_state until
the next admission, and pods that were rejected late stay in both though they never ran. They know pods by
uid only. A pod counts as active when it is among the node's pods and has neither succeeded nor failed, and
when podresources, which lists every pod that the kubelet takes for active, lists it.

Without the node's pods, a record is matched with a listed pod by what both say its containers hold: CPUs
and devices are unique, and pods that hold the same memory may be taken for one another without changing
any amount.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones_exporter.assignments import Assignments
from numazones_exporter.observation import ContainerResources, NodePod, Observation, PodResources


@dataclass(frozen=True, slots=True)
class AssignedPods:
    """Names of the recorded pods, and those that have ended."""

    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """uid → (namespace, name), where known."""
    ended: frozenset[str] = frozenset()
    """uids of the pods whose records hold nothing any more."""


def assigned_pods(observation: Observation, assignments: Assignments) -> AssignedPods:
    """Return what is known of every pod in the state files; without other sources nothing has ended."""
    listed = observation.listed_pods
    if observation.pods is None:
        return AssignedPods() if listed is None else _matched_by_content(observation, listed, assignments)
    names = {pod.uid: (pod.namespace, pod.name) for pod in observation.pods}
    known = AssignedPods(names, _ended_uids(observation.pods, listed, assignments))
    # A pod may be listed by the kubelet before the API server has reported it, and static pods may never be.
    unknown = {uid: containers for uid, containers in assignments.items() if uid not in names}
    known_names = set(names.values())
    unmatched = tuple(pod for pod in listed or () if (pod.namespace, pod.name) not in known_names)
    if not unknown or not unmatched:
        return known
    matched = _matched_by_content(observation, unmatched, unknown)
    return AssignedPods({**names, **matched.names}, known.ended - (unknown.keys() - matched.ended))


def _ended_uids(
    pods: tuple[NodePod, ...], listed: tuple[PodResources, ...] | None, assignments: Assignments
) -> frozenset[str]:
    """Recorded pods that are gone, have succeeded or failed, or are not listed by the kubelet any more."""
    active = {pod.uid for pod in pods if pod.active}
    if listed is not None:
        present = {(pod.namespace, pod.name) for pod in listed}
        active &= {pod.uid for pod in pods if (pod.namespace, pod.name) in present}
    return frozenset(assignments.keys() - active)


def _matched_by_content(
    observation: Observation, listed: tuple[PodResources, ...], assignments: Assignments
) -> AssignedPods:
    """Match records with listed pods; without a match a pod has ended, unless init containers explain it."""
    names: dict[str, tuple[str, str]] = {}
    ended: set[str] = set()
    holding = [pod for pod in listed if any(map(_holds_something, pod.containers))]
    holding_nothing = [pod for pod in listed if not any(map(_holds_something, pod.containers))]
    for uid, containers in sorted(assignments.items()):
        match = next((pod for pod in holding if _is_match(observation, pod, containers)), None)
        if match is not None:
            holding.remove(match)
            names[uid] = (match.namespace, match.name)
        elif not any(_only_init_containers(pod, containers) for pod in holding_nothing):
            ended.add(uid)
    return AssignedPods(names, frozenset(ended))


def _holds_something(container: ContainerResources) -> bool:
    return bool(container.cpus or container.blocks or container.devices)


def _is_match(
    observation: Observation, pod: PodResources, containers: Mapping[str, ContainerResources]
) -> bool:
    """Return whether a listed pod's containers hold what is recorded; init containers are never listed."""
    return all(
        _holds_same(observation, container, containers.get(container.name)) for container in pod.containers
    )


def _holds_same(
    observation: Observation, listed: ContainerResources, recorded: ContainerResources | None
) -> bool:
    """Compare the parts whose state file could be read."""
    if recorded is None:
        recorded = ContainerResources(listed.name, 0, (), ())
    return (
        (observation.cpu_manager is None or listed.cpus == recorded.cpus)
        and (observation.memory_manager is None or listed.blocks == recorded.blocks)
        and (observation.devices is None or listed.device_ids == recorded.device_ids)
    )


def _only_init_containers(pod: PodResources, containers: Mapping[str, ContainerResources]) -> bool:
    """Return whether a record may belong to init containers alone, which are never listed."""
    return not any(container.name in containers for container in pod.containers)
