"""NRI's topology-aware policy on a simulated node: places containers as the runtime creates them."""

from collections.abc import Mapping
from typing import Any

from numazones.kubelet.pod import Pod
from numazones_simulator.node_spec import NodeSpec
from numazones_topology_aware.admission import create_missing, remove
from numazones_topology_aware.config import DEFAULTS, Configuration
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node

CONFIGURATION: Mapping[str, Any] = {**DEFAULTS, "reservedResources": {"cpu": "750m"}}
"""Spec of the TopologyAwarePolicy resource that all simulated nodes use."""


class TopologyAwarePlugin:
    """The policy's plugin on one node."""

    def __init__(self, spec: NodeSpec) -> None:
        self.node = Node.fresh(Hardware.of(spec.machine), Configuration.from_spec(CONFIGURATION))
        """What sits where."""

    def create(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Create the containers of a pod that are missing; return container → the runtime's message.

        These are all of a new pod, and those that were rejected, or wait for one that was, of another.

        Raises:
            NumazonesError: the pod is none, or the policy's answer is not modelled.
        """
        admission = create_missing(self.node, Pod.from_api(body))
        self.node = admission.node
        return {name: f"NRI plugin topology-aware: {message}" for name, message in admission.rejected.items()}

    def remove(self, uid: str) -> None:
        """Take in that a pod has ended."""
        self.node = remove(self.node, uid)
