"""Contradictions between sources that describe the same thing.

The kubelet looks at the machine and at its configuration once, when it starts; sysfs and the configuration
are read as they are now. What differs is named, because predictions would be made for another kubelet than
the one that runs. Nothing here changes an amount.
Restarting the kubelet often looks like the cure, and often keeps it from starting, so
``restart_outlook`` foresees it.
"""

from collections.abc import Iterator

from numazones import cpuset
from numazones.api.kubelet_settings import is_strict
from numazones.apimachinery.quantity import format_bytes
from numazones.apimachinery.resources import MEMORY, hugepage_type
from numazones.errors import NumazonesError
from numazones.kubelet import cures
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.machine import NUMANode
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.state_validation import RESTART_FAILS, Refusal, refusals_of_files
from numazones.wording import shorten
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    DISAGREE,
    KUBELET_CONFIG,
    MEMORY_MANAGER_STATE,
    Observation,
)
from numazones_exporter.reserved import STATIC_CPU, STATIC_MEMORY, configured_memory, covered_cpus
from numazones_node.problems import Problem
from numazones_node.sysfs import Hardware

_MAX_WORDS = 250
"""Characters of a kubelet's words that may be long lists of CPUs; the cure must fit behind them."""


def contradictions(observation: Observation, hardware: Hardware) -> Iterator[Problem]:
    """Compare state files with machine, configuration and podresources."""
    yield from _policies(observation)
    yield from _cpus(observation, hardware)
    yield from _memory(observation, hardware)
    yield from _devices(observation)


def restart_outlook(observation: Observation, hardware: Hardware) -> Iterator[Problem]:
    """Yield whether a kubelet that restarts now would start, and what to do."""
    if observation.kubelet is None:
        return
    try:
        kubelet = KubeletManagers.start(
            _as_accepted(observation.kubelet, observation, hardware), hardware.machine, {}
        )
        found = refusals_of_files(kubelet, observation.cpu_manager, observation.memory_manager)
    except InvalidConfiguration as error:
        found = (Refusal(str(error), cure=error.cure),)
    except NumazonesError:
        return
    if not found:
        yield Problem(KUBELET_CONFIG, DISAGREE, cures.restart("the kubelet"))
    for refusal in found:
        yield Problem(
            KUBELET_CONFIG,
            DISAGREE,
            f"{RESTART_FAILS}{shorten(refusal.message, _MAX_WORDS)}; {refusal.cure_on('the node')}",
        )


def _as_accepted(
    config: KubeletConfiguration, observation: Observation, hardware: Hardware
) -> KubeletConfiguration:
    """Return the configuration; a share of memory that the running kubelet has accepted is right."""
    return config if any(_memory(observation, hardware)) else config.accepted


def _policies(observation: Observation) -> Iterator[Problem]:
    kubelet = observation.kubelet
    if kubelet is None:
        return
    for source, state, configured in (
        (CPU_MANAGER_STATE, observation.cpu_manager, kubelet.cpu_manager_policy),
        (MEMORY_MANAGER_STATE, observation.memory_manager, kubelet.memory_manager_policy),
    ):
        if state is not None and state.policy != configured:
            yield Problem(
                source,
                DISAGREE,
                f"{source} was written under policy {state.policy}, but the kubelet configuration says "
                f"{configured}",
            )


def _cpus(observation: Observation, hardware: Hardware) -> Iterator[Problem]:
    """The shared set and the exclusive sets together are all CPUs, but for strictly reserved ones."""
    state = observation.cpu_manager
    if state is None or state.policy != STATIC_CPU:
        return
    covered = covered_cpus(observation)
    online = hardware.machine.all_cpus
    if covered & ~online:
        yield Problem(
            CPU_MANAGER_STATE,
            DISAGREE,
            f"{CPU_MANAGER_STATE} has CPUs {cpuset.format(covered & ~online)}, which are not online",
        )
    missing = online & ~covered
    if missing and not _keeps_reserved_apart(observation):
        yield Problem(
            CPU_MANAGER_STATE,
            DISAGREE,
            f"CPUs {cpuset.format(missing)} are online, but not in {CPU_MANAGER_STATE}",
        )


def _keeps_reserved_apart(observation: Observation) -> bool:
    kubelet = observation.kubelet
    if kubelet is None:
        return True  # it may do so
    return kubelet.workload_partitioning or is_strict(dict(kubelet.cpu_manager_policy_options))


def _memory(observation: Observation, hardware: Hardware) -> Iterator[Problem]:
    state = observation.memory_manager
    if state is None or state.policy != STATIC_MEMORY:
        return
    nodes = {node.id: node for node in hardware.machine.numa_nodes}
    if state.machine.keys() != nodes.keys():
        yield Problem(
            MEMORY_MANAGER_STATE,
            DISAGREE,
            f"{MEMORY_MANAGER_STATE} has NUMA nodes {', '.join(map(str, sorted(state.machine)))}, but "
            f"the machine has {cpuset.format(cpuset.of(nodes))}",
        )
    for numa, node in sorted(nodes.items()):
        for kind, amount in _amounts(node):
            known = state.machine.get(numa)
            table = known.memory.get(kind) if known is not None else None
            if table is None:
                continue
            unknown = kind == MEMORY and hardware.memory_unknown >> numa & 1
            if table.total != amount and not unknown:
                yield _memory_problem(numa, kind, table.total, f"but sysfs shows {format_bytes(amount)}")
            configured = configured_memory(observation, numa, kind)
            if configured is not None and configured != table.system_reserved:
                yield _memory_problem(
                    numa,
                    f"reserved {kind}",
                    table.system_reserved,
                    f"but the configuration says {format_bytes(configured)}",
                )


def _amounts(node: NUMANode) -> Iterator[tuple[str, int]]:
    yield MEMORY, node.memory
    for size, pages in node.hugepages:
        yield hugepage_type(size), size * 1024 * pages


def _memory_problem(numa: int, what: str, stated: int, other: str) -> Problem:
    return Problem(
        MEMORY_MANAGER_STATE,
        DISAGREE,
        f"NUMA node {numa}: {MEMORY_MANAGER_STATE} has {format_bytes(stated)} of {what}, {other}",
    )


def _devices(observation: Observation) -> Iterator[Problem]:
    """Both list healthy devices; the checkpoint is written whenever that list changes."""
    if observation.devices is None or observation.podresources is None:
        return
    registered = {
        (resource, device) for resource, ids in observation.devices.registered.items() for device in ids
    }
    offered = {(device.resource, device.id) for device in observation.podresources.allocatable_devices}
    difference = sorted(registered ^ offered)
    if difference:
        resource, device = difference[0]
        has, lacks = (
            (DEVICE_CHECKPOINT, "podresources")
            if difference[0] in registered
            else ("podresources", DEVICE_CHECKPOINT)
        )
        more = f" (and {len(difference) - 1} more)" if len(difference) > 1 else ""
        yield Problem(
            DEVICE_CHECKPOINT,
            DISAGREE,
            f"device {device} of {resource}{more} is in {has}, but not in {lacks}",
        )
