"""The gate's benchmark measures what it says, on a cluster small enough for a test."""

import pytest

from checks.seen.benchmarks.running import figures_of
from numazones_apiserver import InProcess
from numazones_benchmarks.feeder import FedObjects, Feeder
from numazones_benchmarks.gate import gated_pods
from numazones_client import Client
from numazones_client.client import STRATEGIC_MERGE_PATCH
from numazones_client.resources import PODS
from numazones_operator.prevention.gate_removal_patch import TargetNode, gate_removal_patch


@pytest.mark.parametrize(
    ("nodes", "bound_to"), [(("worker-0001", "worker-0002"), "worker-0001"), ((), "worker-0000")]
)
async def test_released_pod_is_bound_to_its_first_allowed_node(nodes: tuple[str, ...], bound_to: str) -> None:
    feeder = Feeder(FedObjects(nodes=3, pods=0, distinct=True, zones=1), gated="gated")
    await feeder.fill()
    (pod,) = gated_pods(1)
    name, uid = pod["metadata"]["name"], feeder.put_waiting(pod)["metadata"]["uid"]
    patch = gate_removal_patch(uid, [TargetNode(name, None) for name in nodes], now="now")
    async with Client(transport=InProcess(feeder)) as client:
        released = await client.patch(PODS, name, patch, namespace="gated", media_type=STRATEGIC_MERGE_PATCH)
        assert "schedulingGates" not in released["spec"]
        version = released["metadata"]["resourceVersion"]
        bound = await anext(client.watch(PODS, resource_version=version))
    assert bound.object is not None
    assert bound.object["spec"]["nodeName"] == bound_to


@pytest.mark.slow
def test_it_prints_the_outcome_of_gated_pods_and_every_goal() -> None:
    figures = figures_of("gate.py", "--nodes=20", "--pods=100", "--gated=20")
    assert figures["released"] == 20
    assert figures["decisions"] >= 20
    assert all(figures[name] > 0 for name in figures["goals"])
    assert figures["missed"] == [name for name, goal in figures["goals"].items() if figures[name] < goal]
