"""RebalancePolicies followed on the embedded API server: recommend, approve, carry out, survive a crash."""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop, metrics, runs
from checks.clusters.operator.real_cluster import cluster_on
from checks.clusters.operator.rebalance.kept_back import next_write_kept_back
from checks.clusters.operator.rights import granted_rights, note_rights
from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import GATE
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client, Invalid, Resource
from numazones_client.resources import (
    BUDGETS,
    EVENTS,
    NODES,
    NUMAZONES,
    PODS,
    PRIORITY_CLASSES,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher
from numazones_simulator.node_spec import VERSION, configuration
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import SimulatedScheduler
from tests.manifests.kustomizations import composition
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer
from tests.waiting import eventually
from tests.yaml_files import documents

LARGE = {"name": "large", "resources": {"cpu": "30", "memory": "1Gi"}, "count": 1}


@dataclass
class Stage:
    """One node whose zones have 10 and 20 of 30 CPUs free; one pod of 10 CPUs stands in the way of 30."""

    client: Client
    pod: dict[str, Any]
    loop: Loop | None = None

    async def policy(self, mode: str, *, name: str = "keep-room", **spec: Any) -> None:
        body = {
            "apiVersion": "numazones.io/v1alpha1",
            "kind": "RebalancePolicy",
            "metadata": {"name": name},
            "spec": {
                "mode": mode,
                "goals": {"shapes": [LARGE]},
                "limits": {"evictSingleReplicas": True},
                "schedule": {"interval": "1s"},
                **spec,
            },
        }
        await self.client.create(REBALANCE_POLICIES, body)

    async def operator(self, **options: Any) -> Operator:
        assert self.loop is not None
        return await self.loop.start_operator(
            rebalance=True, rebalance_period=0.05, admission_gate=True, leader_elect=False, **options
        )

    async def recommendations(self) -> list[dict[str, Any]]:
        found = await self.client.list(REBALANCE_RECOMMENDATIONS)
        return sorted(found, key=lambda item: str(item["metadata"]["name"]))

    async def reach(self, phase: str) -> dict[str, Any]:
        """Wait until a recommendation is in a phase."""

        async def probe() -> dict[str, Any]:
            for item in await self.recommendations():
                if (item.get("status") or {}).get("phase") == phase:
                    return dict(item)
            return {}

        try:
            found: dict[str, Any] = await eventually(probe, what=f"a recommendation is {phase}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.recommendations()}") from error
        return found

    async def prolonged(self, item: dict[str, Any]) -> None:
        """Wait until a recommendation was found again."""

        async def probe() -> bool:
            (now,) = await self.recommendations()
            return bool(now["spec"]["expires"] != item["spec"]["expires"])

        await eventually(probe, what="the recommendation is prolonged")

    async def objection(self) -> str:
        """Wait until a recommendation says why it cannot be carried out."""

        async def told() -> str:
            found = [(item.get("status") or {}).get("message", "") for item in await self.recommendations()]
            return next((str(text) for text in found if "cannot be executed" in text), "")

        return str(await eventually(told))

    async def pods_of(self, name: str) -> list[dict[str, Any]]:
        return [
            item
            for item in await self.client.list(PODS, namespace="default")
            if item["metadata"]["name"].startswith(f"{name}-")
        ]

    async def one_runs(self, name: str) -> bool:
        """Return whether one pod of an owner runs; zones show it before its status does."""
        phases = [(item.get("status") or {}).get("phase") for item in await self.pods_of(name)]
        return phases.count("Running") == 1

    async def is_alive(self) -> bool:
        uids = {item["metadata"]["uid"] for item in await self.pods_of("mover")}
        return self.pod["metadata"]["uid"] in uids


async def replica_set(loop: Loop, name: str, cpu: int, **spec: Any) -> dict[str, Any]:
    """Create a ReplicaSet of one pod and return that pod."""
    template = pod_body(name, cpu=cpu, labels={"app": name}, **spec)
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }
    await loop.client.create(REPLICA_SETS, body, namespace="default")

    async def made() -> dict[str, Any]:
        for item in await loop.client.list(PODS, namespace="default"):
            if item["metadata"]["name"].startswith(f"{name}-"):
                return dict(item)
        return {}

    found: dict[str, Any] = await eventually(made)
    return found


