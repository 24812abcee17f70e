"""``doctor --restart`` against kubelets that were really restarted: what it said before is what happened.

Each case of ``tests/data/kubectl/restarts.jsonl.gz`` is one node of a cluster of Kubernetes 1.36.2 just
before its kubelet was stopped, the settings with which it was started again (a state file that it refused
was removed then), and what came of that: the kubelet's error, the pods that it denied admission, and the
CPUs of the others in ``cpu_manager_state`` before and after.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.kubectl.small_cluster import written
from tests.places import DATA

RECORDED = DATA / "kubectl" / "restarts.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


@dataclass
class Said:
    """Findings by pod."""

    refusals: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    moved: dict[str, list[str]] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)


def read(findings: Iterable[dict[str, Any]]) -> Said:
    said = Said()
    for found in findings:
        pod, message = found["subjects"][0].partition(" on ")[0], found["message"]
        if refusal := message.partition("its kubelet would not start: ")[2]:
            said.refusals.append(refusal)
        elif rejection := message.partition("its kubelet would reject it and stop its containers: ")[2]:
            said.rejected[pod] = rejection
        elif message.startswith("its kubelet may "):
            said.uncertain.add(pod)
        elif cpus := re.fullmatch(r"it would be moved from CPUs (\S+) to (\S+) while it runs", message):
            said.moved[pod] = list(cpus.groups())
        elif cpus := re.fullmatch(
            r"it would run in the shared pool, no longer on its exclusive CPUs (\S+)", message
        ):
            said.moved[pod] = [cpus[1], ""]
        elif cpus := re.fullmatch(
            r"it would get exclusive CPUs (\S+); now it runs in the shared pool", message
        ):
            said.moved[pod] = ["", cpus[1]]
        else:
            pytest.fail(f"a finding of an unknown kind: {message}")
    return said


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_what_is_foreseen_is_what_the_kubelet_did(
    run: Callable[..., Result], tmp_path: Path, case: dict[str, Any]
) -> None:
    dump = written(tmp_path / "dump.json", case["objects"])
    settings = [part for item in case["set"] for part in ("--set", item)]
    result = run("doctor", "--restart", case["node"], *settings, "-f", dump, "-o", "json")
    assert result.exception is None, result.exception
    document = json.loads(result.output)
    assert document["notChecked"] == {}
    said, happened = read(document["findings"]), case["happened"]
    assert len(said.refusals) == len(happened["refusals"])
    for told, message in zip(said.refusals, happened["refusals"], strict=True):
        assert told in message  # the kubelet puts in front which of its managers says it

    def certain(by_pod: dict[str, Any]) -> dict[str, Any]:
        return {pod: it for pod, it in by_pod.items() if pod not in said.uncertain}

    assert said.rejected == certain(happened["rejected"])
    assert said.moved == certain(happened["moved"])


def test_the_recording_has_something_of_everything() -> None:
    happened = [case["happened"] for case in cases()]
    assert all(any(it[kind] for it in happened) for kind in ("refusals", "rejected", "moved"))
    assert any(not any(it.values()) for it in happened)
    reasons = {text.partition(":")[0] for it in happened for text in it["rejected"].values()}
    assert {"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "OutOfcpu"} <= reasons
