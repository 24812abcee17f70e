"""Releases pods in the API server: one patch takes the gate away and names the nodes."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones_client import (
    APIError,
    Client,
    Conflict,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from numazones_client.client import STRATEGIC_MERGE_PATCH
from numazones_client.errors import Request
from numazones_client.resources import PODS
from numazones_client.retry import NO_RETRY
from numazones_operator.events import WARNING, EventPoster
from numazones_operator.faults import of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.allowed_nodes import AllowedNodes, NodeRole
from numazones_operator.prevention.gate_removal_patch import HOSTNAME, TargetNode, gate_removal_patch

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class GateRemover:
    """Patches pods, and counts what came of it."""

    client: Client
    state: ClusterState
    events: EventPoster
    metrics: Metrics
    leads: Callable[[], bool] = lambda: True
    """Whether no other replica can lead at this moment; asked right before each release."""
    wall: Callable[[], float] = time.time
    """The time of day, which released pods are marked with."""

    async def write(self, pod: ClusterPod, release: AllowedNodes, *, patience: float) -> bool:
        """Release a pod; return whether that was done; ``patience``: seconds to wait for an answer.

        Raises:
            APIError: the API server cannot be asked, or does not let us, or refuses the patch.
        """
        if not self.leads():  # another replica counts what is on its way by now
            return False
        try:
            try:
                async with asyncio.timeout(patience):
                    await self._patch(pod, release)
            except TimeoutError as error:
                request = Request("patch", f"{PODS.full_name} {pod.full_name}", PODS.full_name)
                raise Unreachable(request, f"no response within {patience:g} s", sent=True) from error
        except (NotFound, Conflict) as error:
            self.metrics.count_write(PODS, error)
            _log.info("pod %s was not released: %s", pod.full_name, error)
            return False
        except APIError as error:
            self.metrics.count_write(PODS, error)
            raise
        self.metrics.count_write(PODS)
        self._count(pod, release.reason)
        return True

    def is_server_away(self, error: APIError, asked: float) -> bool:
        """Whether the API server itself cannot be asked now, rather than about one pod.

        ``asked``: when the request was begun; a server that has answered others since is there.
        """
        if isinstance(error, Unreachable):
            return not error.sent or self.client.reachability.answered < asked
        return (
            isinstance(error, TooManyRequests | Unauthorized) or error.code == HTTPStatus.SERVICE_UNAVAILABLE
        )

    async def _patch(self, pod: ClusterPod, release: AllowedNodes) -> None:
        affinity: dict[str, Any] = {}
        version = ""
        has_own = pod.constraints.node_affinity is not None or pod.constraints.prefers_nodes
        if has_own and (release.named or release.without):
            body = await self.client.get(PODS, pod.name, namespace=pod.namespace)
            affinity = (body["spec"].get("affinity") or {}).get("nodeAffinity") or {}
            version = body["metadata"]["resourceVersion"]
        now = _time_text(self.wall())
        patch = gate_removal_patch(
            pod.uid,
            self._targets(release.named),
            affinity=affinity,
            only=release.reach is NodeRole.ONLY,
            without=release.without,
            version=version,
            now=now,
        )
        await self.client.patch(
            PODS,
            pod.name,
            patch,
            namespace=pod.namespace,
            media_type=STRATEGIC_MERGE_PATCH,
            retry=NO_RETRY,  # later, after others have had their turn
        )

    def _count(self, pod: ClusterPod, reason: str) -> None:
        self.metrics.gates_released.labels(reason).inc()
        if reason == "timeout":
            self.events.post(
                of_pod(pod),
                type=WARNING,
                reason="AdmissionGateTimeout",
                message="released after --admission-gate-timeout, although it is unknown whether a node "
                "would admit the pod",
            )

    def _targets(self, nodes: tuple[str, ...]) -> list[TargetNode]:
        found = ((name, self.state.node(name)) for name in nodes)
        return [TargetNode(name, None if node is None else node.labels.get(HOSTNAME)) for name, node in found]


def _time_text(moment: float) -> str:
    return timestamp.format(datetime.fromtimestamp(moment, UTC))
