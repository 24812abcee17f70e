"""``aligned`` against real kubelets: each pod's alignment, made anew from what they say themselves.

Each case of ``tests/data/kubectl/aligned.jsonl.gz`` is one node of a cluster of Kubernetes 1.36.2 under a
policy: its objects, what podresources of its kubelet listed at that moment, its ``cpu_manager_state``, and
the CPUs of each NUMA node in sysfs. The reckoning here shares no code with the product.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

from tests.kubectl.small_cluster import written

RECORDED = Path(__file__).resolve().parents[1] / "data" / "kubectl" / "aligned.jsonl.gz"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def cases() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


class Lies(NamedTuple):
    """How what a pod holds lies."""

    alignment: str
    remote_cpus: int
    cpus: dict[int, int]
    memory: dict[int, int]
    devices: set[tuple[str, str, tuple[int, ...]]]


def numas(topology: dict[str, Any] | None) -> set[int]:
    return {int(node.get("ID", 0)) for node in (topology or {}).get("nodes", ())}


def members(cpulist: str) -> Iterable[int]:
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def reckoned(case: dict[str, Any]) -> dict[str, Lies]:
    """Every pod that holds something of NUMA nodes, from podresources and sysfs."""
    numa_of = {cpu: int(numa) for numa, listed in case["cpus_of_numa"].items() for cpu in members(listed)}
    found = {}
    for pod in case["podresources"]:
        parts = [part for each in pod["containers"] if (part := of_container(each, numa_of)) is not None]
        if parts:
            found[f"{pod['namespace']}/{pod['name']}"] = Lies(
                max((part.alignment for part in parts), key=["aligned", "remote", "spanning"].index),
                sum(part.remote_cpus for part in parts),
                dict(sum((Counter(part.cpus) for part in parts), Counter())),
                dict(sum((Counter(part.memory) for part in parts), Counter())),
                set().union(*(part.devices for part in parts)),
            )
    return found


def of_container(container: dict[str, Any], numa_of: dict[int, int]) -> Lies | None:
    cpus = Counter(numa_of[int(cpu)] for cpu in container.get("cpuIds", ()))
    memory: Counter[int] = Counter()
    for block in container.get("memory", ()):
        shared = sorted(numas(block["topology"]))
        for position, numa in enumerate(shared):
            memory[numa] += int(block["size"]) // len(shared) + (position < int(block["size"]) % len(shared))
    near: dict[tuple[str, str], set[int]] = {}
    for device in container.get("devices", ()):
        for identity in device["deviceIds"]:  # one with two NUMA nodes is listed once for each
            near.setdefault((device["resourceName"], identity), set()).update(numas(device.get("topology")))
    placed = [where for where in near.values() if where]
    if not (cpus or memory or placed):
        return None
    everywhere = {*range(64)}
    if len(cpus) > 1 or len(memory) > 1 or (placed and not set.intersection(*placed)):
        alignment = "spanning"
    elif everywhere.intersection(*filter(None, (set(cpus), set(memory), *placed))):
        alignment = "aligned"
    else:
        alignment = "remote"
    resources = {resource for (resource, _), where in near.items() if where}
    devices = {
        (
            container["name"],
            name,
            tuple(sorted(set().union(*(near[key] for key in near if key[0] == name)))),
        )
        for name in resources
    }
    return Lies(alignment, cpus.total() - max(cpus.values(), default=0), dict(cpus), dict(memory), devices)


def said(item: dict[str, Any]) -> Lies:
    held = item["held"]
    memory = {each["numa"]: in_bytes(each["memory"]) for each in held}
    return Lies(
        item["alignment"],
        item["remoteCPUs"],
        {each["numa"]: each["cpus"] for each in held if each["cpus"]},
        {numa: size for numa, size in memory.items() if size},
        {(each["container"], each["resource"], tuple(each["numas"])) for each in item["devices"]},
    )


def in_bytes(quantity: str) -> int:
    unit = UNITS.get(quantity[-2:])
    return int(quantity) if unit is None else int(quantity[:-2]) * unit


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_alignment_is_what_podresources_and_sysfs_say(
    run: Callable[..., Result], tmp_path: Path, case: dict[str, Any]
) -> None:
    result = run("aligned", "-A", "-o", "json", "-f", written(tmp_path / "dump.json", case["objects"]))
    assert result.exception is None, result.exception
    document = json.loads(result.output)
    assert document["unknown"] == []
    assert {f"{it['namespace']}/{it['name']}": said(it) for it in document["items"]} == reckoned(case)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_podresources_and_the_state_file_of_the_recording_agree(case: dict[str, Any]) -> None:
    pods = [it for it in case["objects"] if it["kind"] == "Pod"]
    uids = {f"{it['metadata']['namespace']}/{it['metadata']['name']}": it["metadata"]["uid"] for it in pods}
    for pod in case["podresources"]:
        held = case["cpu_manager_state"].get(uids[f"{pod['namespace']}/{pod['name']}"], {})
        for container in pod["containers"]:
            listed = {int(cpu) for cpu in container.get("cpuIds", ())}
            assert listed == {*members(held[container["name"]])} if listed else container["name"] not in held


def test_the_recording_has_every_policy_and_every_kind_of_alignment() -> None:
    policies = {case["settings"]["topologyManagerPolicy"] for case in cases()}
    assert policies == {"none", "best-effort", "restricted", "single-numa-node"}
    found = Counter(lies.alignment for case in cases() for lies in reckoned(case).values())
    assert set(found) == {"aligned", "remote", "spanning"}
