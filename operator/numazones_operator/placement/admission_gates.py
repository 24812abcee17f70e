"""The scheduling gate ``numazones.io/admission``: a pod waits until some node would admit it.

A ReplicaSet answers a rejected pod with a new one, which is rejected again, hundreds of times. Pods that
carry the gate, in namespaces that opt in, are not scheduled before a node would admit them, and then only
to such nodes: the gate is taken away and node affinity is added in one patch, as Kubernetes allows for gated
pods alone (KEP-3838: a term may only become stricter, and terms may only be added where there are none).

Pods that were released but have no node yet count as if they were on every node they may go to, so that
ten pods are never released for one slot. Pods that no kubelet's managers are concerned with go at once. A pod
that is known to be inadmissible waits: released, it would be rejected and replaced, for ever. Only where
nothing is known, as when exporters are down, does a time-out let it go. A pod whose gate nobody
takes away gets an event that says why.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from numazones import timestamp
from numazones.cluster import ClusterNode, ClusterPod
from numazones.prediction import UNKNOWN, Kind, Standing, ask, relevant
from numazones_client import APIError, Client, Conflict, Invalid, NotFound
from numazones_client.client import JSON_PATCH
from numazones_client.resources import PODS
from numazones_client.table import Table
from numazones_operator.events import WARNING, EventPoster, pod_reference
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import RELEASED, ClusterState
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.placement.held_room import MAX_NODES, RELEASE_SECONDS, HeldRoom, with_held
from numazones_operator.predictions.live_forecasts import LiveForecasts

GATE = "numazones.io/admission"
OPT_IN = ("numazones.io/admission-gate", "enabled")
"""Label of the namespaces whose pods are released."""
SWITCHED_OFF = (
    "the operator runs without --admission-gate; apply manifests/components/operator-admission-gate"
)

_HOSTNAME = "kubernetes.io/hostname"
_PERIOD = 1.0

_log = logging.getLogger(__name__)


class AdmissionGates:
    """Releases gated pods."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        forecasts: LiveForecasts,
        held: HeldRoom,
        namespaces: Table[NamespaceLabels],
        events: EventPoster,
        *,
        enabled: bool,
        may_go: Callable[[ClusterPod, str], bool],
        changed: asyncio.Event,
        timeout: float,
        metrics: Metrics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Release pods by what the parts given know.

        Args:
            client: how pods are patched.
            state: the cluster.
            forecasts: where each waiting pod would be admitted.
            held: the room held for pods on their way.
            namespaces: which of them opt in.
            events: where events on pods are posted.
            enabled: whether pods are released at all; if not, events on them say so.
            may_go: asked whether a pod may be released to a node; a plan may keep it for another pod.
            changed: set when forecasts have changed; cleared here.
            timeout: seconds after which a pod is released of which nothing is known; 0: never.
            metrics: where releases are counted.
            wall: the time of day.
        """
        self._client = client
        self._state = state
        self._forecasts = forecasts
        self._held = held
        self._namespaces = namespaces
        self._events = events
        self._enabled = enabled
        self._may_go = may_go
        self._changed = changed
        self._timeout = timeout
        self._metrics = metrics
        self._wall = wall
        self._reported: dict[str, str] = {}
        """UID → why its gate is not served, as the event on the pod said."""

    async def run(self) -> None:
        """Release pods until cancelled."""
        while True:
            try:
                await self.release()
            except APIError as error:
                _log.warning("gated pods could not be released: %s", error)
                await asyncio.sleep(_PERIOD)
            self._changed.clear()
            try:
                async with asyncio.timeout(_PERIOD):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Release every gated pod that can go now, the oldest first; post events on the others."""
        self._report_unserved()
        waiting = sorted(self._releasable_pods(), key=lambda pod: (pod.created, pod.namespace, pod.name))
        held = self._held.by_node() if waiting else {}
        for pod in waiting:
            if not relevant(pod):
                await self._release(pod, (), reason="unconcerned")
                continue
            nodes = self._free_nodes(pod, held)
            if nodes:
                await self._release(pod, nodes, reason="admissible")
                for name in nodes:
                    held.setdefault(name, []).append(pod)
            elif self._is_overdue(pod):
                await self._release(pod, (), reason="timeout")

    def _is_overdue(self, pod: ClusterPod) -> bool:
        """Whether a pod for which nothing can be predicted has waited for long enough."""
        prediction = self._forecasts.prediction_of(pod.uid)
        if not self._timeout or (prediction is not None and prediction.verdict != UNKNOWN):
            return False
        return self._wall() - _timestamp(pod.created, self._wall()) >= self._timeout

    def _gated_pods(self) -> Iterator[ClusterPod]:
        gated = self._state.gated.values()
        return (pod for pod in list(gated) if GATE in pod.constraints.scheduling_gates)

    def _releasable_pods(self) -> Iterator[ClusterPod]:
        for pod in self._gated_pods():
            if self._objection(pod) is None and not self._held.holds(pod.uid):
                yield pod

    def gated_pod_counts(self) -> tuple[int, int]:
        """How many gated pods wait for a node that admits them, and how many nobody releases."""
        served = [self._objection(pod) is None for pod in self._gated_pods()]
        return served.count(True), served.count(False)

    def _objection(self, pod: ClusterPod) -> str | None:
        """Why a pod's gate is not released here; None if it is, empty while that is not known."""
        if not self._enabled:
            return SWITCHED_OFF
        namespace = self._namespaces.get(pod.namespace)
        if namespace is None:
            return ""
        if namespace.labels.get(OPT_IN[0]) == OPT_IN[1]:
            return None
        return f"namespace {pod.namespace} does not opt in; label it {OPT_IN[0]}={OPT_IN[1]}"

    def _report_unserved(self) -> None:
        """Post an event, once, on each pod whose gate this operator does not take away."""
        for uid in self._reported.keys() - self._state.gated.keys():
            del self._reported[uid]
        for pod in self._gated_pods():
            objection = self._objection(pod)
            if objection and self._reported.get(pod.uid) != objection:
                message = f"nobody takes its scheduling gate {GATE} away: {objection}"
                if self._events.post(
                    pod_reference(pod), type=WARNING, reason="AdmissionGateNotServed", message=message
                ):
                    self._reported[pod.uid] = objection

    def _free_nodes(self, pod: ClusterPod, held: dict[str, list[ClusterPod]]) -> tuple[str, ...]:
        """Return nodes that admit the pod beside all that may be on their way to them, best first."""
        forecast = self._forecasts.forecast_of(pod.uid)
        kind = Kind.of(pod)
        if forecast is None or kind is None:
            return ()
        found: list[str] = []
        for name in forecast.admitting:
            if not self._may_go(pod, name):
                continue
            node = self._state.node(name)
            # Pods that leave may have gone when this one comes: what they free may lead its kubelet astray.
            after = self._state.without_leavers(name)
            views = [view for view in (node, after) if view is not None]
            if node is not None and all(_has_room(kind, view, held.get(name, ())) for view in views):
                found.append(name)
                if len(found) == MAX_NODES:
                    break
        return tuple(found)

    async def _release(self, pod: ClusterPod, nodes: tuple[str, ...], *, reason: str) -> None:
        try:
            body = await self._client.get(PODS, pod.name, namespace=pod.namespace)
            if body["metadata"].get("uid") != pod.uid:
                return
            patch = release_patch(body, self._names(nodes), now=_time_text(self._wall()))
            if patch:
                await self._client.patch(
                    PODS, pod.name, patch, namespace=pod.namespace, media_type=JSON_PATCH
                )
                self._metrics.count_write(PODS)
        except (NotFound, Conflict, Invalid) as error:
            self._metrics.count_write(PODS, error)
            _log.info("pod %s/%s was not released: %s", pod.namespace, pod.name, error)
            return
        except APIError as error:
            self._metrics.count_write(PODS, error)
            raise
        self._held.hold(pod, nodes, seconds=RELEASE_SECONDS)
        self._metrics.gates_released.labels(reason).inc()
        if reason == "timeout":
            self._events.post(
                pod_reference(pod),
                type=WARNING,
                reason="AdmissionGateTimeout",
                message="released by --admission-gate-timeout: nobody knows whether a node would admit it",
            )

    def _names(self, nodes: tuple[str, ...]) -> list[tuple[str, str | None]]:
        """Return (name, value of the label kubernetes.io/hostname) of nodes."""
        found = []
        for name in nodes:
            node = self._state.node(name)
            found.append((name, None if node is None else node.labels.get(_HOSTNAME)))
        return found


