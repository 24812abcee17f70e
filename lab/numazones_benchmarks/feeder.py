"""The embedded API server with a large cluster in it, in a process of its own, for the benchmarks."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from typing import Any

from numazones import cpuset
from numazones.api import crd
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.admission_gate import OPT_IN
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers
from numazones_apiserver import ApiServer, WriteOptions
from numazones_apiserver.errors import Object
from numazones_apiserver.requests import HTTPRequest
from numazones_apiserver.responses import HTTPResponse, json_answer
from numazones_apiserver.store import Collection, Record
from numazones_client import Resource
from numazones_client.resources import LEASES, NAMESPACES, NODES, NUMAZONES, PODS

GIB = 1 << 30
CORES = 16  # per zone, two threads each
DISTINCT = 200
"""Different fillings of nodes, as long as states are not asked to be all distinct."""
PREPARED = 5000
"""So many changes are made before the first is sent; a longer load repeats them."""
LATER = 10_000_000
"""The first of the fillings that nodes get later: one for each change that is prepared."""
NAME = "name-of-the-node"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def machine(zones: int) -> Machine:
    """Two sockets, and so many NUMA nodes of 16 cores with two threads."""
    cpus = tuple(
        CPU(thread * zones * CORES + core, core, core * 2 // (zones * CORES), 0, core // CORES)
        for core in range(zones * CORES)
        for thread in range(2)
    )
    return Machine(cpus, tuple(NUMANode(zone, 128 * GIB) for zone in range(zones)))


class FedObjects:
    """Objects as an API server would have them."""

    def __init__(self, *, nodes: int, pods: int, distinct: bool, zones: int) -> None:
        self.zone_count = zones
        self.machine = machine(zones)
        self.reserved = {cpu.id for cpu in self.machine.cpus if cpu.core % CORES == 0}
        self.config = KubeletConfiguration.from_api(
            {
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": ",".join(map(str, sorted(self.reserved))),
                "memoryManagerPolicy": "Static",
                # With the 100 MiB of the kubelet's threshold for evictions.
                "systemReserved": {"memory": f"{zones * 1024 - 100}Mi"},
                "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in range(zones)],
                "topologyManagerPolicy": "single-numa-node",
            }
        )
        self.names = [f"worker-{number:04}" for number in range(nodes)]
        self.fillings = nodes if distinct else DISTINCT
        self.draw = random.Random(1)
        self.zone_bodies = {
            body["metadata"]["name"]: body
            for number, name in enumerate(self.names)
            for body in self.zones(name, number % self.fillings)
        }
        self.pods = {f"pod-{number:05}": self.pod(number) for number in range(pods)}

    def zones(self, name: str, filling: int) -> list[dict[str, Any]]:
        """The zones of a node of which some CPUs are held."""
        zones: list[dict[str, Any]] = json.loads(self.filled(filling).replace(NAME, name))
        return zones

    @cache  # noqa: B019 - there is one cluster, for as long as the process lives
    def filled(self, filling: int) -> str:
        """JSON of the zones of a node that has NAME for its name."""
        draw = random.Random(filling)
        spare = [cpu.id for cpu in self.machine.cpus if cpu.id not in self.reserved]
        held: dict[str, dict[str, int]] = {}
        for number in range(2 * self.zone_count):
            taken = draw.sample(spare, draw.randrange(2, 12))
            spare = [cpu for cpu in spare if cpu not in taken]
            held[f"uid-{NAME}-{number}"] = {"main": cpuset.of(taken)}
        node = Node.restore(KubeletManagers.start(self.config, self.machine, {}), cpu_assignments=held)
        return json.dumps([zone.to_api() for zone in zones_from_node(node, node_name=NAME, pods={})])

    def pod(self, number: int) -> dict[str, Any]:
        """A running pod of some 4 KB; every tenth is Guaranteed and of a size that holds nothing."""
        amounts = {"cpu": f"{100 + number % 7 * 100}m", "memory": f"{1 + number % 5}Gi"}
        limits = amounts if number % 10 == 0 else {"memory": amounts["memory"]}
        deployment = f"deployment-{number % 300}"
        filler = {f"annotation.example/{key}": "x" * 120 for key in range(8)}
        return {
            "metadata": {
                "namespace": f"team-{number % 40}",
                "name": f"pod-{number:05}",
                "uid": f"uid-pod-{number:05}",
                "creationTimestamp": "2026-01-31T08:00:00Z",
                "labels": {"app": deployment, "pod-template-hash": "5d4f8c7b9"},
                "annotations": filler,
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": deployment,
                        "uid": deployment,
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "nodeName": self.names[number % len(self.names)],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/app:1.0",
                        "env": [{"name": f"VARIABLE_{key}", "value": "y" * 40} for key in range(20)],
                        "resources": {"requests": amounts, "limits": limits},
                    }
                ],
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
                ],
            },
            "status": {
                "phase": "Running",
                "qosClass": "Guaranteed" if number % 10 == 0 else "Burstable",
                "startTime": "2026-01-31T08:00:10Z",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "main", "ready": True}],
            },
        }

    def node(self, name: str) -> dict[str, Any]:
        """A Node."""
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {
                    "cpu": str(self.zone_count * (2 * CORES - 2)),
                    "memory": f"{125 * self.zone_count}Gi",
                    "pods": "110",
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def lease(self, name: str) -> dict[str, Any]:
        """The Lease of an exporter."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        return {
            "metadata": {
                "namespace": "numazones-system",
                "name": f"numazones-exporter-{name}",
                "labels": {"numazones.io/node": name},
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": now},
        }


