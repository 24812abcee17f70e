"""A kube-scheduler with extenders: one pod after the other, bindings beside, as the real one does.

What it asks, in which order, what it says in PodScheduled and what makes it try a pod again are those of
kube-scheduler 1.36 (specs/scheduler-extender.md, sections 2 to 6); tests replay recordings of it. Of its
scoring plugins there is NodeResourcesFit, of equal nodes the first by name is taken; no budgets, no volumes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.dra.allocation import ClaimAllocation
from numazones_client import APIError, Client, NotFound
from numazones_client.resources import PODS
from numazones_simulator import clock
from numazones_simulator.device_scheduling import DeviceScheduling
from numazones_simulator.kube_scheduler import preemption
from numazones_simulator.kube_scheduler.configuration import Configuration
from numazones_simulator.kube_scheduler.extenders import ExtenderClient, ExtenderFailed, scores_of
from numazones_simulator.kube_scheduler.messages import available
from numazones_simulator.mirror import Body
from numazones_simulator.scheduler import SimulatedScheduler, binding_of, free_share, is_schedulable

UNSCHEDULABLE, ERROR = "Unschedulable", "SchedulerError"

_NO_CLAIMS = "no new claims to deallocate, "
_ALL_UP_TO = 100
"""Of so many nodes none is left out (``minFeasibleNodesToFind``)."""
_RESOLVABLE = {scheduling.TOO_MANY_PODS}
_FIELDS_ONLY = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_MERGE = "application/strategic-merge-patch+json"


@dataclass(slots=True)
class _Rejections:
    """Reasons why nodes are ruled out."""

    reasons: dict[str, tuple[str, ...]] = field(default_factory=dict)
    resolvable: set[str] = field(default_factory=set)
    """Nodes on which evictions may help."""
    by_extender: bool = False


@dataclass(frozen=True, slots=True)
class _Passing:
    """Nodes that remain after all filters."""

    nodes: Sequence[ClusterNode]
    emptied: bool = False
    """Whether plugins see them without pods: an extender without a cache sent them back as new objects."""


class KubeScheduler(SimulatedScheduler):
    """Schedules the pods of its profiles; run ``run`` as a task.

    ``devices`` allocates devices to claims; None: pods with claims are bound without them.
    """

    def __init__(
        self, client: Client, configuration: Configuration, *, devices: DeviceScheduling | None = None
    ) -> None:
        self._configuration = configuration
        self._extenders: list[ExtenderClient] = []
        self._active: set[str] = set()
        """Pods that are to be tried, by uid."""
        self._later: dict[str, float] = {}
        """Pods that failed with an error → when they are tried again."""
        self._attempts: dict[str, int] = {}
        self._rejected: dict[str, bool] = {}
        """Pods that fit nowhere → whether an extender had a part in that."""
        self._assumed: dict[str, ClusterPod] = {}
        self._nominated: dict[str, ClusterPod] = {}
        """Pods without a node that one was nominated for, whoever schedules them."""
        self._said: dict[str, tuple[str, str, str]] = {}
        self._next_node = 0
        super().__init__(client, devices=devices)

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with AsyncExitStack() as stack:
            # Those that may be ignored come last (scheduler.go buildExtenders).
            for config in sorted(self._configuration.extenders, key=lambda config: config.ignorable):
                extender = ExtenderClient(config)
                stack.push_async_callback(extender.close)
                self._extenders.append(extender)
            await super().run()

    # What changes, and which pods are tried again

    def _is_ours(self, body: Body) -> bool:
        return any(is_schedulable(body, name) for name in self._configuration.names)

    def _node_changed(self, before: Body | None, after: Body | None) -> None:
        super()._node_changed(before, after)
        if _of_node(before) != _of_node(after):
            self._wake(lambda _: True)

    def _pod_changed(self, before: Body | None, after: Body | None) -> None:
        super()._pod_changed(before, after)
        body = after or before
        if body is None:
            return
        uid, bound = body["metadata"]["uid"], bool(body["spec"].get("nodeName"))
        self._keep_assumed(uid, pending=after is not None and not bound)
        self._nominated.pop(uid, None)
        if after is not None and not bound and (after.get("status") or {}).get("nominatedNodeName"):
            self._nominated[uid] = ClusterPod.from_api(after)
        if after is None or not self._is_ours(after):
            self._end_attempts(uid)
        elif before is None or not self._is_ours(before) or self._helps_itself(uid, before, after):
            self._active.add(uid)
        if bound:
            gone = after is None or _is_over(after)
            self._wake(lambda by_extender: by_extender or gone)

    def _keep_assumed(self, uid: str, *, pending: bool) -> None:
        """A pod that is being bound holds its place until the API shows what became of it."""
        assumed = self._assumed.get(uid)
        if assumed is None:
            return
        if pending and assumed.node in self._cluster.nodes:
            self._waiting.pop(uid, None)
            self._cluster = self._cluster.with_pod(assumed)
        else:
            del self._assumed[uid]

    def _helps_itself(self, uid: str, before: Body, after: Body) -> bool:
        """Return whether a change of a rejected pod makes the scheduler retry it; to extenders any does."""
        by_extender = self._rejected.get(uid)
        return by_extender is True or (by_extender is False and _asks(before) != _asks(after))

    def _wake(self, concerns: Callable[[bool], bool]) -> None:
        self._active |= {uid for uid, by_extender in self._rejected.items() if concerns(by_extender)}
        self._work.set()

    def _end_attempts(self, uid: str) -> None:
        self._active.discard(uid)
        for known in (self._later, self._attempts, self._rejected, self._said):
            known.pop(uid, None)

    # The queue

    async def _bind_all(self) -> None:
        async with asyncio.TaskGroup() as bindings:
            while True:
                pod = self._next()
                if pod is None:
                    await self._until_something_changes()
                    continue
                self._active.discard(pod.uid)
                self._later.pop(pod.uid, None)
                self._attempts[pod.uid] = self._attempts.get(pod.uid, 0) + 1
                with contextlib.suppress(NotFound):  # deleted meanwhile
                    try:
                        await self._attempt(pod, bindings)
                    except APIError as error:
                        self._retry_later(pod.uid)
                        await self._say(pod, ERROR, str(error))

    def _next(self) -> ClusterPod | None:
        """Return the most important pod, of equals the oldest; those that were rejected before come last."""
        now = asyncio.get_running_loop().time()
        ready = [
            self._waiting[uid]
            for uid in self._active
            if uid in self._waiting and self._later.get(uid, now) <= now
        ]
        return min(
            ready,
            key=lambda pod: (pod.uid in self._rejected, -(pod.priority or 0), pod.created, pod.name),
            default=None,
        )

    async def _until_something_changes(self) -> None:
        self._work.clear()
        until = min((self._later[uid] for uid in self._active if uid in self._later), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._work.wait()

    def _retry_later(self, uid: str) -> None:
        """Error backoff: 1, 2, 4, 8, 10 s."""
        first, most = (
            self._configuration.pod_initial_backoff_seconds,
            self._configuration.pod_max_backoff_seconds,
        )
        seconds = min(first * 2 ** (self._attempts.get(uid, 1) - 1), most)
        self._rejected.pop(uid, None)
        self._later[uid] = asyncio.get_running_loop().time() + seconds
        self._active.add(uid)
        self._work.set()

    # One attempt

    async def _attempt(self, pod: ClusterPod, bindings: asyncio.TaskGroup) -> None:
        body = self._body_of(pod)
        if body is None:
            return
        rejections = _Rejections()
        try:
            passing = await self._passing(pod, body, rejections)
            if passing.nodes:
                node = await self._best(pod, body, passing)
                self._assume(pod, node)
                bindings.create_task(self._bind(pod, body, node, self._reserve(pod, node)))
                return
        except ExtenderFailed as error:
            self._retry_later(pod.uid)
            await self._say(pod, ERROR, str(error))
            return
        await self._reject(pod, body, rejections)

    async def _passing(self, pod: ClusterPod, body: Body, rejections: _Rejections) -> _Passing:
        """Return the nodes that plugins and extenders leave: the nominated one, or else of all."""
        nominated = self._cluster.nodes.get(pod.nominated)
        if nominated is not None:
            with contextlib.suppress(ExtenderFailed):  # all nodes are asked then
                alone = await self._filtered(pod, body, [nominated], _Rejections())
                if alone.nodes:
                    return alone
        return await self._filtered(pod, body, self._in_turn(), rejections)

    def _in_turn(self) -> list[ClusterNode]:
        nodes = list(self._cluster.nodes.values())
        first = self._next_node % max(1, len(nodes))
        return nodes[first:] + nodes[:first]

    async def _filtered(
        self, pod: ClusterPod, body: Body, nodes: Sequence[ClusterNode], rejections: _Rejections
    ) -> _Passing:
        passing, looked_at, wanted = [], 0, self._wanted(len(self._cluster.nodes))
        for node in nodes:
            looked_at += 1
            if reasons := self._obstacles(pod, self._with_nominated(pod, node)):
                rejections.reasons[node.name] = tuple(reasons)
                if all(map(_may_be_resolved, reasons)):
                    rejections.resolvable.add(node.name)
            else:
                passing.append(node)
            if len(passing) == wanted:
                break
        if len(nodes) > 1:
            self._next_node += looked_at
        return await self._filtered_by_extenders(body, passing, rejections)

    async def _filtered_by_extenders(
        self, body: Body, passing: list[ClusterNode], rejections: _Rejections
    ) -> _Passing:
        emptied = False
        for extender in self._extenders:
            if not passing:
                break
            if not extender.config.filter_verb or not extender.is_interested(body):
                continue
            try:
                answer = await extender.filter(body, self._bodies(passing))
            except ExtenderFailed:
                if extender.config.ignorable:
                    continue
                raise
            emptied = emptied or not extender.config.node_cache_capable
            rejections.by_extender |= len(answer.names) < len(passing)
            for name, reason in {**answer.failed, **answer.unresolvable}.items():
                rejections.reasons[name] = (reason,)
                if name in answer.unresolvable:
                    rejections.resolvable.discard(name)
                else:
                    rejections.resolvable.add(name)
            passing = [self._cluster.nodes[name] for name in answer.names if name in self._cluster.nodes]
        return _Passing(passing, emptied)

    def _wanted(self, count: int) -> int:
        """Return how many nodes that pass the plugins are enough (``numFeasibleNodesToFind``)."""
        share = self._configuration.percentage_of_nodes_to_score or max(5, 50 - count // 125)
        return count if count < _ALL_UP_TO else max(_ALL_UP_TO, count * share // 100)

    def _obstacles(self, pod: ClusterPod, node: ClusterNode) -> Sequence[str]:
        """Return what the first plugin that fails says; that of resources names all it lacks."""
        placement = scheduling.placement_obstacles(pod.constraints, node)[:1]
        if placement == (scheduling.NOT_SELECTED,) and _names_nodes(pod):
            return (_FIELDS_ONLY,)
        requests = {
            name: amount
            for name, amount in pod.requests.items()
            if name not in self._configuration.ignored_resources
        }
        if found := placement or scheduling.resource_obstacles(requests, node):
            return found
        lacking = self._no_devices(pod, node)
        return (lacking,) if lacking else ()

    def _devices_changed(self) -> None:
        self._wake(lambda _: True)

    def _with_nominated(self, pod: ClusterPod, node: ClusterNode) -> ClusterNode:
        """The node with the pods that are nominated to it and matter as much as the pod."""
        for other in self._nominated.values():
            if (
                other.nominated == node.name
                and other.uid != pod.uid
                and (other.priority or 0) >= (pod.priority or 0)
                and other.uid not in node.pods
            ):
                node = node.with_pod(other.placed(node.name))
        return node

    async def _best(self, pod: ClusterPod, body: Body, passing: _Passing) -> str:
        if len(passing.nodes) == 1:
            return passing.nodes[0].name
        points = await scores_of(self._extenders, body, self._bodies(passing.nodes))

        def worth(node: ClusterNode) -> int:
            seen = node.with_pods(()) if passing.emptied else node
            return int(100 * free_share(pod, seen)) + points.get(node.name, 0)

        return min(passing.nodes, key=lambda node: (-worth(node), node.name)).name

    # Binding

    def _assume(self, pod: ClusterPod, node: str) -> None:
        placed = pod.placed(node)
        self._waiting.pop(pod.uid, None)
        self._rejected.pop(pod.uid, None)
        self._assumed[pod.uid] = placed
        self._cluster = self._cluster.with_pod(placed)

    def _reserve(self, pod: ClusterPod, node: str) -> list[ClaimAllocation]:
        """Allocate devices, before the next pod has its turn."""
        if self._devices is None or node not in self._cluster.nodes:
            return []
        return self._devices.assume(pod, self._cluster.nodes[node])

    async def _bind(self, pod: ClusterPod, body: Body, node: str, given: list[ClaimAllocation]) -> None:
        """Bind through the extender that binds, or else ourselves; a failure is an error of the pod."""
        binders = (one for one in self._extenders if one.config.bind_verb and one.is_interested(body))
        binder = next(binders, None)
        try:
            if self._devices is not None:
                await self._devices.write(pod, node, given)
            if binder is None or not await _binds(binder, body, node):
                await self._client.create(
                    PODS, binding_of(pod, node), namespace=pod.namespace, subresource="binding"
                )
        except (ExtenderFailed, APIError) as error:
            if self._devices is not None:
                await self._devices.free(given)
            with contextlib.suppress(APIError):
                await self._bind_failed(pod, str(error))

    async def _bind_failed(self, pod: ClusterPod, message: str) -> None:
        assumed = self._assumed.pop(pod.uid, None)
        if assumed is not None:
            self._forget(pod.uid)
            now = self._body_of(pod)
            if now is not None and self._is_ours(now):
                self._waiting[pod.uid] = pod
                self._retry_later(pod.uid)
            self._wake(lambda _: True)  # its room is free again
        await self._say(pod, ERROR, message)

    # Nothing fits

    async def _reject(self, pod: ClusterPod, body: Body, rejections: _Rejections) -> None:
        self._rejected[pod.uid] = rejections.by_extender
        count = len(self._cluster.nodes)
        if not count:
            await self._say(pod, UNSCHEDULABLE, "no nodes available to schedule pods")
            return
        message = available(count, rejections.reasons.values())
        try:
            node, victims, why = await self._preempt(pod, body, rejections)
        except ExtenderFailed as error:
            node, victims, why = "", (), f"preemption: {error}"
        if not node:
            await self._say(pod, UNSCHEDULABLE, f"{message} {why}")
            return
        await self._say(pod, UNSCHEDULABLE, message, nominated=node)
        for victim in victims:
            await self._evict(victim, by=str(body["spec"].get("schedulerName")))

    async def _preempt(
        self, pod: ClusterPod, body: Body, rejections: _Rejections
    ) -> tuple[str, Sequence[ClusterPod], str]:
        """Return the node to make room on and who has to go, or why nobody goes."""
        if why := self._not_eligible(pod, body):
            return "", (), f"{_NO_CLAIMS}preemption: {why}"
        nodes = list(self._cluster.nodes.values())
        found = preemption.dry_run(
            pod,
            nodes,
            resolvable=rejections.resolvable.__contains__,
            obstacles=lambda node: self._obstacles(pod, node),
        )
        if not found.candidates:
            prefix = "" if found.errors else _NO_CLAIMS
            return "", (), f"{prefix}preemption: {found.message(len(nodes)).strip()}"
        candidates = await self._agreed(body, found.candidates)
        if not candidates:
            return "", (), f"{_NO_CLAIMS}preemption: {preemption.NO_CANDIDATE}"
        node = preemption.choose(candidates)
        return node, candidates[node], ""

    def _not_eligible(self, pod: ClusterPod, body: Body) -> str:
        if body["spec"].get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = self._cluster.nodes.get(pod.nominated)
        others = nominated.pods.values() if nominated is not None else ()
        going = any(other.deleting and (other.priority or 0) < (pod.priority or 0) for other in others)
        return "not eligible due to a terminating pod on the nominated node." if going else ""

    async def _agreed(
        self, body: Body, candidates: Mapping[str, Sequence[ClusterPod]]
    ) -> dict[str, Sequence[ClusterPod]]:
        """Ask the extenders which candidates may stay, one after the other."""
        remaining = dict(candidates)
        for extender in self._extenders:
            if not extender.config.preempt_verb or not extender.is_interested(body):
                continue
            try:
                remaining = await self._agreed_by(extender, body, remaining)
            except ExtenderFailed:
                if not extender.config.ignorable:
                    raise
            if not remaining:
                break
        return remaining

    async def _agreed_by(
        self, extender: ExtenderClient, body: Body, candidates: Mapping[str, Sequence[ClusterPod]]
    ) -> dict[str, Sequence[ClusterPod]]:
        objects = {
            node: [found for pod in pods if (found := self._body_of(pod)) is not None]
            for node, pods in candidates.items()
        }
        agreed: dict[str, Sequence[ClusterPod]] = {}
        for name, uids in (await extender.preempt(body, objects)).items():
            node = self._cluster.nodes.get(name)
            for uid in uids:
                if node is None or uid not in node.pods:
                    raise ExtenderFailed(
                        f"extender: {extender.config.url_prefix} claims to preempt pod (UID: &{{{uid}}}) on "
                        f"node: {name}, but the pod is not found on that node"
                    )
            if node is not None and uids:
                agreed[name] = [node.pods[uid] for uid in uids]
            elif not extender.config.ignorable:
                raise ExtenderFailed(preemption.expected_victim(name))
        return agreed

    async def _evict(self, victim: ClusterPod, *, by: str) -> None:
        condition = _condition("DisruptionTarget", "True", "PreemptionByScheduler") | {
            "message": f"{by}: preempting to accommodate a higher priority pod"
        }
        with contextlib.suppress(NotFound):
            await self._patch_status(victim, {"conditions": [condition]})
            await self._client.delete(PODS, victim.name, namespace=victim.namespace)

    # Saying so

    async def _say(self, pod: ClusterPod, reason: str, message: str, *, nominated: str = "") -> None:
        """Write PodScheduled and the nominated node into the pod's status, where they differ from before."""
        if self._said.get(pod.uid) == (reason, message, nominated):
            return
        self._said[pod.uid] = (reason, message, nominated)
        condition = _condition("PodScheduled", "False", reason) | {"message": message}
        status: Body = {"conditions": [condition]}
        if nominated or pod.nominated:
            status["nominatedNodeName"] = nominated or None
        await self._patch_status(pod, status)

    async def _patch_status(self, pod: ClusterPod, status: Body) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._client.patch(
            PODS, pod.name, patch, namespace=pod.namespace, subresource="status", media_type=_MERGE
        )

    def _body_of(self, pod: ClusterPod) -> Body | None:
        return self._pods.objects.get(pod.uid)

    def _bodies(self, nodes: Sequence[ClusterNode]) -> list[Body]:
        names = {node.name for node in nodes}
        found = {
            body["metadata"]["name"]: body
            for body in self._nodes.objects
            if body["metadata"]["name"] in names
        }
        return [found[node.name] for node in nodes if node.name in found]


