"""A node of Koordinator's, kept up to date: it follows from its objects and its pods at any time."""

from collections.abc import Mapping

from numazones.kubelet.pod import Pod
from numazones.placement.model import NodeObjects
from numazones_koordinator.placement import KoordinatorPlacement, read_empty


class Follower:
    """A node with the pods that it has at any time; what happens to pods is written on them."""

    def __init__(self, objects: NodeObjects) -> None:
        """Read the node without its pods.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        self._node = read_empty(objects).node
        self._bound: dict[str, Pod] = {}

    def placement(self, pods: Mapping[str, Pod]) -> KoordinatorPlacement:
        """Return the node with exactly these pods (by UID)."""
        node = self._node
        for uid in self._bound.keys() - pods.keys():
            node = node.remove(uid)
        for uid, pod in pods.items():
            if self._bound.get(uid) != pod:
                node = node.bind(pod)
        self._node, self._bound = node, dict(pods)
        return KoordinatorPlacement(node)