def _has_room(kind: Kind, node: ClusterNode, held: Sequence[ClusterPod]) -> bool:
    after = with_held(node, held)
    return after is not None and ask(kind, after).standing is Standing.ADMITS


def release_patch(
    pod: dict[str, Any], nodes: Sequence[tuple[str, str | None]], *, now: str
) -> list[dict[str, Any]]:
    """Return the JSON patch that takes the gate away and binds the pod to nodes; empty if it has no gate.

    ``nodes`` as (name, host name label); none leaves the affinity as it is.
    """
    spec = pod.get("spec") or {}
    gates = spec.get("schedulingGates") or []
    left = [gate for gate in gates if gate.get("name") != GATE]
    if len(left) == len(gates):
        return []
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "test", "path": "/spec/schedulingGates", "value": gates},
        {"op": "replace", "path": "/spec/schedulingGates", "value": left},
    ]
    if nodes:
        patch.append(
            {
                "op": "add",
                "path": "/spec/affinity",
                "value": _limited_affinity(spec.get("affinity") or {}, nodes),
            }
        )
    annotations = {**(pod["metadata"].get("annotations") or {}), RELEASED: now}
    patch.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
    return patch


def _limited_affinity(affinity: dict[str, Any], nodes: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """Return the affinity with every term of required node affinity limited to the nodes."""
    required_key = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(required_key) or {}).get("nodeSelectorTerms") or []
    hosts = [host for _, host in nodes if host is not None]
    if terms:
        only = {"key": _HOSTNAME, "operator": "In", "values": hosts}
        # A term without any requirement selects nothing, and must stay that way.
        limited = [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or []), only]} if term else term
            for term in terms
        ]
    else:
        limited = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
            for name, _ in nodes
        ]
    return {
        **affinity,
        "nodeAffinity": {**node_affinity, required_key: {"nodeSelectorTerms": limited}},
    }


def _timestamp(text: str, default: float) -> float:
    try:
        return timestamp.parse(text).timestamp()
    except timestamp.InvalidTimestamp:
        return default


def _time_text(moment: float) -> str:
    return timestamp.format(datetime.fromtimestamp(moment, UTC))
