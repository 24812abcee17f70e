"""The benchmark of the placement models measures what it says."""

import pytest

from checks.seen.benchmarks.running import figures_of


def test_it_prints_every_model_size_and_goal() -> None:
    figures = figures_of("policies.py", "--containers=40", "--nodes=20", "--runs=1")
    assert {"kubelet", "koordinator", "topology-aware"} <= set(figures["models"])
    for sizes in figures["models"].values():
        assert set(sizes) == {"2", "4", "8"}
        for one in sizes.values():
            assert 0 < one["admitted"] <= one["containers"]
            assert one["perSecond"] == pytest.approx(one["containers"] / one["seconds"], rel=0.2)
    assert figures["koordinator_5000_nodes_seconds"] > 0
    assert figures["missed"] == [name for name, goal in figures["goals"].items() if figures[name] > goal]
