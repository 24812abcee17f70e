"""Koordinator as a placement model: how a node shows it, and where its parts are.

The entry point names ``MODEL``; the rules are loaded when a node shows the model, since most clusters have
kubelets alone.
"""

from numazones.placement.model import Model, Object, labels_of, metadata_of, on_demand
from numazones_koordinator.identity import DECIDER, DEVICE, NAME, SOURCE

_PREFIXES = ("node.koordinator.sh/", "kubelet.koordinator.sh/")


def _mark(node: Object, topology: Object | None) -> str | None:
    """Return the first label of the Node, or annotation of its NodeResourceTopology, of Koordinator's."""
    notes = {} if topology is None else metadata_of(topology).get("annotations") or {}
    return next((str(key) for key in (*labels_of(node), *notes) if str(key).startswith(_PREFIXES)), None)


MODEL = Model(
    name=NAME,
    decider=DECIDER,
    source=SOURCE,
    mark=_mark,
    read=on_demand("numazones_koordinator.placement:read"),
    follow=on_demand("numazones_koordinator.follower:Follower"),
    outcome=on_demand("numazones_koordinator.placement:written_outcome"),
    objects=(DEVICE,),
    settings={
        "scheduler": "spec.schedulerName of the pods that Koordinator's scheduler places; for other pods "
        "the nodes' kubelets decide"
    },
    node_annotations=(_PREFIXES[0],),
    pod_annotations=("scheduling.koordinator.sh/",),
    pod_marks=("koordinator.sh/",),
    eviction_cost="scheduling.koordinator.sh/eviction-cost",
    filtered_by_scheduler=True,
)
"""koord-scheduler places pods on NUMA nodes, and writes on each pod what it gave it."""
