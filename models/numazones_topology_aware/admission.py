"""A pod on a node under the topology-aware policy: what its containers get, and what others lose.

The kubelet admits every such pod; the plugin decides when the runtime creates each container. So a pod
can be *partly* served: a container that is rejected stays in ``CreateContainerError`` and is tried again,
while those created before it keep what they have. Init containers are released before the next starts.

What is tried again is the kubelet's choice (``computePodActions`` and ``computeInitContainerActions`` in
``pkg/kubelet/kuberuntime``): containers that the runtime does not have. Of init containers and sidecars that
is the next one, and nothing after it before it has ended or runs. The plugin keeps neither grant nor name of
a container that it rejected (``nriPlugin.CreateContainer`` in ``pkg/resmgr/nri.go``): the next is a new one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from numazones.apimachinery import resources
from numazones.cpuset import CPUSet
from numazones.errors import UnmodelledFeature
from numazones.kubelet.demand import Container, ContainerKind
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones_topology_aware import events
from numazones_topology_aware.events import Outcome
from numazones_topology_aware.node import ContainerUpdate, Node
from numazones_topology_aware.request import CPUType
from numazones_topology_aware.requirements import cgroup_of
from numazones_topology_aware.sandbox import ContainerSpec, PodDevice, Sandbox
from numazones_topology_aware.scheduling_class import SchedulingClass
from numazones_topology_aware.topology_hints import wants_device_hints

_EPHEMERAL_STORAGE = "ephemeral-storage"
_NO_DEVICES: Mapping[str, Iterable[PodDevice]] = {}


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """Resources that a container was given."""

    pool: str
    kind: CPUType
    exclusive: CPUSet
    """Isolated CPUs included."""
    isolated: CPUSet
    shared: int
    """Milli-CPU of the pool's shared CPUs."""
    reserved: int
    """Milli-CPU of the reserved CPUs."""
    memory_nodes: int
    """Mask of NUMA nodes that its memory is charged to."""
    memory: int
    """Bytes accounted."""
    update: ContainerUpdate
    """What the runtime is told for it; no CPUs: it is not pinned."""
    scheduling: SchedulingClass | None


@dataclass(frozen=True, slots=True)
class Admission:
    """The decisions about one pod's containers."""

    admitted: bool
    """Whether all containers could be created."""
    reason: str
    """``CreateContainerError``; empty if admitted."""
    message: str
    """Container and reason of the first rejection; empty if admitted."""
    containers: Mapping[str, ContainerAllocation]
    """Container name → what it was given, also where another one was rejected."""
    rejected: Mapping[str, str]
    """Container name → why it could not be created; one that was not tried is missing."""
    node: Node = field(repr=False)
    """The node afterwards."""
    pod: Pod = field(repr=False)
    before: Node = field(repr=False)
    """The node decided on."""
    outcomes: Mapping[str, Outcome] = field(repr=False)
    """Container name → the answer to its creation."""
    answers: tuple[Outcome, ...] = field(repr=False)
    """All answers in order, the ends of init containers included."""

    @property
    def updates(self) -> dict[str, ContainerUpdate]:
        """Id (``UID/NAME``) of other pods' containers → what changes for them; computed on first use."""
        updates: dict[str, ContainerUpdate] = {}
        for answer in self.answers:
            for name, changes in answer.updates.items():
                updates[name] = updates.get(name, ContainerUpdate()).then(changes)
        own = {_id(self.pod.uid, container.name) for container in self.pod.containers}
        return {name: changes for name, changes in updates.items() if name not in own}


def admit(node: Node, pod: Pod, devices: Mapping[str, Iterable[PodDevice]] | None = None) -> Admission:
    """Create all of a pod's containers, one after the other, as if it was new to the node.

    ``devices``: container → what the kubelet's pod-resources service lists for it; None: not known.

    Raises:
        UnmodelledFeature: the decision depends on what is not known, such as which devices a container gets.
        PluginCrash: the plugin would crash.
    """
    return _create(node, remove(node, pod.uid), pod, devices, ())


def create_missing(
    node: Node,
    pod: Pod,
    devices: Mapping[str, Iterable[PodDevice]] | None = None,
    *,
    uncreated: Collection[str] = (),
) -> Admission:
    """Create those of a pod's containers that do not exist yet; the others keep what they have.

    Of a pod that is new to the node these are all.

    ``uncreated``: containers that the runtime could not create, as the pod's status says. They are tried too,
    as even that may leave traces, but whatever the policy says, they get nothing.

    Raises:
        UnmodelledFeature, PluginCrash: as ``admit``.
    """
    return _create(node, node, pod, devices, uncreated)


