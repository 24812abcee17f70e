"""Target of the entry point; the rules are loaded when a node shows the model."""

from numazones.placement.model import Model, ObjectKind, labels_of, on_demand, runtime_verdict

DECIDER = "the pinning agent"
LABEL = "pinned.example/agent"
NODES = ObjectKind("PinnedNode", "pinned.example", "v1", "pinnednodes", namespaced=False, of_node=True)

MODEL = Model(
    name="pinned",
    decider=DECIDER,
    source="Pinned",
    mark=lambda node, _topology: LABEL if LABEL in labels_of(node) else None,
    read=on_demand("pinned_model.placement:read"),
    verdict=lambda pod: runtime_verdict(pod, DECIDER),
    objects=(NODES,),
    pod_marks=("pinned.example/",),
    eviction_cost="pinned.example/eviction-cost",
    places_every_pod=True,
)
