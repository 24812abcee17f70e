"""Tests of NodeResourceTopologyMatch against verdicts of the real filter."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checks.laws.conformance.nrt_match import verdicts
from numazones.api.noderesourcetopology import NodeResourceTopology
from numazones.cluster.topology_match import matches
from numazones.kubelet.pod import Pod
from tests.places import DATA

SAMPLES = DATA / "conformance"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def wrong(scenarios: Path, said: Path) -> tuple[Counter[bool], list[tuple[str, int]]]:
    """Return how many verdicts are right, and the scenario and step of each of the others."""
    real = {(line["id"], line["step"]): line["own"] for line in lines(said)}
    found: Counter[bool] = Counter()
    others = []
    for scenario in lines(scenarios):
        steps = {step for key, step in real if key == scenario["id"]} if len(real) < 1000 else None
        if "invalid" in scenario or steps == set():
            continue
        for step, ours in enumerate(verdicts(scenario)):
            theirs = real.get((scenario["id"], step))
            if theirs is not None:
                found[ours == theirs] += 1
                if ours != theirs:
                    others.append((scenario["id"], step))
    return found, others


def test_sampled_verdicts_are_those_of_the_real_filter() -> None:
    found, others = wrong(SAMPLES / "sample.jsonl.gz", SAMPLES / "nrt-match.jsonl.gz")
    assert others == []
    assert found[True] > 50


def test_all_verdicts_are_those_of_the_real_filter(shared: Path) -> None:
    vectors = shared / "conformance"
    found, others = wrong(vectors / "dev.jsonl.gz", vectors / "nrt-match" / "dev.jsonl.gz")
    assert others == []
    assert found[True] == 13_184


def topology(policy: str, *zones: dict[str, str], scope: str = "container") -> NodeResourceTopology:
    return NodeResourceTopology.from_api(
        {
            "metadata": {"name": "node"},
            "attributes": [
                {"name": "topologyManagerPolicy", "value": policy},
                {"name": "topologyManagerScope", "value": scope},
            ],
            "zones": [
                {
                    "name": f"node-{number}",
                    "type": "Node",
                    "resources": [
                        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                        for name, amount in zone.items()
                    ],
                }
                for number, zone in enumerate(zones)
            ],
        }
    )


def pod(*cpus: int, memory: str = "1Gi", guaranteed: bool = True) -> Pod:
    def container(number: int, cpu: int) -> dict[str, Any]:
        requests = {"cpu": str(cpu), "memory": memory}
        limits = requests if guaranteed else {}
        return {"name": f"c{number}", "resources": {"requests": requests, "limits": limits}}

    containers = [container(number, cpu) for number, cpu in enumerate(cpus)]
    return Pod.from_api({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}})


TWO = ({"cpu": "8", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"})


@pytest.mark.parametrize(
    ("policy", "scope", "asked", "expected"),
    [
        ("single-numa-node", "container", pod(8), True),
        ("single-numa-node", "container", pod(9), False),
        ("restricted", "container", pod(9), True),
        ("none", "container", pod(9), True),
        ("single-numa-node", "container", pod(8, 4), True),
        ("single-numa-node", "container", pod(8, 5), False),
        ("single-numa-node", "pod", pod(4, 4), True),
        ("single-numa-node", "pod", pod(8, 4), False),
        ("single-numa-node", "container", pod(9, guaranteed=False), True),
    ],
)
def test_pod_passes_if_a_zone_fits_each_container(
    policy: str,
    scope: str,
    asked: Pod,
    expected: bool,  # noqa: FBT001 - a table
) -> None:
    assert matches(asked, topology(policy, *TWO, scope=scope), ("cpu", "memory")) is expected


def test_resource_absent_from_all_zones_is_rejected_unless_host_level() -> None:
    """So pods with memory are refused where an exporter lists none, as without the Memory Manager."""
    without_memory = topology("single-numa-node", {"cpu": "8"})
    assert not matches(pod(2), without_memory, ("cpu", "memory"))
    assert not matches(pod(2), topology("single-numa-node", *TWO), ("cpu",))
