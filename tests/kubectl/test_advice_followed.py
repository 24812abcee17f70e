"""Advice is followed, by its words, on simulated nodes: the pod then runs."""

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_numazones.printing import answers
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.dump import Dump
from numazones.kubelet import machines
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machines import MachineShape
from numazones.rebalance.dump import situation_of
from numazones_simulator.node_spec import NodeSpec, configuration
from tests.follow_advice import Nodes, Object, copy_of, follow, objects_of, placed, replacement_runs, runs
from tests.laws import examples
from tests.places import DATA
from tests.random_clusters import SimulatedNode, clusters
from tests.test_one_answer import MOMENT

GOLDEN = DATA / "golden" / "stuck-pods"
Run = Callable[..., Result]
GPU, NIC = "nvidia.com/gpu", "vendor.example/nic"
_GIB = 1 << 30


def pod(name: str, amounts: dict[str, str], *, owner: str = "ReplicaSet", **spec: Any) -> Object:
    """A pod of one container; its owner makes it anew."""
    metadata: Object = {
        "namespace": "team",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-01-31T08:00:00Z",
    }
    if owner:
        metadata["ownerReferences"] = [
            {"kind": owner, "name": name[:3], "uid": f"uid-{name[:3]}", "controller": True}
        ]
    resources = {"requests": dict(amounts), "limits": dict(amounts)}
    return {
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
        "status": {"phase": "Pending"},
    }


def worker(name: str, *, taints: tuple[dict[str, str], ...] = (), cpu: str = "") -> SimulatedNode:
    """Two NUMA nodes of 8 cores with two threads and 32Gi; a GPU near the second, two NICs near each."""
    shape = MachineShape(
        cores_per_numa=8, memory_per_numa=32 * _GIB, hugepages_per_numa=((1 << 20, 2), (2048, 0))
    )
    machine = machines.build(shape)
    settings_ = configuration(
        machine,
        topology_manager_policy="single-numa-node",
        reserved_cpus="0,16",
        cpu_manager_policy_options={cpu: "true"} if cpu else None,
    )
    nics = tuple(Device(f"nic-{numa}-{number}", (numa,)) for numa in range(2) for number in range(2))
    return SimulatedNode(
        NodeSpec(name, machine, settings_, {GPU: (Device("gpu-0", (1,)),), NIC: nics}, taints=taints)
    )


CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def three_workers(*, cpu: str = "") -> Nodes:
    """A tainted control plane, and two workers that have pods, in pieces."""
    nodes = {
        "control-plane": worker("control-plane", taints=(CONTROL_PLANE,)),
        "worker-1": worker("worker-1", cpu=cpu),
        "worker-2": worker("worker-2", cpu=cpu),
    }
    for name, cpus, where in (
        ("web-1", 8, "worker-1"),
        ("web-2", 10, "worker-1"),
        ("batch-1", 14, "worker-2"),
        ("cache-1", 8, "worker-2"),
        ("cache-2", 4, "worker-2"),
    ):
        body = pod(name, {"cpu": str(cpus), "memory": "1Gi"})
        assert nodes[where].run(placed(body, where))
    nodes["worker-2"].end("uid-batch-1")
    assert nodes["worker-2"].run(placed(pod("cache-3", {"cpu": "6", "memory": "1Gi"}), "worker-2"))
    return nodes


STUCK: dict[str, tuple[Object, str]] = {
    "too-big": (pod("too-big", {"cpu": "40", "memory": "1Gi"}), ""),
    "hugepages": (pod("hugepages", {"cpu": "2", "memory": "1Gi", "hugepages-1Gi": "64Gi"}), ""),
    "fragmented": (pod("fragmented", {"cpu": "12", "memory": "1Gi"}), ""),
    "wrong-device": (pod("wrong-device", {"cpu": "8", "memory": "1Gi", GPU: "1"}), ""),
    "odd-cpus": (pod("odd-cpus", {"cpu": "3", "memory": "1Gi"}), "full-pcpus-only"),
    "unknown-resource": (pod("unknown-resource", {"cpu": "2", "memory": "1Gi", "nvidia.com/gppu": "1"}), ""),
    "selector": (pod("selector", {"cpu": "2", "memory": "1Gi"}, nodeSelector={"disk": "ssd"}), ""),
}


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_pod_runs_after_any_piece_of_advice(name: str, run: Run, tmp_path: Path) -> None:
    """The walk: what is said of each of seven stuck pods, and that following it helps."""
    body, option = STUCK[name]
    nodes = three_workers(cpu=option)
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": list(objects_of(nodes, [body]))}))
    said = run("why", name, "-n", "team", "-f", str(dump))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("NUMAZONES_REWRITE_GOLDEN"):
        golden.write_text(said.output)
    assert said.output == golden.read_text()
    advice = json.loads(run("why", name, "-n", "team", "-f", str(dump), "-o", "json").output)["advice"]
    assert advice
    for item in advice:
        changed, after = follow(item["sentence"], body, item["node"], nodes)
        after[item["node"]] = copy_of(after[item["node"]])
        assert runs(changed, item["node"], after), item["sentence"]
        assert replacement_runs(item["sentence"], item["node"], nodes, after)
    listed = re.findall(r"^  - (.+)$", said.output, flags=re.MULTILINE)
    assert len(listed) == len(advice)


REQUESTS = st.fixed_dictionaries(
    {"cpu": st.integers(1, 40).map(str), "memory": st.sampled_from(["1Gi", "20Gi", "60Gi"])},
    optional={
        "vendor.example/gpu": st.integers(1, 3).map(str),
        NIC: st.integers(1, 5).map(str),
        "vendor.example/nik": st.just("1"),
        "hugepages-2Mi": st.sampled_from(["2Mi", "2Gi", "9Gi"]),
        "hugepages-1Gi": st.sampled_from(["1Gi", "6Gi"]),
    },
)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    cluster=clusters(most_pods=24),
    amounts=REQUESTS,
    spec=st.sampled_from(
        [
            {},
            {},
            {"nodeSelector": {"disk": "ssd"}},
            {"nodeSelector": {"disk": "ssd", "kubernetes.io/hostname": "nowhere"}},
            {"tolerations": [{"operator": "Exists"}]},
        ]
    ),
)
def test_all_advice_about_random_pods_on_random_clusters_helps(
    cluster: tuple[list[SimulatedNode], list[Object]], amounts: dict[str, str], spec: Object
) -> None:
    """The law: whatever is advised, the kubelet of the node that it is about admits the pod afterwards."""
    nodes = {node.spec.name: node for node in cluster[0]}
    body = pod("stuck", amounts, **copy.deepcopy(spec))
    situation = situation_of(Dump.of(objects_of(nodes, [])), MOMENT)
    wanted = ClusterPod.from_api(body)
    forecast = answers.forecast_of(wanted, situation.cluster.nodes)
    said = answers.prediction_of(wanted, forecast)
    for item in answers.advice_for(wanted, situation, said, forecast):
        changed, after = follow(item.sentence, body, item.node, nodes)
        after[item.node] = copy_of(after[item.node])
        assert runs(changed, item.node, after), (said.sentence, item)
        assert replacement_runs(item.sentence, item.node, nodes, after), (said.sentence, item)
