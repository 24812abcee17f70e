"""Gate and extender bring a pod to a node where the devices of its claims and its CPUs lie together."""

from typing import Any

from numazones.cluster.admission_gate import GATE
from numazones.cluster.pod_kind import ALIGNMENT
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result
from tests.operator.offline_pipeline import ALL_OF_A_ZONE
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates

GATES = [{"name": GATE}]
NEAR, APART, SOMEWHERE = "near", "apart", "somewhere"
TOGETHER = "the pod's devices and CPUs would be on one NUMA node"
NODES = {NEAR: 0, APART: 1, SOMEWHERE: None}
"""Name of a node → NUMA node of its GPUs; a pod's CPUs come from NUMA node 0 first."""


def cluster_with_gpus(number: int = 2, nodes: dict[str, int | None] = NODES) -> Cluster:
    cluster = Cluster(*nodes)
    devices = cluster.state.devices
    devices.classes.put(DeviceClass.from_api(device_class(GPU, f'device.driver == "{GPU}"')))
    template = claim(name="gpus")
    template["kind"], template["spec"] = "ResourceClaimTemplate", {"spec": template["spec"]}
    template["metadata"]["namespace"] = "default"
    devices.templates.put(DeviceClaim.from_api(template))
    for name, numa in nodes.items():
        gpus = [device(f"gpu-{at}", numa) for at in range(number)]
        body = resource_slice(*gpus, name=f"slice-{name}", node=name, pool=name)
        devices.slices.put(Slice.from_api(body))
    return cluster


