"""The operator while API server, definitions or exporters fail: what it says, and that it is right again."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop
from checks.clusters.operator.test_recovery import assert_state_equals_a_fresh_list, busy_cluster, storm
from numazones.api import crd
from numazones.api.meta import NODE_LABEL
from numazones.api.numazone import NUMAZone
from numazones_client import AlreadyExists, Conflict
from numazones_client.resources import (
    ADMISSION_PREDICTIONS,
    DEFINITIONS,
    LEASES,
    NODES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
)
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from numazones_simulator.node_spec import NodeSpec
from tests.places import ROOT
from tests.waiting import eventually

RELEASES = ROOT / "tests" / "data" / "releases"


async def has_verdict(loop: Loop, name: str, verdict: str) -> bool:
    return await loop.verdict(name) == verdict


async def foresees_a_waiting_pod(loop: Loop, nodes: Sequence[NodeSpec]) -> Operator:
    """Start nodes and an operator, and have it say that the pod ``waits`` would be admitted."""
    await loop.start_nodes(nodes)
    operator = await loop.start_operator()
    await loop.create_pod("waits", cpu=4)
    await eventually(lambda: has_verdict(loop, "waits", "Admissible"))
    return operator


async def lacks_verdict(loop: Loop, name: str, verdict: str) -> bool:
    return await loop.verdict(name) != verdict


async def renew(loop: Loop, now: str) -> None:
    """Renew the exporters' Leases, as exporters do once they reach the API server again."""
    for lease in await loop.client.list(
        LEASES, namespace=OPTIONS.exporter_namespace, label_selector=NODE_LABEL
    ):
        name = lease["metadata"]["name"]
        patch = {"spec": {"renewTime": now}}
        await loop.client.patch(LEASES, name, patch, namespace=OPTIONS.exporter_namespace)


def pass_time(operator: Operator, seconds: float) -> None:
    """Let the clock by which Leases are judged go on."""
    operator.pipeline.state._clock = lambda: time.monotonic() + seconds


