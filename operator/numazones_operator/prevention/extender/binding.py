"""Binds a pod to the node that the scheduler chose: the point of decision.

Filter reserved nothing, so the node is asked once more, one binding after the other per node, beside all
pods whose bindings are under way. The answer is the truth: a binding that the API server took counts as done
even if the scheduler gave up waiting, and "done" is never said of one that it did not take, since the
scheduler would hold the pod for bound for ever (specs/scheduler-extender.md, section 3).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.prediction.forecast import NodeVerdict
from numazones.prediction.held_room import ArrivalPath
from numazones.prediction.scheduler_reasons import scheduler_reason
from numazones_client import APIError, Client, Conflict, NotFound
from numazones_client.resources import PODS
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.extender.decisions import may_take
from numazones_operator.prevention.extender.messages import BindRequest
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_operator.prevention.held_room import BINDING_SECONDS, HeldRoom

_log = logging.getLogger(__name__)

BOUND = ""
"""The answer to a binding that is done."""


@dataclass
class Binder:
    """Binds pods, one at a time per node."""

    client: Client
    state: ClusterState
    held: HeldRoom
    _: KW_ONLY
    verdict: Callable[[ClusterPod, str], NodeVerdict]
    """Verdict of a node about a pod at this moment."""
    unknown: UnknownNodes
    """Treatment of nodes of unknown state."""
    metrics: ExtenderMetrics
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(init=False, default_factory=WeakValueDictionary)

    async def bind(self, request: BindRequest) -> str:
        """Bind a pod; return ``BOUND``, or why it is not bound."""
        lock = self._locks.setdefault(request.node, asyncio.Lock())
        async with lock:
            try:
                pod = self.state.pods.get(request.uid) or await self._read(request)
            except NotFound:
                return f"pod {request.namespace}/{request.name} is gone"
            except (NumazonesError, KeyError, TypeError, ValueError, AttributeError) as error:
                return f"pod {request.namespace}/{request.name} cannot be read: {error}"
            if pod.uid != request.uid:
                return f"pod {pod.full_name} was deleted and created again"
            if pod.node:
                return _bound_already(pod, request.node)
            if objection := self._objection(pod, request.node):
                self.metrics.bind_conflicts.inc()
                return objection
            return await self._post(pod, request)

    async def _read(self, request: BindRequest) -> ClusterPod:
        body = await self.client.get(PODS, request.name, namespace=request.namespace)
        return self.state.sharing.pod(body)

    def _objection(self, pod: ClusterPod, node: str) -> str:
        """Return why a pod may not go to a node now; empty if it may."""
        if not self.state.nodes_to_ask(pod, [node]):
            return ""
        verdict = self.verdict(pod, node)
        if may_take(verdict, self.unknown):
            return ""
        return f"not bound because the node has changed since it was chosen: {scheduler_reason(verdict)}"

    async def _post(self, pod: ClusterPod, request: BindRequest) -> str:
        self.held.hold(pod, [request.node], ArrivalPath.ASSUMED, seconds=BINDING_SECONDS)
        try:
            await self.client.create(
                PODS, _binding(request), namespace=request.namespace, subresource="binding"
            )
        except NotFound:
            self.held.drop(pod.uid)
            return f"pod {pod.full_name} is gone"
        except APIError as error:
            return await self._outcome(pod, request, error)
        return BOUND

    async def _outcome(self, pod: ClusterPod, request: BindRequest, error: APIError) -> str:
        """Find out what became of a binding whose answer says no, or never came."""
        if not isinstance(error, Conflict):
            _log.warning("request to bind pod %s to node %s failed: %s", pod.full_name, request.node, error)
        try:
            now = await self._read(request)
        except NotFound:
            self.held.drop(pod.uid)
            return f"pod {pod.full_name} is gone"
        except (NumazonesError, KeyError, TypeError, ValueError, AttributeError) as unread:
            # The binding may have been made: the room stays held until the watch or the time tells.
            return f"it is unknown whether the API server bound the pod: {unread}"
        if now.uid == request.uid and now.node == request.node:
            return BOUND
        self.held.drop(pod.uid)
        if now.uid != request.uid:
            return f"pod {pod.full_name} was deleted and created again"
        return (
            _bound_already(now, request.node) if now.node else f"the API server did not bind the pod: {error}"
        )


def _bound_already(pod: ClusterPod, node: str) -> str:
    """Answer for a pod that has a node."""
    return BOUND if pod.node == node else f"pod {pod.full_name} is already bound to another node"


def _binding(request: BindRequest) -> dict[str, Any]:
    """Return the Binding, which names the pod by its UID, too, so that no other of its name is bound."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": request.name, "namespace": request.namespace, "uid": request.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
    }
