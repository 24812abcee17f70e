"""Nobody is evicted for what was true once: after a crash, behind a dead watch, by a stopped leader."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop
from checks.clusters.operator.rebalance.kept_back import answer_kept_back
from checks.clusters.operator.rebalance.test_rebalancing import Stage, stage
from numazones_client import NotFound
from numazones_client.resources import LEASES, REBALANCE_RECOMMENDATIONS
from tests.waiting import eventually


async def fill_the_hole(here: Stage) -> None:
    """Put a pod where the replacement would go; its zone is the only one with room for it."""
    loop = here.loop
    assert loop is not None
    # Without a node, the scheduler would bind it meanwhile.
    await loop.create_pod("intruder", cpu=10, nodeName="n1")
    await eventually(lambda: loop.runs("intruder"), what="the intruder runs")


async def test_eviction_announced_before_a_crash_is_proven_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        first = await here.operator()
        statuses = first.rebalancing.statuses
        writes, dead = statuses.write, asyncio.Event()

        async def die_after(item: Any, policy: Any, advance: Any, **more: Any) -> Any:
            done = await writes(item, policy, advance, **more)
            if "Evicting" in {one.phase for one in advance.progress}:
                dead.set()
                await asyncio.Event().wait()
            return done

        statuses.write = die_after  # type: ignore[method-assign]
        await here.policy("Auto")
        await eventually(dead.is_set, what="an eviction is announced")
        await fill_the_hole(here)
        await here.operator()
        ended = await here.reach("Superseded")
        assert "the cluster no longer matches the plan" in ended["status"]["message"]
        assert ended["status"]["evictions"] == 0
        assert [one["phase"] for one in ended["status"]["progress"]] == ["Pending"]
        assert await here.is_alive()


async def test_no_eviction_while_a_watch_is_silently_dead(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        await here.policy("Approve")
        operator = await here.operator()
        item = await here.reach("Proposed")
        for resource in ("pods", "numazones"):
            assert here.loop.server.faults.silence_watches(resource, client="numazones-operator")
        await fill_the_hole(here)
        name = item["metadata"]["name"]
        await here.client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": {"approved": True}})

        async def waits() -> bool:
            (now,) = await here.recommendations()
            return "the operator's view of node n1 is older than the API server's" in now["status"]["message"]

        await eventually(waits, what="the recommendation says why nothing happens")
        assert "intruder" not in {pod.name for pod in operator.pipeline.state.pods}
        assert await here.is_alive()
        here.loop.server.faults.drop_watches()
        ended = await here.reach("Superseded")
        assert ended["status"]["evictions"] == 0
        assert await here.is_alive()


async def test_late_watch_events_invalidate_an_earlier_proof(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as here:
        assert here.loop is not None
        faults = here.loop.server.faults
        await here.policy("Approve")
        operator = await here.operator()
        item = await here.reach("Proposed")
        steps, state = operator.steps, operator.pipeline.state
        judge = steps.judge

        def has_caught_up() -> bool:
            record = state.record("n1")
            assert record is not None
            return any(
                pod.name == "intruder" and pod.phase == "Running" and record.state.holds(pod.kubelet_uid)
                for pod in state.pods
                if record.state is not None
            )

        async def judge_long(item: Any, *rest: Any) -> Any:
            judgement = await judge(item, *rest)
            if "Evicting" in {one.phase for one in item.progress}:
                faults.drop_watches()
                await eventually(has_caught_up, what="the intruder is known")
            return judgement

        steps.judge = judge_long  # type: ignore[method-assign, assignment]
        for resource in ("pods", "numazones"):
            assert faults.silence_watches(resource, client="numazones-operator")
        await fill_the_hole(here)
        name = item["metadata"]["name"]
        await here.client.patch(REBALANCE_RECOMMENDATIONS, name, {"spec": {"approved": True}})
        ended = await here.reach("Superseded")
        assert ended["status"]["evictions"] == 0
        assert await here.is_alive()


async def test_plans_are_searched_and_judged_after_clock_set_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.policy("Recommend")
        operator = await here.operator()
        item = await here.reach("Proposed")
        operator.rebalancing.statuses.wall = lambda: time.time() - 3600.0
        await here.prolonged(item)  # another search has found it
        await fill_the_hole(here)
        await here.reach("Superseded")


@asynccontextmanager
async def replica(loop: Loop, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The operator as people run it, one of several."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "numazones-operator"),
        f"--kubeconfig={loop.kubeconfig}",
        f"--identity={name}",
        "--namespace=numazones-system",
        "--metrics-address=127.0.0.1:0",
        "--rebalance-period=300ms",
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.kill()
        await process.wait()


async def holder(loop: Loop) -> str:
    try:
        lease = await loop.client.get(LEASES, "numazones-operator", namespace="numazones-system")
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


@pytest.mark.slow
async def test_leader_resumed_after_its_lease_expired_evicts_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        loop = here.loop
        assert loop is not None

        async def leads(name: str) -> bool:
            return await holder(loop) == name

        async with replica(loop, "first") as first:
            await eventually(lambda: leads("first"))
            async with replica(loop, "second"):
                async with answer_kept_back(loop.server, "Evicting") as announced:
                    await here.policy("Auto")
                    await eventually(announced.is_set, what="an eviction is announced")
                    os.kill(first.pid, signal.SIGSTOP)
                await fill_the_hole(here)
                await eventually(lambda: leads("second"), what="the other replica leads")
                ended = await here.reach("Superseded")
                os.kill(first.pid, signal.SIGCONT)
                renewals = loop.server.requests_served
                # It has gone on once it asks for something again.
                await eventually(lambda: loop.server.requests_served > renewals + 20)
                assert await leads("second")
                assert ended["status"]["evictions"] == 0
                assert await here.is_alive()
