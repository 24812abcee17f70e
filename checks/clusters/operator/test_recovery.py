"""Whatever breaks between operator and API server, afterwards its state equals a fresh list."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import predict, relevant
from numazones_client import APIError, NotFound
from numazones_client.resources import ADMISSION_PREDICTIONS, LEASES, NUMAZONES, PODS
from numazones_operator.options import OperatorOptions
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from tests.operator.pods import pod_body
from tests.waiting import eventually

STORM = 120
"""Pods that come and go while something breaks."""


async def storm(loop: Loop, *, pods: int = STORM, prefix: str = "storm") -> None:
    """Create pods, bind some, delete some; requests that fail are made again."""
    for number in range(pods):
        name = f"{prefix}-{number}"
        await insist(loop.client.create, PODS, pod_body(name, cpu=2 + number % 7), namespace="default")
        if number % 3 == 0:
            await insist(loop.bind, name, f"node-{1 + number % 2}")
        if number % 4 == 3:
            await insist(loop.client.delete, PODS, f"{prefix}-{number - 2}", namespace="default")
        await asyncio.sleep(0)


async def insist(act: Any, *arguments: Any, **options: Any) -> None:
    for _ in range(100):
        try:
            await act(*arguments, **options)
        except NotFound:
            return
        except APIError as error:
            if error.code == 409:
                return
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"{act} {arguments} never worked")


async def assert_state_equals_a_fresh_list(loop: Loop, operator: Operator) -> None:
    """Compare what the operator holds and has published with what the API server says now."""
    state = operator.pipeline.state

    async def same() -> bool:
        listed = {pod.uid: pod for pod in map(ClusterPod.from_api, await loop.client.list(PODS))}
        mirrored = {pod.uid: pod for pod in state.pods}
        zones = {
            zone["metadata"]["name"]: zone["status"]["snapshot"] for zone in await loop.client.list(NUMAZONES)
        }
        return (
            mirrored == listed
            and {zone.name: zone.snapshot for zone in state.zones} == zones
            and set(state.pending) == {uid for uid, pod in listed.items() if not pod.node and relevant(pod)}
            and not operator.pipeline.forecasts.backlog
            and not operator.pipeline.publisher.depth
        )

    await eventually(same, what="the state equals a fresh list")

    async def right() -> bool:
        nodes = list(state.all_nodes())
        published = await loop.predictions()
        waiting = [pod for pod in state.pods if not pod.node and relevant(pod)]
        return all(
            published.get(pod.name, {}).get("verdict") == predict(pod, nodes).verdict
            and published[pod.name]["nodes"].get("admissible", 0) == predict(pod, nodes).nodes.admissible
            for pod in waiting
        )

    await eventually(right, what="every waiting pod has the right prediction")


@asynccontextmanager
async def busy_cluster(tmp_path: Path) -> AsyncIterator[tuple[Loop, Operator]]:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(2))
        yield loop, await loop.start_operator()


async def test_broken_watches_are_taken_up_again(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        storming = asyncio.create_task(storm(loop))
        while not storming.done():
            loop.server.faults.drop_watches()
            await asyncio.sleep(0.1)
        await storming
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_after_410_gone_vanished_objects_are_found(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        storming = asyncio.create_task(storm(loop))
        restarts = operator.metrics.watch_restarts.labels("pods", "expired")._value
        while not storming.done() or not restarts.get():
            loop.server.faults.drop_watches(compacted=True)
            await asyncio.sleep(0.15)
        await storming
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_objects_that_vanish_while_the_watch_is_away_are_forgotten(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        await storm(loop, pods=20)
        await assert_state_equals_a_fresh_list(loop, operator)
        # Nobody can watch while pods are deleted; afterwards the version to go on from is gone.
        fault = loop.server.faults.server_error(verb="watch", resource="pods", count=None)
        loop.server.faults.drop_watches("pods")
        for pod in await loop.client.list(PODS):
            await insist(loop.client.delete, PODS, pod["metadata"]["name"], namespace="default")
        loop.server.faults.remove(fault)
        loop.server.faults.resource_expired(verb="watch", resource="pods")
        await assert_state_equals_a_fresh_list(loop, operator)
        await eventually(lambda: len(operator.pipeline.state.pods) == 0)
        assert not operator.pipeline.state.pending


async def test_the_api_server_restarts_in_the_middle_of_a_burst(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        storming = asyncio.create_task(storm(loop))
        await asyncio.sleep(0.2)
        await loop.server.stop()
        await asyncio.sleep(1.5)
        assert not operator.failed
        await loop.server.start()
        await storming
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_throttling_and_conflicts_delay_answers_but_lose_none(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        faults = loop.server.faults
        throttled = faults.too_many_requests(verb="patch", resource="admissionpredictions", count=10)
        rejected = faults.conflict(verb="patch", resource="admissionpredictions", count=10)
        broken = faults.reset(verb="create", resource="admissionpredictions", count=5)
        await storm(loop, pods=30)
        await assert_state_equals_a_fresh_list(loop, operator)
        assert (throttled.struck, rejected.struck, broken.struck) == (10, 10, 5)


async def test_what_somebody_else_wrote_into_a_prediction_is_put_right(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as (loop, operator):
        await loop.create_pod("a", cpu=4)
        await eventually(lambda: loop.verdict("a"))
        before = (await loop.predictions())["a"]
        meddled = {"status": {"verdict": "Unknown", "message": "meddled with"}}
        await loop.client.patch(
            ADMISSION_PREDICTIONS, "a", meddled, namespace="default", subresource="status"
        )

        await eventually(put_right_again(loop, before))
        await loop.client.delete(ADMISSION_PREDICTIONS, "a", namespace="default")
        await eventually(put_right_again(loop, before))
        assert not operator.failed


def put_right_again(loop: Loop, before: dict[str, Any]) -> Any:
    async def probe() -> bool:
        now = (await loop.predictions()).get("a", {})
        return {**now, "changed": ""} == {**before, "changed": ""}

    return probe


class Replica:
    """An operator in a process of its own, started by its command."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("numazones-operator")),
                f"--kubeconfig={loop.kubeconfig}",
                f"--identity={name}",
                "--namespace=numazones-system",
                "--metrics-address=127.0.0.1:0",
                "--log-level=warning",
            ],
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)
        self._close()

    def end(self) -> tuple[int, str]:
        """Stop it as Kubernetes does; return exit status and what it complained about."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors.decode()

    def _close(self) -> None:
        if self.process.stderr is not None:
            self.process.stderr.close()


async def leader(loop: Loop) -> str:
    try:
        lease = await loop.client.get(LEASES, "numazones-operator", namespace="numazones-system")
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


def test_follower_takes_over_from_a_killed_leader_within_15_seconds() -> None:
    """By its own clock: it counts from the look at which it saw the last renewal, and acts at a look."""
    options = OperatorOptions()
    longest_pause = 1.2 * options.leader_elect_retry_period
    assert longest_pause + options.leader_elect_lease_duration + longest_pause < 15


@pytest.mark.slow
async def test_no_verdict_is_lost_when_a_killed_leader_is_replaced(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(2))
        replicas = {"first": Replica(loop, "first")}
        try:
            await eventually(lambda: leader(loop))
            replicas["second"] = Replica(loop, "second")
            await storm(loop, pods=20, prefix="before")
            await eventually(lambda: loop.verdict("before-19"))
            replicas.pop("first").kill()
            await storm(loop, pods=20, prefix="after")

            async def second_leads() -> bool:
                return await leader(loop) == "second"

            await eventually(second_leads)
            pods = [ClusterPod.from_api(body) for body in await loop.client.list(PODS)]
            waiting = {pod.uid for pod in pods if not pod.node}

            async def no_verdict_is_lost() -> bool:
                objects = await loop.client.list(ADMISSION_PREDICTIONS)
                told = [item["spec"]["podUID"] for item in objects if item.get("status", {}).get("verdict")]
                assert len(told) == len(set(told))
                return waiting <= set(told)

            await eventually(no_verdict_is_lost)
        finally:
            ended = [await asyncio.to_thread(replica.end) for replica in replicas.values()]
        assert [status for status, _ in ended] == [0]
        # A leader that ends in order gives its Lease back, so that nobody has to wait.
        assert await leader(loop) == ""
