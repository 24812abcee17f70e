"""Arrivals and departures that fragment a cluster, decided by the real rules and without any API server.

A scheduler that knows nothing of NUMA nodes spreads pods of random sizes, kubelets admit or reject them, and
pods of random age leave. What happened is kept as a history per node, so that the very same state can be
brought about on kubelets behind an API server.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.kubelet import machines
from numazones.kubelet.machines import Shape
from numazones_simulator.kubelet.kubelet import Kubelet
from numazones_simulator.node_spec import NodeSpec, configuration, node_object
from numazones_simulator.scheduler import choose

NAMESPACE = "default"
_SIZES = (1, 2, 2, 3, 4, 4, 6)
_CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Happening:
    """A pod came to a node, or left it."""

    body: Mapping[str, Any]
    node: str
    arrives: bool
    admitted: bool = True
    """Whether the kubelet let it run; a rejected pod leaves at once, but may leave a trace."""


@dataclass
class Churn:
    """Kubelets, and the pods that came to them and left."""

    kubelets: dict[str, Kubelet]
    nodes: dict[str, ClusterNode]
    workloads: int
    """Number of owners that pods belong to."""
    history: list[Happening] = field(default_factory=list)
    running: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    """UID → pod and node."""
    rejected: int = 0
    """Pods that the scheduler bound and the kubelet rejected."""

    @classmethod
    def on(cls, specs: Sequence[NodeSpec], *, workloads: int) -> "Churn":
        """Return a churn that begins with empty nodes."""
        return cls(
            {spec.name: Kubelet(spec) for spec in specs},
            {spec.name: ClusterNode.from_api(node_object(spec, now=_CREATED)) for spec in specs},
            workloads,
        )

    def run(self, draw: random.Random, *, arrivals: int, crowd: int) -> None:
        """Let pods arrive; once there are ``crowd`` of them, others leave first."""
        for number in range(arrivals):
            workload, cpus = draw.randrange(self.workloads), draw.choice(_SIZES)
            while len(self.running) >= crowd:
                self._leave(draw.choice(sorted(self.running)))
            self._arrive(pod_of(f"w{workload}-{number:05}", f"w{workload}", cpus))

    def cluster(self) -> Cluster:
        """Return the cluster as an operator would know it: all nodes with their exact states."""
        nodes = {name: node.with_state(self.kubelets[name].node) for name, node in self.nodes.items()}
        return Cluster(nodes)

    def _arrive(self, body: Mapping[str, Any]) -> None:
        pod = ClusterPod.from_api(body)
        choice = choose(pod, self.nodes.values())
        if choice.node is None:
            return
        if self.kubelets[choice.node].admit(body).rejection is not None:
            self.rejected += 1
            self.history.append(Happening(body, choice.node, arrives=True, admitted=False))
            self.history.append(Happening(body, choice.node, arrives=False, admitted=False))
            return
        runs = replace(pod, phase="Running", ready=True, started=_CREATED)
        self.nodes[choice.node] = self.nodes[choice.node].with_pod(runs.placed(choice.node))
        self.running[pod.uid] = (body, choice.node)
        self.history.append(Happening(body, choice.node, arrives=True))

    def _leave(self, uid: str) -> None:
        body, node = self.running.pop(uid)
        self.kubelets[node].remove(uid)
        self.nodes[node] = self.nodes[node].without_pod(uid)
        self.history.append(Happening(body, node, arrives=False))


def pod_of(name: str, workload: str, cpus: int) -> dict[str, Any]:
    """Return a Guaranteed pod of a ReplicaSet with the workload's name."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": name,
            "creationTimestamp": _CREATED,
            "labels": {"app": workload},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"containers": [container_of(cpus)]},
    }


def container_of(cpus: int) -> dict[str, Any]:
    """Return a container with that many exclusive CPUs and a GiB each."""
    amounts = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    return {
        "name": "main",
        "image": "registry.example/app",
        "resources": {"requests": amounts, "limits": amounts},
    }


def nodes_of(count: int, *, prefer_most_allocated: bool = False) -> list[NodeSpec]:
    """Return nodes of two NUMA nodes of 16 CPUs, policy single-numa-node; KEP-6007's option may be on."""
    machine = machines.build(Shape(cores_per_numa=8))
    options = {"prefer-most-allocated-numa-node": "true"} if prefer_most_allocated else {}
    settings = configuration(
        machine,
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        topology_manager_policy_options=options,
        feature_gates={"TopologyManagerPolicyAlphaOptions": True} if options else {},
        reserved_cpus="0,16",
    )
    return [
        NodeSpec(f"node-{number:03}", machine, settings, address=f"10.77.{number // 250}.{number % 250 + 1}")
        for number in range(count)
    ]
