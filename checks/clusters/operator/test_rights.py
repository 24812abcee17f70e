"""The operator's rights: exactly those that it uses, found by running it; they do on a real server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop, metrics
from checks.clusters.operator.real_cluster import cluster_on
from checks.clusters.operator.rights import granted_rights, note_rights
from checks.clusters.operator.wrong_predictions import WrongPredictions, config_map, kept_misses
from numazones.api.meta import NODE_LABEL
from numazones.cluster.admission_gate import GATE, OPT_IN, RELEASED
from numazones_client import Client
from numazones_client.resources import (
    ADMISSION_PREDICTIONS,
    LEASES,
    NAMESPACES,
    NODES,
    NUMAZONES,
    PODS,
    REPLICA_SETS,
)
from numazones_operator.notices import stale_exporters
from numazones_operator.prevention import pods_with_lost_nodes
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer
from tests.waiting import eventually

MANIFESTS = ROOT / "manifests"

REBALANCING = "numazones-operator-rebalance"


SILENT = {
    "apiVersion": LEASES.api_version,
    "kind": "Lease",
    "metadata": {
        "name": "numazones-exporter-gone",
        "namespace": OPTIONS.exporter_namespace,
        "labels": {NODE_LABEL: "gone"},
    },
    "spec": {"leaseDurationSeconds": 1, "renewTime": "2026-01-31T08:00:00.000000Z"},
}
ABANDONED = {
    "apiVersion": NUMAZONES.api_version,
    "kind": "NUMAZone",
    "metadata": {"name": "gone-numa-0"},
    "spec": {"nodeName": "gone", "numaID": 0},
}


async def silence_exporter(client: Client) -> Callable[[], Awaitable[bool]]:
    """Leave a zone behind whose exporter is silent; return how to ask whether the operator has said so."""
    await client.apply(LEASES, SILENT, field_manager="exporter", namespace=OPTIONS.exporter_namespace)
    await client.apply(NUMAZONES, ABANDONED, field_manager="exporter")

    async def marked() -> bool:
        zone = await client.get(NUMAZONES, "gone-numa-0")
        return "silence" in (zone.get("status") or {})

    return marked


async def exercise(loop: Loop, operator: Operator) -> None:
    """Make the operator do everything that it can do."""
    label = {"metadata": {"labels": {OPT_IN[0]: OPT_IN[1]}}}
    await loop.client.patch(NAMESPACES, "default", label)
    await loop.create_pod("plain", cpu=40)
    await eventually(lambda: loop.verdict("plain"))
    # An object of the pod's name that belongs to another pod makes way.
    other = {
        "apiVersion": ADMISSION_PREDICTIONS.api_version,
        "kind": "AdmissionPrediction",
        "metadata": {"name": "squatted", "namespace": "default"},
        "spec": {"podUID": "somebody-else"},
    }
    fault = loop.server.faults.server_error(verb="watch", resource="admissionpredictions", count=None)
    loop.server.faults.drop_watches("admissionpredictions")
    await loop.client.create(ADMISSION_PREDICTIONS, other, namespace="default")
    await loop.create_pod("squatted", cpu=3)
    await eventually(lambda: loop.verdict("squatted"))
    loop.server.faults.remove(fault)
    # The operator reads a gated pod only where that has node affinity of its own.
    linux = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [linux]}}
    gate, affinity = {"name": GATE}, {"nodeAffinity": required}
    await loop.create_pod("gated", cpu=4, schedulingGates=[gate], affinity=affinity)

    async def released() -> bool:
        pod = await loop.client.get(PODS, "gated", namespace="default")
        return not pod["spec"].get("schedulingGates")

    await eventually(released)
    # A pod that was released to a node which is gone is replaced.
    labels = {"app": "r"}
    template = {"metadata": {"labels": labels}, "spec": pod_body("r", cpu=4)["spec"]}
    replicas = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}, "spec": replicas}
    uid = (await loop.client.create(REPLICA_SETS, made, namespace="default"))["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": True}
    named = {"key": "metadata.name", "operator": "In", "values": ["gone"]}
    gone = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [named]}]}
    }
    body = pod_body("stranded", cpu=4, affinity={"nodeAffinity": gone})
    body["metadata"] |= {"annotations": {RELEASED: "2026-01-31T08:00:00Z"}, "ownerReferences": [owner]}
    await loop.client.create(PODS, body, namespace="default")

    async def evicted() -> bool:
        return "stranded" not in {pod["metadata"]["name"] for pod in await loop.client.list(PODS)}

    await eventually(evicted)
    await eventually(await silence_exporter(loop.client), what="the zone of a silent exporter says so")
    await config_map(loop)
    erring = WrongPredictions(loop)
    erring.setting.pipeline.misses = operator.pipeline.misses
    erring.err("late", phase="Failed", reason="TopologyAffinityError")
    await eventually(lambda: kept_misses(loop), what="a wrong prediction is kept")
    assert not operator.failed


async def test_every_right_is_used_and_every_call_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_exporters, "_PERIOD", 0.1)
    monkeypatch.setattr(pods_with_lost_nodes, "_PERIOD", 0.1)
    monkeypatch.setattr(pods_with_lost_nodes, "PATIENCE", 0.0)
    used = note_rights(monkeypatch)
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(2))
        operator = await loop.start_operator(admission_gate=True, admission_gate_replace=True)
        await exercise(loop, operator)
    # What kopf's handlers say on policies belongs to rebalancing, and is tested with it.
    # These are asked for; where nobody has installed their definitions, the answer is that there are none.
    for group, resource in (
        ("topology.node.k8s.io", "noderesourcetopologies"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "resourceslices"),
        ("scheduling.koordinator.sh", "devices"),
        ("config.nri", "topologyawarepolicies"),
    ):
        assert (group, resource, "list") in used
        used.add((group, resource, "watch"))
    folders = ("operator", "components/operator-admission-gate", "components/operator-eviction")
    assert used - granted_rights(*folders) == set(), "calls without a right"
    assert granted_rights(*folders, but=REBALANCING) - used == set(), "rights without a call"


@pytest.mark.real_apiserver
@pytest.mark.slow
async def test_operator_works_with_exactly_these_rights(
    real_apiserver: RealAPIServer, tmp_path: Path
) -> None:
    async with cluster_on(real_apiserver, tmp_path) as (client, config), asyncio.TaskGroup() as tasks:
        fleet = Fleet(client, [replace(spec, name=f"operator-{spec.name}") for spec in node_kinds.mixed(2)])
        running = [tasks.create_task(fleet.run())]
        running += [
            tasks.create_task(SimulatedZonePublisher(agent, client).run()) for agent in fleet.agents.values()
        ]
        for agent in fleet.agents.values():
            # No node controller runs here that would take the taint of a new node away.
            await agent.registered.wait()
            await client.patch(NODES, agent.name, {"spec": {"taints": None}})
        operator = Operator(
            replace(
                OPTIONS, namespace="numazones-operator", admission_gate=True, metrics_address="127.0.0.1:0"
            ),
            config,
        )
        ended = asyncio.create_task(asyncio.to_thread(asyncio.run, operator.run()))
        try:
            await eventually(lambda: operator.ready.is_set() or ended.done())
            await follow_pods(client, operator)
            await eventually(await silence_exporter(client), what="the zone of a silent exporter says so")
            shown = real_apiserver.kubectl("get", "numazones", "gone-numa-0").splitlines()
            assert shown[1][shown[0].index("STATE") :].startswith("Silent")
        finally:
            operator.stop()
            await ended
            for task in running:
                task.cancel()
        assert not operator.failed


async def follow_pods(client: Client, operator: Operator) -> None:
    """A pod predicted, bound and admitted; one predicted to be rejected, and rejected; one released."""
    nodes = ("operator-node-1", "operator-node-2")
    await client.patch(NAMESPACES, "default", {"metadata": {"labels": {OPT_IN[0]: OPT_IN[1]}}})

    async def status(name: str) -> dict[str, Any]:
        found = await client.list(ADMISSION_PREDICTIONS, namespace="default")
        return next((item.get("status") or {} for item in found if item["metadata"]["name"] == name), {})

    async def verdict(name: str, wanted: str) -> bool:
        return bool((await status(name)).get("verdict") == wanted)

    only_first: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": nodes[0]}}
    waiting = [{"name": "example.com/wait"}]
    for name, cpu in (("real-small", 4), ("real-big", 40)):
        body = pod_body(name, cpu=cpu, schedulingGates=waiting, **only_first)
        await client.create(PODS, body, namespace="default")
    await eventually(lambda: verdict("real-small", "Admissible"))
    await eventually(lambda: verdict("real-big", "Inadmissible"))
    for name in ("real-small", "real-big"):
        await client.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace="default")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": "default"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": nodes[0]},
        }
        await client.create(PODS, binding, namespace="default", subresource="binding")

    async def outcomes() -> bool:
        small, big = (await status("real-small")).get("outcome"), (await status("real-big")).get("outcome")
        return bool(small and big and small["actual"] == "Admitted" and big["actual"] == "Rejected")

    await eventually(outcomes, what="outcomes are recorded")
    gated = pod_body("real-gated", cpu=4, schedulingGates=[{"name": GATE}], **only_first)
    await client.create(PODS, gated, namespace="default")

    async def released() -> dict[str, Any]:
        pod = await client.get(PODS, "real-gated", namespace="default")
        return {} if pod["spec"].get("schedulingGates") else pod

    pod = await eventually(released)
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[0]]}]}
    ]
    counted = await metrics(operator)
    rejected = 'numazones_prediction_outcomes_total{actual="TopologyAffinityError",predicted="Inadmissible"}'
    assert counted[rejected] == 1
    writes = {name: n for name, n in counted.items() if "api_writes_total" in name and 'result="403"' in name}
    assert not writes, writes