async def _binds(extender: ExtenderClient, body: Body, node: str) -> bool:
    """Have an extender bind; False where it failed and may be ignored."""
    try:
        await extender.bind(body, node)
    except ExtenderFailed:
        if extender.config.ignorable:
            return False
        raise
    return True


def _may_be_resolved(reason: str) -> bool:
    """Return whether evictions may help: they free resources, but not cordons, taints and selectors."""
    return reason in _RESOLVABLE or reason.startswith("Insufficient ")


def _names_nodes(pod: ClusterPod) -> bool:
    """Return whether the pod's affinity names nodes by field, which narrows what PreFilter passes."""
    terms = pod.constraints.node_affinity
    return terms is not None and bool(terms) and all(term.fields for term in terms)


def _of_node(body: Body | None) -> Any:
    """Return the parts of a node whose change makes the scheduler retry rejected pods, without heartbeats."""
    if body is None:
        return None
    status = body.get("status") or {}
    return (
        body["metadata"].get("labels"),
        body["metadata"].get("annotations"),
        body.get("spec"),
        status.get("allocatable"),
        {one["type"]: one["status"] for one in status.get("conditions") or ()},
    )


def _asks(body: Body) -> Any:
    """Return what a pod asks for, with the claims that were made for it."""
    return body["spec"], (body.get("status") or {}).get("resourceClaimStatuses")


def _is_over(body: Body) -> bool:
    return (body.get("status") or {}).get("phase") in {"Failed", "Succeeded"}


def _condition(kind: str, status: str, reason: str) -> Body:
    now = clock.now()
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
