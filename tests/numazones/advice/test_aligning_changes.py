"""Advice for pods whose devices would be far from their CPUs: each change is tried before it is named."""

from dataclasses import replace
from typing import Any

from numazones import build
from numazones.advice.aligning_changes import aligning_changes
from numazones.advice.changes import NodeContext, advise_on
from numazones.advice.helpful_changes import nodes_apart
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import ALIGNMENT, REQUIRED
from numazones.kubelet.admission import admit
from numazones.prediction.forecast import predict
from tests.numazones.dra.building import GPU, NODE, claim, device, resource_slice
from tests.numazones.prediction.test_device_answer import CLASS, nodes, pod

MINE = pod(2, resourceClaimName="claim")


def advised(found: list[ClusterNode], wanted: ClusterPod = MINE) -> list[str]:
    known = {node.name: node for node in found}
    names = nodes_apart(predict(wanted, found), known)
    return [item.line for item in aligning_changes(wanted, known, names, NodeContext())]


def several(count: int) -> dict[str, Any]:
    return claim(requests=[{"name": "one", "exactly": {"deviceClassName": GPU, "count": count}}])


def test_a_constraint_on_the_claim_is_named_if_it_helps() -> None:
    devices = (device("gpu-0", 1), device("gpu-1", 0), device("gpu-2", 0))
    (line,) = advised(nodes(CLASS, several(2), resource_slice(*devices)))
    assert line == (
        "add matchAttribute: resource.kubernetes.io/numaNode to ResourceClaim team/claim; the pod would "
        f"then get {GPU}/gpu-1 and {GPU}/gpu-2 on NUMA node 0, CPUs and memory on NUMA node 0: aligned "
        f"({NODE})"
    )
    required = replace(MINE, annotations={ALIGNMENT: REQUIRED})
    assert advised(nodes(CLASS, several(2), resource_slice(*devices)), required) == [line]
    assert advised(nodes(CLASS, several(2), resource_slice(*devices[:2]))) == []


def test_a_pod_with_cpus_near_the_device_is_named() -> None:
    (node,) = nodes(CLASS, claim(), resource_slice(device("gpu-0", 0)))
    assert node.state is not None
    body = build.pod_body("near", cpu=2, memory="1Gi")
    body["metadata"]["namespace"] = "team"
    near = replace(ClusterPod.from_api(body), node=NODE, phase="Running")
    assert near.admission is not None
    state = admit(node.state, near.admission).node
    shared = replace(near, name="shared", uid="shared", admission=None, requests={})
    taken = node.with_pod(near).with_pod(shared).with_state(state)
    (line,) = advised([taken])
    assert line == (
        f"free the CPUs of team/near; the pod would then get {GPU}/gpu-0 on NUMA node 0, "
        f"CPUs and memory on NUMA node 0: aligned ({NODE})"
    )


def test_an_aligned_pod_needs_no_advice() -> None:
    assert advised(nodes(CLASS, claim(), resource_slice(device("gpu-0", 0)))) == []


def test_a_cordoned_node_without_the_devices_is_not_advised() -> None:
    gpus = resource_slice(device("gpu-0", 1))
    here, there = (
        replace(node, unschedulable=True) for node in nodes(CLASS, claim(), gpus, names=(NODE, "worker-2"))
    )
    (advice,) = advise_on(MINE, here)
    assert "uncordon" in advice.sentence
    assert advise_on(MINE, there) == ()