def budget(app: str) -> dict[str, Any]:
    """A PodDisruptionBudget that lets no pod of an app go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }


async def release(loop: Loop, pod: dict[str, Any]) -> None:
    """Take a gate away without asking anybody."""
    if pod["spec"].get("schedulingGates"):
        await loop.client.patch(
            PODS,
            pod["metadata"]["name"],
            [{"op": "remove", "path": "/spec/schedulingGates"}],
            namespace="default",
            media_type="application/json-patch+json",
        )


@asynccontextmanager
async def stage(
    directory: Path, *, gated: bool = False, other_node: bool = False, version: str = VERSION
) -> AsyncIterator[Stage]:
    """Lay the pods out; with another node, the free block of 10 CPUs is there and not beside the pod."""
    async with closed_loop(directory) as loop:
        specs = [node_kinds.single_numa_node("n1", "10.0.0.1")]
        specs += [node_kinds.single_numa_node("n2", "10.0.0.2")] if other_node else []
        await loop.start_nodes([replace(spec, version=version) for spec in specs])
        await loop.opt_in()
        loop.tasks.create_task(ReplicaSets(loop.client, pause=0.05).run())
        filled = [("fill-0", 20, "n1"), ("hole", 10, "n1")]
        filled += [("fill-2", 20, "n2"), ("fill-3", 30, "n2")] if other_node else []
        for name, cpu, node in filled:
            await loop.create_pod(name, cpu=cpu)
            await loop.run_on(node, name)
        gates = {"schedulingGates": [{"name": GATE}]} if gated else {}
        pod = await replica_set(loop, "mover", 10, **gates)
        await release(loop, pod)
        await loop.run_on("n1", pod["metadata"]["name"])
        if not other_node:
            await loop.client.delete(PODS, "hole", namespace="default")
            await eventually(lambda: _left_no_trace(loop, "hole"))
        loop.start_scheduler()
        yield Stage(loop.client, pod, loop)


async def test_a_plan_is_recommended_and_nothing_is_touched(tmp_path: Path) -> None:
    async with stage(tmp_path, version="v1.38.0") as here:
        await here.policy("Recommend")
        operator = await here.operator()
        item = await here.reach("Proposed")
        spec, status = item["spec"], item["status"]
        (move,) = spec["moves"]
        assert spec["goal"] == "shape large x1"
        assert spec["doubts"] == [
            "kubelet 1.38 is not released yet: it is predicted with the rules of its second alpha (n1)"
        ]
        assert spec["gain"] == {"before": 0, "after": 1, "total": 1, "minimal": True}
        assert move["pod"]["uid"] == here.pod["metadata"]["uid"]
        assert move["owner"]["name"] == "mover"
        assert (move["source"], move["target"]) == (
            {"node": "n1", "numaIDs": [1]},
            {"node": "n1", "numaIDs": [0]},
        )
        assert move["why"] == "free CPUs on one NUMA node of n1 grow from 20 to 30"
        assert status["mode"] == "Recommend"
        assert {one["type"]: one["status"] for one in status["conditions"]} == {"Complete": "False"}
        await here.prolonged(item)  # another search finds the same plan
        assert len(await here.recommendations()) == 1
        assert await here.is_alive()
        counted = await metrics(operator)
        series = 'numazones_rebalance_moves_total{mode="Recommend",policy="keep-room",result="recommended"}'
        assert counted[series] == 1
        labels = 'mode="Recommend",policy="keep-room"'
        assert counted[f"numazones_rebalance_policy_ready{{{labels}}}"] == 1
        assert [
            counted[
                f'numazones_rebalance_active_plans{{mode="Recommend",phase="{phase}",policy="keep-room"}}'
            ]
            for phase in ("Proposed", "Approved", "Executing")
        ] == [1, 0, 0]
        # What has not happened yet is there as 0, so that a rate shows the first time.
        assert counted[f"numazones_rebalance_gain_total{{{labels}}}"] == 0
        labels = 'mode="Recommend",namespace="default",node="n1",policy="keep-room",result="success"'
        assert counted[f"numazones_rebalance_pods_evicted_total{{{labels}}}"] == 0
        policy = await here.client.get(REBALANCE_POLICIES, "keep-room")
        assert policy["status"]["recommendation"] == item["metadata"]["name"]
        said = {one["type"]: one for one in policy["status"]["conditions"]}
        assert said["Ready"]["status"] == "True"
        assert "protections in effect: PodsWithLocalStorage" in said["Ready"]["message"]


async def test_status_is_written_despite_a_concurrent_kopf_annotation(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        forestalled = StatusError(409, "Conflict", "the object has been modified")
        here.loop.server.faults.add(
            Fault(verb="patch", resource="rebalancerecommendations", subresource="status", error=forestalled)
        )
        await here.policy("Recommend")
        await here.operator()
        item = await here.reach("Proposed")
        assert item["status"]["message"] == "a simulation confirmed the plan"
        assert [one["phase"] for one in item["status"]["progress"]] == ["Pending"]


async def test_an_approved_plan_is_carried_out_and_confirmed_by_zones(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        operator = await here.operator()
        item = await here.reach("Proposed")
        await asyncio.sleep(0.3)
        assert await here.is_alive()
        await here.client.patch(
            REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], {"spec": {"approved": True}}
        )
        done = await here.reach("Succeeded")
        assert done["status"]["evictions"] == 1
        assert done["status"]["realized"] == 1
        (progress,) = done["status"]["progress"]
        assert progress["phase"] == "Verified"
        assert progress["message"] == "runs on NUMA node 0 of n1"
        assert not await here.is_alive()
        (again,) = await here.pods_of("mover")
        assert progress["replacement"]["uid"] == again["metadata"]["uid"]
        counted = await metrics(operator)
        labels = 'mode="Approve",namespace="default",node="n1",policy="keep-room",result="success"'
        assert counted[f"numazones_rebalance_pods_evicted_total{{{labels}}}"] == 1

        async def rebalanced() -> list[str]:
            events = await here.client.list(EVENTS, namespace="default")
            return [one["message"] for one in events if one["reason"] == "Rebalanced"]

        (told,) = await eventually(rebalanced, what="an event tells of the eviction")
        assert told.startswith("evicted by RebalanceRecommendation keep-room-")


async def test_a_pod_that_lies_across_numa_nodes_is_brought_together(tmp_path: Path) -> None:
    """Its kubelet is best-effort; the pod that was in its way has left."""
    spec = node_kinds.single_numa_node("n1", "10.0.0.1")
    loose = configuration(spec.machine, topology_manager_policy="best-effort", reserved_cpus="0,16,32,48")
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([replace(spec, configuration=loose)])
        loop.tasks.create_task(ReplicaSets(loop.client, pause=0.05).run())
        for name in ("fill-0", "fill-1"):
            await loop.create_pod(name, cpu=20)
            await loop.run_on("n1", name)
        pod = await replica_set(loop, "mover", 16)
        await loop.run_on("n1", pod["metadata"]["name"])
        here = Stage(loop.client, pod, loop)
        await here.policy("Auto", goals={"align": True, "pendingPods": False})
        operator = await here.operator()
        nothing = "align pods: no plan with up to"

        async def says_why_not() -> bool:
            policy = await loop.client.get(REBALANCE_POLICIES, "keep-room")
            return nothing in str(policy.get("status"))

        await eventually(says_why_not)
        assert (await metrics(operator))['numazones_node_pods{alignment="spanning",node="n1"}'] == 1
        await loop.client.delete(PODS, "fill-1", namespace="default")
        loop.start_scheduler()
        done = await here.reach("Succeeded")
        assert (done["spec"]["goal"], done["status"]["evictions"]) == ("align pods", 1)
        assert done["status"]["message"] == "the NUMAZones confirm a gain of 1"
        assert not await here.is_alive()

        async def is_aligned() -> bool:
            counted = await metrics(operator)
            return [
                counted[f'numazones_node_pods{{alignment="{kind}",node="n1"}}']
                for kind in ("aligned", "spanning")
            ] == [2, 0]

        await eventually(is_aligned)


@pytest.mark.parametrize("mode", ["Recommend", "Approve"])
async def test_rejected_plan_bars_its_moves_for_the_cooldown(tmp_path: Path, mode: str) -> None:
    async with stage(tmp_path) as here:
        await here.policy(mode)
        await here.operator()
        item = await here.reach("Proposed")
        decided = {"spec": {"approved": True, "rejected": True}}
        await here.client.patch(REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], decided)
        ended = await here.reach("Rejected")
        assert ended["status"]["message"] == "the plan was rejected, so no pods are evicted"
        complete = next(one for one in ended["status"]["conditions"] if one["type"] == "Complete")
        assert (complete["status"], complete["reason"]) == ("True", "Rejected")

        async def searched_again() -> bool:
            message = (await status_of_policy(here)).get("message", "")
            return "excluded until the cooldown ends: 1 move of plans that failed or were rejected" in message

        await eventually(searched_again)
        assert [one["status"]["phase"] for one in await here.recommendations()] == ["Rejected"]
        assert await here.is_alive()


async def test_a_plan_is_rejected_although_its_policy_is_suspended(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        await here.operator()
        item = await here.reach("Proposed")
        suspended = {"spec": {"schedule": {"suspend": True}}}
        await here.client.patch(REBALANCE_POLICIES, "keep-room", suspended)
        rejected = {"spec": {"rejected": True}}
        await here.client.patch(REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], rejected)
        await here.reach("Rejected")


async def test_plan_rejected_while_waiting_for_a_budget_evicts_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Auto")
        assert here.loop is not None
        busy = StatusError(429, "TooManyRequests", "the budget says no")
        fault = Fault(verb="create", resource="pods", subresource="eviction", count=None, error=busy)
        here.loop.server.faults.add(fault)
        await here.operator()
        item = await here.reach("Executing")
        await eventually(lambda: fault.struck)
        rejected = {"spec": {"rejected": True}}
        await here.client.patch(REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], rejected)
        ended = await here.reach("Rejected")
        assert ended["status"]["evictions"] == 0
        here.loop.server.faults.remove(fault)
        assert await here.is_alive()


async def test_auto_goes_on_by_itself_and_then_rests(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Auto")
        await here.operator()
        await here.reach("Succeeded")
        await asyncio.sleep(1.5)
        assert [item["status"]["phase"] for item in await here.recommendations()] == ["Succeeded"]


async def test_policies_that_contradict_each_other_evict_once_and_say_so(tmp_path: Path) -> None:
    """Each wants its node free of the one pod that can be moved; every eviction would undo the one before."""
    async with stage(tmp_path, gated=True, other_node=True) as here:

        async def conditions(name: str) -> dict[str, dict[str, Any]]:
            body = await here.client.get(REBALANCE_POLICIES, name)
            return {one["type"]: one for one in (body.get("status") or {}).get("conditions") or ()}

        async def conflicted(status: str) -> bool:
            found = [(await conditions(name)).get("Conflicted", {}) for name in ("free-n1", "free-n2")]
            return [one.get("status") for one in found] == [status, status]

        for node in ("n1", "n2"):
            goals = {"pendingPods": False, "free": {"nodeName": node}}
            await here.policy("Auto", name=f"free-{node}", goals=goals, cooldown="1s")
        operator = await here.operator()
        await eventually(lambda: conflicted("True"), what="both policies say that they contradict each other")
        searches: set[str] = set()

        async def searched_again() -> bool:
            body = await here.client.get(REBALANCE_POLICIES, "free-n2")
            searches.add(body["status"]["lastSearch"])
            return len(searches) > 4  # each after the cooldown of what was before

        await eventually(searched_again)
        assert await evictions(here) == 1
        (done,) = [one for one in await here.recommendations() if one["status"]["phase"] == "Succeeded"]
        first = done["spec"]["policy"]
        # Of pods to get out of the way the goal counts what is left, below zero: two that nothing can move.
        assert done["status"]["realized"] < 0
        assert done["status"]["message"] == "the NUMAZones confirm a gain of 1"
        second, node = ("free-n2", "n1") if first == "free-n1" else ("free-n1", "n2")
        undoing, undone = [(await conditions(name))["Conflicted"] for name in (second, first)]
        assert (undoing["reason"], undone["reason"]) == ("UndoesOtherPolicy", "UndoneByOtherPolicy")
        assert undoing["message"].startswith(
            f"plans of this policy that would move pods to {node} are postponed until 2"
        )
        assert f", because plans of policy {first} made room there" in undoing["message"]
        assert undone["message"].startswith(
            f"plans of policy {second} that would move pods to {node} are postponed until 2"
        )
        assert (await conditions(second))["Ready"]["status"] == "True"
        counted = await metrics(operator)
        for name in ("free-n1", "free-n2"):
            assert counted[f'numazones_rebalance_policy_conflicted{{mode="Auto",policy="{name}"}}'] == 1
        # What the condition says ends it: the goal of one of the two is changed, and the other is followed.
        await here.client.patch(REBALANCE_POLICIES, first, {"spec": {"goals": {"free": None}}})

        async def done_twice() -> bool:
            return await evictions(here) == 2

        await eventually(done_twice, what="the other policy's plan is carried out")
        await eventually(lambda: conflicted("False"))


async def evictions(here: Stage) -> int:
    return sum((item.get("status") or {}).get("evictions", 0) for item in await here.recommendations())


async def test_a_replacement_is_confined_to_its_node_by_the_gate(tmp_path: Path) -> None:
    async with stage(tmp_path, gated=True, other_node=True) as here:
        await here.policy("Auto")
        await here.operator()
        done = await here.reach("Succeeded")
        (move,) = done["spec"]["moves"]
        assert move["affinity"] == ["n2"]
        (again,) = await here.pods_of("mover")
        assert again["spec"]["nodeName"] == "n2"


async def test_without_a_way_to_confine_the_replacement_auto_only_recommends(tmp_path: Path) -> None:
    async with stage(tmp_path, other_node=True) as here:
        await here.policy("Auto")
        await here.operator()

        async def told() -> str:
            for item in await here.recommendations():
                message = str((item.get("status") or {}).get("message", ""))
                if "cannot be executed" in message:
                    return message
            return ""

        message = await eventually(told)
        assert "scheduling gate numazones.io/admission" in message
        assert await here.is_alive()


@asynccontextmanager
async def crowded(directory: Path, **template: Any) -> AsyncIterator[Stage]:
    """One node with 20 of 30 CPUs free in each zone, and a gated pod of 25; the mover alone sits in zone 0.

    Restarted first, the mover would take zone 0 again: the pending pod has to come before it.
    """
    async with closed_loop(directory) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        await loop.opt_in()
        loop.tasks.create_task(ReplicaSets(loop.client, pause=0.05).run())
        for name, cpu in (("stand-in", 25), ("filler", 10)):
            await loop.create_pod(name, cpu=cpu)
            await loop.run_on("n1", name)
        await loop.client.delete(PODS, "stand-in", namespace="default")
        await eventually(lambda: _left_no_trace(loop, "stand-in"))
        pod = await replica_set(loop, "mover", 10, **template)
        await release(loop, pod)
        await loop.run_on("n1", pod["metadata"]["name"])
        loop.start_scheduler()
        await loop.create_pod("big", cpu=25, schedulingGates=[{"name": GATE}])
        yield Stage(loop.client, pod, loop)


async def _left_no_trace(loop: Loop, name: str) -> bool:
    """Return whether a pod is gone, and no zone shows it."""
    held = {
        one["pod"]
        for zone in await loop.client.list(NUMAZONES)
        for one in zone["status"].get("assignments", ())
    }
    return name not in held | {item["metadata"]["name"] for item in await loop.client.list(PODS)}


async def status_of_policy(here: Stage) -> dict[str, Any]:
    policy = await here.client.get(REBALANCE_POLICIES, "keep-room")
    return dict(policy.get("status") or {})


async def test_a_policy_says_why_nothing_is_recommended_with_counts(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Auto", limits={"evictSingleReplicas": False})
        await here.operator()

        async def told() -> dict[str, Any]:
            status = await status_of_policy(here)
            return status if status.get("message") else {}

        status = await eventually(told)
        assert status["message"].startswith("shape large x1: ")
        assert status["movable"] >= 0
        rules = {one["rule"]: one["pods"] for one in status["unmovable"]}
        assert rules["FailedBarePods"] == 1  # fill-0 has no owner that would replace it
        assert (status["movable"], rules["Limits"]) == (0, 1)
        assert await here.recommendations() == []


async def test_the_api_server_refuses_shapes_that_are_not_above_zero(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        here = Stage(loop.client, {}, loop)

        def asking(amount: str | int) -> dict[str, Any]:
            return {"shapes": [{"name": "x", "resources": {"cpu": 1, "memory": amount}}]}

        for amount in ("x", "-3", -3, "0", 0, "-0.5Gi", "0e9", "0.0", ".", "+"):
            with pytest.raises(Invalid, match="memory"):
                await here.policy("Recommend", goals=asking(amount))
        await here.policy("Recommend", goals=asking(4))
        for amount in ("1", "+3", "0.5Gi", ".5Gi", "10e2", "1.", "007"):
            patch = {"spec": {"goals": asking(amount)}}
            await here.client.patch(REBALANCE_POLICIES, "keep-room", patch)


async def test_an_edited_policy_is_searched_for_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        impossible = {"name": "huge", "resources": {"cpu": "99"}, "count": 1}
        await here.policy("Recommend", goals={"shapes": [impossible]}, schedule={"interval": "24h"})
        await here.operator()
        await eventually(lambda: status_of_policy(here))
        await here.client.patch(REBALANCE_POLICIES, "keep-room", {"spec": {"goals": {"shapes": [LARGE]}}})
        item = await here.reach("Proposed")
        status = await status_of_policy(here)
        assert status["recommendation"] == item["metadata"]["name"]
        assert status["message"] == f"{item['metadata']['name']}: 1 move, gain 1"
        # Deleted and created again under the same name, it is another policy.
        await here.client.delete(REBALANCE_RECOMMENDATIONS, item["metadata"]["name"])
        await here.client.delete(REBALANCE_POLICIES, "keep-room")
        await here.policy("Recommend", schedule={"interval": "24h"})
        await here.reach("Proposed")


async def test_newly_stuck_pod_gets_a_search_before_the_interval_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numazones_operator.rebalance.proposer._STUCK_POD_INTERVAL", timedelta(0))
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        assert here.loop is not None
        await here.client.delete(PODS, "big", namespace="default")
        await here.policy("Recommend", goals={"pendingPods": True}, schedule={"interval": "24h"})
        await here.operator()
        status = await eventually(lambda: _searched(here))
        assert status["message"] == "none of the policy's goals needs a plan"
        await here.loop.create_pod("later", cpu=25, schedulingGates=[{"name": GATE}])
        item = await here.reach("Proposed")
        assert item["spec"]["goal"] == "pod default/later"


async def _searched(here: Stage) -> dict[str, Any]:
    status = await status_of_policy(here)
    return status if status.get("lastSearch") else {}


async def test_policy_that_leaves_mode_auto_stops_before_next_eviction(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        statuses = (await here.operator()).rebalancing.statuses
        writes, announced, edited = statuses.write, asyncio.Event(), asyncio.Event()

        async def hold_back(item: Any, policy: Any, advance: Any, **more: Any) -> Any:
            done = await writes(item, policy, advance, **more)
            if "Evicting" in {one.phase for one in advance.progress}:
                announced.set()
                await edited.wait()
            return done

        statuses.write = hold_back  # type: ignore[method-assign]
        await here.policy("Auto")
        await eventually(announced.is_set, what="the eviction is announced")
        await here.client.patch(REBALANCE_POLICIES, "keep-room", {"spec": {"mode": "Recommend"}})
        edited.set()
        old = await here.reach("Superseded")
        assert "is now in mode Recommend" in old["status"]["message"]
        assert await here.is_alive()


UNUSABLE = {"spec": {"protections": {"priorityThreshold": {"name": "gone"}}}}
"""Makes a policy refer to a PriorityClass that does not exist: read without trouble, and invalid."""


async def test_running_plan_ends_when_its_policy_becomes_invalid(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        operator = await here.operator()
        item = await here.reach("Proposed")
        await here.client.create(BUDGETS, budget("mover"), namespace="default")
        approved = {"spec": {"approved": True}}
        await here.client.patch(REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], approved)
        await here.reach("Executing")
        await here.client.patch(REBALANCE_POLICIES, "keep-room", UNUSABLE)
        old = await here.reach("Superseded")
        why = "priorityThreshold: no PriorityClass gone exists; create or correct it"
        assert old["status"]["message"] == f"policy keep-room is invalid ({why}), so no pods are evicted"
        (complete,) = old["status"]["conditions"]
        assert (complete["type"], complete["status"], complete["reason"]) == (
            "Complete",
            "True",
            "Superseded",
        )
        assert old["status"]["evictions"] == 0
        await here.client.delete(BUDGETS, "mover", namespace="default")
        assert await here.is_alive()

        async def none_is_executed() -> bool:
            labels = 'mode="Approve",phase="Executing",policy="keep-room"'
            return (await metrics(operator))[f"numazones_rebalance_active_plans{{{labels}}}"] == 0

        await eventually(none_is_executed, what="the operator knows that its write was stored")


async def test_plan_fails_with_its_policy_and_releases_the_replacement(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, gated=True, other_node=True) as here:
        assert here.loop is not None
        # Holds the replacement back at its gate, so that the plan waits for it.
        shut = here.loop.server.faults.server_error(verb="patch", resource="pods", subresource="", count=None)
        await here.policy("Auto")
        await here.operator()
        await eventually(lambda: shut.struck, what="the replacement is to be released")
        await here.client.patch(REBALANCE_POLICIES, "keep-room", UNUSABLE)
        failed = await here.reach("Failed")
        assert failed["status"]["message"].startswith("policy keep-room is invalid (priorityThreshold: ")
        assert failed["status"]["message"].endswith("), so no more pods are evicted")
        assert failed["status"]["evictions"] == 1
        here.loop.server.faults.remove(shut)

        async def runs() -> bool:
            pods = await here.pods_of("mover")
            return [(pod.get("status") or {}).get("phase") for pod in pods] == ["Running"]

        await eventually(runs, what="the replacement runs")


async def test_a_stuck_pod_names_the_recommendation_made_for_it(tmp_path: Path) -> None:
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        await here.policy("Approve", goals={"pendingPods": True})
        operator = await here.operator()
        item = await here.reach("Proposed")

        async def told() -> str:
            events = await here.client.list(EVENTS, namespace="default")
            about = [one for one in events if one["involvedObject"]["name"] == "big"]
            return next((one["message"] for one in about if one["reason"] == "RebalanceRecommended"), "")

        message = await eventually(told)
        name = item["metadata"]["name"]
        assert message == (
            f"RebalanceRecommendation {name} would make room for this pod with 1 eviction; to approve it: "
            f"kubectl numazones approve {name}"
        )

        loop = here.loop
        assert loop is not None

        async def named(wanted: str) -> bool:
            return bool((await loop.predictions())["big"].get("recommendation", "") == wanted)

        await eventually(lambda: named(name), what="the AdmissionPrediction names the recommendation")
        # The table of pods that have waited longest names it as well.
        big = await loop.client.get(PODS, "big", namespace="default")
        labels = f'namespace="default",pod="big",reason="TopologyAffinityError",recommendation="{name}"'
        created = (await metrics(operator))[f"numazones_blocked_pod_created_timestamp_seconds{{{labels}}}"]
        assert created == timestamp.parse(big["metadata"]["creationTimestamp"]).timestamp()
        # And the pods that hold what is missing, in the event that says so, too.
        status = (await loop.predictions())["big"]
        (holder, *_) = status["reasons"][0]["holders"]
        assert re.fullmatch(r"default/(mover-\w+|filler): 10 exclusive CPUs", holder), status["reasons"]

        async def says_who_holds_it() -> bool:
            events = await here.client.list(EVENTS, namespace="default")
            impossible = [one["message"] for one in events if one["reason"] == "AdmissionImpossible"]
            return any(f"held by {holder}" in one for one in impossible)

        await eventually(says_who_holds_it, what=f"an event names {holder}")
        await here.client.delete(REBALANCE_POLICIES, "keep-room")
        await eventually(lambda: named(""), what="a plan that has ended is named no more")


async def test_no_eviction_if_the_replacement_could_displace_the_pending_pod(
    tmp_path: Path,
) -> None:
    async with crowded(tmp_path) as here:
        await here.policy("Auto", goals={"pendingPods": True})
        await here.operator()
        message = await here.objection()
        assert "must be scheduled after the pending pods, but nothing makes it wait" in message
        assert f"add the scheduling gate {GATE}" in message
        (item,) = await here.recommendations()
        assert item["status"]["phase"] == "Proposed"
        assert await here.is_alive()


async def test_a_gated_replacement_comes_after_the_pending_pod(tmp_path: Path) -> None:
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        await here.policy("Auto", goals={"pendingPods": True})
        await here.operator()
        done = await here.reach("Succeeded")
        assert done["spec"]["moves"][0]["afterPending"] is True
        # Zones show it before its status does.
        await eventually(lambda: runs(here.client, "big"))
        assert len(await here.pods_of("mover")) == 1


async def test_gated_replacement_comes_after_the_pending_pod(
    tmp_path: Path,
) -> None:
    async with crowded(tmp_path) as here:
        for body in documents(ROOT / "manifests/gate-injection/policy.yaml"):
            binding = body["kind"].endswith("Binding")
            plural = "mutatingadmissionpolicybindings" if binding else "mutatingadmissionpolicies"
            resource = Resource("admissionregistration.k8s.io", "v1", plural, namespaced=False)
            await here.client.create(resource, body)
        await here.policy("Auto", goals={"pendingPods": True})
        await here.operator()
        done = await here.reach("Succeeded")
        assert done["spec"]["moves"][0]["afterPending"] is True
        await eventually(lambda: runs(here.client, "big"))


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ({"minPriority": -1000}, "1 pod more important than the pending pod"),
        ({}, "none of the policy's goals"),
        ({"minPriority": -1000, "schedulerNames": ["volcano"]}, "none of the policy's goals"),
    ],
    ids=["outranked", "below the minimum", "of another scheduler"],
)
async def test_no_eviction_for_an_outranked_or_unselected_pod(
    tmp_path: Path, selector: dict[str, Any], why: str
) -> None:
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        assert here.loop is not None
        lowest = {"metadata": {"name": "lowest"}, "value": -1000}
        await here.client.create(PRIORITY_CLASSES, lowest)
        await here.client.delete(PODS, "big", namespace="default")
        gates = [{"name": GATE}]
        await here.loop.create_pod("big", cpu=25, schedulingGates=gates, priorityClassName="lowest")
        goals = {"pendingPods": True, **({"pendingPodSelector": selector} if selector else {})}
        await here.policy("Auto", goals=goals)
        await here.operator()

        async def searched() -> bool:
            return why in (await status_of_policy(here)).get("message", "")

        await eventually(searched, what="the policy says why there is no plan")
        assert not await here.recommendations()
        assert await here.is_alive()


async def test_nobody_is_evicted_for_a_pending_pod_that_is_gone(tmp_path: Path) -> None:
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        await here.policy("Approve", goals={"pendingPods": True})
        await here.operator()
        item = await here.reach("Proposed")
        await here.client.delete(PODS, "big", namespace="default")
        await here.client.patch(
            REBALANCE_RECOMMENDATIONS, item["metadata"]["name"], {"spec": {"approved": True}}
        )
        old = await here.reach("Superseded")
        assert "default/big is no longer waiting" in old["status"]["message"]
        assert await here.is_alive()


async def test_owner_in_a_rejection_loop_gets_a_plan(tmp_path: Path) -> None:
    async with crowded(tmp_path, schedulingGates=[{"name": GATE}]) as here:
        assert here.loop is not None
        await here.client.delete(PODS, "big", namespace="default")
        await replica_set(here.loop, "loop", 25)

        async def rejected() -> bool:
            return len(await here.pods_of("loop")) > 1

        await eventually(rejected, what="a second pod is made")
        await here.policy("Auto", goals={"pendingPods": True})
        await here.operator()
        message = await here.objection()
        assert "each new pod of ReplicaSet default/loop is bound and rejected at once" in message
        assert f"add the scheduling gate {GATE}" in message
        item = await here.reach("Proposed")
        assert item["spec"]["moves"][0]["owner"]["name"] == "mover"
        (placement,) = item["spec"]["placements"]
        assert placement["pod"]["name"].startswith("loop-")
        assert placement["target"] == {"node": "n1", "numaIDs": [0]}
        assert await here.is_alive()
        # The cure that the message names: from now on the pods wait, and the plan is carried out.
        gates = {"spec": {"template": {"spec": {"schedulingGates": [{"name": GATE}]}}}}
        await here.client.patch(REPLICA_SETS, "loop", gates, namespace="default")
        await here.reach("Succeeded")
        await eventually(lambda: here.one_runs("loop"))


async def test_plan_makes_room_for_next_pod_of_rejection_loop(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        await replica_set(here.loop, "loop", 30)

        async def rejected() -> bool:
            return len(await here.pods_of("loop")) > 1

        await eventually(rejected, what="a second pod is made")
        await here.policy("Auto", goals={"pendingPods": True})
        await here.operator()
        item = await here.reach("Succeeded")
        assert item["status"]["evictions"] == 1
        (placement,) = item["spec"]["placements"]
        assert placement["target"] == {"node": "n1", "numaIDs": [1]}
        await eventually(lambda: here.one_runs("loop"))
        assert not await here.is_alive()


async def test_a_budget_at_its_limit_is_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        await here.operator()
        item = await here.reach("Proposed")
        name = item["metadata"]["name"]
        await here.client.create(BUDGETS, budget("mover"), namespace="default")
        await here.client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": {"approved": True}})

        async def waits() -> bool:
            (now,) = await here.recommendations()
            return "waiting: " in now["status"].get("message", "")

        await eventually(waits)
        assert await here.is_alive()
        await here.client.delete(BUDGETS, "mover", namespace="default")
        await here.reach("Succeeded")


async def test_a_plan_that_the_cluster_has_overtaken_is_superseded(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        await here.operator()
        item = await here.reach("Proposed")
        await here.client.create(PODS, pod_body("newcomer", cpu=10), namespace="default")
        old = await here.reach("Superseded")
        assert old["metadata"]["name"] == item["metadata"]["name"]
        assert old["status"]["message"].startswith("the cluster has changed: ")
        assert await here.is_alive()


async def test_nothing_is_moved_for_what_is_there_already(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Approve")
        await here.operator()
        await here.reach("Proposed")
        await here.client.delete(PODS, "fill-0", namespace="default")
        old = await here.reach("Superseded")
        assert old["status"]["message"] == "the cluster has changed: no moves are needed any more"
        assert await here.is_alive()


async def test_a_policy_that_makes_no_sense_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Auto", protections={"priorityThreshold": {"name": "gone"}})
        await here.operator()

        async def reason() -> str:
            policy = await here.client.get(REBALANCE_POLICIES, "keep-room")
            conditions = (policy.get("status") or {}).get("conditions") or ()
            return next((one["message"] for one in conditions if one["status"] == "False"), "")

        assert (
            await eventually(reason)
            == "priorityThreshold: no PriorityClass gone exists; create or correct it"
        )
        assert await here.is_alive()


async def test_policy_becomes_valid_once_its_priority_class_exists(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Recommend", protections={"priorityThreshold": {"name": "late"}})
        await here.operator()

        async def ready(status: str) -> bool:
            conditions = (await status_of_policy(here)).get("conditions") or ()
            return any((one["type"], one["status"]) == ("Ready", status) for one in conditions)

        await eventually(lambda: ready("False"))
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "late"},
            "value": 1000,
        }
        await here.client.create(PRIORITY_CLASSES, body)
        await eventually(lambda: ready("True"))


async def test_proposal_keeps_its_goal_when_the_count_is_edited(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Recommend")
        await here.operator()
        item = await here.reach("Proposed")
        assert item["spec"]["goalKey"] == "shape/large"
        shapes = [{**LARGE, "count": 2}]
        await here.client.patch(REBALANCE_POLICIES, "keep-room", {"spec": {"goals": {"shapes": shapes}}})
        await here.prolonged(item)
        (now,) = await here.recommendations()
        assert now["status"]["phase"] == "Proposed"


@pytest.mark.parametrize("written", [True, False], ids=["after writing", "before writing"])
@pytest.mark.parametrize("phase", ["Approved", "Executing", "Evicting", "Evicted", "Placed", "Verified"])
async def test_an_operator_that_dies_in_the_middle_evicts_nothing_twice(
    tmp_path: Path,
    phase: str,
    written: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The operator stops for good at some step, before or after the API server hears of it.

    "Evicted, before writing" is the hard one: the pod is gone and nobody has noted it.
    """
    async with stage(tmp_path) as here:
        first = await here.operator()
        statuses = first.rebalancing.statuses
        writes, dead = statuses.write, asyncio.Event()

        async def die_after(item: Any, policy: Any, advance: Any, **more: Any) -> Any:
            dies = phase in {advance.phase, *(one.phase for one in advance.progress)}
            done = await writes(item, policy, advance, **more) if written or not dies else None
            if dies:
                dead.set()
                await asyncio.Event().wait()
            return done

        statuses.write = die_after  # type: ignore[method-assign]
        await here.policy("Auto")
        await eventually(dead.is_set, what=f"dies at {phase}")
        await here.operator()
        done = await here.reach("Succeeded")
        assert done["status"]["evictions"] == 1
        assert len(await here.pods_of("mover")) == 1
        assert len(await here.recommendations()) == 1
        created = [
            event
            for event in await here.client.list(EVENTS, namespace="default")
            if event["reason"] == "Rebalanced"
        ]
        assert len(created) <= 1


