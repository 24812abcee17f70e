"""The model's part of a simulated cluster: the agent, nodes and pods for it."""

from numazones import cpuset
from numazones.kubelet import machines
from numazones_simulator.node_kinds import SUB_NUMA, of_model
from numazones_simulator.node_spec import NodeSpec, bystander
from numazones_simulator.placement_models import Body, ModelAgent, PodForm, PublishedObject, Simulation
from numazones_simulator.workload import container
from pinned_model.model import LABEL, MODEL, NODES
from pinned_model.placement import PinnedPlacement
from pinned_model.rules import Node


def pinned(name: str, address: str) -> NodeSpec:
    spec = NodeSpec(name, machines.build(SUB_NUMA), bystander(), address=address, labels={LABEL: "true"})
    return of_model(spec, MODEL.name, "pinned")


def _agent(spec: NodeSpec) -> ModelAgent[PinnedPlacement]:
    reserved = cpuset.union(cpus & -cpus for cpus in spec.machine.cpus_of_numa.values())
    return ModelAgent(PinnedPlacement(Node(spec.machine, reserved)))


def _published(spec: NodeSpec, agent: ModelAgent[PinnedPlacement]) -> tuple[PublishedObject]:
    node = agent.placement.node
    given = {uid: cpuset.format(cpus) for uid, cpus in node.given.items()}
    books = {"reserved": cpuset.format(node.reserved), "given": given}
    return (PublishedObject.of(NODES, spec.name, MODEL.name, books),)


def _pod(limits: dict[str, str], requests: dict[str, str] | None = None) -> Body:
    return {"containers": [container("app", limits, requests)]}


SIMULATION = Simulation(
    node_kinds=(pinned,),
    pod_forms=(
        PodForm(70, "whole", lambda draw: _pod({"cpu": f"{draw.randint(1, 12)}", "memory": "1Gi"})),
        PodForm(30, "rounded-up", lambda draw: _pod({"memory": "1Gi"}, {"cpu": f"{draw.randint(1, 40)}00m"})),
    ),
    plugin=_agent,
    published=_published,
)
