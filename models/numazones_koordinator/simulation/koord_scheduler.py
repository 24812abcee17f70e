"""Koordinator's scheduler: filters, scores and places on NUMA nodes, and writes on the pod what it gave it.

It goes by its own books, as the real one does: what it has given is placed in them at once, and only pods of
other schedulers are read from the API. Whoever reads a node from what is written on its pods comes to the
same another way.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.pod import Pod
from numazones_client import APIError, Client
from numazones_client.resources import PODS
from numazones_koordinator.admission import Admission, admit
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import SCHEDULER_NAME
from numazones_koordinator.simulation import koordlet
from numazones_simulator.mirror import Body
from numazones_simulator.node_spec import NodeSpec, node_object
from numazones_simulator.scheduler import Choice, SimulatedScheduler, choose


def books(specs: Iterable[NodeSpec]) -> dict[str, Node]:
    """Return Koordinator's nodes without pods, by name."""
    return {
        spec.name: Node.read(
            node_object(spec, now=""), koordlet.topology_of(spec.name, spec.machine), koordlet.device_of(spec)
        )
        for spec in specs
    }


class KoordScheduler(SimulatedScheduler):
    """Binds pods of Koordinator's scheduler; run ``run`` as a task.

    Args:
        client: how to reach the API server.
        nodes: Koordinator's nodes without pods, by name.
    """

    def __init__(self, client: Client, nodes: Mapping[str, Node]) -> None:
        self._books = dict(nodes)
        self._decided: dict[str, Admission] = {}
        super().__init__(client, name=SCHEDULER_NAME)

    def _pod_changed(self, before: Body | None, after: Body | None) -> None:
        super()._pod_changed(before, after)
        pod = after or before
        if pod is None:
            return
        name, uid = pod["spec"].get("nodeName") or "", pod["metadata"]["uid"]
        ended = after is None or (after.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
        if ended:
            for other, node in self._books.items():
                if node.holds(uid):
                    self._books[other] = node.remove(uid)
        elif name in self._books and not self._books[name].holds(uid):
            self._books[name] = self._books[name].bind(Pod.from_api(pod))

    def _choose(self, pod: ClusterPod) -> Choice:
        self._decided.clear()
        return choose(pod, self._cluster.nodes.values(), further=lambda node: self._ask(pod, node))

    def _ask(self, pod: ClusterPod, node: ClusterNode) -> tuple[float, str]:
        state = self._books.get(node.name)
        if state is None or pod.admission is None:
            return 0.0, ""
        try:
            admission = admit(state, pod.admission)
        except NumazonesError as error:
            return 0.0, str(error)
        self._decided[node.name] = admission
        return float(admission.outcome.score or 0), "" if admission.admitted else admission.message

    async def _prepare(self, pod: ClusterPod, node: str) -> None:
        admission = self._decided.get(node)
        if admission is None:
            return
        self._books[node] = admission.node
        metadata: dict[str, Any] = {"uid": pod.uid, "annotations": dict(admission.annotations)}
        try:
            await self._client.patch(PODS, pod.name, {"metadata": metadata}, namespace=pod.namespace)
        except APIError:
            self._books[node] = self._books[node].remove(pod.uid)
            raise
