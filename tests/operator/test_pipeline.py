"""A pod's binding is predicted before its node counts the pod, and after it counts all earlier ones."""

from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones_operator.pipeline import NOT_BY_PREEMPTION
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.one_node_pipeline import OneNodePipeline
from tests.operator.pods import pod_body

STARTED = [{"name": "main"}]


@pytest.fixture
def setting() -> OneNodePipeline:
    return OneNodePipeline()


def test_binding_is_predicted_with_earlier_pods_but_without_itself(
    setting: OneNodePipeline,
) -> None:
    # Each zone has 30 CPUs for pods: the third pod of 20 finds no zone.
    for name in "abc":
        setting.pod(name, cpu=20)
        setting.pod(name, cpu=20, node="node")
    setting.pod("a", cpu=20, node="node", phase="Running", containerStatuses=STARTED)
    setting.pod("b", cpu=20, node="node", phase="Running", containerStatuses=STARTED)
    setting.pod("c", cpu=20, node="node", phase="Failed", reason="TopologyAffinityError")
    assert setting.outcomes() == {
        ("Admissible", "Admitted"): 2,
        ("Inadmissible", "TopologyAffinityError"): 1,
    }


def test_what_the_model_rejected_leaves_room_for_the_next(setting: OneNodePipeline) -> None:
    for name, cpu in (("a", 20), ("b", 20), ("too-big", 20), ("fits", 8)):
        setting.pod(name, cpu=cpu)
        setting.pod(name, cpu=cpu, node="node")
    setting.pod("fits", cpu=8, node="node", phase="Running", containerStatuses=STARTED)
    assert setting.outcomes() == {("Admissible", "Admitted"): 1}


def test_a_binding_from_before_the_first_list_is_not_predicted(setting: OneNodePipeline) -> None:
    setting.pipeline.synced = False
    setting.pod("a", node="node")
    setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
    assert setting.outcomes() == {}


def test_pods_wait_until_bound_or_gone_and_gates_stay(
    setting: OneNodePipeline,
) -> None:
    waiting = setting.pod("a")
    assert set(setting.state.pending) == {"uid-a"}
    setting.pod("a", node="node")
    assert not setting.state.pending
    setting.state.pods.remove(waiting)
    body = pod_body("gated", schedulingGates=[{"name": "any"}])
    body["spec"]["containers"][0]["resources"] = {}
    body["metadata"]["uid"] = "gated"
    gated = ClusterPod.from_api(body)
    setting.state.pods.put(gated)
    assert (set(setting.state.pending), set(setting.state.gated)) == (set(), {"gated"})
    setting.state.pods.remove(gated)
    assert not setting.state.gated


async def message_about(setting: OfflinePipeline, name: str) -> str:
    """Return the event's message on a pod that fits nowhere."""
    await setting.renew()
    pod = setting.state.pending[f"uid-{name}"]
    setting.pipeline.verdict_events.take_verdict(pod, setting.published[name], before="")
    queue: Any = setting.events._queue
    return str(list(queue._queue)[-1]["message"])


async def test_blocked_pod_gets_a_cure_other_than_preemption() -> None:
    setting = OfflinePipeline()
    setting.add_node()
    for name in ("a", "b"):
        setting.put_pod(name, cpu=20, nodeName="node")
    setting.put_pod("waits", cpu=16)
    said = await message_about(setting, "waits")
    assert "; the missing resources there are held by default/" in said
    assert said.endswith(f"; {NOT_BY_PREEMPTION}")
    assert "a RebalancePolicy with pendingPods can make room" in said


async def test_pod_that_never_fits_gets_no_advice_on_evictions() -> None:
    setting = OfflinePipeline()
    setting.add_node()
    setting.put_pod("a", cpu=20, nodeName="node")
    setting.put_pod("huge", cpu=31)  # more than a NUMA node has
    assert "RebalancePolicy" not in await message_about(setting, "huge")
