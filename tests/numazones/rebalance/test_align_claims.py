"""The goal ``align`` where pods hold devices by claims: the replacement's are foreseen."""

from typing import Any

from numazones import build as make
from numazones.api.numazone import Assignment, DeviceIDs
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import Cluster, ClusterPod
from numazones.cluster.dump import Dump, read_nodes
from numazones.kubelet.admission import admit
from numazones.rebalance.goals import Align, measure, pending_goals
from numazones.rebalance.planner import PlanningResult, plan
from numazones.rebalance.policy import Policy
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"}
CLASS = device_class(GPU, f'device.driver == "{GPU}"')
TEMPLATE = {
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpus", "namespace": "team"},
    "spec": {"spec": claim()["spec"]},
}
Body = dict[str, Any]


def pod_of(node: str, *, named: bool) -> Body:
    body = make.pod_body("web", cpu=4, memory="1Gi")
    body["metadata"] |= {"namespace": "team", "uid": "web"}
    body["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    ]
    source = {"resourceClaimName": "held"} if named else {"resourceClaimTemplateName": "gpus"}
    body["spec"] |= {"nodeName": node, "resourceClaims": [{"name": "gpu", **source}]}
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    body["status"] = {
        "phase": "Running",
        "startTime": "2026-01-31T10:00:00Z",
        "resourceClaimStatuses": [] if named else [{"name": "gpu", "resourceClaimName": "held"}],
    }
    return {"kind": "Pod", **body}


def node_of(name: str, *, pod: bool) -> list[Body]:
    """Two NUMA nodes with 3 and 4 CPUs; the pod holds CPUs of NUMA node 1, and gpu-0 by its claim."""
    state = make.node(make.machine(numa=2, cores=8, threads=1, memory="8Gi"), STATIC, version="v1.36.2")
    if pod:
        state = admit(state, make.pod("web", cpu=4, memory="1Gi")).node
    zones = [zone.to_api() for zone in zones_from_node(state, node_name=name, pods={"web": ("team", "web")})]
    if pod:
        ids = DeviceIDs(resource=GPU, ids=(f"{name}/gpu-0",))
        holder = Assignment(namespace="team", pod="web", uid="web", container="main", devices=(ids,))
        zones[0]["status"].setdefault("assignments", []).append(holder.to_api())
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "7", "memory": "7Gi", "pods": "9"},
        "nodeInfo": {"kubeletVersion": "v1.36.2"},
    }
    return [{"kind": "Node", "metadata": {"name": name}, "status": status}, *zones]


def gpus(node: str, *numas: int) -> Body:
    devices = (device(f"gpu-{at}", numa) for at, numa in enumerate(numas))
    return resource_slice(*devices, name=f"slice-{node}", node=node, pool=node)


def planned(build: Any, *slices: Body, named: bool = False) -> tuple[Cluster, PlanningResult]:
    body = pod_of("a", named=named)
    container = body["spec"]["containers"][0]["name"]
    items = [*node_of("a", pod=True), *node_of("b", pod=False), body, CLASS, TEMPLATE, *slices]
    for one in items:
        for held in (one.get("status") or {}).get("assignments") or ():
            held["container"] = container
    items.append(claim(result("gpu-0", pool="a"), name="held", pods=("web",)))
    dump = Dump.of(items)
    nodes = [
        node.with_pods(pod for pod in dump.pods if pod.node == node.name)
        for node in read_nodes(dump, lambda: dump.pods)
    ]
    cluster = Cluster({node.name: node for node in nodes})
    return cluster, plan(Align(), build.situation(nodes), Policy(), expired=lambda: False)


def moved(outcome: PlanningResult) -> list[tuple[str, tuple[int, ...]]]:
    return [] if outcome.plan is None else [(one.node, one.target_zones) for one in outcome.plan.moves]


def test_pod_far_from_its_device_moves_to_a_near_one(build: Any) -> None:
    cluster, outcome = planned(build, gpus("a", 0), gpus("b", 1))
    assert measure(Align(), cluster) == -1
    assert moved(outcome) == [("b", (1,))]
    assert outcome.plan is not None
    assert outcome.plan.moves[0].why == f"remote from {GPU}/gpu-0; its replacement will be aligned"


def test_pod_stays_where_no_replacement_would_be_nearer(build: Any) -> None:
    for slices in ([gpus("a", 0)], [gpus("a", 0), gpus("b", 0)]):
        assert moved(planned(build, *slices)[1]) == []


def test_the_freed_device_counts_for_the_replacement(build: Any) -> None:
    """The allocator takes the first device that is free, so it would give gpu-0 again."""
    assert moved(planned(build, gpus("a", 0, 1))[1]) == []


def test_pod_keeps_a_claim_that_is_not_its_own(build: Any) -> None:
    assert moved(planned(build, gpus("a", 0), gpus("b", 1), named=True)[1]) == []


def test_waiting_pods_count_only_where_their_devices_are_free(build: Any) -> None:
    body = pod_of("", named=False)
    body["status"] = {"phase": "Pending"}
    waiting = ClusterPod.from_api(body)
    (goal,) = pending_goals([waiting])
    counted = []
    for slices in ([], [gpus("a", 0)], [gpus("a", 0), gpus("b", 0)]):
        cluster, _ = planned(build, *slices)
        counted.append(measure(goal, cluster))
    assert counted == [0, 0, 1]