def _create(
    before: Node,
    node: Node,
    pod: Pod,
    devices: Mapping[str, Iterable[PodDevice]] | None,
    uncreated: Collection[str],
) -> Admission:
    if pod.resources is not None and pod.resources.set:
        raise UnmodelledFeature(
            f"pod {pod.name} has pod-level resources; what the kubelet then passes to the runtime, and so "
            "what the policy sees, is not modelled; set resources per container"
        )
    _check_devices(node, pod, devices)
    after = node
    if pod.uid not in node.sandboxes:
        after = events.run_pod(node, sandbox_of(node, pod, devices or {}))
    outcomes: dict[str, Outcome] = {}
    given: dict[str, ContainerAllocation] = {}
    rejected: dict[str, str] = {}
    answers: list[Outcome] = []
    for container in missing(after, pod):
        outcome = events.create(after, pod.uid, spec_of(after, pod, container))
        if outcome.error is None and container.name in uncreated:
            rejected[container.name] = "according to the pod's status, the runtime could not create it"
        else:
            after, outcomes[container.name] = outcome.node, outcome
            answers.append(outcome)
            if outcome.error is None:
                given[container.name] = _allocation(outcome)
            else:
                rejected[container.name] = outcome.error.message
        if container.kind is ContainerKind.APP:
            continue
        if container.name in rejected:
            break  # nothing starts before init containers have ended and sidecars run
        if container.kind is ContainerKind.INIT:
            ended = events.stop(after, outcome.subject)
            after = ended.node
            answers.append(ended)
    return Admission(
        admitted=not rejected,
        reason=CREATE_CONTAINER_ERROR if rejected else "",
        message="; ".join(f"container {name}: {message}" for name, message in list(rejected.items())[:1]),
        containers=given,
        rejected=rejected,
        node=after,
        pod=pod,
        before=before,
        outcomes=outcomes,
        answers=tuple(answers),
    )


def missing(node: Node, pod: Pod) -> list[Container]:
    """Return the containers of a pod that the runtime is to create, in order."""
    names = [_id(pod.uid, container.name) for container in pod.containers]
    tried = max((position for position, name in enumerate(names) if name in node.containers), default=-1)
    created = set(node.names.values())
    # Init containers before one that was tried have ended.
    return [
        container
        for position, (name, container) in enumerate(zip(names, pod.containers, strict=True))
        if name not in created and not (container.kind is ContainerKind.INIT and position < tried)
    ]


def remove(node: Node, uid: str) -> Node:
    """Return the node after a pod ended or was deleted; unknown pods change nothing."""
    if uid not in node.sandboxes:
        return node
    for name in [name for name, known in node.containers.items() if known.sandbox.uid == uid]:
        node = events.stop(node, name).node
    return events.remove_pod(node, uid)


def _id(uid: str, container: str) -> str:
    return f"{uid}/{container}"


def sandbox_of(node: Node, pod: Pod, devices: Mapping[str, Iterable[PodDevice]] = _NO_DEVICES) -> Sandbox:
    """Return a pod as the runtime tells the plugin about it."""
    listed = devices if node.policy.config.pod_resources else {}
    return Sandbox(
        id=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        qos=pod.qos,
        labels={**dict(pod.labels), **_runtime_labels(pod)},
        annotations=dict(pod.annotations),
        devices={name: tuple(entries) for name, entries in listed.items()},
    )


def _runtime_labels(pod: Pod) -> dict[str, str]:
    """Return the labels that the kubelet gives sandboxes and containers in the runtime."""
    return {
        "io.kubernetes.pod.name": pod.name,
        "io.kubernetes.pod.namespace": pod.namespace,
        "io.kubernetes.pod.uid": pod.uid,
    }


def spec_of(node: Node, pod: Pod, container: Container) -> ContainerSpec:
    """Return a container as the runtime tells the plugin about it."""
    capacity = node.policy.topology.memory_capacity
    return ContainerSpec(
        id=_id(pod.uid, container.name),
        name=container.name,
        cgroup=cgroup_of(pod, container, memory_capacity=capacity),
        labels={**_runtime_labels(pod), "io.kubernetes.container.name": container.name},
    )


def _check_devices(node: Node, pod: Pod, devices: Mapping[str, Iterable[PodDevice]] | None) -> None:
    """Refuse to guess where a container's devices are, and so which pool suits them."""
    sandbox = sandbox_of(node, pod)
    for container in pod.containers if devices is None else ():
        resource = next(
            (
                name
                for name, _ in container.limits
                if resources.is_device(name) and name != _EPHEMERAL_STORAGE
            ),
            None,
        )
        if resource is not None and wants_device_hints(sandbox, container.name):
            raise UnmodelledFeature(
                f"container {container.name} of pod {pod.name} gets devices ({resource}), whose NUMA "
                "nodes are topology hints for the policy, but which ones it gets is unknown; pass devices=…, "
                'or turn hints off with the annotation topologyhints.resource-policy.nri.io: "false"'
            )


def _allocation(outcome: Outcome) -> ContainerAllocation:
    node, name = outcome.node, outcome.subject
    grant = node.grants[name]
    pool = node.pools[grant.pool]
    return ContainerAllocation(
        pool=pool.name,
        kind=grant.kind,
        exclusive=grant.exclusive,
        isolated=grant.exclusive & pool.isolated,
        shared=grant.shared,
        reserved=grant.reserved,
        memory_nodes=grant.zone,
        memory=grant.memory,
        update=outcome.own or ContainerUpdate(),
        scheduling=scheduling_of(node, name),
    )


def scheduling_of(node: Node, container: str) -> SchedulingClass | None:
    """Return the class of a container; None: the runtime gets none, also where the annotation is unknown."""
    known = node.containers[container]
    config, sandbox = node.policy.config, known.sandbox
    name = sandbox.preference("scheduling-class", known.spec.name)
    if name is None:
        name = config.namespace_classes.get(sandbox.namespace) or config.qos_classes.get(
            sandbox.qos.value.lower()
        )
    return None if name is None else config.scheduling_class(name)
