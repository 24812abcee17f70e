"""Scheduling class a container starts with: its annotation's, its namespace's, or its QoS class's."""

from numazones_topology_aware.node import Node
from numazones_topology_aware.scheduling_class import SchedulingClass


def scheduling_of(node: Node, container: str) -> SchedulingClass | None:
    """Return the class of a container; None: the runtime gets none, also where the annotation is unknown."""
    known = node.containers[container]
    config, sandbox = node.policy.config, known.sandbox
    name = sandbox.preference("scheduling-class", known.spec.name)
    if name is None:
        name = config.namespace_classes.get(sandbox.namespace) or config.qos_classes.get(
            sandbox.qos.value.lower()
        )
    return None if name is None else config.scheduling_class(name)
