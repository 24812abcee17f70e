"""What Koordinator is called, and which objects it reads: what all its parts agree on."""

from numazones.placement.model import ObjectKind

NAME = "koordinator"
DECIDER = "koord-scheduler"
SOURCE = "Koordinator"
SCHEDULER_SETTING = f"{NAME}.scheduler"
DEVICE = ObjectKind(
    "Device", "scheduling.koordinator.sh", "v1alpha1", "devices", namespaced=False, of_node=True
)
