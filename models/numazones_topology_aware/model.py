"""NRI's topology-aware policy as a placement model: how a node shows it, and where its parts are.

The entry point names ``MODEL``; the rules are loaded when a node shows the model, since most clusters have
kubelets alone.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.placement import ADMITTED
from numazones.placement.models import BoundPod, NodeObjects, Object, ObjectKind, rejected_by_kubelet
from numazones_topology_aware.identity import DECIDER, NAME, POLICIES, SOURCE

if TYPE_CHECKING:
    from numazones_topology_aware.follower import Follower
    from numazones_topology_aware.node_placement import TopologyAwarePlacement

_WORDS_OF_THE_POLICY = ("topology-aware", "nri")
"""What the runtime's message says where the policy's plugin made it refuse a container."""


class TopologyAware:
    """The policy's plugin places containers when the runtime creates them, and publishes what is left."""

    name = NAME
    decider = DECIDER
    source = SOURCE
    objects: Sequence[ObjectKind] = (POLICIES,)
    settings: Mapping[str, str] = {}
    node_annotations: Sequence[str] = ()
    pod_annotations: Sequence[str] = ()
    pod_marks: Sequence[str] = ("resource-policy.nri.io", "noderesource.dev/")
    eviction_cost = ""
    places_every_pod = True
    tells_namespaces_apart = True

    def mark(self, _node: Object, topology: Object | None) -> str | None:
        """Return which NRI policy maintains the NodeResourceTopology."""
        if topology is None:
            return None
        from numazones_topology_aware.live import policy_of  # noqa: PLC0415 - see the docstring above

        policy = policy_of(topology)
        return None if policy is None else f"its NodeResourceTopology is the {policy} policy's"

    def read(self, objects: NodeObjects) -> "TopologyAwarePlacement":
        """Read a node from its published pools and its pods.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        from numazones_topology_aware.node_placement import read  # noqa: PLC0415 - see the docstring above

        return read(objects)

    def follow(self, objects: NodeObjects) -> "Follower":
        """Read a node, and follow what happens there.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        from numazones_topology_aware.follower import Follower  # noqa: PLC0415 - see the docstring above

        return Follower(objects)

    def verdict(self, pod: BoundPod) -> str | None:
        """Return what became of a pod; None while that is unknown.

        The policy decides when containers are created: one that it rejects waits, and says so; another
        reason to wait for ever, such as a mount that fails, tells nothing about it.
        """
        rejection = rejected_by_kubelet(pod)
        if rejection:
            return rejection
        if pod.create_error:
            by_policy = any(word in pod.create_error.lower() for word in _WORDS_OF_THE_POLICY)
            return CREATE_CONTAINER_ERROR if by_policy else None
        return ADMITTED if pod.node and pod.phase != "Pending" else None

    def outcome(self, verdict: str, _pod: BoundPod) -> str:
        """Return the verdict: the policy writes nothing on pods."""
        return verdict

    def simulation(self) -> Any:
        """Return its part of a simulated cluster: the plugin in the runtime."""
        from numazones_topology_aware import simulation  # noqa: PLC0415 - see the docstring above

        return simulation.SIMULATION


MODEL = TopologyAware()
