"""Nodes on which NRI's topology-aware policy places containers."""

from numazones.kubelet import machines
from numazones_simulator.node_kinds import SUB_NUMA, of_model
from numazones_simulator.node_spec import NodeSpec, bystander
from numazones_topology_aware.identity import NAME


def topology_aware(name: str, address: str) -> NodeSpec:
    """NRI's topology-aware policy places containers in the runtime."""
    machine = machines.build(SUB_NUMA)
    return of_model(NodeSpec(name, machine, bystander(), address=address), NAME, "topology-aware")
