"""A plain scheduler: looks at allocatable amounts only and spreads pods, as the default one does.

It filters with the library's copy of the scheduler's filters and scores by least-allocated cpu and memory
(NodeResourcesFit of kube-scheduler with its default strategy). It knows nothing of NUMA nodes on purpose:
what it binds, a kubelet may still reject. Preemption, volumes and rules between pods are left out.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.cluster import scheduling
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones_client import APIError, Client, NotFound
from numazones_client.resources import NODES, PODS
from numazones_simulator import clock
from numazones_simulator.device_scheduling import DeviceScheduling
from numazones_simulator.mirror import Body, mirror

NAME = "default-scheduler"
_SCORED = ("cpu", "memory")
_RETRY = 1.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The node for a pod, or why there is none."""

    node: str | None
    message: str = ""


def choose(
    pod: ClusterPod,
    nodes: Iterable[ClusterNode],
    *,
    further: Callable[[ClusterNode], tuple[float, str]] = lambda _node: (0.0, ""),
) -> Choice:
    """Choose the least allocated of the nodes that fit; equals go to the first by name.

    ``further`` returns a further plugin's score, which goes first, or why it rejects the node.
    """
    fitting: list[tuple[float, float, str]] = []
    reasons: Counter[str] = Counter()
    count = 0
    for node in nodes:
        count += 1
        # The scheduler stops at the first filter that fails, but tells every lacking resource.
        obstacles = scheduling.placement_obstacles(pod.constraints, node)[:1] or (
            scheduling.resource_obstacles(pod.requests, node)
        )
        if obstacles:
            reasons.update(obstacles)
            continue
        score, rejection = further(node)
        if rejection:
            reasons[rejection] += 1
        else:
            fitting.append((-score, -free_share(pod, node), node.name))
    if fitting:
        return Choice(min(fitting)[2])
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
    return Choice(None, f"0/{count} nodes are available: {listed}." if listed else "no nodes available")


def free_share(pod: ClusterPod, node: ClusterNode) -> float:
    """Return which share of a node's cpu and memory would stay free."""
    shares = [
        1 - (node.requested.get(resource, 0) + pod.requests.get(resource, 0)) / node.allocatable[resource]
        for resource in _SCORED
        if node.allocatable.get(resource)
    ]
    return sum(shares) / len(shares) if shares else 0.0


class SimulatedScheduler:
    """Binds pods of the default scheduler's name as they come; run ``run`` as a task."""

    def __init__(self, client: Client, *, name: str = NAME, devices: DeviceScheduling | None = None) -> None:
        """Know nothing yet.

        ``devices`` allocates devices to claims; None: pods with claims are bound without them.
        """
        self._client = client
        self._devices = devices
        self._name = name
        self._nodes = mirror(client, NODES, self._node_changed)
        self._pods = mirror(client, PODS, self._pod_changed)
        self._cluster = Cluster()
        self._homeless: dict[str, ClusterPod] = {}
        """Pods bound to nodes that are not known (yet)."""
        self._told: dict[str, str] = {}
        """Pod uid → what its condition PodScheduled says already."""
        self._waiting: dict[str, ClusterPod] = {}
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.reflector.run())
            tasks.create_task(self._pods.reflector.run())
            tasks.create_task(self._bind_all())
            if self._devices is not None:
                tasks.create_task(self._devices.run(self._devices_changed))

    def _devices_changed(self) -> None:
        self._work.set()

    def _node_changed(self, before: Body | None, after: Body | None) -> None:
        self._work.set()
        if self._devices is not None and (body := after or before) is not None:
            self._devices.take_version(body["metadata"]["name"], after)
        if after is None:
            if before is not None:
                self._cluster = self._cluster.without_node(before["metadata"]["name"])
            return
        node = ClusterNode.from_api(after)
        known = self._cluster.nodes.get(node.name)
        pods = [*(known.pods.values() if known else ())]
        pods += [pod for pod in self._homeless.values() if pod.node == node.name]
        self._cluster = self._cluster.with_node(node.with_pods(pods))

    def _pod_changed(self, before: Body | None, after: Body | None) -> None:
        self._work.set()
        if self._devices is not None:
            self._devices.pod_changed(before, after)
        if before is not None:
            self._forget(before["metadata"]["uid"])
        if after is None:
            return
        pod = ClusterPod.from_api(after)
        if pod.terminal:
            return
        if not pod.node:
            if self._is_ours(after):
                self._waiting[pod.uid] = pod
        elif pod.node in self._cluster.nodes:
            self._cluster = self._cluster.with_pod(pod)
        else:
            self._homeless[pod.uid] = pod

    def _is_ours(self, body: Body) -> bool:
        return is_schedulable(body, self._name)

    def _forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._homeless.pop(uid, None)
        for node in self._cluster.nodes.values():
            if uid in node.pods:
                self._cluster = self._cluster.with_node(node.without_pod(uid))
                break

    async def _bind_all(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            for pod in sorted(self._waiting.values(), key=lambda pod: (-(pod.priority or 0), pod.created)):
                try:
                    await self._schedule(pod)
                except NotFound:
                    self._waiting.pop(pod.uid, None)
                except APIError:
                    await asyncio.sleep(_RETRY)
                    self._work.set()

    async def _schedule(self, pod: ClusterPod) -> None:
        if pod.uid not in self._waiting:  # deleted or bound by somebody else meanwhile
            return
        choice = self._choose(pod)
        if choice.node is None:
            await self._tell(pod, choice.message)
            return
        await self._prepare(pod, choice.node)
        await self._client.create(
            PODS, binding_of(pod, choice.node), namespace=pod.namespace, subresource="binding"
        )
        self._waiting.pop(pod.uid, None)
        self._told.pop(pod.uid, None)
        if choice.node in self._cluster.nodes:
            self._cluster = self._cluster.with_pod(pod.placed(choice.node))

    def _choose(self, pod: ClusterPod) -> Choice:
        return choose(
            pod, self._cluster.nodes.values(), further=lambda node: (0.0, self._no_devices(pod, node))
        )

    def _no_devices(self, pod: ClusterPod, node: ClusterNode) -> str:
        """Return why a node has not the devices that a pod claims; empty: it has."""
        return "" if self._devices is None else self._devices.obstacle(pod, node)

    async def _prepare(self, pod: ClusterPod, node: str) -> None:
        """Prepare the binding of a pod: write which devices it has."""
        if self._devices is not None:
            await self._devices.write(pod, node, self._devices.assume(pod, self._cluster.nodes[node]))

    async def _tell(self, pod: ClusterPod, message: str) -> None:
        """Say in the pod's status why it is not scheduled, once per reason."""
        if self._told.get(pod.uid) == message:
            return
        self._told[pod.uid] = message
        now = clock.now()
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        await self._client.patch(
            PODS,
            pod.name,
            {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
            namespace=pod.namespace,
            subresource="status",
            media_type="application/strategic-merge-patch+json",
        )


def is_schedulable(body: Mapping[str, Any], name: str = NAME) -> bool:
    """Return whether a pod waits for the named scheduler: no node, no gates, not being deleted."""
    spec, metadata = body["spec"], body["metadata"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and not metadata.get("deletionTimestamp")
        and spec.get("schedulerName", NAME) == name
    )


def binding_of(pod: ClusterPod, node: str) -> dict[str, Any]:
    """Return the Binding that puts a pod on a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