def claiming(cluster: Cluster, name: str, *, alignment: str = "", **spec: Any) -> dict[str, Any]:
    """A pod that claims a GPU by a template."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    body = cluster.pod(name, mirrored=False, cpu=2, resourceClaims=claims, **spec)
    if alignment:
        body["metadata"]["annotations"] = {ALIGNMENT: alignment}
    cluster.mirror(name)
    return body


def allocated(cluster: Cluster, name: str, node: str, gpu: str = "gpu-0") -> None:
    """The scheduler allocates a GPU to a claim."""
    body = claim(result(gpu, pool=node), name=name)
    body["metadata"]["namespace"] = "default"
    cluster.state.devices.claims.put(DeviceClaim.from_api(body))


def chosen(cluster: Cluster) -> dict[str, list[str]]:
    """Name of a released pod → nodes that it may go to."""
    found = {}
    for name, patch in cluster.server.patches:
        affinity = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        found[name] = sorted(
            node for term in affinity["nodeSelectorTerms"] for node in term["matchFields"][0]["values"]
        )
    return found


async def test_the_extender_scores_nodes_higher_where_devices_are_near() -> None:
    cluster = cluster_with_gpus()
    pod = claiming(cluster, "train")
    assert (await cluster.filter(pod, [*NODES]))["NodeNames"] == [*NODES]
    scores = await cluster.prioritize(pod, [*NODES])
    assert scores[NEAR] > scores[SOMEWHERE] > scores[APART]
    allocated(cluster, "other", NEAR)
    assert await cluster.prioritize(pod, [*NODES]) == scores
    allocated(cluster, "another", NEAR, "gpu-1")  # the scheduler may know that this one is just being freed
    scores = await cluster.prioritize(pod, [*NODES])
    assert scores[NEAR] == scores[SOMEWHERE] > scores[APART]


async def test_required_alignment_makes_the_extender_reject_the_others() -> None:
    cluster = cluster_with_gpus()
    pod = claiming(cluster, "train", alignment="required")
    answer = await cluster.filter(pod, [*NODES])
    assert answer["NodeNames"] == [NEAR]
    assert answer["FailedAndUnresolvableNodes"] == {
        APART: "node(s) where the pod's devices and CPUs would not be on one NUMA node",
        SOMEWHERE: f"node(s) where it is not known whether {TOGETHER}",
    }
    assert "not be on one NUMA node" in await cluster.bind("train", APART)
    assert await cluster.bind("train", NEAR) == ""


async def test_the_gate_releases_pods_to_nodes_with_devices_near() -> None:
    cluster = cluster_with_gpus()
    claiming(cluster, "train", schedulingGates=GATES)
    await cluster.offline.renew()
    published = cluster.offline.published["train"]
    assert published.verdict == "Admissible"
    assert published.sentence.endswith(
        f"best is near on NUMA node 0: {GPU}/gpu-0 on NUMA node 0, CPUs and memory on NUMA node 0: aligned"
    )
    await offline_gates(cluster).release()
    assert chosen(cluster) == {"train": [NEAR]}


async def test_without_an_aligned_node_only_a_requiring_pod_waits() -> None:
    cluster = cluster_with_gpus(nodes={APART: 1})
    claiming(cluster, "any", schedulingGates=GATES)
    claiming(cluster, "needy", alignment="required", schedulingGates=GATES)
    await cluster.offline.renew()
    assert cluster.offline.published["needy"].reason == "NotAligned"
    await offline_gates(cluster).release()
    assert chosen(cluster) == {"any": [APART]}


async def test_no_more_pods_are_released_than_there_are_devices() -> None:
    cluster = cluster_with_gpus(nodes={NEAR: 0})
    for name in "abc":
        claiming(cluster, name, schedulingGates=GATES)
    gates = offline_gates(cluster)
    await cluster.offline.renew()
    await gates.release()
    assert list(chosen(cluster)) == ["a", "b"]
    # What is held counts for the extender, too, whichever devices the scheduler finds free just then.
    late = claiming(cluster, "late")
    assert (await cluster.filter(late, [NEAR]))["FailedAndUnresolvableNodes"] == {
        NEAR: "node(s) whose free NUMA room is held for pods on their way to them"
    }


async def test_predictions_follow_slices_claims_and_templates() -> None:
    cluster = cluster_with_gpus(1, nodes={NEAR: 0})
    claiming(cluster, "train", schedulingGates=GATES)
    await cluster.offline.renew()
    assert cluster.offline.published["train"].verdict == "Admissible"
    allocated(cluster, "other", NEAR)
    await cluster.offline.renew()
    assert cluster.offline.published["train"].sentence == (
        "claim default/gpus, request one: needs 1 device of class gpu.example; none is free "
        "(1 on the node: 1 allocated)"
    )
    claims = cluster.state.devices.claims
    claims.discard("default/other")
    await cluster.offline.renew()
    assert cluster.offline.published["train"].verdict == "Admissible"
    for number in range(ALL_OF_A_ZONE):
        cluster.pod(f"plain-{number}", cpu=1, nodeName=NEAR)
    await cluster.offline.renew()
    assert cluster.offline.published["train"].sentence.endswith("on NUMA node 1: not aligned")
    cluster.state.devices.take_unreadable(["resourceclaims.resource.k8s.io"])
    await cluster.offline.renew()
    assert (
        "there is no permission to read resourceclaims.resource.k8s.io"
        in cluster.offline.published["train"].sentence
    )
    cluster.state.devices.take_unreadable([])
    cluster.state.devices.templates.discard("default/gpus")
    await cluster.offline.renew()
    assert "ResourceClaimTemplate default/gpus is not known" in cluster.offline.published["train"].sentence


async def test_pods_whose_claims_were_made_still_share_a_forecast() -> None:
    cluster = cluster_with_gpus(nodes={NEAR: 0})
    for number in range(3):
        name = f"train-{number}"
        body = claiming(cluster, name, schedulingGates=GATES)
        made = claim(name=f"{name}-gpu")
        made["metadata"]["namespace"] = "default"
        cluster.state.devices.claims.put(DeviceClaim.from_api(made))
        body["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        cluster.mirror(name)
    await cluster.offline.renew()
    forecasts = cluster.offline.pipeline.forecasts
    assert len({id(forecasts.forecast_of(f"uid-train-{number}")) for number in range(3)}) == 1
    allocated(cluster, "train-0-gpu", NEAR)
    await cluster.offline.renew()
    assert len({id(forecasts.forecast_of(f"uid-train-{number}")) for number in range(3)}) == 2
    assert "gpu-0" in cluster.offline.published["train-0"].sentence
    assert "gpu-1" in cluster.offline.published["train-1"].sentence
