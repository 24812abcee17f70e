"""Who places pods on NUMA nodes: the kubelet, Koordinator or NRI's topology-aware policy.

Which model a node of a running cluster shows is ``shown``; ``seen`` reads its state. What is asked of the
models other than the kubelet is in ``models``, and is reached by the same names here; it is loaded when the
first such name is asked for, since most clusters have kubelets alone and the models are large.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from numazones.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node as KubeletNode

if TYPE_CHECKING:
    from numazones.placement.models import (
        Holding,
        PolicyAdmission,
        PolicyNode,
        admit,
        bind,
        cpus_of_numa,
        exclusive,
        explain,
        holdings,
        largest_free_block,
        packing,
        readable,
        remove,
        room,
        schedulers,
        zones_of,
    )
    from numazones_koordinator.scheduler import Scheduler

__all__ = [
    "DECIDERS",
    "Holding",
    "Model",
    "PolicyAdmission",
    "PolicyNode",
    "UnreadableNode",
    "admit",
    "bind",
    "cpus_of_numa",
    "exclusive",
    "explain",
    "holdings",
    "largest_free_block",
    "model_of",
    "packing",
    "readable",
    "remove",
    "room",
    "schedulers",
    "seen",
    "shown",
    "zones_of",
]

_KOORDINATOR_PREFIXES = ("node.koordinator.sh/", "kubelet.koordinator.sh/")


class Model(StrEnum):
    """Who places pods on a node's NUMA nodes."""

    KUBELET = "kubelet"
    KOORDINATOR = "koordinator"
    TOPOLOGY_AWARE = "topology-aware"


DECIDERS = {
    Model.KUBELET: "the kubelet",
    Model.KOORDINATOR: "koord-scheduler",
    Model.TOPOLOGY_AWARE: "the NRI topology-aware policy",
}
"""Model → its name in sentences."""


class UnreadableNode(NumazonesError):
    """A node's objects don't tell what its placement model decides from; the message says what is missing."""


def model_of(node: "KubeletNode | PolicyNode") -> Model:
    """Whose node it is."""
    if isinstance(node, KubeletNode):
        return Model.KUBELET
    from numazones_koordinator.node import Node as KoordinatorNode  # noqa: PLC0415 - see the docstring above

    return Model.KOORDINATOR if isinstance(node, KoordinatorNode) else Model.TOPOLOGY_AWARE


def shown(node: Mapping[str, Any], topology: Mapping[str, Any] | None) -> Model:
    """Tell from a core/v1 Node and its NodeResourceTopology (None: it has none) who places pods there.

    Raises:
        UnreadableNode: they name two models.
    """
    labels = _metadata(node).get("labels") or {}
    notes = {} if topology is None else _metadata(topology).get("annotations") or {}
    marks = [key for key in (*labels, *notes) if str(key).startswith(_KOORDINATOR_PREFIXES)]
    policy = None
    if topology is not None:
        from numazones_topology_aware.live import policy_of  # noqa: PLC0415 - see the docstring above

        policy = policy_of(topology)
    if marks and policy is not None:
        raise UnreadableNode(
            f"the node is marked as Koordinator's ({marks[0]}), its NodeResourceTopology is the {policy} "
            "policy's: who places pods there is not known; remove what is left of the one that is gone"
        )
    if policy is not None:
        return Model.TOPOLOGY_AWARE
    return Model.KOORDINATOR if marks else Model.KUBELET


def seen(
    node: Mapping[str, Any],
    topology: Mapping[str, Any] | None,
    *,
    pods: Iterable[ClusterPod],
    kubelet_node: KubeletNode | None,
    device: Mapping[str, Any] | None = None,
    configurations: Iterable[Mapping[str, Any]] = (),
    scheduler: "Scheduler | None" = None,
) -> "PolicyNode | None":
    """Read the state of a node on which another model than the kubelet places pods; None: the kubelet does.

    Args:
        node: core/v1 Node.
        topology: its NodeResourceTopology; None: it has none.
        pods: those bound to it that have not ended.
        kubelet_node: what its NUMAZones say of machine and kubelet; None: it has none that can be read.
        device: Koordinator's Device object of the node.
        configurations: all TopologyAwarePolicy resources.
        scheduler: how koord-scheduler is set up; None: as it is by default.

    Raises:
        NumazonesError: the objects don't tell, or contradict each other; the message says which.
    """
    model = shown(node, topology)
    if model is Model.KUBELET:
        return None
    from numazones.placement import models  # noqa: PLC0415 - see the docstring above

    return models.read(
        model,
        node,
        topology,
        pods=pods,
        kubelet_node=kubelet_node,
        device=device,
        configurations=configurations,
        scheduler=scheduler,
    )


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found = body.get("metadata") or {}
    return found if isinstance(found, Mapping) else {}


if not TYPE_CHECKING:  # type checkers know the names from above, and find misspelt ones

    def __getattr__(name: str) -> Any:
        """Load what is asked of the other models (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.models"), name)
