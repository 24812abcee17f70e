"""Tells pods, by events, that they share CPUs which their kubelet has given them exclusively.

Exporters say so in the condition CPUsExclusive of their zones; whoever asks for the pod finds it here.
"""

import asyncio

from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.shared_cpus import describe, shared_cpus
from numazones_operator.events import WARNING, EventPoster
from numazones_operator.faults import of_node, of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.mirrored_node import MirroredNode

REASON = "CPUsShared"
_PERIOD = 5.0


class SharedCPUEvents:
    """Posts an event on each pod that shares CPUs, once for what it shares with whom."""

    def __init__(self, state: ClusterState, *, events: EventPoster) -> None:
        """Nothing has been told yet; who begins to lead tells all."""
        self._state = state
        self._events = events
        self._told: set[tuple[str, str]] = set()
        """(UID as the kubelet knows it, what was said)."""

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_PERIOD)

    def look(self) -> None:
        """Post what is new; what the rate does not let through is tried again the next time."""
        told: set[tuple[str, str]] = set()
        for name in sorted({zone.node for zone in self._state.zones if zone.shares_cpus}):
            record = self._state.record(name)
            with self._state.faults.of(of_node(name)):
                if record is not None:
                    told |= self._tell(record)
        self._told = told

    def _tell(self, record: MirroredNode) -> set[tuple[str, str]]:
        """Post what is new on a node; return what its pods have been told."""
        if record.state is None:  # its zones are being written: what was told stays told
            return {(uid, said) for uid, said in self._told if record.name_of(uid)}
        pods = {pod.kubelet_uid: pod for pod in record.pods.values()}
        cpus, told = record.state.cpus, set()
        for group in shared_cpus(cpus.default, cpus.exclusive_cpus_by_pod()):
            said = describe(
                (group,),
                name=lambda uid: pods[uid].full_name if uid in pods else f"uid {uid}",
                created=lambda uid: pods[uid].created if uid in pods else "",
                alike=record.state.machine.alike,
            )
            for uid in group.pods:
                if uid in pods and ((uid, said) in self._told or self._post(record, pods[uid], said)):
                    told.add((uid, said))
        return told

    def _post(self, record: MirroredNode, pod: ClusterPod, said: str) -> bool:
        message = f"on node {record.name}, {said}"
        return self._events.post(of_pod(pod), type=WARNING, reason=REASON, message=message)
