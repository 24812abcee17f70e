"""The variables that the plugin shows a container in a file of its own."""

from numazones import cpuset
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM
from numazones_topology_aware.node import Node

_BY_TYPE = (("DRAM_MEMS", DRAM), ("PMEM_MEMS", PMEM), ("HBM_MEMS", HBM))


def exported(node: Node, container: str) -> list[str]:
    """Lines ``NAME="LIST"`` in alphabetical order; a container without a grant has none."""
    grant = node.grants.get(container)
    if grant is None:
        return []
    isolated = grant.exclusive & node.pools[grant.pool].isolated
    values = {
        "SHARED_CPUS": node.cpus.sharable[grant.pool] if grant.shared else 0,
        "ISOLATED_CPUS": isolated,
        "EXCLUSIVE_CPUS": grant.exclusive & ~isolated,
    }
    values |= {name: grant.zone & node.policy.memory.of_types(types) for name, types in _BY_TYPE}
    lines = [f'{name}="{cpuset.format(ids)}"' for name, ids in values.items() if ids]
    return sorted([*lines, f'ALL_MEMS="{cpuset.format(grant.zone)}"'])
