"""A node of Koordinator's, kept up to date: it follows from its objects and its pods at any time."""

from collections.abc import Mapping
from typing import Any

from numazones.kubelet.pod import Pod
from numazones.placement.kubelet import KubeletPlacement
from numazones.placement.models import NodeObjects, Object, PodEvent
from numazones_koordinator.identity import DEVICE
from numazones_koordinator.placement import KoordinatorPlacement, read_empty


class Follower:
    """A node with the pods that it has at any time."""

    def __init__(self, objects: NodeObjects) -> None:
        """Read the node without its pods.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        self._placement = read_empty(objects)
        self._read_from = _sources(objects)
        self._bound: dict[str, Pod] = {}

    def outdated(self, objects: NodeObjects) -> bool:
        """Whether what the node was read from has changed."""
        return any(
            new is not old and new != old for new, old in zip(_sources(objects), self._read_from, strict=True)
        )

    def take(self, event: PodEvent) -> None:
        """Take in nothing: what happens to pods is written on them."""

    def agrees(self, _topology: Object, _now: float) -> bool:
        """Whether what is published agrees with what has happened: nothing is published that could differ."""
        return True

    def contradicted_since(self, now: float) -> float:
        """Return ``now``: nothing ever contradicts."""
        return now

    def placement(self, pods: Mapping[str, Pod], kubelet: KubeletPlacement | None) -> KoordinatorPlacement:
        """Return the node with exactly these pods (by UID), beside its kubelet as it is now."""
        node = self._placement.node
        for uid in self._bound.keys() - pods.keys():
            node = node.remove(uid)
        for uid, pod in pods.items():
            if self._bound.get(uid) != pod:
                node = node.bind(pod)
        self._bound = dict(pods)
        if node is not self._placement.node or kubelet is not self._placement.beneath:
            self._placement = KoordinatorPlacement(node, kubelet)
        return self._placement

    def record(self) -> None:
        """Return None: everything can be rebuilt from objects."""


def _sources(objects: NodeObjects) -> tuple[Any, ...]:
    machine = None if objects.kubelet is None else objects.kubelet.kubelet
    return (objects.node, machine, tuple(objects.others.get(DEVICE.kind, ())), objects.topology)
