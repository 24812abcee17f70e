"""The benchmark of placement compares every way of choosing nodes on the same arrivals."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from checks.seen.benchmarks.running import figures_of, run
from numazones import build
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.prediction.node_choice import NodeChoice
from numazones.whatif.trial import play
from numazones.whatif.workload import Event, Leaving
from numazones_benchmarks.placement_plans import Needed, needed
from numazones_benchmarks.placement_workloads import MACHINES, POLICIES, Combination, drawn, recorded, running
from tests.places import DATA

RECORDING = DATA / "recordings/one-node"


@pytest.mark.slow
def test_no_way_that_asks_first_has_a_pod_rejected_by_a_kubelet() -> None:
    setting = ("--runs=1", "--loads", "0.85", "--machines", "2 NUMA nodes")
    summary = figures_of("placement.py", *setting, goals=False)["summary"]
    assert set(summary) == {"default", "nrt", "exact", "pack", "best-fit", "scarce", "shapes"}
    for choice in ("exact", "pack", "best-fit", "scarce", "shapes"):
        assert summary[choice]["rejected_by_kubelets"] == 0
    assert summary["default"]["rejected_by_kubelets"] > 0
    assert summary["best-fit"]["left_out"] < summary["default"]["left_out"]


@pytest.mark.slow
def test_rows_are_written_as_they_come_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    setting = ("--runs=1", "--loads", "0.2", "--machines", "2 NUMA nodes", "--json", f"--output={output}")
    first = run("placement.py", *setting)
    assert first.returncode == 0, first.stderr
    lines = output.read_text().splitlines(keepends=True)
    assert [row for line in lines for row in json.loads(line)["rows"]] == json.loads(first.stdout)["rows"]

    output.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote its last line
    again = run("placement.py", *setting, "--progress")
    assert again.stderr.splitlines() == ["1 of 1"]
    assert again.stdout == first.stdout
    assert output.read_text() == "".join(lines)

    other = run("placement.py", *setting, "--seed=3")
    assert other.returncode == 1
    assert "another seed" in other.stderr
    assert output.read_text() == "".join(lines)


def test_what_waits_at_the_end_fits_by_now_or_gets_a_plan_or_none() -> None:
    hardware = build.machine(sockets=2, numa=2, cores=16, threads=1, memory="64Gi")  # 7 and 8 CPUs for pods
    node = ClusterNode("worker-1", allocatable={"cpu": 15_000, "memory": 60 << 30, "pods": 110})
    events: list[Event] = [
        arriving("a", 3), arriving("leaves-0", 4), arriving("b", 4), arriving("leaves-1", 4),
        arriving("large", 7), arriving("small", 1), arriving("gone", 1),
        Leaving("leaves-0"), Leaving("leaves-1"), Leaving("gone"),
        arriving("too-large", 9),
    ]  # fmt: skip
    played = play([node.with_state(build.node(hardware))], events, choice=NodeChoice.EXACT)
    assert [pod.name for pod in played.left_out] == ["large", "small", "gone", "too-large"]
    # For the large one a goes from NUMA node 0 to NUMA node 1, beside b; then the small one fits there.
    assert needed(played.nodes, events, effort=1000) == Needed(waiting=3, fit=1, planned=1, evictions=1)


def arriving(name: str, cpus: int) -> ClusterPod:
    return running(ClusterPod.from_api(build.pod_body(name, cpu=cpus, memory="1Gi")))


@pytest.mark.parametrize("policies", range(1, len(POLICIES) + 1))
def test_a_sample_plays_every_policy_equally_often_on_each_kind_of_machines(policies: int) -> None:
    loads = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95]
    sample = drawn(MACHINES, loads, policies)
    assert len({one.key for one in sample}) == len(sample) == len(MACHINES) * len(loads) * policies
    for machines in MACHINES:
        played = Counter(one.policy for one in sample if one.machines == machines)
        assert played == dict.fromkeys(POLICIES, policies)


def test_of_a_recording_all_pods_arrive_and_name_no_node(tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(RECORDING, copied)
    first = json.loads((RECORDING / "replay.jsonl").read_text().splitlines()[0])
    unscheduled = {
        **first, "node": None, "via": "scheduler", "uid": "waits",
        "outcome": {"phase": "Pending", "reason": "Unschedulable"},
    }  # fmt: skip
    with (copied / "replay.jsonl").open("a") as file:
        file.write(json.dumps(unscheduled) + "\n")
    before, after = (
        [one for one in of.events(1, 0) if isinstance(one, ClusterPod)]
        for of in (Combination("one", "as recorded", None, path) for path in (RECORDING, copied))
    )
    assert [pod.uid for pod in after] == [*(pod.uid for pod in before), "waits"]
    assert {pod.node for pod in after} == {""}


def test_a_recording_is_played_under_its_own_settings_and_under_every_policy() -> None:
    asked = recorded([RECORDING])
    assert [one.policy for one in asked] == ["as recorded", *POLICIES]
    told = [one.nodes()[0].known for one in asked]
    policies = [one.kubelet.config.topology_manager_policy for one in told if one and one.kubelet]
    assert policies[0] == "restricted"
    assert set(policies) == {"single-numa-node", "restricted", "best-effort", "none"}


def test_two_recordings_of_one_name_are_told_apart_by_nobody(tmp_path: Path) -> None:
    other = tmp_path / RECORDING.name
    shutil.copytree(RECORDING, other)
    with pytest.raises(ValueError, match="two recordings are called one-node"):
        recorded([RECORDING, other])


@pytest.mark.slow
def test_a_recording_is_compared_and_told_with_plans() -> None:
    recording = ("--recording", str(RECORDING))
    told = figures_of("placement.py", *recording, "--plans", "--effort=20", goals=False)
    assert len(told["rows"]) == (1 + len(POLICIES)) * len(NodeChoice)
    assert set(told["left_out_by_machines"]) == {"one-node"}
    for row in told["rows"]:
        parts = row["waiting_that_fit"], row["waiting_with_plan"], row["waiting_without_plan"]
        assert row["waiting"] == sum(parts)
        assert (row["evictions"] > 0) == (row["waiting_with_plan"] > 0)
    for choice in ("exact", "pack", "best-fit", "scarce", "shapes"):
        assert told["summary"][choice]["rejected_by_kubelets"] == 0
