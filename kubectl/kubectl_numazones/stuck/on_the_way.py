"""Pods on their way to a node, and the room that is held for them there, as ``top`` and ``live`` show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from numazones import cpuset
from numazones.apimachinery.answer import or_null
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.machine import name_numas
from numazones.prediction.held_room import ArrivalPath, by_node, held, zones_held
from numazones.wording import pluralize

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class HeldRoomEntry:
    """Room that is held on a node for a pod on its way."""

    TITLE: ClassVar = "HeldRoomEntry"
    node: Annotated[str, "Node that the pod may be placed on; if there are several, each has an entry."]
    numas: Annotated[tuple[int, ...], "NUMA nodes that the room is on; empty if unknown."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    cpus: Annotated[int, "Exclusive CPUs that the pod will hold."]
    way: Annotated[ArrivalPath, "Released from the gate, or nominated by a scheduler."]
    until: Annotated[
        str, "When the room is given up; null if it is held until the scheduler decides otherwise.", or_null
    ]

    @property
    def sentence(self) -> str:
        """The same in a sentence."""
        where = f" on {name_numas(cpuset.of(self.numas))}" if self.numas else ""
        until = self.until or "the scheduler decides otherwise"
        what = pluralize(self.cpus, "CPU") if self.cpus else "room"
        verb = "are" if self.cpus > 1 else "is"
        return f"{what}{where} {verb} held for {self.pod}, {self.way}, until {until}"


def coming(
    waiting: Iterable[ClusterPod], nodes: Mapping[str, ClusterNode], now: datetime
) -> dict[str, list[HeldRoomEntry]]:
    """Return node → the pods on their way to it; of one that may come to several, each has it."""
    items = {item.pod.uid: item for item in held(waiting, list(nodes.values()), now=now.timestamp())}
    return {
        name: [
            HeldRoomEntry(
                name,
                numas,
                pod.full_name,
                pod.requests.get("cpu", 0) // _MILLI,
                items[pod.uid].way,
                items[pod.uid].ends,
            )
            for pod, numas in zones_held(nodes[name], pods)
        ]
        for name, pods in by_node(items.values()).items()
        if name in nodes
    }
