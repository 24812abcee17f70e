from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE
from numazones_client import Client, ClusterConfig
from numazones_client.resources import PODS
from numazones_simulator import node_kinds, simulated_cluster
from numazones_simulator.prevention import Prevention
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import Publishing
from numazones_simulator.turnover import Turnover, fate_of
from numazones_simulator.workload import PodStream

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("spec", "status", "fate"),
    [
        ({}, {"phase": "Pending"}, ""),
        ({}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable"),
        ({"nodeName": "n"}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]}, ""),
        ({"nodeName": "n"}, {"phase": "Running"}, "Running"),
        ({"nodeName": "n"}, {"phase": "Succeeded"}, "Running"),
        ({"nodeName": "n"}, {"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu"),
        ({"nodeName": "n"}, {"phase": "Failed"}, "Failed"),
    ],
)
def test_what_became_of_a_pod(spec: dict[str, Any], status: dict[str, Any], fate: str) -> None:
    assert fate_of({"spec": spec, "status": status}) == fate


async def test_pods_come_and_go_until_all_have_met_their_fate(tmp_path: Path) -> None:
    seen: list[int] = []
    async with simulated_cluster.running(
        node_kinds.mixed(5), tmp_path, Screen(), publishing=Publishing.DIRECT, operator=None
    ) as cluster:
        turnover = Turnover(cluster.plane.client, islice(PodStream(2).pods(), 50), crowd=20)
        fates = await turnover.run(50, progress=seen.append)
        left = await cluster.plane.client.list(PODS)
    assert fates.total == 50
    assert fates.counts["Running"] > 30
    assert 20 <= len(left) <= 20 + 10
    assert seen == sorted(seen)
    assert str(fates).startswith(f"{fates.counts['Running']} Running")


@pytest.mark.parametrize("gate", [False, True], ids=["without", "gate"])
async def test_behind_the_gate_pods_wait_that_would_be_rejected(tmp_path: Path, *, gate: bool) -> None:
    """As shipped: the policy of the manifests, evaluated by the API server; the operator opens the gate."""
    async with simulated_cluster.running(
        node_kinds.mixed(3),
        tmp_path,
        Screen(),
        publishing=Publishing.DIRECT,
        operator=(),
        prevent=(Prevention.GATE,) if gate else (),
    ) as cluster:
        # One at a time, and none goes: what is told of a pod that waits does not change any more.
        turnover = Turnover(cluster.plane.client, PodStream(4).pods(), crowd=45, in_flight=1)
        fates = await turnover.run(45)
        gated = [pod for pod in await cluster.plane.client.list(PODS) if pod["spec"].get("schedulingGates")]
    assert fates.total == 45
    assert (fates.rejected == 0) is gate, str(fates)
    assert bool(gated) is gate
    assert {gate["name"] for pod in gated for gate in pod["spec"]["schedulingGates"]} <= {GATE}
    assert fates.counts["Unschedulable"] >= len(gated)


async def test_waiting_pod_counts_with_its_final_outcome(tmp_path: Path) -> None:
    turnover = Turnover(Client(ClusterConfig("http://127.0.0.1:1")), iter(()), crowd=1)
    pod = {"metadata": {"namespace": "n", "name": "p"}, "spec": {}}
    gated = pod | {"spec": {"schedulingGates": [{"name": GATE}]}}
    turnover._waiting.add("n/p")
    # The prediction is seen before the pod.
    turnover._take_prediction(None, pod | {"status": {"verdict": "Inadmissible"}})
    assert turnover.fates.total == 0
    turnover._take_pod(None, gated)
    assert str(turnover.fates) == "1 Unschedulable"
    turnover._take_pod(gated, pod | {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
    assert str(turnover.fates) == "1 OutOfcpu"
