"""Names in the API by which pods are kept at the scheduling gate (KEP-3521) and released from it."""

from typing import Final

GATE: Final = "numazones.io/admission"
WITHOUT_GATE: Final = [{"$patch": "delete", "name": GATE}]
"""Scheduling gates of a strategic merge patch that removes this one and leaves those of others."""
RELEASED: Final = "numazones.io/admission-released"
"""Annotation: when a pod was released from the gate."""
OPT_IN: Final = ("numazones.io/admission-gate", "enabled")
"""Label of the namespaces whose pods the operator releases from the gate."""
