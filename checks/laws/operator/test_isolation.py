"""An exception in any step about one object leaves every answer about the others as it was.

The steps are the functions that are called about a marked object while the operator runs; each is made to
raise in turn.
"""

from functools import partial

import pytest

from checks.laws.operator.mirror_run import Mirrors
from checks.laws.operator.rebalancing_run import Rebalances
from tests.operator.steps_of_an_object import wrong_steps

SEAMS = frozenset(
    {
        "AdmissionGates._release",
        "AdmissionGates._walk",
        "ClusterGauges._gauges_of",
        "ClusterState._known",
        "ClusterState.node",
        "CurrentVerdicts._beside_sound",
        "CurrentVerdicts._renew_node",
        "CurrentVerdicts.of",
        "HeldRoom._shown_by",
        "Intent._take",
        "Intent._take_change",
        "LiveForecasts._changes_isolated",
        "LiveForecasts._renew_isolated",
        "LiveForecasts._renew_node",
        "NodeState.free_block",
        "NodeState.upper_bound",
        "NodeState.worth",
        "PageUpdater._show_sound",
        "_Play._worth",
        "_beside",
        "_each",
        "_may_go_for",
        "_selects",
        "_sum",
        "evict",
        "obstacles",
        "place",
        "with_held",
        "zones_of",
    }
)
"""Functions that do nothing but take what others raise, or name the object."""
OF_SEVERAL = frozenset(
    {
        "AdmissionGates._start",
        "AdmissionGates._with_devices",
        "AdmissionGates._write",
        "AllowedNodes.named",
        "Forecast._named",
        "Forecast.prediction",
        "GateRemover._patch",
        "GateRemover._targets",
        "GateRemover.write",
        "HeldRoom.hold",
        "VersionedDocuments.remove",
        "_is_named",
        "_limits",
        "_written",
        "by_node",
        "document",
        "gate_removal_patch",
    }
)
"""Functions that are called about several pods or nodes at once, such as those a pod is released to."""


@pytest.mark.parametrize(
    ("kind", "at_once", "least"),
    [
        ("pod", 3, 180),
        ("blocked_pod", 8, 200),
        ("node", 8, 160),
        ("slice", 8, 9),
        ("claim", 8, 7),
        ("device_class", 8, 8),
    ],
)
def test_exception_in_any_step_about_an_object_ends_nothing_else(kind: str, at_once: int, least: int) -> None:
    wrong = wrong_steps(partial(Mirrors, kind), at_once=at_once, seams=SEAMS | OF_SEVERAL, least=least)
    assert not wrong, "\n".join(f"{name}: {problem}" for name, problem in wrong.items())


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("running_pod", 55),
        ("waiting_pod", 65),
        ("node", 60),
        ("budget", 30),
        ("policy", 55),
        ("recommendation", 25),
    ],
)
def test_exception_in_any_step_about_an_object_ends_no_other_plan(kind: str, least: int) -> None:
    wrong = wrong_steps(partial(Rebalances, kind), at_once=8, seams=SEAMS, least=least)
    assert not wrong, "\n".join(f"{name}: {problem}" for name, problem in wrong.items())
