"""Rejections that nothing was predicted of are explained all the same, where the model understands them."""

from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones_operator.verification.causes import Accuracy
from numazones_operator.verification.rejection_advice import advice_of, explanation_of
from numazones_operator.verification.verifier import Verification
from tests.operator.offline_pipeline import RUNNING, OfflinePipeline, pod, zones_show

REJECTED: dict[str, Any] = {"phase": "Failed", "reason": "TopologyAffinityError"}


class Told:
    """A full node, and what the publisher is told."""

    def __init__(self) -> None:
        self.setting = OfflinePipeline()
        self.setting.add_node()
        self.setting.pipeline.synced = True
        self.said: list[Verification] = []
        self.setting.pipeline.publisher.take_outcome = self.verified  # type: ignore[method-assign]
        for name in ("first", "second"):
            self.setting.state.pods.put(pod(name, **RUNNING))
        zones_show(self.setting, "first", "second")

    def verified(self, pod: ClusterPod, verification: Verification) -> None:
        assert pod.name == "late"
        self.said.append(verification)


@pytest.fixture
def full() -> Told:
    return Told()


async def test_a_rejection_that_was_there_before_the_binding_is_explained(full: Told) -> None:
    full.setting.state.pods.put(pod("late", **REJECTED))
    (verification,) = full.said
    assert (verification.expectation.predicted, verification.accuracy) == ("Unknown", Accuracy.UNKNOWN)
    lines = explanation_of(verification)
    assert lines[0].startswith("there was no prediction; this explanation was computed afterwards")
    assert any(
        "the missing resources on NUMA node 0 are held by default/first (30 exclusive CPUs)" in line
        for line in lines
    )
    assert lines[-1].startswith("needs 30 exclusive CPUs on one NUMA node")
    assert advice_of(verification)
    # Told once, whatever is written on the pod later.
    full.setting.state.pods.put(pod("late", **REJECTED, message="Pod was rejected: again"))
    assert len(full.said) == 1


async def test_rejection_on_a_then_unknown_node_is_explained(full: Told) -> None:
    full.setting.clock.now += 61.0  # the exporter's Lease has run out
    full.setting.state.pods.put(pod("late"))
    full.setting.beat()
    full.setting.state.pods.put(pod("late", **REJECTED))
    (verification,) = full.said
    assert verification.expectation.reason == "LeaseExpired"
    assert explanation_of(verification)[-1].startswith("needs 30 exclusive CPUs on one NUMA node")


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "NodeShutdown"},  # nothing that the model says
        {**REJECTED, "reason": "SMTAlignmentError"},
    ],
)
async def test_what_the_model_would_not_have_said_is_not_explained(
    full: Told, status: dict[str, Any]
) -> None:
    full.setting.state.pods.put(pod("late", **status))
    (verification,) = full.said
    assert explanation_of(verification) == advice_of(verification) == ()


async def test_what_has_ended_before_the_operator_began_is_not_told(full: Told) -> None:
    full.setting.pipeline.synced = False
    full.setting.state.pods.put(pod("old", **REJECTED))
    full.setting.pipeline.synced = True
    full.setting.state.pods.put(pod("old", **REJECTED, message="Pod was rejected: x"))
    assert full.said == []


def too_large(resources: dict[str, Any], own: dict[str, Any], **status: Any) -> ClusterPod:
    """A pod for which its node has too few CPUs, by what it asks for as a whole or by its container."""
    container = {"name": "main", "image": "app", **({"resources": own} if own else {})}
    spec = {"nodeName": "node", "containers": [container], **({"resources": resources} if resources else {})}
    metadata = {"namespace": "default", "name": "late", "uid": "uid-late"}
    return ClusterPod.from_api({"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}})


ASKED = {"cpu": "40", "memory": "1Gi"}
MORE = {"cpu": "50", "memory": "1Gi"}


@pytest.mark.parametrize("seen", [True, False], ids=["bound before", "rejected at once"])
@pytest.mark.parametrize(
    ("resources", "own"),
    [
        pytest.param({"requests": ASKED, "limits": ASKED}, {}, id="Guaranteed as a whole"),
        pytest.param({"requests": ASKED, "limits": MORE}, {}, id="Burstable as a whole"),
    ],
)
async def test_pod_level_resources_get_rejection_advice_in_any_qos_class(
    full: Told,
    resources: dict[str, Any],
    own: dict[str, Any],
    seen: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    if seen:
        full.setting.state.pods.put(too_large(resources, own))
    full.setting.state.pods.put(too_large(resources, own, phase="Failed", reason="OutOfcpu"))
    (verification,) = full.said
    assert verification.accuracy is (Accuracy.RIGHT if seen else Accuracy.UNKNOWN)
    assert explanation_of(verification)[-1] == "requests 40 cpu; pods on the node request 60 of its 60"


async def test_pod_without_numa_requirements_gets_no_rejection_advice(full: Told) -> None:
    burstable = {"requests": ASKED, "limits": MORE}
    full.setting.state.pods.put(too_large({}, burstable))
    full.setting.state.pods.put(too_large({}, burstable, phase="Failed", reason="OutOfcpu"))
    assert full.said == []
