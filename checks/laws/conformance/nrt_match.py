"""Verdicts of ``topology_match`` on the vectors' steps, to compare with the real filter.

The filter was given a NodeResourceTopology that was exact at that moment, as our exporter would publish it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from numazones.api.noderesourcetopology import from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.resources import hugepage_type
from numazones.cluster.topology_match import matches
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.pod import Pod
from tests.conformance import scenario as reading

ALWAYS = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""What every node lists as allocatable."""


def verdicts(scenario: Mapping[str, Any]) -> Iterator[bool | None]:
    """Yield whether the filter lets the pod of each step pass; None where a step admits no pod."""
    node = reading.node(scenario)
    allocatable = _allocatable(scenario)
    for step in scenario["steps"]:
        if step.get("op") == "remove":
            node = remove(node, step.get("uid", ""))
            yield None
            continue
        pod = Pod.from_api(step["pod"])
        topology = from_zones(zones_from_node(node, node_name="node", pods={}))
        yield matches(pod, topology, allocatable)
        try:
            node = admit(node, pod).node
        except NumazonesError:
            continue


def _allocatable(scenario: Mapping[str, Any]) -> frozenset[str]:
    """Names of the resources that the node lists as allocatable."""
    machine = reading.machine(scenario["machine"])
    pages = {hugepage_type(size) for numa in machine.numa_nodes for size, _ in numa.hugepages}
    return ALWAYS | pages | frozenset(scenario.get("devices") or {})
