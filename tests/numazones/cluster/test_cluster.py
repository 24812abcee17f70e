"""The cluster as a value: what is kept of nodes and pods, and deriving one cluster from another."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from numazones.apimachinery.api_object import InvalidObject
from numazones.cluster.cluster import (
    Cluster,
    ClusterNode,
    ClusterPod,
    NoSuchNode,
    Owner,
    Template,
    template_key,
)
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.placement import Unknown


def pod(name: str, *, node: str = "", cpu: str = "1", phase: str = "Pending") -> ClusterPod:
    return ClusterPod.from_api(pod_body(name, node=node, cpu=cpu, phase=phase))


def pod_body(name: str, *, node: str = "", cpu: str = "1", phase: str = "Pending") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": resources}]}
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": phase},
    }


def test_of_a_pod_only_what_some_rule_needs_is_kept() -> None:
    body = pod_body("web", node="worker-1")
    body["metadata"] |= {
        "creationTimestamp": "2026-01-31T08:00:00Z",
        "deletionTimestamp": "2026-01-31T09:00:00Z",
        "labels": {"app": "web"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{…}",
            "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
        },
        "ownerReferences": [
            {"kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True, "apiVersion": "apps/v1"}
        ],
        "managedFields": [{"manager": "x"}],
    }
    body["spec"] |= {
        "priority": 100,
        "volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        ],
        "schedulingGates": [{"name": "numazones.io/admission"}],
    }
    body["status"] = {
        "phase": "Running",
        "startTime": "2026-01-31T08:01:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main"}],
    }
    kept = ClusterPod.from_api(body)
    assert kept.node == "worker-1"
    assert kept.phase == "Running"
    assert kept.deleting
    assert kept.ready
    assert kept.acknowledged
    assert kept.created < kept.started
    assert kept.priority == 100
    assert kept.owners == (Owner("ReplicaSet", "web-1", "u", controller=True),)
    assert kept.controller == kept.owners[0]
    assert kept.labels == {"app": "web"}
    assert kept.annotations == {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}
    assert kept.requests == {"cpu": 1000, "memory": 2**30}
    assert kept.local_storage
    assert kept.volume_claims == ("data",)
    assert kept.constraints.scheduling_gates == ("numazones.io/admission",)
    assert kept.admission is not None
    assert kept.admission.demand().total.cpus == 1
    assert kept.problem == ""


def test_a_pod_tells_which_containers_could_not_be_created() -> None:
    def waiting(name: str, reason: str, **more: str) -> dict[str, Any]:
        return {"name": name, "state": {"waiting": {"reason": reason, **more}}}

    body = {
        "metadata": {"name": "p"},
        "status": {
            "initContainerStatuses": [waiting("i", "CreateContainerError")],
            "containerStatuses": [
                waiting("a", "PodInitializing"),
                waiting("b", "CreateContainerError", message="no room"),
                {"name": "c", "state": {"running": {}}},
            ],
        },
    }
    kept = ClusterPod.from_api(body)
    assert kept.uncreated == ("i", "b")
    assert kept.create_error == "container i could not be created"
    assert ClusterPod.from_api({"metadata": {"name": "p"}}).uncreated == ()


def test_pod_that_makes_no_sense_is_kept_with_its_problem() -> None:
    broken = pod("odd", cpu="twelve")
    assert broken.admission is None
    assert "'twelve'" in broken.problem
    empty = ClusterPod.from_api({"metadata": {"name": "empty"}, "spec": {"containers": []}})
    assert empty.admission is None
    assert empty.problem == "pod 'empty' has no containers"


def test_static_pod_is_known_by_its_kubelets_uid() -> None:
    body = pod_body("etcd-worker-1")
    assert ClusterPod.from_api(body).kubelet_uid == "uid-etcd-worker-1"
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0123abcd"}
    assert ClusterPod.from_api(body).kubelet_uid == "0123abcd"


def test_a_node_keeps_what_the_scheduler_filters_by() -> None:
    node = ClusterNode.from_api(
        {
            "metadata": {"name": "worker-1", "uid": "n1", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "3800m", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    assert node.allocatable == {"cpu": 3800, "memory": 8 * 2**30}
    assert node.pod_slots == 110
    assert node.unschedulable
    assert node.ready
    assert node.taints[0].key == "gpu"
    assert node.state is None
    assert node.unknown is not None
    assert node.unknown.reason == "NoZones"


def test_pods_hold_slots_and_requests_until_they_end() -> None:
    node = ClusterNode("worker-1").with_pods([pod("a"), pod("b", cpu="2"), pod("done", phase="Succeeded")])
    assert node.pod_count == 2
    assert node.requested == {"cpu": 3000, "memory": 2 * 2**30}
    assert node.with_pod(pod("c")).requested["cpu"] == 4000
    assert node.with_pod(pod("b", cpu="5")).requested["cpu"] == 6000
    assert node.without_pod("uid-b").requested == {"cpu": 1000, "memory": 2**30}
    assert node.without_pod("unknown") is node
    assert node.with_pod(pod("b", phase="Failed")).pod_count == 1


def test_a_derived_cluster_shares_what_did_not_change() -> None:
    nodes = [ClusterNode(f"worker-{number}") for number in range(3)]
    moving = pod("a", node="worker-0")
    before = Cluster.of(nodes, [moving, pod("b", node="worker-1"), pod("c"), pod("gone", node="nowhere")])
    after = before.without_pod(moving).with_pod(moving.placed("worker-2"))
    assert moving.uid in before.nodes["worker-0"].pods
    assert moving.uid not in after.nodes["worker-0"].pods
    assert after.nodes["worker-2"].pods[moving.uid].node == "worker-2"
    assert after.nodes["worker-1"] is before.nodes["worker-1"]
    assert after.pending is before.pending
    assert list(before.pending) == ["uid-c"]


def test_pending_pods_come_and_go() -> None:
    waiting = pod("a")
    cluster = Cluster.of([ClusterNode("worker-0")], [])
    with_pod = cluster.with_pod(waiting)
    assert with_pod.pending == {"uid-a": waiting}
    assert with_pod.without_pod(waiting) == cluster
    assert cluster.without_pod(waiting) is cluster
    assert with_pod.without_pod(waiting).with_pod(waiting.placed("worker-0")).nodes["worker-0"].pod_count == 1
    assert with_pod.without_node("worker-0").nodes == {}


def test_pod_cannot_be_put_on_a_missing_node() -> None:
    with pytest.raises(NoSuchNode, match="default/a is bound to node nowhere"):
        Cluster().with_pod(pod("a", node="nowhere"))


def test_a_node_says_why_its_state_is_unknown() -> None:
    stale = Unknown("LeaseExpired", "the exporter's Lease was not renewed for 200 s")
    assert ClusterNode("worker-1").with_placement(stale).unknown == stale


def test_kubelet_knows_all_pods_of_a_node_except_the_newcomer() -> None:
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0}}}
    running = {"name": "c", "state": {"running": {}}}
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}

    def one(name: str, status: dict[str, Any], **metadata: Any) -> ClusterPod:
        return ClusterPod.from_api(
            {
                "metadata": {"name": name, "uid": name, **metadata},
                "spec": {"containers": [{"name": "c"}]},
                "status": {"containerStatuses": [status]},
            }
        )

    node = ClusterNode.from_api(
        {
            "metadata": {"name": "n"},
            "status": {
                "allocatable": {"cpu": "4", "pods": "9"},
                "conditions": [{"type": "MemoryPressure", "status": "True"}],
                "nodeInfo": {"operatingSystem": "linux"},
            },
        }
    ).with_pods(
        [
            one("runs", running),
            one("leaves", running, **deleted),
            one("stopped", ended, **deleted),
            one("comes", running),
        ]
    )
    state = Node.fresh(Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, 1),)), KubeletConfiguration())
    info = node.info(state, beside="comes")
    assert set(info.pods) == {"runs", "leaves"}
    assert info.ended == {"stopped"}
    assert (info.pod_slots, info.allocatable, info.pressures) == (9, {"cpu": 4000}, ("MemoryPressure",))


def changed_body(**parts: Any) -> dict[str, Any]:
    body = pod_body("a")
    return {**body, **{name: {**body[name], **values} for name, values in parts.items()}}


@pytest.mark.parametrize(
    ("parts", "same"),
    [
        ({"metadata": {"name": "b", "uid": "u", "labels": {"app": "x"}}}, True),
        ({"spec": {"nodeName": "worker-1"}}, True),
        ({"status": {"phase": "Running", "startTime": "2026-01-31T08:00:00Z"}}, True),
        ({"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "9"}}}]}}, False),
        ({"spec": {"initContainers": [{"name": "init", "restartPolicy": "Always"}]}}, False),
        ({"spec": {"overhead": {"cpu": "1"}}}, False),
        ({"spec": {"nodeSelector": {"pool": "numa"}}}, False),
        ({"spec": {"tolerations": [{"operator": "Exists"}]}}, False),
        ({"spec": {"schedulingGates": [{"name": "numazones.io/admission"}]}}, False),
        ({"spec": {"hostname": "a-0", "volumes": [{"name": "token"}]}}, True),
        ({"spec": {"priority": 7}}, False),
        ({"status": {"qosClass": "Burstable"}}, False),
        (
            {"status": {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}},
            False,
        ),
        ({"status": {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}}, False),
        ({"status": {"containerStatuses": [{"name": "main"}], "conditions": [{"type": "Ready"}]}}, True),
    ],
)
def test_pods_of_equal_keys_are_of_one_template(parts: dict[str, Any], *, same: bool) -> None:
    other = changed_body(**parts)
    assert (template_key(other) == template_key(pod_body("a"))) == same
    if same:
        there, here = Template.of(other), Template.of(pod_body("a"))
        assert (there.constraints, there.requests) == (here.constraints, here.requests)


def test_key_does_not_tell_who_else_refers_to_a_value() -> None:
    amounts = {"cpu": "2", "memory": "1Gi"}
    shared = [{"name": name, "resources": {"requests": amounts, "limits": amounts}} for name in ("a", "b")]
    keys = {
        template_key({"spec": {"containers": containers}})
        for containers in (shared, copy.deepcopy(shared), json.loads(json.dumps(shared)))
    }
    assert len(keys) == 1


def test_a_pod_is_active_from_its_binding_to_its_end() -> None:
    assert not pod("a").active
    assert pod("a", node="worker-1").active
    assert not pod("a", node="worker-1", phase="Succeeded").active


NODE: dict[str, Any] = {"metadata": {"name": "worker-1"}}
POD: dict[str, Any] = {"metadata": {"name": "web", "namespace": "team"}}


@pytest.mark.parametrize(
    ("read", "body", "said"),
    [
        (
            ClusterNode.from_api,
            None,
            "a Node is a mapping with metadata, spec and status, not NoneType",
        ),
        (
            ClusterPod.from_api,
            [POD],
            "a Pod is a mapping with metadata, spec and status, not list; pass it",
        ),
        (ClusterNode.from_api, {}, "Node (unnamed) .*: it has no metadata.name; pass it as the API server"),
        (ClusterPod.from_api, {"metadata": {"name": ""}}, "it has no metadata.name"),
        (ClusterPod.from_api, {"metadata": "web"}, "metadata must be a mapping, not str"),
        (ClusterNode.from_api, {"metadata": {"name": 5}}, "metadata.name must be a string, not int"),
        (ClusterPod.from_api, {**POD, "spec": ["main"]}, "Pod team/web .*: spec must be a mapping, not list"),
        (ClusterPod.from_api, {**POD, "spec": {"nodeName": 1}}, "spec.nodeName must be a string, not int"),
        (ClusterPod.from_api, {**POD, "spec": {"containers": "main"}}, "Pod team/web .*: AttributeError"),
        (
            ClusterNode.from_api,
            {**NODE, "status": {"allocatable": ["cpu"]}},
            "Node worker-1 .*: status.allocatable must be a mapping, not list",
        ),
        (ClusterNode.from_api, {**NODE, "spec": {"taints": ["x"]}}, "spec.taints is not a list of mappings"),
        (
            ClusterNode.from_api,
            {**NODE, "status": {"allocatable": {"cpu": "many"}}},
            "Node worker-1 .* 'many'.*; pass it as the API server serves it",
        ),
    ],
)
def test_invalid_object_is_reported_with_its_field_and_the_cure(
    read: Callable[[Any], object], body: object, said: str
) -> None:
    with pytest.raises(InvalidObject, match=said.replace("(", r"\(").replace(")", r"\)")):
        read(body)


def test_pod_unacceptable_to_any_kubelet_is_kept_with_its_problem() -> None:
    assert ClusterPod.from_api(POD).problem == "pod 'web' has no containers"
