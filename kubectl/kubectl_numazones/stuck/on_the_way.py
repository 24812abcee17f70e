"""Pods on their way to a node, and the room that is held for them there, as ``top`` and ``live`` show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from numazones import cpuset
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.shortfall import name_numas
from numazones.prediction.held_room import Held, by_node, held, zones_held
from numazones.wording import pluralize

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Coming:
    """A pod on its way to a node, on which room is held for it."""

    held: Held
    zones: tuple[int, ...]

    @property
    def cpus(self) -> int:
        """CPUs that it asks for."""
        return self.held.pod.requests.get("cpu", 0) // _MILLI

    @property
    def until(self) -> str | None:
        """When that ends by itself, RFC 3339; None: when the scheduler decides otherwise."""
        return self.held.ends or None

    @property
    def sentence(self) -> str:
        """The same in a sentence."""
        where = f" on {name_numas(cpuset.of(self.zones))}" if self.zones else ""
        cpus, pod = pluralize(self.cpus, "CPU"), self.held.pod.full_name
        until = self.until or "the scheduler decides otherwise"
        return f"room for {cpus}{where} is held for {pod}, {self.held.way}, until {until}"


def coming(
    waiting: Iterable[ClusterPod], nodes: Mapping[str, ClusterNode], now: datetime
) -> dict[str, list[Coming]]:
    """Return node → the pods on their way to it; of one that may come to several, each has it."""
    items = {item.pod.uid: item for item in held(waiting, list(nodes.values()), now=now.timestamp())}
    return {
        name: [Coming(items[pod.uid], zones) for pod, zones in zones_held(nodes[name], pods)]
        for name, pods in by_node(items.values()).items()
        if name in nodes
    }
