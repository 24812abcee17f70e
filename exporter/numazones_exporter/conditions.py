"""Conditions of a zone, derived from the reading behind it.

``Ready`` is True when everything was read and nothing contradicts; Unknown when amounts may be missing or
wrong, with the reason and the cure; False when there is no kubelet to be seen, so that only the hardware is
shown. ``Consistent`` tells apart whether sources that describe the same thing agree. ``KubeletDecides`` warns
of pods on which this kubelet crashes, hangs or is slow. ``CPUsExclusive`` is made by ``zones``.
"""

from collections.abc import Iterable

from numazones.api.meta import Condition
from numazones.api.numazone import KUBELET_DECIDES, READY
from numazones.api.snapshot import KnownDevice
from numazones.api.workload_partitioning import CONSISTENT
from numazones.kubelet.effort import delays
from numazones.kubelet.machine import Machine
from numazones.wording import shorten
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    DISAGREE,
    MEMORY_MANAGER_STATE,
    NOT_FOUND,
    Observation,
)
from numazones_exporter.reserved import STATIC_CPU, STATIC_MEMORY, cpu_policy, memory_policy
from numazones_node.problems import Problem
from numazones_node.sysfs import NOTES

_MAX_MESSAGE = 1000
"""Characters; conditions are on every zone, and zones stay small."""


def conditions_of(observation: Observation, problems: Iterable[Problem]) -> tuple[Condition, ...]:
    """Judge the reading; the same on all zones of the node, without transition times."""
    found = tuple(problems)
    disagreements = [problem for problem in found if problem.reason == DISAGREE]
    gaps = [problem for problem in found if problem.reason not in {DISAGREE, *NOTES}]
    return _ready_condition(observation, gaps, disagreements), _consistent_condition(disagreements)


def delays_condition(
    observation: Observation, machine: Machine, devices: Iterable[KnownDevice]
) -> tuple[Condition, ...]:
    """Warn of pods on which the kubelet crashes, hangs or is slow; no condition where there are none."""
    if observation.kubelet is None:
        return ()
    hosting: dict[str, tuple[int, int]] = {}
    for device in devices:
        numas, count = hosting.get(device.resource, (0, 0))
        hosting[device.resource] = (numas | device.numa, count + 1)
    found = delays(machine, observation.kubelet, hosting)
    if not found:
        return ()
    message = "; ".join(f"{delay.message}; {delay.cure}" for delay in found)
    return (
        Condition(
            type=KUBELET_DECIDES,
            status="False",
            reason=found[0].reason,
            message=shorten(message, _MAX_MESSAGE),
        ),
    )


def unexpected_problems(observation: Observation) -> tuple[Problem, ...]:
    """Return what could not be read, except state files that this kubelet has no reason to write."""
    return tuple(problem for problem in observation.problems if not _is_expected(observation, problem))


def _ready_condition(
    observation: Observation, gaps: list[Problem], disagreements: list[Problem]
) -> Condition:
    if not _sees_kubelet(observation):
        message = f"no kubelet found, so only the hardware is shown: {_messages(gaps)}"
        return Condition(
            type=READY, status="False", reason="KubeletNotFound", message=shorten(message, _MAX_MESSAGE)
        )
    if gaps:
        return Condition(
            type=READY,
            status="Unknown",
            reason=gaps[0].reason,
            message=shorten(_messages(gaps), _MAX_MESSAGE),
        )
    if disagreements:
        message = f"sources contradict each other; see the condition {CONSISTENT}"
        return Condition(type=READY, status="Unknown", reason=DISAGREE, message=message)
    for note in observation.problems:
        if note.reason in NOTES:
            return Condition(type=READY, status="True", reason=note.reason, message=note.message)
    return Condition(type=READY, status="True", reason="Complete", message="")


def _consistent_condition(disagreements: list[Problem]) -> Condition:
    if not disagreements:
        return Condition(type=CONSISTENT, status="True", reason="SourcesAgree", message="")
    return Condition(
        type=CONSISTENT,
        status="False",
        reason=DISAGREE,
        message=shorten(_messages(disagreements), _MAX_MESSAGE),
    )


def _sees_kubelet(observation: Observation) -> bool:
    return any(
        part is not None
        for part in (
            observation.kubelet,
            observation.podresources,
            observation.cpu_manager,
            observation.memory_manager,
            observation.devices,
        )
    )


def _is_expected(observation: Observation, problem: Problem) -> bool:
    """Return whether a missing state file is normal: a manager without policy or devices writes none."""
    if problem.reason != NOT_FOUND or not _sees_kubelet(observation):
        return False
    if problem.source == CPU_MANAGER_STATE:
        return cpu_policy(observation) not in (None, STATIC_CPU)
    if problem.source == MEMORY_MANAGER_STATE:
        return memory_policy(observation) not in (None, STATIC_MEMORY)
    if problem.source == DEVICE_CHECKPOINT:
        return observation.podresources is not None and not observation.podresources.allocatable_devices
    return False


def _messages(problems: Iterable[Problem]) -> str:
    return "; ".join(dict.fromkeys(problem.message for problem in problems))
