from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from numazones_client.resources import PODS
from numazones_simulator import node_kinds, simulated_cluster
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import Publishing
from numazones_simulator.turnover import Turnover, fate_of
from numazones_simulator.workload import Workload

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
        turnover = Turnover(cluster.plane.client, islice(Workload(2).pods(), 50), crowd=20)
        fates = await turnover.run(50, progress=seen.append)
        left = await cluster.plane.client.list(PODS)
    assert fates.total == 50
    assert fates.counts["Running"] > 30
    assert 20 <= len(left) <= 20 + 10
    assert seen == sorted(seen)
    assert str(fates).startswith(f"{fates.counts['Running']} Running")
