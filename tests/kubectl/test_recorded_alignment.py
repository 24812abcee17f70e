"""``aligned`` against real kubelets: each pod's alignment, made anew from what they say themselves.

Each case of ``tests/data/kubectl/aligned.jsonl.gz`` is one node of a cluster of Kubernetes 1.36.2 under a
policy: its objects, what podresources of its kubelet listed at that moment, its state files, the cpusets that
its runtime was told, and the CPUs of each NUMA node in sysfs. On some nodes a driver for dynamic resource
allocation (DRA) publishes devices with NUMA nodes. The reckoning here shares no code with the product.
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
from tests.places import DATA

RECORDED = DATA / "kubectl" / "aligned.jsonl.gz"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def cases() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


class Lies(NamedTuple):
    """The placement of what a pod holds."""

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


def of_kind(case: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [it for it in case["objects"] if it["kind"] == kind]


DeviceKey = tuple[str, str, str]
"""(driver, pool, device)"""


def published(case: dict[str, Any]) -> dict[DeviceKey, set[int]]:
    """Each device that drivers publish, and the NUMA node that they name for it, if any."""
    found = {}
    for spec in (it["spec"] for it in of_kind(case, "ResourceSlice")):
        for device in spec["devices"]:
            stated = device["attributes"]
            numa = stated.get("resource.kubernetes.io/numaNode") or stated.get("dra.net/numaNode")
            key = spec["driver"], spec["pool"]["name"], device["name"]
            found[key] = set() if numa is None else {numa["int"]}
    return found


def reckoned(case: dict[str, Any]) -> dict[str, Lies]:
    """Every pod that holds something of NUMA nodes, from podresources, slices and sysfs."""
    numa_of = {cpu: int(numa) for numa, listed in case["cpus_of_numa"].items() for cpu in members(listed)}
    claimable, found = published(case), {}
    for pod in case["podresources"]:
        parts = [
            part
            for each in pod["containers"]
            if (part := of_container(each, numa_of, {key: claimable[key] for key in used(case, pod, each)}))
            is not None
        ]
        if parts:
            found[f"{pod['namespace']}/{pod['name']}"] = Lies(
                max((part.alignment for part in parts), key=["aligned", "remote", "spanning"].index),
                sum(part.remote_cpus for part in parts),
                dict(sum((Counter(part.cpus) for part in parts), Counter())),
                dict(sum((Counter(part.memory) for part in parts), Counter())),
                set().union(*(part.devices for part in parts)),
            )
    return found


def claimed(container: dict[str, Any]) -> set[tuple[str, DeviceKey]]:
    """The devices that the kubelet lists for a container, each with the name of its claim."""
    return {
        (claim["claimName"], (device["driverName"], device["poolName"], device["deviceName"]))
        for claim in container.get("dynamicResources", ())
        for device in claim["claimResources"]
    }


def used(case: dict[str, Any], pod: dict[str, Any], container: dict[str, Any]) -> set[DeviceKey]:
    """Those of them that were allocated to the requests that the container names, if it names any."""
    if not claimed(container):
        return set()
    (body,) = (
        it
        for it in of_kind(case, "Pod")
        if (it["metadata"]["namespace"], it["metadata"]["name"]) == (pod["namespace"], pod["name"])
    )
    spec, status = body["spec"], body["status"]
    named = {
        it["name"]: it["resourceClaimName"]
        for it in spec.get("resourceClaims", []) + status.get("resourceClaimStatuses", [])
        if it.get("resourceClaimName")
    }
    (declared,) = (
        it for it in spec["containers"] + spec.get("initContainers", []) if it["name"] == container["name"]
    )
    wanted = {
        (named[it["name"]], it.get("request")) for it in declared.get("resources", {}).get("claims", ())
    }
    extended = status.get("extendedResourceClaimStatus", {"requestMappings": ()})
    wanted |= {
        (extended["resourceClaimName"], it["requestName"])
        for it in extended["requestMappings"]
        if it["containerName"] == container["name"]
    }
    return {
        (result["driver"], result["pool"], result["device"])
        for claim in of_kind(case, "ResourceClaim")
        for result in claim["status"]["allocation"]["devices"]["results"]
        if {(claim["metadata"]["name"], request) for request in (None, result["request"].partition("/")[0])}
        & wanted
        and (claim["metadata"]["name"], (result["driver"], result["pool"], result["device"]))
        in claimed(container)
    }


def of_container(
    container: dict[str, Any], numa_of: dict[int, int], claims: dict[DeviceKey, set[int]]
) -> Lies | None:
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
    for (driver, _, device), where in claims.items():
        near[f"{driver}/{device}", device] = where
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
def test_zones_count_the_devices_that_slices_publish_and_claims_have(case: dict[str, Any]) -> None:
    taken = {
        (result["driver"], result["pool"], result["device"])
        for claim in of_kind(case, "ResourceClaim")
        for result in claim["status"]["allocation"]["devices"]["results"]
        if not result.get("adminAccess")
    }
    expected: dict[tuple[int, str, bool], list[int]] = {}
    for key, numas_of_device in published(case).items():
        place = min(numas_of_device, default=0), key[0], not numas_of_device
        counts = expected.setdefault(place, [0, 0])
        counts[0] += 1
        counts[1] += key in taken
    shown = {
        (zone["spec"]["numaID"], one["driver"], one.get("numaUnknown", False)): [
            one["devices"],
            one["allocated"],
        ]
        for zone in of_kind(case, "NUMAZone")
        for one in zone["status"].get("dynamicResources", {}).get("drivers", ())
    }
    assert shown == expected


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_recorded_podresources_state_files_and_runtime_agree(case: dict[str, Any]) -> None:
    pods = of_kind(case, "Pod")
    uids = {f"{it['metadata']['namespace']}/{it['metadata']['name']}": it["metadata"]["uid"] for it in pods}
    for pod in case["podresources"]:
        uid = uids[f"{pod['namespace']}/{pod['name']}"]
        held = case["cpu_manager_state"].get(uid, {})
        told = case.get("runtime_cpusets", {}).get(uid, {})
        for container in pod["containers"]:
            name, listed = container["name"], {int(cpu) for cpu in container.get("cpuIds", ())}
            assert listed == {*members(held[name])} if listed else name not in held
            if listed and name in told:
                assert listed == {*members(told[name])}
            if "memory_manager_state" in case:
                promised = case["memory_manager_state"].get(uid, {}).get(name, ())
                assert sorted(
                    (one["memoryType"], int(one["size"]), sorted(numas(one["topology"])))
                    for one in container.get("memory", ())
                ) == sorted((one["type"], one["size"], sorted(one["numaAffinity"])) for one in promised)


def test_the_recording_has_every_policy_and_every_kind_of_alignment() -> None:
    policies = {case["settings"]["topologyManagerPolicy"] for case in cases()}
    assert policies == {"none", "best-effort", "restricted", "single-numa-node"}
    found = Counter(lies.alignment for case in cases() for lies in reckoned(case).values())
    assert set(found) == {"aligned", "remote", "spanning"}


def test_the_recording_has_claims_under_every_policy_that_rejects_little() -> None:
    """Pods of every kind of alignment, shares of devices, and devices of which nobody says where they are."""
    with_claims = [case for case in cases() if of_kind(case, "ResourceSlice")]
    policies = {case["settings"]["topologyManagerPolicy"] for case in with_claims}
    assert policies >= {"none", "best-effort", "restricted"}
    restricted = {
        case["settings"]["topologyManagerScope"]
        for case in cases()
        if case["settings"]["topologyManagerPolicy"] == "restricted"
    }
    assert restricted == {"container", "pod"}
    holders = [
        (case, pod, container)
        for case in with_claims
        for pod in case["podresources"]
        for container in pod["containers"]
        if claimed(container)
    ]
    found = {
        reckoned(case)[name].alignment
        for case, pod, _ in holders
        if (name := f"{pod['namespace']}/{pod['name']}") in reckoned(case)
    }
    assert found == {"aligned", "remote", "spanning"}
    assert any(not published(case)[key] for case, _, container in holders for _, key in claimed(container))
    assert any(
        used(case, pod, container) < {key for _, key in claimed(container)}
        for case, pod, container in holders
    )
    assert any(
        "shareId" in device
        for _, _, container in holders
        for claim in container["dynamicResources"]
        for device in claim["claimResources"]
    )
