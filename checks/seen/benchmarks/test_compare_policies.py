"""The comparison of policies counts every arrival once, and strict policies keep their promise."""

from checks.seen.benchmarks.running import figures_of, run

ARRIVALS = 12 + 59  # sixty pods leave, and all but the last come back


def test_every_arrival_is_counted_once_and_strict_policies_never_span() -> None:
    machine, pods = "sockets=2,numa=2,cores=16,memory=64Gi", "12xcpu=3-9,memory=1Gi"
    figures = figures_of("compare_policies.py", machine, pods, goals=False)
    assert len(figures) == 11
    for name, row in figures.items():
        assert abs(row["aligned"] + row["spanning"] - row["admitted"]) < 0.2, name
        assert abs(row["admitted"] + row["refused"] + row["waiting"] - ARRIVALS) < 0.3, name
        if "single-numa-node" in name or "SingleNUMANode" in name:
            assert row["spanning"] == 0
        if name.startswith("Koordinator"):
            assert row["refused"] == 0  # its scheduler knows before the pod has a node
    assert figures["kubelet single-numa-node"]["refused"] > 0
    assert figures["kubelet none"]["spanning"] > figures["kubelet best-effort"]["spanning"]


def test_a_machine_that_makes_no_sense_is_named() -> None:
    done = run("compare_policies.py", "sockets=2", "1xcpu=2")
    assert done.returncode == 2
    assert "'sockets=2' is no machine: it needs cores and memory" in done.stderr
