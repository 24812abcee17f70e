"""Nodes about which answers cannot be relied on."""

from dataclasses import replace

from numazones.cluster.cluster import ClusterNode


def not_ready(node: ClusterNode) -> ClusterNode:
    """The node, not Ready."""
    return replace(node, ready=False)


def approximate(node: ClusterNode) -> ClusterNode:
    """The node, known from amounts alone."""
    assert node.state is not None
    return node.with_state(node.state, approximate=True)
