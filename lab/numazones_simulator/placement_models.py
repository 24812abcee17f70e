"""Placement models other than the kubelet's in a simulated cluster.

Each model has its part with its own rules: an entry point of the group ``numazones.simulations``, under the
model's name, names a ``Simulation``. Here is what such a part is, and what clusters do with all of them:
nodes of their kinds, pods for these, what is installed, who runs beside them.
"""

import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from numazones.kubelet.pod import Pod
from numazones.placement import Placement, models
from numazones.placement.model import ObjectKind
from numazones_client import AlreadyExists, Client, Resource
from numazones_client.resources import DEFINITIONS, NODE_RESOURCE_TOPOLOGIES
from numazones_simulator.control_plane import create_namespace
from numazones_simulator.node_kinds import MODEL_LABEL, NodeKind
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.workload import manifest

ENTRY_POINTS = "numazones.simulations"
Body = dict[str, Any]


class PodForm(NamedTuple):
    """One form of the pods that a model tells apart."""

    weight: int
    """How often it is drawn."""
    name: str
    make: Any
    """Makes spec, and maybe metadata, of a pod from a ``random.Random``."""


class RuntimePlugin(Protocol):
    """Places containers as a node's runtime creates them."""

    def create(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Create the containers of a pod that are missing; return container → the runtime's message.

        Raises:
            NumazonesError: the pod is none, or the answer is not known.
        """

    def remove(self, uid: str) -> None:
        """Free what an ended pod holds."""


class PublishedObject(NamedTuple):
    """Object that a model's agent publishes for a node."""

    resource: Resource
    body: Body
    manager: str

    @classmethod
    def of(cls, kind: ObjectKind, name: str, manager: str, spec: Mapping[str, Any]) -> "PublishedObject":
        """Return an object of a kind that the model reads."""
        return cls(Resource.of_kind(kind), body_of(kind, {"name": name}, spec), manager)


def body_of(kind: ObjectKind, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Body:
    """Return the body of an object of a kind that a model reads."""
    version = f"{kind.group}/{kind.version}"
    return {"apiVersion": version, "kind": kind.kind, "metadata": dict(metadata), "spec": dict(spec)}


P = TypeVar("P", bound=Placement)


class ModelAgent(Generic[P]):
    """A runtime's plugin that creates all containers of a pod or none, as a placement decides."""

    def __init__(self, placement: P) -> None:
        self.placement = placement
        self._created: set[str] = set()

    def create(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Create the containers of a pod, unless they are there; return container → the runtime's message."""
        pod = Pod.from_api(body)
        if pod.uid in self._created:
            return {}
        decision = self.placement.admit(pod)
        if not decision.admitted:
            said = f"{self.placement.model.decider}: {decision.message}"
            return {container.name: said for container in pod.containers}
        self.placement = cast("P", decision.placement)
        self._created.add(pod.uid)
        return {}

    def remove(self, uid: str) -> None:
        """Free what an ended pod holds."""
        self.placement = cast("P", self.placement.remove(uid))
        self._created.discard(uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A placement model's part of a simulated cluster."""

    node_kinds: Sequence[NodeKind]
    """The kinds of nodes on which it places pods."""
    pod_forms: Sequence[PodForm]
    """The forms of pods that it tells apart."""
    installed: Sequence[tuple[ObjectKind, Body]] = ()
    """The objects that clusters with such nodes have."""
    plugin: Callable[[NodeSpec], RuntimePlugin | None] = lambda _spec: None
    """Returns what places containers in a node's runtime; None: nothing does."""
    published: Callable[[NodeSpec, Any], Sequence[PublishedObject]] = lambda _spec, _plugin: ()
    """Returns what is published of a node with such a plugin now."""
    controllers: Callable[[Client, Sequence[NodeSpec]], Sequence[Coroutine[Any, Any, None]]] = (
        lambda _client, _specs: ()
    )
    """Returns what runs beside the nodes of the model, such as a scheduler."""


@cache
def simulations() -> Mapping[str, Simulation]:
    """Return the parts of all models by name; those that have none are left out."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    return {name: found[name].load() for name in models.models() if name in found}


def simulation_of(name: str) -> Simulation | None:
    """Return a model's part; None for the kubelet's, which simulated clusters are made of."""
    return simulations().get(name)


def node_kinds() -> tuple[NodeKind, ...]:
    """Return kinds of nodes of all models in turn, so that every model has as many."""
    kinds = [simulation.node_kinds for simulation in simulations().values()]
    rounds = max(map(len, kinds), default=0)
    return tuple(of_model[turn % len(of_model)] for turn in range(rounds) for of_model in kinds)


def controllers(client: Client, specs: Sequence[NodeSpec]) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what runs beside the nodes of all models."""
    for name, simulation in simulations().items():
        yield from simulation.controllers(client, [spec for spec in specs if spec.model == name])


def pods_for(name: str, seed: int) -> Iterator[Body]:
    """Yield pods for nodes of a model; the same seed gives the same pods."""
    simulation = simulations()[name]
    draw = random.Random(seed)
    weights = [form.weight for form in simulation.pod_forms]
    for number in count(1):
        form = draw.choices(simulation.pod_forms, weights)[0]
        made = form.make(draw)
        metadata = made.pop("metadata", {})
        spec = {
            "nodeSelector": {MODEL_LABEL: name},
            "tolerations": [{"key": MODEL_LABEL, "value": name}],
            **made,
        }
        yield manifest(f"{name}-{form.name}-{number:05}", "default", form.name, spec, metadata)


def pods_for_all(seed: int, kubelets: Iterator[Body]) -> Iterator[Body]:
    """Yield pods for nodes of all models: half from ``kubelets``, the rest for the others in equal parts."""
    draw = random.Random(seed)
    others = [pods_for(name, seed) for name in simulations()]
    weights = (max(1, len(others)), *(1 for _ in others))
    while True:
        yield next(draw.choices((kubelets, *others), weights)[0])


async def install(client: Client, specs: Iterable[NodeSpec]) -> None:
    """Create what these nodes need; what is there already stays.

    The definitions say no more than is needed to serve the objects; those of the projects say more.
    """
    present = {spec.model for spec in specs}
    parts = [simulation for name, simulation in simulations().items() if name in present]
    if not parts:
        return
    await _create(client, DEFINITIONS, definition(NODE_RESOURCE_TOPOLOGIES, "NodeResourceTopology"))
    for kind in models.object_kinds():
        await _create(client, DEFINITIONS, definition(Resource.of_kind(kind), kind.kind))
    for simulation in parts:
        for kind, body in simulation.installed:
            namespace = (body.get("metadata") or {}).get("namespace", "")
            if namespace:
                await create_namespace(client, namespace)
            await _create(client, Resource.of_kind(kind), body, namespace=namespace)


def definition(resource: Resource, kind: str) -> Body:
    """Return a CustomResourceDefinition that accepts anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    annotations = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.full_name,
            **({"annotations": annotations} if resource.group.endswith(".k8s.io") else {}),
        },
        "spec": {
            "group": resource.group,
            "names": {"kind": kind, "plural": resource.plural, "singular": kind.lower()},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def _create(client: Client, resource: Resource, body: Body, *, namespace: str = "") -> None:
    try:
        await client.create(resource, body, namespace=namespace)
    except AlreadyExists:
        return
