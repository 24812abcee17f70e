"""Documents of ``-o json`` and ``-o yaml``: one per command, a value whose fields are documented.

Numbers are numbers, amounts of memory are quantities as Kubernetes writes them, sets of CPUs are lists as the
kernel writes them (``0-3,8``), and what is not known is null. ``make reference`` writes the page from here;
the tests hold every command's answer against it. Fields may be added; those that are there keep their
meaning.
"""

from typing import Any

from kubectl_numazones.commands.aligned import AlignedDocument
from kubectl_numazones.commands.clean import CleanDocument
from kubectl_numazones.commands.doctor import DoctorDocument
from kubectl_numazones.commands.fit import FitDocument
from kubectl_numazones.commands.idle import IdleDocument
from kubectl_numazones.commands.plan import PlanDocument
from kubectl_numazones.commands.replay import ReplayDocument
from kubectl_numazones.commands.size import SizeDocument
from kubectl_numazones.commands.top import TopDocument
from kubectl_numazones.commands.who import WhoDocument
from kubectl_numazones.stuck.gate_control import GateDocument
from kubectl_numazones.stuck.why_document import WhyDocument, WhyListDocument
from numazones.whatif.experiment import Comparison


class SweepDocument(Comparison):
    """``sweep``: the same as ``whatif``, for every combination."""


DOCUMENTS: dict[str, Any] = {
    "aligned": AlignedDocument,
    "why": WhyDocument,
    "why, for several pods": WhyListDocument,
    "top": TopDocument,
    "who": WhoDocument,
    "idle": IdleDocument,
    "fit": FitDocument,
    "plan": PlanDocument,
    "whatif": Comparison,
    "sweep": SweepDocument,
    "doctor": DoctorDocument,
    "gate": GateDocument,
    "clean": CleanDocument,
    "replay": ReplayDocument,
    "size": SizeDocument,
}
"""Command, and form of it → what it answers."""
