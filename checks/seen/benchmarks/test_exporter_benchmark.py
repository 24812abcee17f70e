"""The exporter's benchmark measures what it says."""

from typing import Any

import pytest

from checks.seen.benchmarks.running import figures_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    # Whether it meets the goals is another question: memory also depends on how Python was built.
    measured: dict[str, Any] = figures_of("exporter.py", "--cycles=6", "--interval=0.3")
    return measured


def test_it_measures_the_node_that_the_goals_speak_of(figures: dict[str, Any]) -> None:
    assert (figures["numa_nodes"], figures["cpus"], figures["pods"]) == (8, 256, 110)
    assert figures["idle_cycles"] >= 3
    assert figures["rss_mib"] > figures["uss_mib"] > 10


def test_an_idle_exporter_writes_nothing(figures: dict[str, Any]) -> None:
    assert figures["zone_writes"] == 0


def test_idle_cycle_is_cheap_and_changes_show_within_a_second(figures: dict[str, Any]) -> None:
    assert figures["cpu_ms_per_idle_cycle"] <= 50
    assert figures["seconds_from_file_to_objects"] <= 1
