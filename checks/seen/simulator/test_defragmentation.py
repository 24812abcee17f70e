"""Defragmentation in the closed loop, small: what the benchmark of fifty nodes does, on eight."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from numazones.placement.fragmentation import Shape
from numazones.rebalance.goals import FitMore, Wanted, measure
from numazones_simulator.churn import Churn, nodes_of
from tests.places import ROOT


@pytest.mark.slow
def test_auto_mode_lets_big_pods_in_without_evicting_twice_or_breaking_budgets() -> None:
    command = [
        sys.executable,
        "lab/numazones_benchmarks/defragmentation.py",
        "--json",
        "--nodes=8",
        "--big-pods=4",
    ]
    done = subprocess.run(
        [*command, "--seconds=120"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=800
    )
    report: dict[str, Any] = json.loads(done.stdout)
    auto = report["auto"]
    assert auto["bigPodsAfter"] > auto["bigPodsBefore"]
    assert 0 < auto["evictions"] <= 20
    assert auto["evictedTwice"] == 0
    assert auto["timesBelowBudget"] == 0


def test_the_same_seed_fragments_in_the_same_way() -> None:
    def run(seed: int) -> list[tuple[str, str, bool]]:
        churn = Churn.on(nodes_of(3), workloads=5)
        churn.run(random.Random(seed), arrivals=60, crowd=15)
        assert len(churn.running) <= 15
        held = {uid for node in churn.cluster().nodes.values() for uid in node.pods}
        assert held == set(churn.running)
        return [(item.body["metadata"]["name"], item.node, item.arrives) for item in churn.history]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_preference_for_full_numa_nodes_leaves_larger_holes() -> None:
    goal = FitMore((Wanted.shape("big", Shape.parse("cpu=8,memory=8Gi")),))

    def fitting(*, prefer: bool) -> int:
        total = 0
        for seed in range(3):
            churn = Churn.on(nodes_of(10, prefer_most_allocated=prefer), workloads=20)
            churn.run(random.Random(seed), arrivals=300, crowd=65)
            total += measure(goal, churn.cluster())
        return total

    assert fitting(prefer=True) > fitting(prefer=False)
