"""The cluster benchmark measures what it says, on a cluster small enough for a test."""

import pytest

from checks.seen.benchmarks.running import figures_of


@pytest.mark.slow
@pytest.mark.parametrize("viewers", [0, 2])
def test_it_prints_every_figure_that_has_a_goal(viewers: int) -> None:
    size = ("--nodes=40", "--pods=300", "--waiting=5", "--seconds=2", "--rate=50")
    figures = figures_of("cluster.py", *size, f"--viewers={viewers}")
    assert figures["evaluated"] == 40
    assert 0 < figures["admissible"] <= 40
    assert figures["published"] > 0
    assert figures["lag_p50_seconds"] <= figures["lag_p99_seconds"]
    looking = {"rss_ratio", "lag_p99_ratio", "page_longest_hold_seconds"}
    assert looking <= figures["goals"].keys() or not viewers
    assert all(figures[name] > 0 for name in figures["goals"])
    assert figures["missed"] == [name for name, goal in figures["goals"].items() if figures[name] > goal]