async def test_api_server_outage_makes_nodes_unknown_until_exporters_return(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await foresees_a_waiting_pod(loop, node_kinds.mixed(2))
        await loop.server.stop()
        pass_time(operator, 300.0)
        await asyncio.sleep(1.5)  # it looks once a second
        assert not operator.failed
        await loop.server.start()
        await eventually(lambda: has_verdict(loop, "waits", "Unknown"))
        await renew(loop, "2030-01-01T00:00:00.000000Z")
        await eventually(lambda: has_verdict(loop, "waits", "Admissible"))
        await assert_state_equals_a_fresh_list(loop, operator)


@pytest.mark.slow
async def test_ten_seconds_without_an_api_server_change_no_answer(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        await storm(loop, pods=20)
        await assert_state_equals_a_fresh_list(loop, operator)
        await loop.server.settle()  # predictions of deleted pods are collected
        before = {name: {**said, "changed": ""} for name, said in (await loop.predictions()).items()}
        await loop.server.stop()
        await asyncio.sleep(10.0)
        assert operator.leadership.leading
        await loop.server.start()
        await assert_state_equals_a_fresh_list(loop, operator)
        after = {name: {**said, "changed": ""} for name, said in (await loop.predictions()).items()}
        assert after == before
        assert not operator.failed


async def test_answers_that_take_seconds_delay_predictions_and_lose_none(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        slow = [
            loop.server.faults.delay(1.0, verb=verb, resource="admissionpredictions", count=None)
            for verb in ("create", "patch")
        ]
        await storm(loop, pods=20)
        for fault in slow:
            loop.server.faults.remove(fault)
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_conflicts_on_every_write_stop_nothing_but_the_writing(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        faults = [
            loop.server.faults.conflict(verb=verb, resource="admissionpredictions", count=None)
            for verb in ("create", "patch")
        ]
        await storm(loop, pods=20)
        await eventually(lambda: faults[0].struck > 10)
        assert not await loop.predictions()
        for fault in faults:
            loop.server.faults.remove(fault)
        await assert_state_equals_a_fresh_list(loop, operator)
        assert not operator.failed


async def test_silently_dead_watches_are_reopened(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(2))
        operator = await loop.start_operator(watch_silence=2.0)
        await storm(loop, pods=5, prefix="before")
        await assert_state_equals_a_fresh_list(loop, operator)
        assert loop.server.faults.silence_watches(client="numazones-operator")
        await storm(loop, pods=20, prefix="after")
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_removed_definition_makes_nodes_unknown_until_zones_return(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await foresees_a_waiting_pod(loop, node_kinds.mixed(2))
        await loop.client.delete(DEFINITIONS, "numazones.numazones.io")
        await eventually(lambda: has_verdict(loop, "waits", "Unknown"))
        assert not operator.failed

        async def installed() -> bool:
            try:
                await loop.client.create(DEFINITIONS, crd.crd(NUMAZone))
            except (AlreadyExists, Conflict):
                return False
            return True

        await eventually(installed)
        assert loop.fleet is not None
        for agent in loop.fleet.agents.values():
            loop.tasks.create_task(SimulatedZonePublisher(agent, loop.client).run())
        await eventually(lambda: has_verdict(loop, "waits", "Admissible"))


async def test_recreated_node_replaces_the_deleted_one_of_its_name(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await foresees_a_waiting_pod(loop, [node_kinds.single_numa_node("n1", "10.0.0.1")])
        await loop.client.delete(NODES, "n1")
        await eventually(lambda: lacks_verdict(loop, "waits", "Admissible"))
        assert loop.fleet is not None
        agent = loop.fleet.agents["n1"]
        await agent.register()
        loop.tasks.create_task(SimulatedZonePublisher(agent, loop.client).run())
        await eventually(lambda: has_verdict(loop, "waits", "Admissible"))


RELEASE = json.loads((RELEASES / "objects-0.2.0.json").read_text())
OF_OURS = {
    "numazones": NUMAZONES,
    "admissionpredictions": ADMISSION_PREDICTIONS,
    "rebalancepolicies": REBALANCE_POLICIES,
    "rebalancerecommendations": REBALANCE_RECOMMENDATIONS,
    "nodes": NODES,
    "pods": PODS,
    "leases": LEASES,
}


async def test_objects_stored_by_release_0_2_are_upgraded(tmp_path: Path) -> None:
    """The objects are those of a cluster of that release, where one pod of 30 CPUs waits."""
    async with closed_loop(tmp_path) as loop:
        uids: dict[str, str] = {}
        for item in RELEASE:
            body: dict[str, Any] = json.loads(_with_uids(json.dumps(item), uids))
            resource = OF_OURS[body.pop("_plural")]
            old = body["metadata"].pop("uid")
            kept = {
                key: body["metadata"][key]
                for key in ("name", "namespace", "labels")
                if key in body["metadata"]
            }
            owners = {"ownerReferences": body["metadata"].get("ownerReferences", [])}
            namespace = kept.get("namespace", "")
            status = body.pop("status", None)
            made = await loop.client.create(
                resource, {**body, "metadata": kept | owners}, namespace=namespace
            )
            uids[old] = made["metadata"]["uid"]
            if status is not None:
                text = _with_uids(json.dumps({"status": status}), uids)
                await loop.client.patch(
                    resource, kept["name"], json.loads(text), namespace=namespace, subresource="status"
                )
        operator = await loop.start_operator(rebalance=True, rebalance_period=0.05, admission_gate=True)
        await renew(loop, "2030-01-01T00:00:00.000000Z")
        await eventually(lambda: has_verdict(loop, "waits", "Inadmissible"))
        # The verdict stands in what 0.2 stored, so it does not show that the renewed Lease has been seen.
        await eventually(lambda: known(operator, "n1"), what="the node's zones of 0.2 are read")

        async def judged() -> bool:
            (policy,) = await loop.client.list(REBALANCE_POLICIES)
            conditions = (policy.get("status") or {}).get("conditions") or ()
            return {one["type"]: one["status"] for one in conditions}.get("Ready") == "True"

        await eventually(judged, what="the policy of 0.2 is followed")
        (plan,) = await loop.client.list(REBALANCE_RECOMMENDATIONS)
        assert plan["status"]["evictions"] == 0
        assert not operator.failed


def known(operator: Operator, name: str) -> bool:
    node = operator.pipeline.state.node(name)
    return node is not None and node.state is not None


def _with_uids(text: str, uids: dict[str, str]) -> str:
    for old, new in uids.items():
        text = text.replace(old, new)
    return text
