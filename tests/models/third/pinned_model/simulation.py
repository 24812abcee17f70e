"""The model's part of a simulated cluster: the agent, nodes and pods for it."""

import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from numazones import cpuset
from numazones.kubelet import machines
from numazones.kubelet.pod import Pod
from numazones.placement.models import ObjectKind
from numazones_client import Client, Resource
from numazones_simulator.node_kinds import SUB_NUMA, Kind, of_model
from numazones_simulator.node_spec import NodeSpec, bystander
from numazones_simulator.placement_models import Body, PodForm, PublishedObject, RuntimePlugin
from numazones_simulator.workload import container
from pinned_model.identity import DECIDER, LABEL, NAME, NODES
from pinned_model.placement import PinnedPlacement
from pinned_model.rules import Node


class Agent:
    """Gives pods their CPUs on one node."""

    def __init__(self, spec: NodeSpec) -> None:
        reserved = cpuset.union(cpus & -cpus for cpus in spec.machine.cpus_of_numa.values())
        self.node = Node(spec.machine, reserved)

    def create(self, body: Mapping[str, Any]) -> dict[str, str]:
        pod = Pod.from_api(body)
        if pod.uid in self.node.given:
            return {}
        decision = PinnedPlacement(self.node).admit(pod)
        self.node = decision.placement.node
        said = f"{DECIDER}: {decision.message}"
        return {} if decision.admitted else {container.name: said for container in pod.containers}

    def remove(self, uid: str) -> None:
        self.node = self.node.without_pod(uid)


def pinned(name: str, address: str) -> NodeSpec:
    """An agent gives every pod CPUs of one NUMA node."""
    spec = NodeSpec(name, machines.build(SUB_NUMA), bystander(), address=address, labels={LABEL: "true"})
    return of_model(spec, NAME, "pinned")


def published(name: str, node: Node) -> Body:
    """Return what the agent publishes."""
    given = {uid: cpuset.format(cpus) for uid, cpus in node.given.items()}
    return {
        "apiVersion": f"{NODES.group}/{NODES.version}",
        "kind": NODES.kind,
        "metadata": {"name": name},
        "spec": {"reserved": cpuset.format(node.reserved), "given": given},
    }


def _whole(draw: random.Random) -> Body:
    return {"containers": [container("app", {"cpu": str(draw.randint(1, 12)), "memory": "1Gi"})]}


def _rounded_up(draw: random.Random) -> Body:
    requests = {"cpu": f"{draw.randint(1, 40)}00m", "memory": "256Mi"}
    return {"containers": [container("app", {"memory": "1Gi"}, requests)]}


class PinnedSimulation:
    """Agents run on the nodes; nothing runs beside them."""

    node_kinds: Sequence[Kind] = (pinned,)
    pod_forms: Sequence[PodForm] = (PodForm(70, "whole", _whole), PodForm(30, "rounded-up", _rounded_up))

    def installed(self) -> Sequence[tuple[ObjectKind, Body]]:
        return ()

    def plugin(self, spec: NodeSpec) -> RuntimePlugin | None:
        return Agent(spec)

    def published(self, spec: NodeSpec, plugin: RuntimePlugin | None) -> Sequence[PublishedObject]:
        if not isinstance(plugin, Agent):
            return ()
        return (PublishedObject(Resource.of_kind(NODES), published(spec.name, plugin.node), NAME),)

    def controllers(self, _client: Client, _specs: Sequence[NodeSpec]) -> Sequence[Coroutine[Any, Any, None]]:
        return ()


SIMULATION = PinnedSimulation()
