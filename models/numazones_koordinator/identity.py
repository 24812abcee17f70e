"""Names of Koordinator and of the objects it reads, shared by all its parts."""

from numazones.placement.model import ObjectKind

NAME = "koordinator"
DECIDER = "koord-scheduler"
SOURCE = "Koordinator"
SCHEDULER_SETTING = f"{NAME}.scheduler"
DEVICE = ObjectKind(
    "Device", "scheduling.koordinator.sh", "v1alpha1", "devices", namespaced=False, of_node=True
)
