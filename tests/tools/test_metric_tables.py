"""Tables of metrics: each metric of a program once, with name, type, labels and text as registered."""

import pytest

from tools import metric_tables as tables

END = "<!-- end: written by `make reference` -->\n"


def page(*names: str) -> str:
    return f"Before.\n\n<!-- metrics: {' '.join(names)} -->\nwhat was here\n{END}\nAfter.\n"


def test_a_table_says_what_the_program_registers() -> None:
    made = tables.written(
        "exporter", {"a.md": page("numazones_[!e]*", "numazones_exporter_*", "numazones_exclusive_*")}
    )["a.md"]
    assert "what was here" not in made
    assert made.startswith("Before.\n")
    assert made.endswith(f"{END}\nAfter.\n")
    assert (
        "| `numazones_exporter_source_errors_total` | counter | `source` | Failed reads of a source. |\n"
        in made
    )
    assert "| `numazones_exporter_scan_duration_seconds` | histogram | | Time to read the whole " in made
    assert (
        "| `numazones_zone_capacity` | gauge | `node`, `numa_node`, `resource`, `unit` | Amount that the"
        in made
    )


def test_gauges_of_the_leader_are_there_though_no_operator_runs() -> None:
    registered = {metric.name: metric for metric in tables.operator_metrics()}
    assert registered["numazones_stale_nodes"].labels == ("reason",)
    assert registered["numazones_rebalance_active_plans"].labels == ("mode", "policy", "phase")
    assert registered["numazones_container_aligned_compute_resources_count_total"].type == "counter"


def test_metrics_name_only_blocked_pods_and_those_with_exclusive_cpus() -> None:
    registered = [*tables.exporter_metrics(), *tables.operator_metrics()]
    named = {metric.name for metric in registered if "pod" in metric.labels}
    assert named == {
        "numazones_container_exclusive_cpu_seconds_total",
        "numazones_container_exclusive_cpu_busy_seconds_total",
        "numazones_container_exclusive_cpus",
        "numazones_blocked_pod_created_timestamp_seconds",
    }


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (
            {"a.md": page("numazones_exporter_*")},
            r"not in exactly one table.*numazones_zone_capacity \(0 tables",
        ),
        (
            {"a.md": page("numazones_*"), "b.md": page("numazones_zone_reserved")},
            r"not in exactly one table of a.md, b.md: numazones_zone_reserved \(2 tables\)$",
        ),
        ({"a.md": page("numazones_*", "numazones_gone")}, "the exporter has no metric numazones_gone"),
    ],
)
def test_no_metric_is_left_out_told_twice_or_made_up(pages: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tables.written("exporter", pages)
