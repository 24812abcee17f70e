"""What the model is called, and which objects it reads."""

from numazones.placement.models import ObjectKind

NAME = "pinned"
DECIDER = "the pinning agent"
SOURCE = "Pinned"
LABEL = "pinned.example/agent"
NODES = ObjectKind("PinnedNode", "pinned.example", "v1", "pinnednodes", namespaced=False, of_node=True)
