"""One answer about a pod with claims: devices, CPUs, and whether they lie together."""

from dataclasses import replace
from typing import Any

import pytest

from numazones import build
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.dump import Dump, read_nodes
from numazones.prediction.device_answer import DeviceAnswer, ForeseenDevice
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, place_beside, predict
from tests.numazones.dra.building import GPU, NODE, claim, device, device_class, resource_slice, result

STATIC = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
}
CLASS = device_class(GPU, f'device.driver == "{GPU}"', resource="gpu.example/gpu")
Body = dict[str, Any]


def nodes(*objects: Body, names: tuple[str, ...] = (NODE,), version: str = "v1.36.2") -> list[ClusterNode]:
    """Nodes of two NUMA nodes with 4 CPUs each, 3 of them free on NUMA node 0."""
    state = build.node(build.machine(numa=2, cores=8, threads=1, memory="8Gi"), STATIC, version=version)
    items: list[Body] = []
    for name in names:
        status = {
            "allocatable": {"cpu": "7", "memory": "7Gi", "pods": "9"},
            "nodeInfo": {"kubeletVersion": version},
        }
        items.append({"kind": "Node", "metadata": {"name": name}, "status": status})
        items += [zone.to_api() for zone in zones_from_node(state, node_name=name, pods={})]
    return read_nodes(Dump.of([*items, *objects]), lambda: ())


def pod(cpus: int = 4, **claimed: str) -> ClusterPod:
    body = build.pod_body("web", cpu=cpus, memory="1Gi")
    body["metadata"]["namespace"] = "team"
    body["spec"]["resourceClaims"] = [{"name": "gpu", **claimed}]
    return ClusterPod.from_api(body)


def asking(cpus: int = 4) -> ClusterPod:
    body = build.pod_body("web", cpu=cpus, memory="1Gi")
    for amounts in body["spec"]["containers"][0]["resources"].values():
        amounts["gpu.example/gpu"] = "1"
    return ClusterPod.from_api(body)


def template(name: str = "one") -> Body:
    spec = {"spec": claim()["spec"]}
    return {"kind": "ResourceClaimTemplate", "metadata": {"name": name, "namespace": "team"}, "spec": spec}


MINE = pod(resourceClaimName="claim")
WEB_ON_1 = "1 of 1 nodes would admit it; best is worker-1 on NUMA node 1"
REST = "CPUs and memory on NUMA node 1"


@pytest.mark.parametrize(
    ("devices", "alignment", "sentence"),
    [
        ((device("gpu-0", 1),), "aligned", f"gpu.example/gpu-0 on NUMA node 1, {REST}: aligned"),
        ((device("gpu-0", 0),), "notAligned", f"gpu.example/gpu-0 on NUMA node 0, {REST}: not aligned"),
        (
            (device("gpu-0"),),
            "unknown",
            f"gpu.example/gpu-0 on an unknown NUMA node, {REST}: alignment not known",
        ),
    ],
)
def test_fitting_pod_says_whether_devices_and_cpus_lie_together(
    devices: tuple[Body, ...], alignment: str, sentence: str
) -> None:
    found = predict(MINE, nodes(CLASS, claim(), resource_slice(*devices)))
    assert (found.verdict, found.sentence) == (ADMISSIBLE, f"{WEB_ON_1}: {sentence}")
    assert (found.candidates[0].alignment, found.candidates[0].devices) == (alignment, sentence)


def of_two(main: str, side: str) -> ClusterPod:
    """A pod of 4 and 2 CPUs whose containers use requests of one claim; empty: none."""
    body = build.pod_body("web", cpu=4, memory="1Gi")
    other = build.pod_body("web", cpu=2, memory="1Gi")["spec"]["containers"][0]
    body["metadata"]["namespace"] = "team"
    body["spec"]["containers"] = [*body["spec"]["containers"], {**other, "name": "side"}]
    for container, request in zip(body["spec"]["containers"], (main, side), strict=True):
        container["resources"] |= {"claims": [{"name": "gpu", "request": request}] if request else []}
    body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    return ClusterPod.from_api(body)


@pytest.mark.parametrize(
    ("main", "side", "alignment", "sentence"),
    [
        ("one", "", "aligned", f"container main: {GPU}/gpu-0 on NUMA node 1, {REST}: aligned"),
        (
            "",
            "one",
            "notAligned",
            f"container side: {GPU}/gpu-0 on NUMA node 1, CPUs and memory on NUMA node 0: not aligned",
        ),
        (
            "one",
            "two",
            "aligned",
            (
                f"container main: {GPU}/gpu-0 on NUMA node 1, {REST}: aligned; "
                f"container side: {GPU}/gpu-1 on NUMA node 0, CPUs and memory on NUMA node 0: aligned"
            ),
        ),
    ],
)
def test_alignment_is_that_of_each_container_with_its_devices(
    main: str, side: str, alignment: str, sentence: str
) -> None:
    both = claim(requests=[{"name": one, "exactly": {"deviceClassName": GPU}} for one in ("one", "two")])
    (node,) = nodes(CLASS, both, resource_slice(device("gpu-0", 1), device("gpu-1", 0)))
    placed = place_beside(of_two(main, side), node)
    assert placed is not None
    assert placed.devices is not None
    assert (placed.devices.alignment, placed.devices.sentence) == (alignment, sentence)


def test_several_containers_known_only_together_leave_alignment_unknown() -> None:
    one = DeviceAnswer(True, devices=(ForeseenDevice("one", GPU, NODE, "gpu-0", 0),), zones=(1,))
    assert (one.alignment, replace(one, several=True).alignment) == ("notAligned", "unknown")


