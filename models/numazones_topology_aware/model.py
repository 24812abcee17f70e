"""NRI's topology-aware policy as a placement model: how a node shows it, and where its parts are.

The entry point names ``MODEL``; the rules are loaded when a node shows the model, since most clusters have
kubelets alone.
"""

from numazones.placement.model import BoundPod, Model, Object, on_demand, runtime_verdict
from numazones_topology_aware.identity import DECIDER, NAME, POLICIES, SOURCE


def _mark(_node: Object, topology: Object | None) -> str | None:
    """Return which NRI policy maintains the NodeResourceTopology."""
    if topology is None:
        return None
    from numazones_topology_aware.live import policy_of  # noqa: PLC0415 - see the docstring above

    policy = policy_of(topology)
    return None if policy is None else f"its NodeResourceTopology is the {policy} policy's"


def _verdict(pod: BoundPod) -> str | None:
    """Return what became of a pod; the plugin's name is in what the runtime says where it refused one."""
    return runtime_verdict(pod, "topology-aware", "nri")


MODEL = Model(
    name=NAME,
    decider=DECIDER,
    source=SOURCE,
    mark=_mark,
    read=on_demand("numazones_topology_aware.node_placement:read"),
    follow=on_demand("numazones_topology_aware.follower:Follower"),
    verdict=_verdict,
    simulation="numazones_topology_aware.simulation:SIMULATION",
    objects=(POLICIES,),
    pod_marks=("resource-policy.nri.io", "noderesource.dev/"),
    places_every_pod=True,
    tells_namespaces_apart=True,
)
"""The policy's plugin places containers when the runtime creates them, and publishes what is left."""