async def test_an_operator_that_may_not_evict_says_what_to_do(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Auto")
        forbidden = StatusError(403, "Forbidden", "the operator cannot create resource pods/eviction")
        assert here.loop is not None
        here.loop.server.faults.add(
            Fault(verb="create", resource="pods", subresource="eviction", count=None, error=forbidden)
        )
        await here.operator()
        failed = await here.reach("Failed")
        assert "apply manifests/components/operator-eviction" in failed["status"]["message"]
        assert failed["status"]["evictions"] == 0
        assert await here.is_alive()
        await asyncio.sleep(1.5)
        digests = [item["spec"]["digest"] for item in await here.recommendations()]
        assert len(set(digests)) == len(digests), "a plan that failed is not proposed again unchanged"


async def test_every_right_is_used_and_every_call_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = note_rights(monkeypatch)
    monkeypatch.setattr("numazones_operator.rebalance.proposer._MAX_FINISHED", 0)
    monkeypatch.setattr("numazones_operator.rebalance.proposer.PRECEDENCE", timedelta(0))
    async with stage(tmp_path) as here:
        await here.policy("Approve", cooldown="1s")
        await here.operator()
        item = await here.reach("Proposed")
        await here.prolonged(item)
        name = item["metadata"]["name"]
        await here.client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": {"approved": True}})

        async def forgotten() -> bool:
            return name not in {one["metadata"]["name"] for one in await here.recommendations()}

        await eventually(forgotten, what="the finished recommendation is deleted")
    # Asked for; the embedded API server doesn't have them, which counts as a cluster without any.
    used |= {("", "limitranges", "watch"), ("node.k8s.io", "runtimeclasses", "watch")}
    needed = granted_rights("operator", role="numazones-operator-rebalance") | granted_rights(
        "components/operator-eviction"
    )
    assert needed - used == set(), "rights without a call"
    assert used - granted_rights("operator", "components/operator-eviction") == set(), "calls without a right"


@pytest.mark.real_apiserver
@pytest.mark.slow
async def test_plan_runs_on_real_api_server_with_manifests_rights(
    real_apiserver: RealAPIServer, tmp_path: Path
) -> None:
    async with cluster_on(real_apiserver, tmp_path) as (client, config), asyncio.TaskGroup() as tasks:
        (tmp_path / "composition").mkdir()
        chosen = composition(tmp_path / "composition", ["components/operator-eviction"])
        real_apiserver.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(chosen))
        for resource in (NUMAZONES, NODES):  # what other tests have left
            for item in await client.list(resource):
                await client.delete(resource, item["metadata"]["name"])
        fleet = Fleet(client, [node_kinds.single_numa_node("n1", "10.0.0.1")])
        parts = [fleet.run(), SimulatedScheduler(client).run(), ReplicaSets(client, pause=0.05).run()]
        parts += [SimulatedZonePublisher(agent, client).run() for agent in fleet.agents.values()]
        running = [tasks.create_task(part) for part in parts]
        options = replace(OPTIONS, namespace="numazones-operator", leader_elect=False, rebalance_period=0.1)
        operator = Operator(replace(options, metrics_address="127.0.0.1:0"), config)
        ended = asyncio.create_task(asyncio.to_thread(asyncio.run, operator.run()))
        try:
            here = await lay_out_on_one_node(client)
            await here.policy("Approve")
            item = await here.reach("Proposed")
            name = item["metadata"]["name"]
            spec = {"gain": {"before": 0, "after": 9, "total": 9}}
            with pytest.raises(Invalid):
                await client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": spec})
            await client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": {"approved": True}})
            done = await here.reach("Succeeded")
            assert done["status"]["realized"] == 1
            table = real_apiserver.kubectl("get", "rebalancerecommendations", "-o", "wide")
            assert table.split("\n")[0].split()[:6] == ["NAME", "GOAL", "MOVES", "EVICTED", "GAIN", "PHASE"]
        finally:
            operator.stop()
            await ended
            for task in running:
                task.cancel()
        assert not operator.failed


