"""This node's pods, kept current by a watch instead of being listed in every cycle.

A list per node and minute is most of what such exporters cost the API server in large clusters; a watch
with the field selector ``spec.nodeName`` costs next to nothing and tells at once when a pod has ended.
Only what matters of a pod is kept, and only a change in that wakes the exporter: kubelets update the
status of pods far more often than a phase changes. While the watch is broken, reading lists as before.
"""

from numazones_client import Client, Decoder, Pace, Reflector, Table
from numazones_client.resources import PODS
from numazones_exporter.observation import NodePod
from numazones_exporter.sources.node_pods import PodsReader, pod_of
from numazones_exporter.triggers import PODS as PODS_CHANGED
from numazones_exporter.triggers import Wakeups

_PAGE = 20
"""Pods per page of a list; a page is in memory as a whole, and real pods have several KiB."""


class WatchedPods:
    """A ``PodsReader`` that answers from what a watch has gathered."""

    def __init__(self, client: Client, node_name: str, wakeups: Wakeups, *, otherwise: PodsReader) -> None:
        """``otherwise`` is asked while the watch does not work."""
        self._wakeups = wakeups
        self._otherwise = otherwise
        self._pods: Table[NodePod] = Table(lambda pod: f"{pod.namespace}/{pod.name}", self._changed)
        self._mirror = Reflector(
            client,
            PODS,
            decoder=Decoder(pod_of),
            table=self._pods,
            field_selector=f"spec.nodeName={node_name}",
            pace=Pace(page_size=_PAGE),
        )

    async def read(self) -> tuple[NodePod, ...]:
        """Return the pods by namespace and name; raises what the other reader raises."""
        if self._mirror.problem:
            return await self._otherwise.read()
        return tuple(sorted(self._pods, key=lambda pod: (pod.namespace, pod.name)))

    async def run(self) -> None:
        """Watch until cancelled; pauses grow while the API server cannot be watched."""
        await self._mirror.run()

    def _changed(self, before: NodePod | None, after: NodePod | None) -> None:
        if before != after:
            self._wakeups.wake(PODS_CHANGED)