class Feeder(ApiServer):
    """The API server: filled without validation, and nothing in it changes but what it is told to change."""

    def __init__(self, cluster: FedObjects, *, gated: str = "") -> None:
        """``gated``: a namespace that lets the gate take its pods; they are bound once they are released."""
        super().__init__()
        self.cluster = cluster
        self.gated = gated
        self.counted: Counter[str] = Counter()
        """Bytes of lists and watches; requests that write, and their bytes with those of the answers."""
        self.pods_of: dict[str, list[Object]] = {}
        """Node → the pods there, oldest first."""

    async def fill(self) -> None:
        """Store the definitions and all objects of the cluster."""
        definitions = self.kind("customresourcedefinitions", "apiextensions.k8s.io")
        for model in crd.KINDS:
            self.writes.create(definitions, "", crd.crd(model), WriteOptions("benchmark"))
        await self.settle()
        self.store.listeners.clear()  # no controller deletes pods because nobody has their owners
        for name in self.cluster.names:
            self.put(NODES, self.cluster.node(name))
            self.put(LEASES, self.cluster.lease(name))
        for body in self.cluster.zone_bodies.values():
            self.put(NUMAZONES, body)
        for body in self.cluster.pods.values():
            self.pods_of.setdefault(body["spec"]["nodeName"], []).append(self.put(PODS, body))

        if self.gated:
            self.put(NAMESPACES, {"metadata": {"name": self.gated, "labels": dict([OPT_IN])}})
            self.store.listeners.append(self._notice)

    def _notice(self, collection: Collection, record: Record) -> None:
        pod = record.after.object
        if collection.plural != PODS.plural or pod["metadata"]["namespace"] != self.gated:
            return
        if not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
            asyncio.get_running_loop().call_later(0.005, self._bind_released, pod)

    def _bind_released(self, pod: Object) -> None:
        """Bind a pod to the first node that its affinity names, as a scheduler that keeps up would."""
        affinity = pod["spec"].get("affinity")
        if affinity is None:  # released without a choice of nodes, as after a time-out
            chosen = self.cluster.names[0]
        else:
            term = affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"][0]
            chosen = term["matchFields"][0]["values"][0]
        self.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": chosen}})

    def put(self, resource: Resource, body: Object) -> Object:
        """Store an object as it is."""
        kind = self.kind(resource.plural, resource.group, resource.version)
        metadata = {"uid": f"uid-{body['metadata']['name']}", **body["metadata"]}
        obj = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        return self.store.put(self.writes.collection(kind), obj).object

    def put_waiting(self, body: Object) -> Object:
        """Store a pod that programs will change, with all defaults but its own uid and priority."""
        made = self.kind("pods").strategy.for_create(body)
        return self.put(PODS, {**made, "spec": {**made["spec"], "priority": body["spec"].get("priority", 0)}})

    async def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Answer a request, and count what it moves."""
        if request.path == "/feed":
            return json_answer(await self.feed(json.loads(request.body)))
        answer = await super().answer(request)
        if request.method != "GET":
            self.counted += Counter(writes=1, written_bytes=len(request.body) + len(answer.body))
        self.counted["sent_bytes"] += len(answer.body) if request.method == "GET" else 0
        return answer if answer.stream is None else replace(answer, stream=self._watched(answer.stream))

    async def _watched(self, stream: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        async with aclosing(stream):
            async for frames in stream:
                self.counted["sent_bytes"] += len(frames)
                yield frames

    async def feed(self, order: dict[str, Any]) -> dict[str, float]:
        """Do what the benchmark asks: pods that wait, or changes of zones at a rate."""
        if "pods" in order:
            for body in order["pods"]:
                self.put_waiting(body)
            return {}
        return await self.change_zones(order["rate"], order["seconds"], pods_too=order.get("pods_too", False))

    async def change_zones(self, rate: float, seconds: float, *, pods_too: bool) -> dict[str, float]:
        """Change nodes so that so many zones change a second; on each node a pod may make way for another."""
        started = time.monotonic()
        count = int(rate * seconds / self.cluster.zone_count)
        names = self.cluster.draw.choices(self.cluster.names, k=min(count, PREPARED))
        changes = [(name, self.cluster.zones(name, LATER + number)) for number, name in enumerate(names)]
        prepared, zones, pods = time.monotonic() - started, 0, 0
        before = self.counted.copy()
        started = time.monotonic()
        for number, (name, bodies) in enumerate(islice(cycle(changes), count)):
            await asyncio.sleep(max(0.0, started + zones / rate - time.monotonic()))
            if pods_too:
                pods += self.replace_pod(name, number)
            for body in bodies:
                self.put(NUMAZONES, body)
                zones += 1
        took = time.monotonic() - started
        return {
            "events": zones + pods,
            "node_changes": count,
            "seconds": took,
            "prepared": prepared,
        } | {name: self.counted[name] - before[name] for name in ("sent_bytes", "writes", "written_bytes")}

    def replace_pod(self, node: str, number: int) -> int:
        """Delete a pod of a node, create another, bind it and have it run; return the number of events."""
        events = 3
        pods = self.writes.collection(self.kind("pods"))
        if there := self.pods_of.get(node):
            gone = there.pop(0)["metadata"]
            self.store.delete(pods, (gone["namespace"], gone["name"]))
            events += 1
        # Not Guaranteed: the zones would have to show it.
        body = self.cluster.pod(10 * number + 1)
        body["metadata"]["name"] = name = f"later-{self.store.revision}"
        body["metadata"]["uid"] = f"uid-{name}"
        spec, status = body["spec"] | {"nodeName": node}, body.pop("status")
        del body["spec"]["nodeName"]
        self.put(PODS, body | {"status": {"phase": "Pending"}})
        self.put(PODS, body | {"spec": spec, "status": {"phase": "Pending"}})
        self.pods_of.setdefault(node, []).append(self.put(PODS, body | {"spec": spec, "status": status}))
        return events