async def lay_out_on_one_node(client: Client) -> Stage:
    """The stage of one node, made by hand where there is no ``Loop``."""
    for name, cpu in (("fill-0", 20), ("hole", 10)):
        await client.create(PODS, pod_body(name, cpu=cpu, nodeName="n1"), namespace="default")
        await eventually(lambda: runs(client, name))  # noqa: B023
    # The API server taints new nodes, and nobody is here to see that this one is ready.
    await client.patch(NODES, "n1", {"spec": {"taints": None}})
    template = pod_body("mover", cpu=10, labels={"app": "mover"}, nodeName="n1")
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "mover", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "mover"}},
            "template": {
                "metadata": {"labels": {"app": "mover"}},
                "spec": {**template["spec"], "nodeName": ""},
            },
        },
    }
    await client.create(REPLICA_SETS, body, namespace="default")

    async def mover() -> dict[str, Any]:
        for item in await client.list(PODS, namespace="default", label_selector="app=mover"):
            if (item.get("status") or {}).get("phase") == "Running":
                return dict(item)
        return {}

    pod = await eventually(mover)
    await client.delete(PODS, "hole", namespace="default")
    return Stage(client, pod)


@asynccontextmanager
async def operator_process(loop: Loop) -> AsyncIterator[asyncio.subprocess.Process]:
    """The operator as people run it; killed, not stopped, when the context ends."""
    command = [str(Path(sys.executable).parent / "numazones-operator"), f"--kubeconfig={loop.kubeconfig}"]
    command += ["--no-leader-elect", "--metrics-address=127.0.0.1:0", "--rebalance-period=300ms"]
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["Evicting", "Evicted", "Placed"])
async def test_plan_continues_after_the_operator_is_killed(tmp_path: Path, phase: str) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        await here.policy("Auto")
        async with next_write_kept_back(here.loop.server, phase) as came, operator_process(here.loop):
            await eventually(came.is_set, what=f"a move is {phase}, and more has been done")
        async with operator_process(here.loop):
            done = await here.reach("Succeeded")
        assert done["status"]["evictions"] == 1
        assert len(await here.pods_of("mover")) == 1
        assert len(await here.recommendations()) == 1
