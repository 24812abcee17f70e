"""Check that a plan was proven for the nodes as they are on the API server at this moment.

A watch may be behind: a connection that died without a word is noticed after ``--watch-silence``. An eviction
cannot be taken back, so the few nodes that it is about are listed right before it. They are compared with
what was known when the proof began, not with what is known by now: of what a watch has brought since, nothing
is proven.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from numazones.api.meta import NODE_LABEL
from numazones.cluster.cluster import ClusterPod
from numazones_client import Client
from numazones_client.resources import NODES, NUMAZONES, PODS
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import ZoneReport


@dataclass(frozen=True, slots=True)
class _Known:
    """A node as it is known at some moment."""

    present: bool
    pods: Mapping[str, ClusterPod]
    """By UID."""
    snapshots: Mapping[str, str]
    """By zone."""


class Freshness:
    """Compares what was known of nodes with the API server."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state

    def known(self, nodes: Iterable[str]) -> dict[str, _Known | None]:
        """Return the operator's view of nodes at this moment."""
        return {name: self._known(name) for name in sorted(nodes)}

    def _known(self, name: str) -> _Known | None:
        record = self._state.record(name)
        if record is None:
            return None
        snapshots = {report.name: report.snapshot for report in record.reports.values()}
        return _Known(record.node is not None, dict(record.pods), snapshots)

    async def problem(self, known: Mapping[str, _Known | None]) -> str:
        """Return of which node something else was known than the API server says; empty: of none.

        Raises:
            APIError: the API server does not give it.
        """
        for name, before in known.items():
            if before != await self._listed(name):
                return f"the operator's view of node {name} is older than the API server's"
        return ""

    async def _listed(self, name: str) -> _Known:
        pods = [
            ClusterPod.from_api(body)
            for body in await self._client.list(PODS, field_selector=f"spec.nodeName={name}")
        ]
        zones = [
            ZoneReport.from_api(body)
            for body in await self._client.list(NUMAZONES, label_selector=f"{NODE_LABEL}={name}")
        ]
        present = bool(await self._client.list(NODES, field_selector=f"metadata.name={name}"))
        listed = {pod.uid: pod for pod in pods if pod.active}
        return _Known(present, listed, {zone.name: zone.snapshot for zone in zones})
