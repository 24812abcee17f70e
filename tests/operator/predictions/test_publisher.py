"""AdmissionPredictions are written by the replica that leads: what differs, once, and with the outcome."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from numazones_client import Forbidden, NamespaceTerminating, NotFound, Unreachable
from numazones_client.errors import Request
from numazones_operator.predictions.admission_predictions import PublishedPrediction
from tests.operator.one_node_pipeline import OneNodePipeline
from tests.waiting import eventually

STARTED = [{"name": "main"}]
REQUEST = Request("patch", "admissionpredictions.numazones.io a")


@pytest.fixture
def setting() -> OneNodePipeline:
    return OneNodePipeline()


@asynccontextmanager
async def running_publisher(setting: OneNodePipeline) -> AsyncIterator[None]:
    """The setting's publisher writes."""
    task = asyncio.create_task(setting.pipeline.publisher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_for_verdict(setting: OneNodePipeline, name: str, verdict: str) -> None:
    await eventually(lambda: setting.server.verdict(name) == verdict, what=f"{name} is {verdict}")
    await eventually(lambda: not setting.pipeline.publisher.depth)


async def standby_replica(setting: OneNodePipeline) -> OneNodePipeline:
    """A replica that stands by and, as the one that writes, has foreseen what becomes of the pod a."""
    follower = OneNodePipeline(setting.server)
    follower.leads = False
    for replica in (setting, follower):
        replica.pod("a")
        await replica.renew()
    await wait_for_verdict(setting, "a", "Admissible")
    return follower


async def test_standby_writes_nothing_and_everything_on_taking_over(
    setting: OneNodePipeline,
) -> None:
    for name in "ab":
        setting.pod(name)
    await setting.renew()
    assert setting.server.calls == []
    async with running_publisher(setting):
        await wait_for_verdict(setting, "a", "Admissible")
        await wait_for_verdict(setting, "b", "Admissible")
    before = list(setting.server.calls)
    setting.pod("c")
    await setting.renew()
    assert setting.server.calls == before
    # What is known to be written is not written again.
    async with running_publisher(setting):
        await wait_for_verdict(setting, "c", "Admissible")
        assert setting.server.applied() == 3


async def test_new_leader_keeps_published_outcomes(
    setting: OneNodePipeline,
) -> None:
    async with running_publisher(setting):
        follower = await standby_replica(setting)
        for replica in (setting, follower):
            replica.pod("a", node="node")
            replica.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        await eventually(lambda: "outcome" in setting.server.objects["a"]["status"])
    written = setting.server.objects["a"]
    assert written["status"]["outcome"]["accuracy"] == "Right"
    follower.pipeline.publisher.published.put(PublishedPrediction.from_api(written))
    follower.leads = True
    async with running_publisher(follower):
        follower.pod("b")
        await follower.renew()
        await wait_for_verdict(follower, "b", "Admissible")
        # Nor does a watch that tells of it again change anything.
        follower.pipeline.publisher.published.put(
            replace(PublishedPrediction.from_api(written), version=1000, digest="other")
        )
        follower.pod("c")
        await follower.renew()
        await wait_for_verdict(follower, "c", "Admissible")
        assert setting.server.objects["a"] == written


async def test_outcome_is_published_while_its_prediction_is_being_written(
    setting: OneNodePipeline,
) -> None:
    setting.server.accepts.clear()
    async with running_publisher(setting):
        setting.pod("a", cpu=40)
        await setting.renew()
        await eventually(lambda: ("create", "admissionpredictions") in setting.server.calls)
        setting.pod("a", node="node")
        setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        setting.server.accepts.set()
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert setting.server.objects["a"]["status"]["outcome"]["actual"] == "Admitted"
        assert ("create", "events") not in setting.server.calls
        assert setting.events._queue.empty()  # no event says that it cannot run


async def test_pod_that_runs_first_gets_no_prediction(
    setting: OneNodePipeline,
) -> None:
    setting.server.accepts.clear()
    async with running_publisher(setting):
        busy = [f"other-{number}" for number in range(16)]  # as many as there are writers
        for name in busy:
            setting.pod(name)
        await setting.renew()
        await eventually(lambda: len(setting.server.calls) == len(busy))
        setting.pod("a")
        await setting.renew()
        setting.pod("a", node="node")
        setting.pod("a", node="node", phase="Running", containerStatuses=STARTED)
        setting.server.accepts.set()
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert set(setting.server.objects) == set(busy)


async def test_new_leader_publishes_missing_outcomes(
    setting: OneNodePipeline,
) -> None:
    async with running_publisher(setting):
        follower = await standby_replica(setting)
    follower.pipeline.publisher.published.put(PublishedPrediction.from_api(setting.server.objects["a"]))
    follower.pod("a", node="node")
    follower.pod("a", node="node", phase="Running", containerStatuses=STARTED)
    follower.leads = True
    async with running_publisher(follower):
        await eventually(lambda: "outcome" in setting.server.objects["a"]["status"])


async def test_recreated_pod_gets_its_own_object(setting: OneNodePipeline) -> None:
    async with running_publisher(setting):
        first = setting.pod("a", uid="first")
        await setting.renew()
        await wait_for_verdict(setting, "a", "Admissible")
        setting.state.pods.remove(first)
        setting.pod("a", cpu=40, uid="second")
        await setting.renew()
        await wait_for_verdict(setting, "a", "Inadmissible")
        assert setting.server.objects["a"]["spec"]["podUID"] == "second"


@pytest.mark.parametrize(
    ("failure", "written", "warnings"),
    [
        (Unreachable(REQUEST, "away", sent=False), True, 0),
        (NotFound(REQUEST, "deleted by somebody"), True, 0),
        (Forbidden(REQUEST, "no right"), False, 1),
        (NamespaceTerminating(REQUEST, "going"), False, 0),
    ],
)
async def test_write_that_fails_is_tried_again_unless_that_is_hopeless(
    setting: OneNodePipeline,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    *,
    written: bool,
    warnings: int,
) -> None:
    setting.server.failures = [failure]
    async with running_publisher(setting):
        setting.pod("a")
        await setting.renew()
        await eventually(lambda: not setting.server.failures)
        await eventually(lambda: not setting.pipeline.publisher.depth)
        assert setting.server.verdict("a") == ("Admissible" if written else "")
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == warnings


async def test_nothing_is_written_about_a_pod_that_is_gone(setting: OneNodePipeline) -> None:
    gone = setting.pod("a")
    await setting.renew()
    setting.state.pods.remove(gone)
    async with running_publisher(setting):
        setting.pod("b")
        await setting.renew()
        await wait_for_verdict(setting, "b", "Admissible")
        assert "a" not in setting.server.objects


async def test_of_pods_with_one_prediction_each_names_its_own_recommendation() -> None:
    setting = OneNodePipeline()
    recommendations = {"uid-a": "makes-room-for-a"}
    setting.pipeline.publisher.recommendation_for = lambda uid: recommendations.get(uid, "")
    for name in "ab":
        setting.pod(name, cpu=40)
    async with running_publisher(setting):
        await setting.renew()
        await wait_for_verdict(setting, "a", "Inadmissible")
        await wait_for_verdict(setting, "b", "Inadmissible")
    named = {name: setting.server.objects[name]["status"].get("recommendation") for name in "ab"}
    assert named == {"a": "makes-room-for-a", "b": None}
