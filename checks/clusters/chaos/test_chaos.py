"""Programs under random traffic and faults break no rule; defects put in on purpose are each noticed."""

import asyncio
import random
from pathlib import Path

import pytest

from checks.clusters.chaos import checker, driver
from checks.clusters.chaos.cluster import NODES, Cluster, running
from checks.clusters.chaos.driver import Driver
from numazones_client.resources import PODS, REBALANCE_RECOMMENDATIONS
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SEED = 7
PATIENT = checker.Pace(lag=60.0, promised=600.0)
"""For machines that are busy with other things; `make chaos` is stricter."""


async def test_a_round_of_random_traffic_and_faults_breaks_no_rule(tmp_path: Path) -> None:
    found = await driver.drive(
        tmp_path, seed=SEED, rounds=lambda number, _seconds: number < 1, pace=PATIENT, say=print
    )
    assert list(map(str, found)) == []


def rules(cluster: Cluster) -> set[str]:
    return {violation.rule for violation in checker.violations(cluster.history.events)}


def runs(cluster: Cluster, app: str) -> bool:
    pods = checker.after(cluster.history.events).pods.values()
    return any(
        pod["metadata"]["name"].startswith(app) and (pod.get("status") or {}).get("phase") == "Running"
        for pod in pods
    )


async def people_at_rest(cluster: Cluster) -> Driver:
    """Return a driver for a cluster that has come to rest."""
    people = Driver(cluster, random.Random(SEED), print)
    await people.calm(patience=PATIENT.promised)
    return people


async def occupy(cluster: Cluster, people: Driver, name: str, cpus: int, node: str) -> None:
    await people.create_pod(name, cpus, node=node)
    await eventually(lambda: runs(cluster, name), what=f"{name} runs")


async def fill(cluster: Cluster, people: Driver) -> None:
    """Occupy every zone: ``all-0`` and ``all-N`` are on the first of the N nodes."""
    for number, node in enumerate(NODES * 2):
        await occupy(cluster, people, f"all-{number}", 30, node)


async def test_evictions_without_a_proof_are_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, defect="unproven") as cluster:
        people = await people_at_rest(cluster)
        for name, cpus, node in (
            ("all-0", 30, "n2"),
            ("all-1", 30, "n2"),
            ("fill", 20, "n1"),
            ("hole", 10, "n1"),
        ):
            await occupy(cluster, people, name, cpus, node)
        await people.create_replica_set("mover", 10, 1)
        await eventually(lambda: runs(cluster, "mover"), what="mover runs")
        await occupy(cluster, people, "extra", 5, "n1")
        await people.delete(PODS, "hole")
        await people.set_policy("Approve")

        async def proposed() -> bool:
            found = await cluster.client.list(REBALANCE_RECOMMENDATIONS)
            return any((item.get("status") or {}).get("phase") == "Proposed" for item in found)

        await eventually(proposed, what="a plan is proposed")
        await occupy(cluster, people, "intruder", 10, "n1")
        await asyncio.sleep(checker.PACE.lag + 1)
        assert "eviction" not in rules(cluster)
        await people.approve()
        await eventually(lambda: "eviction" in rules(cluster), what="the checker notices")


async def test_openings_beyond_the_room_are_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, defect="open-gate") as cluster:
        people = await people_at_rest(cluster)
        await fill(cluster, people)
        # All of them wait when a node has room for two, or by the scheduler's sums for three.
        await people.create_replica_set("large", 20, 9)
        await people.calm(patience=PATIENT.promised)
        assert "opening" not in rules(cluster)
        # Pods that came past the gate excuse a rejection for so long.
        await asyncio.sleep(checker.PACE.lag + 1)
        await people.delete(PODS, "all-0")
        await people.delete(PODS, f"all-{len(NODES)}")
        await eventually(lambda: "opening" in rules(cluster), what="the checker notices")


async def test_predictions_that_are_never_renewed_are_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, defect="deaf") as cluster:
        people = await people_at_rest(cluster)
        await fill(cluster, people)
        await people.create_replica_set("waits", 20, 1)

        def told() -> bool:
            world = checker.after(cluster.history.events)
            return not list(checker.wrongs(world)) and any(
                key[0] == "admissionpredictions" for key in world.objects
            )

        await eventually(told, what="what is predicted first is right")
        await people.delete(PODS, "all-0")
        await people.calm(patience=15.0)
        assert "calm" in rules(cluster)
