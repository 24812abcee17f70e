"""Whether what is known of some nodes is what the API server says of them at this moment.

A watch may be behind: a connection that died without a word is noticed after ``--watch-silence``. An eviction
cannot be taken back, so the few nodes that it is about are listed right before it.
"""

from collections.abc import Iterable

from numazones.api.meta import NODE_LABEL
from numazones.cluster import ClusterPod
from numazones_client import Client
from numazones_client.resources import NODES, NUMAZONES, PODS
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import ZoneReport


class Freshness:
    """Compares what is known of nodes with the API server."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state

    async def problem(self, nodes: Iterable[str]) -> str:
        """Return of which node something else is known than the API server says; empty: of none.

        Raises:
            APIError: the API server does not give it.
        """
        for name in sorted(nodes):
            if await self._is_behind(name):
                return f"what is known of node {name} is behind the API server"
        return ""

    async def _is_behind(self, name: str) -> bool:
        pods = [
            ClusterPod.from_api(body)
            for body in await self._client.list(PODS, field_selector=f"spec.nodeName={name}")
        ]
        zones = [
            ZoneReport.from_api(body)
            for body in await self._client.list(NUMAZONES, label_selector=f"{NODE_LABEL}={name}")
        ]
        present = bool(await self._client.list(NODES, field_selector=f"metadata.name={name}"))
        record = self._state.record(name)
        if record is None or (record.node is not None) != present:
            return True
        known = {report.name: report.snapshot for report in record.reports.values()}
        return record.pods != {pod.uid: pod for pod in pods if pod.active} or known != {
            zone.name: zone.snapshot for zone in zones
        }
