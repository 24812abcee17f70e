"""Publish a node as the plugin does: zones of its NodeResourceTopology (topology.node.k8s.io/v1alpha2)."""

from typing import Any

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones_topology_aware.node import Node
from numazones_topology_aware.pools import Pool

_MILLI = 1000


def topology_of(node: Node, name: str) -> dict[str, Any]:
    """Return the NodeResourceTopology that the plugin would publish for a node of a name."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": "TopologyPolicy", "value": "topology-aware"}],
        "zones": [_zone(node, pool) for pool in node.pools],
    }


def _zone(node: Node, pool: Pool) -> dict[str, Any]:
    dram, pmem, hbm = pool.memory
    everything = dram | pmem | hbm
    size = str(node.policy.memory.capacity(everything))
    cpus = quantity.format_milli(_MILLI * (pool.sharable | pool.reserved).bit_count())
    attributes = {
        "memory set": ",".join(map(str, cpuset.ids(everything))),
        "shared cpuset": cpuset.format(node.cpus.sharable[pool.id]),
    }
    if pool.reserved:
        attributes["reserved cpuset"] = cpuset.format(pool.reserved)
    if node.cpus.isolated[pool.id]:
        attributes["isolated cpuset"] = cpuset.format(pool.isolated)  # all of them while one is free
    zone: dict[str, Any] = {
        "name": pool.name,
        "type": pool.kind.value,
        "resources": [
            {
                "name": "memory",
                "capacity": size,
                "allocatable": size,
                "available": str(node.free_memory(pool)),
            },
            {
                "name": "cpu",
                "capacity": cpus,
                "allocatable": cpus,
                "available": quantity.format_milli(node.cpus.free(pool)),
            },
        ],
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
    }
    if pool.parent >= 0:
        zone["parent"] = node.pools[pool.parent].name
    return zone
