"""Tests that text in people's objects controls no terminal and floods no scrape, event or page."""

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from checks.clusters.operator.closed_loop import Loop, closed_loop
from checks.clusters.operator.page.test_server import PAGE, viewer
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance.custom_resources import goals_of
from numazones.rebalance.moves import Move, PlanFound
from numazones_client.resources import EVENTS, PODS
from numazones_operator.events import event
from numazones_operator.process import Operator
from numazones_operator.rebalance.objects import PolicyObject, recommendation_body
from numazones_simulator import node_kinds
from tests.operator.pods import pod_body
from tests.waiting import eventually

TEXT = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u200b\u2066"
    '</script><script>alert(1)</script>"\\} 1\nfake_metric 1\n'
)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069]")
LONGEST_LINE = 2000


async def read(operator: Operator, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{operator.port}{path}") as answer,
    ):
        return await answer.text()


def owned(name: str, **spec: Any) -> dict[str, Any]:
    """A pod whose owner has a name of 100,000 characters that are none of a name."""
    body = pod_body(name, **spec)
    owner = {"apiVersion": "v1", "kind": f"Job{TEXT}", "name": TEXT * 1000, "uid": "u", "controller": True}
    body["metadata"] |= {"ownerReferences": [owner], "annotations": {"example.com/note": TEXT * 1000}}
    return body


async def rejections(loop: Loop, operator: Operator) -> list[Any]:
    return [
        sample
        for family in text_string_to_metric_families(await read(operator, "/metrics"))
        for sample in family.samples
        if sample.name == "numazones_owner_rejections_total"
    ]


async def test_hostile_owner_name_is_shortened_in_metrics_events_and_documents(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        operator = await loop.start_operator(**PAGE)
        for name in ("rejected", "waits"):
            await loop.client.create(PODS, owned(name, cpu=31), namespace="default")
        await loop.bind("rejected", "n1")
        (sample,) = await eventually(partial(rejections, loop, operator))
        assert sample.labels["reason"] == "TopologyAffinityError"
        assert len(sample.labels["owner"]) <= 253

        metrics = await read(operator, "/metrics")
        assert OBEYED.search(metrics) is None
        assert max(map(len, metrics.splitlines())) < LONGEST_LINE
        assert "fake_metric" not in {family.name for family in text_string_to_metric_families(metrics)}

        events = await eventually(partial(loop.client.list, EVENTS, namespace="default"))
        for one in events:
            assert OBEYED.search(one["message"]) is None
            assert len(one["message"]) <= 1024

        async with viewer(operator.page_port) as seen:
            waiting = await seen.until("waiting/default/waits")
            assert OBEYED.search(str(waiting)) is None


def test_an_events_message_commands_no_terminal_and_is_bounded() -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    posted = event(about, type="Warning", reason="R", message=TEXT * 1000, instance="i")
    assert posted["message"].startswith(r"\x1b[2J")
    assert OBEYED.search(posted["message"]) is None
    assert len(posted["message"]) == 1024


def test_plan_for_a_pod_of_a_hostile_owner_is_publishable() -> None:
    body = owned("moved", cpu=4)
    body["metadata"]["uid"] = "p"
    pod = ClusterPod.from_api({**body, "spec": {**body["spec"], "nodeName": "n1"}})
    policy = PolicyObject.from_api(
        {"metadata": {"name": "room", "uid": "u"}, "spec": {"mode": "Recommend", "goals": {"align": True}}}
    )
    (goal, *_) = goals_of(policy.spec.goals)
    made = PlanFound((Move(pod, pod, "n2", why="it is in the way"),), before=0, after=1)
    published = recommendation_body(made, goal, policy, datetime(2026, 1, 1, tzinfo=UTC))
    owner = published["spec"]["moves"][0]["owner"]
    assert (len(owner["kind"]), len(owner["name"]), owner["uid"]) == (63, 253, "u")
    assert OBEYED.search(str(owner)) is None
