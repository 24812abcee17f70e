"""Which of the pods in the kubelet's state files still hold what is written there, and what they are called.

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

from numazones_exporter.observation import ContainerResources, NodePod, Observation, PodResources
from numazones_exporter.records import Records


@dataclass(frozen=True, slots=True)
class Liveness:
    """Names of the recorded pods, and those that have ended."""

    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """uid → (namespace, name), where known."""
    ended: frozenset[str] = frozenset()
    """uids whose records hold nothing any more."""


def judge(observation: Observation, records: Records) -> Liveness:
    """Decide for every recorded pod; without pods and podresources, records are taken as they are."""
    listed = observation.listed
    if observation.pods is None:
        return Liveness() if listed is None else _by_content(observation, listed, records)
    names = {pod.uid: (pod.namespace, pod.name) for pod in observation.pods}
    known = Liveness(names, _ended(observation.pods, listed, records))
    # A pod may be listed by the kubelet before the API server has told of it, and static pods may never be.
    unknown = {uid: containers for uid, containers in records.items() if uid not in names}
    told = set(names.values())
    strangers = tuple(pod for pod in listed or () if (pod.namespace, pod.name) not in told)
    if not unknown or not strangers:
        return known
    matched = _by_content(observation, strangers, unknown)
    return Liveness({**names, **matched.names}, known.ended - (unknown.keys() - matched.ended))


def _ended(
    pods: tuple[NodePod, ...], listed: tuple[PodResources, ...] | None, records: Records
) -> frozenset[str]:
    """Recorded pods that are gone, have succeeded or failed, or are not listed by the kubelet any more."""
    active = {pod.uid for pod in pods if pod.active}
    if listed is not None:
        present = {(pod.namespace, pod.name) for pod in listed}
        active &= {pod.uid for pod in pods if (pod.namespace, pod.name) in present}
    return frozenset(records.keys() - active)


def _by_content(observation: Observation, listed: tuple[PodResources, ...], records: Records) -> Liveness:
    """Match records with listed pods; a record without match has ended, unless init containers explain it."""
    names: dict[str, tuple[str, str]] = {}
    ended: set[str] = set()
    holding = [pod for pod in listed if any(map(_holds, pod.containers))]
    empty_handed = [pod for pod in listed if not any(map(_holds, pod.containers))]
    for uid, containers in sorted(records.items()):
        match = next((pod for pod in holding if _agrees(observation, pod, containers)), None)
        if match is not None:
            holding.remove(match)
            names[uid] = (match.namespace, match.name)
        elif not any(_only_init_containers(pod, containers) for pod in empty_handed):
            ended.add(uid)
    return Liveness(names, frozenset(ended))


def _holds(container: ContainerResources) -> bool:
    return bool(container.cpus or container.blocks or container.devices)


def _agrees(
    observation: Observation, pod: PodResources, containers: Mapping[str, ContainerResources]
) -> bool:
    """Whether a listed pod's containers hold what is recorded; init containers are never listed."""
    return all(_same(observation, container, containers.get(container.name)) for container in pod.containers)


def _same(observation: Observation, listed: ContainerResources, recorded: ContainerResources | None) -> bool:
    """Compare the parts whose state file could be read."""
    if recorded is None:
        recorded = ContainerResources(listed.name, 0, (), ())
    return (
        (observation.cpu_manager is None or listed.cpus == recorded.cpus)
        and (observation.memory_manager is None or listed.blocks == recorded.blocks)
        and (observation.devices is None or listed.device_ids == recorded.device_ids)
    )


def _only_init_containers(pod: PodResources, containers: Mapping[str, ContainerResources]) -> bool:
    """Whether a record may be of the pod's init containers alone: they are the ones that are never listed."""
    return not any(container.name in containers for container in pod.containers)