def test_a_node_without_enough_devices_does_not_fit() -> None:
    taken = claim(result("gpu-0"), name="theirs")
    found = predict(MINE, nodes(CLASS, claim(), taken, resource_slice(device("gpu-0", 1))))
    assert found.verdict == INADMISSIBLE
    assert found.sentence == (
        "claim team/claim, request one: needs 1 device of class gpu.example; none is free "
        "(1 on the node: 1 allocated)"
    )
    assert (found.reasons[0].reason, found.reasons[0].source) == ("cannot allocate all claims", "Scheduler")


def test_the_kubelets_rejection_comes_first() -> None:
    found = predict(pod(5, resourceClaimName="claim"), nodes(CLASS, claim(), resource_slice(device("g", 1))))
    assert (found.verdict, found.reason) == (INADMISSIBLE, "TopologyAffinityError")


SLICE = resource_slice(device("gpu-0", 1))
NOT_KNOWN: dict[str, tuple[ClusterPod, tuple[Body, ...], str, str]] = {
    "an old release": (MINE, (CLASS, claim(), SLICE), "v1.33.1", "1.33 is not modelled"),
    "the claim": (
        pod(resourceClaimName="lost"),
        (CLASS, claim(), SLICE),
        "v1.36.2",
        "team/lost is not known",
    ),
    "the template": (
        pod(resourceClaimTemplateName="lost"),
        (CLASS, claim(), SLICE),
        "v1.36.2",
        "ResourceClaimTemplate team/lost is not known",
    ),
    "claims of others": (asking(), (CLASS, SLICE), "v1.36.2", "no ResourceClaims were read"),
    "extended resources of old": (asking(), (CLASS, claim(), SLICE), "v1.35.0", "off before Kubernetes 1.36"),
    "the class": (MINE, (claim(), SLICE), "v1.36.2", "the scheduler gives up on the pod: claim team/claim"),
    "where a held device is": (
        MINE,
        (CLASS, claim(result("gone")), SLICE),
        "v1.36.2",
        f"the node of device {GPU}/{NODE}/gone",
    ),
}


@pytest.mark.parametrize(("asked", "objects", "version", "why"), NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_what_is_not_known_stays_unknown_by_name(
    asked: ClusterPod, objects: tuple[Body, ...], version: str, why: str
) -> None:
    found = predict(asked, nodes(*objects, version=version))
    assert (found.verdict, found.reason) == (UNKNOWN, "DevicesNotAllocated")
    assert why in found.sentence


def test_an_error_on_one_node_leaves_the_pod_unknown() -> None:
    wrong = device_class(GPU, 'device.attributes["gpu.example"].kind == "a"')
    good = resource_slice(device("gpu-0", 1, attributes={"kind": {"string": "a"}}))
    bad = resource_slice(device("gpu-0", 1), name="slice-2", pool="worker-2", node="worker-2")
    assert predict(MINE, nodes(wrong, claim(), good)).verdict == ADMISSIBLE
    found = predict(MINE, nodes(wrong, claim(), good, bad, names=(NODE, "worker-2")))
    assert (found.verdict, found.candidates) == (UNKNOWN, ())


def test_claim_with_devices_ties_its_pod_to_their_node() -> None:
    here = (CLASS, claim(result("gpu-0")), SLICE)
    found = predict(MINE, nodes(*here, names=(NODE, "worker-2")))
    assert found.verdict == ADMISSIBLE
    assert [one.node for one in found.candidates] == [NODE]
    assert found.reasons[0].sentence == "claim team/claim is allocated on node worker-1"


def test_pod_of_a_template_gets_what_the_template_requests() -> None:
    made = pod(resourceClaimTemplateName="one")
    found = predict(made, nodes(CLASS, claim(), template(), SLICE))
    assert found.candidates[0].alignment == "aligned"


def test_devices_of_a_placed_pod_are_taken() -> None:
    (node,) = nodes(CLASS, claim(), template(), SLICE)
    small = pod(1, resourceClaimTemplateName="one")
    placed = place_beside(small, node)
    assert placed is not None
    assert placed.devices is not None
    assert [one.device for one in placed.devices.devices] == ["gpu-0"]
    assert predict(small, [placed.node]).verdict == INADMISSIBLE


def test_pods_of_one_claim_share_its_device() -> None:
    (node,) = nodes(CLASS, claim(), SLICE)
    shared = pod(1, resourceClaimName="claim")
    placed = place_beside(shared, node)
    assert placed is not None
    assert predict(shared, [placed.node]).verdict == ADMISSIBLE


def test_an_extended_resource_is_answered_like_a_claim() -> None:
    found = predict(asking(), nodes(CLASS, claim(), resource_slice(device("gpu-0", 0))))
    assert found.sentence == f"{WEB_ON_1}: gpu.example/gpu-0 on NUMA node 0, {REST}: not aligned"


def test_extended_resource_whose_claim_is_made_takes_no_second_device() -> None:
    body = build.pod_body("web", cpu=4, memory="1Gi")
    for amounts in body["spec"]["containers"][0]["resources"].values():
        amounts["gpu.example/gpu"] = "1"
    body["metadata"]["namespace"] = "team"
    mapping = {"containerName": "main", "resourceName": "gpu.example/gpu", "requestName": "one"}
    made = {"resourceClaimName": "claim", "requestMappings": [mapping]}
    body["status"] = {"extendedResourceClaimStatus": made}
    (node,) = nodes(CLASS, claim(result("gpu-0")), resource_slice(device("gpu-0", 1)))
    placed = place_beside(ClusterPod.from_api(body), node)
    assert placed is not None
    assert placed.devices is not None
    assert [(one.device, one.containers) for one in placed.devices.devices] == [("gpu-0", ("main",))]
    assert placed.devices.alignment == "aligned"
