"""Nodes before their kubelets start: what a trial needs of a node, whatever its settings.

A template is small and can be sent to another process; ``start_nodes`` makes of it the node without pods
that a trial begins with. What is allocatable follows the reservations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from numazones.apimachinery.resources import CPU, MEMORY, hugepage_type
from numazones.cluster.cluster import NO_ZONES, ClusterNode
from numazones.errors import NumazonesError
from numazones.kubelet import go
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.whatif.settings import RESERVED_CPUS, RESERVED_MEMORY, Settings, apply

_MILLI, _KIB = 1000, 1024


class UnknownNode(NumazonesError):
    """A node's state is not known, so its decisions cannot be predicted; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node without pods."""

    node: ClusterNode
    """Without admission state."""
    machine: Machine
    config: KubeletConfiguration
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, node: ClusterNode) -> Self:
        """Return what a node of a cluster was started with; the pods on it are left out.

        Raises:
            UnknownNode: the kubelet's state is not known, or another model places pods there.
        """
        if node.state is None or node.approximate:
            why = (
                "only the amounts of its resources are known, not the individual CPUs"
                if node.why_no_state is None
                else node.why_no_state.message
            )
            raise UnknownNode(f"node {node.name}: {why}")
        devices = node.state.kubelet.devices.resources
        announced = {name: item.devices for name, item in devices.items() if item.registered}
        bare = replace(node, placement=NO_ZONES, pods={}, requested={})
        return cls(bare, node.state.machine, node.state.config, announced)

    def with_settings(self, settings: Settings) -> "NodeTemplate":
        """Return the template with other kubelet settings; ``start_nodes`` tells whether they are valid.

        Raises:
            InvalidSetting: a setting has no effect on admission.
        """
        config = apply(self.config, settings)
        allocatable = {**self.node.allocatable, **_after_reservations(self.machine, config, settings)}
        return replace(self, config=config, node=replace(self.node, allocatable=allocatable))


def _after_reservations(machine: Machine, config: KubeletConfiguration, settings: Settings) -> dict[str, int]:
    """Return what is allocatable of the resources whose reservation a setting changes."""
    left: dict[str, int] = {}
    if settings.get(RESERVED_CPUS):
        try:
            reserved = go.parse_cpu_list(config.reserved_system_cpus)
        except ValueError:
            return left  # the kubelet will not start
        left[CPU] = _MILLI * (machine.all_cpus & ~reserved).bit_count()
    if any(key.startswith(RESERVED_MEMORY) for key in settings):
        left |= allocatable_memory(machine, config)
    return left


def allocatable_memory(machine: Machine, config: KubeletConfiguration) -> dict[str, int]:
    """Return memory and hugepages in bytes that ``reservedMemory`` leaves; memory lacks all hugepages."""
    left = {MEMORY: sum(node.memory for node in machine.numa_nodes)}
    for node in machine.numa_nodes:
        for kib, pages in node.hugepages:
            amount = kib * _KIB * pages
            left[MEMORY] -= amount
            left[hugepage_type(kib)] = left.get(hugepage_type(kib), 0) + amount
    for entry in config.reserved_memory:
        for kind, kept in entry.limits:
            left[kind] = left.get(kind, 0) - kept.value()
    return left


def start_nodes(templates: Iterable[NodeTemplate]) -> list[ClusterNode]:
    """Start the kubelets of nodes without pods; equal ones are started once.

    Raises:
        InvalidConfiguration: a kubelet would not start; the message names its node, and is its own.
    """
    states: dict[tuple[object, ...], Node] = {}
    nodes = []
    for template in templates:
        key = (template.machine, template.config, tuple(template.devices.items()))
        if key not in states:
            try:
                states[key] = Node.fresh(template.machine, template.config, template.devices)
            except InvalidConfiguration as error:
                raise InvalidConfiguration(
                    f"the kubelet of {template.node.name} would not start: {error}", cure=error.cure
                ) from error
        nodes.append(template.node.with_state(states[key]))
    return nodes
