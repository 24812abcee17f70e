"""NRI's topology-aware policy on a simulated node: places containers as the runtime creates them."""

from collections.abc import Mapping
from typing import Any

from numazones.pod import Pod
from numazones.policies.topology_aware.admission import admit, remove
from numazones.policies.topology_aware.config import DEFAULTS, Configuration
from numazones.policies.topology_aware.hardware import Hardware
from numazones.policies.topology_aware.node import Node
from numazones_simulator.kubelet.node_spec import NodeSpec

CONFIGURATION: Mapping[str, Any] = {**DEFAULTS, "reservedResources": {"cpu": "750m"}}
"""Spec of the TopologyAwarePolicy resource that all simulated nodes use."""


class TopologyAwarePlugin:
    """The policy's plugin on one node."""

    def __init__(self, spec: NodeSpec) -> None:
        self.node = Node.fresh(Hardware.of(spec.machine), Configuration.from_spec(CONFIGURATION))
        """What sits where."""

    def create(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Create a pod's containers; return container → the runtime's message where it is rejected.

        Raises:
            NumazonesError: the pod is none, or the policy's answer is not modelled.
        """
        admission = admit(self.node, Pod.from_api(body))
        self.node = admission.node
        return {name: f"NRI plugin topology-aware: {message}" for name, message in admission.rejected.items()}

    def create_again(self, body: Mapping[str, Any]) -> bool:
        """Try a pod again that has rejected containers; return whether all of them could be created.

        If not, nothing has changed: the runtime creates container by container, and one that is rejected
        again moves none of those that run.

        Raises:
            NumazonesError: as ``create``.
        """
        before = self.node
        created = not self.create(body)
        if not created:
            self.node = before
        return created

    def remove(self, uid: str) -> None:
        """A pod has ended."""
        self.node = remove(self.node, uid)
