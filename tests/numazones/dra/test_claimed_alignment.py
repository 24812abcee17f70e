"""Alignment of the devices that pods hold through claims with their CPUs."""

from dataclasses import replace
from typing import Any

import pytest

from numazones import build
from numazones.alignment.alignable import trials_on
from numazones.alignment.pod_alignment import Alignment, of_node
from numazones.api.numazone import Assignment, DeviceIDs
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.dump import Dump, read_nodes
from numazones.kubelet.admission import admit
from tests.numazones.dra.building import NODE, claim, device, resource_slice, result

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"}
SLICE = resource_slice(device("gpu-0", 0), device("gpu-1", 1), device("gpu-2"))


def items(*held: str, cpus: int, slices: tuple[Any, ...] = (SLICE,)) -> list[dict[str, Any]]:
    """A cluster of one node with one pod, which holds CPUs of NUMA node 1, and devices through a claim."""
    empty = build.node(build.machine(numa=2, cores=8, threads=1, memory="8Gi"), STATIC)
    body = build.pod_body("web", cpu=cpus, memory="1Gi") if cpus else build.pod_body("web", cpu="100m")
    body["spec"]["nodeName"] = NODE
    body["status"] = {"phase": "Running"}
    node = admit(empty, build.pod("web", cpu=cpus, memory="1Gi")).node if cpus else empty
    zones = [
        zone.to_api() for zone in zones_from_node(node, node_name=NODE, pods={"web": ("default", "web")})
    ]
    if held:
        ids = DeviceIDs(resource="gpu.example", ids=tuple(f"{NODE}/{name}" for name in held))
        name = body["spec"]["containers"][0]["name"]
        holder = Assignment(namespace="default", pod="web", uid="web", container=name, devices=(ids,))
        zones[0]["status"].setdefault("assignments", []).append(holder.to_api())
    worker = {
        "kind": "Node",
        "metadata": {"name": NODE},
        "status": {"allocatable": {"cpu": "7", "pods": "9"}},
    }
    claims = [claim(*(result(name) for name in held))] if held else []
    return [worker, *zones, *slices, *claims, {"kind": "Pod", **body}]


def dump(*held: str, cpus: int, slices: tuple[Any, ...] = (SLICE,)) -> Dump:
    return Dump.of(items(*held, cpus=cpus, slices=slices))


@pytest.mark.parametrize(
    ("held", "cpus", "expected", "sentence"),
    [
        (("gpu-1",), 4, Alignment.ALIGNED, "aligned"),
        (("gpu-0",), 4, Alignment.REMOTE, "remote from gpu.example/gpu-0"),
        (("gpu-0", "gpu-1"), 4, Alignment.SPANNING, "spanning 2 NUMA nodes"),
        # The static CPU manager gives none: the devices by themselves.
        (("gpu-0", "gpu-1"), 0, Alignment.SPANNING, "spanning 2 NUMA nodes"),
        (("gpu-0",), 0, Alignment.ALIGNED, "aligned"),
        # Nobody says where it is, or that it is there.
        (("gpu-2",), 4, Alignment.ALIGNED, "aligned"),
        (("gone",), 4, Alignment.ALIGNED, "aligned"),
    ],
)
def test_devices_of_claims_count(
    held: tuple[str, ...], cpus: int, expected: Alignment, sentence: str
) -> None:
    found = dump(*held, cpus=cpus)
    (node,) = (one.with_pod(pod) for one in read_nodes(found, lambda: found.pods) for pod in found.pods)
    ((pod, lying),) = of_node(node) or []
    assert (lying.alignment, lying.sentence) == (expected, sentence)
    # Nobody knows which devices the scheduler would allocate to its replacement.
    assert trials_on(node, pod) is None
    without = of_node(node, claims=False) or []
    assert all(one.aligned for _, one in without)
    assert bool(without) == bool(cpus)


def test_containers_that_share_a_claim_count_with_their_own_requests() -> None:
    """The kubelet lists both devices for both containers."""
    found = dump("gpu-0", "gpu-1", cpus=4)
    (pod,) = found.pods
    name = next(iter(pod.admission.containers)).name if pod.admission else ""
    one, other = (frozenset({("team/claim", request)}) for request in ("one", "two"))
    (node,) = read_nodes(found, lambda: found.pods)
    ((_, lying),) = of_node(node.with_pod(replace(pod, claim_uses={name: one}))) or []
    assert lying.alignment is Alignment.SPANNING
    ((_, lying),) = of_node(node.with_pod(replace(pod, claim_uses={name: other}))) or []
    assert lying.aligned


def test_without_slices_nothing_is_said_of_them() -> None:
    found = dump("gpu-0", cpus=4, slices=())
    (node,) = (one.with_pod(pod) for one in read_nodes(found, lambda: found.pods) for pod in found.pods)
    assert node.dra is None
    ((_, lying),) = of_node(node) or []
    assert lying.aligned
