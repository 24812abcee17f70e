"""Nodes whose machine or configuration changed since their kubelet started: does a restart cure that?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.kubectl.small_cluster import cluster, written

Run = Callable[..., Result]

_ADDED = 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-3"'
_DIFFERS = "[memorymanager] the expected machine state is different from the real one"
_OLD = "; was the kubelet restarted since the change?"
"""What exporters of release 0.2 add."""

_CUT = 'current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-1,3…'
SAID: dict[str, tuple[str, str, str]] = {
    "a long list of CPUs": (
        (
            f"a restart of the kubelet would fail: {_CUT}; drain the node, stop its kubelet, remove "
            "/var/lib/kubelet/cpu_manager_state and start it again; cpu_manager_state has CPUs 16-19,21,23…"
        ),
        *(_CUT, "cpu_manager_state"),
    ),
    "memory moved": (
        f"NUMA node 0: memory_manager_state has 15Gi of memory, but sysfs shows 16Gi{_OLD}",
        *(_DIFFERS, "memory_manager_state"),
    ),
    "a NUMA node came": (
        f"memory_manager_state has NUMA nodes 0, but the machine has 0-1{_OLD}",
        *(_DIFFERS, "memory_manager_state"),
    ),
    "CPUs went": (
        "cpu_manager_state has CPUs 16-19, which are not online",
        'current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-19"',
        "cpu_manager_state",
    ),
    "another policy": (
        f"cpu_manager_state was written under policy none, but the kubelet configuration says static{_OLD}",
        'configured policy "static" differs from state checkpoint policy "none"',
        "cpu_manager_state",
    ),
}


def contradicting(path: Path, message: str) -> Path:
    items = cluster()
    for item in items:
        if item["kind"] == "NUMAZone" and item["spec"]["nodeName"] == "worker-2":
            item["status"]["conditions"] = [
                {
                    "type": "Ready",
                    "status": "Unknown",
                    "reason": "SourcesDisagree",
                    "message": "see Consistent",
                },
                {"type": "Consistent", "status": "False", "reason": "SourcesDisagree", "message": message},
            ]
    return written(path, items)


def findings(run: Run, *arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("doctor", *arguments, "-o", "json").output)["findings"]
    return found


def test_added_cpus_are_cured_by_removing_the_state_file(run: Run, shared: Path) -> None:
    case = shared / "cases/cpus-added-to-a-running-vm/dump.json"
    (reading,) = [it for it in findings(run, "-f", case) if it["check"] == "readings"]
    (restart,) = findings(run, "--restart", "node-1", "-f", case)
    assert reading["message"].endswith(f"a restart of the kubelet would fail: {_ADDED}")
    assert restart["message"] == f"its kubelet would not start: {_ADDED}"
    for finding in (reading, restart):
        assert finding["cure"].startswith(
            "drain node-1, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start it again"
        )


@pytest.mark.parametrize(("message", "words", "file"), SAID.values(), ids=SAID)
def test_what_the_kubelet_will_say_is_foreseen(
    run: Run, tmp_path: Path, message: str, words: str, file: str
) -> None:
    path = contradicting(tmp_path / "dump.json", message)
    restart = [it for it in findings(run, "--restart", "worker-2", "-f", path) if it["severity"] == "error"]
    assert [it["message"] for it in restart] == [f"its kubelet would not start: {words}"]
    assert f"remove /var/lib/kubelet/{file}" in restart[0]["cure"]
    readings = [it for it in findings(run, "-f", path) if it["check"] == "readings"]
    assert all(words in it["message"] and file in it["cure"] for it in readings)


def test_a_restart_is_advised_where_the_state_files_survive_it(run: Run, tmp_path: Path) -> None:
    message = f"reservedSystemCPUs is 0, but according to podresources, CPUs 0-1 are reserved{_OLD}"
    path = contradicting(tmp_path / "dump.json", message)
    cures = {it["cure"] for it in findings(run, "-f", path) if it["check"] == "readings"}
    assert cures == {"restart the kubelet of worker-2: it will accept its state files"}
    assert run("doctor", "--restart", "worker-2", "-f", path).return_value == 0
