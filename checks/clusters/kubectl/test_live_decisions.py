"""``live`` acts where rights allow: plans are approved and rejected, events followed, many lines grouped."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.kubectl.test_plan_decisions import MAY_NOT, recommendation
from checks.clusters.operator.closed_loop import Loop, closed_loop
from kubectl_numazones.live import deciding
from kubectl_numazones.live.app import Live
from kubectl_numazones.live.board import board_of
from kubectl_numazones.live.lines import Line, node_details, zone_line
from kubectl_numazones.live.listing import STUCK, ZONES, ListView, listing
from kubectl_numazones.plans.decisions import PlanDecision
from kubectl_numazones.reading.cluster import read_cluster
from kubectl_numazones.reading.kinds import ACCESS_REVIEWS
from kubectl_numazones.reading.source import Source, connect
from numazones.cluster.admission_gate import RELEASED
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client
from numazones_client.resources import EVENTS, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_simulator import node_kinds
from tests.kubectl.live_screen import DUMP, press, shown, until, until_gone, view
from tests.kubectl.small_cluster import pod_body
from tests.support.page.clusters import TIME, dump
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _told_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the timer that hides the message about a decision: a busy machine may look too late."""
    monkeypatch.setattr(deciding, "_SAID_SECONDS", 3600.0)


@asynccontextmanager
async def planned(directory: Path, *, mode: str = "Approve") -> AsyncIterator[tuple[Loop, Live]]:
    """A cluster in which a policy has proposed a plan."""
    async with closed_loop(directory) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        policy = {"kind": "RebalancePolicy", "metadata": {"name": "keep-room"}, "spec": {"mode": mode}}
        policy["apiVersion"] = "numazones.io/v1alpha1"
        await loop.client.create(REBALANCE_POLICIES, policy)
        await loop.client.create(REBALANCE_RECOMMENDATIONS, recommendation("keep-room-1"))
        yield loop, Live(Source(kubeconfig=loop.kubeconfig), None)


async def spec(client: Client) -> dict[str, Any]:
    body = await client.get(REBALANCE_RECOMMENDATIONS, "keep-room-1")
    return dict(body["spec"])


@pytest.mark.parametrize(
    ("key", "question", "field"),
    [("a", "Evict 1 pod?", "approved"), ("x", "Reject 1 plan?", "rejected")],
)
async def test_a_plan_is_decided_after_a_question(
    tmp_path: Path, key: str, question: str, field: str
) -> None:
    async with planned(tmp_path) as (loop, app), app.run_test(size=(110, 30), notifications=True) as pilot:
        await pilot.press("3")
        await until(pilot, r"pod team/trainer +0 +1 +1 +new")
        await until(pilot, "a +Approve +x +Reject")
        await pilot.press(key)
        await until(pilot, rf"{question[:-1]}\?")
        assert "grow from 4 to 7" in shown(app)
        await pilot.press("n")
        await until_gone(pilot, question)
        assert not (await spec(loop.client)).get(field)
        await pilot.press(key)
        await until(pilot, rf"{question[:-1]}\?")
        await pilot.press("y")
        await until(pilot, f"keep-room-1 is {field}:")
        assert (await spec(loop.client))[field] is True
        await pilot.press("q")


async def test_objections_to_a_decision_match_the_commands(tmp_path: Path) -> None:
    async with (
        planned(tmp_path, mode="Recommend") as (_, app),
        app.run_test(size=(110, 30), notifications=True) as pilot,
    ):
        await pilot.press("3")
        await until(pilot, r"pod team/trainer +0 +1 +1 +new")
        await until(pilot, "x +Reject")
        assert "Approve" not in shown(app)
        await pilot.press("a")
        await until(pilot, "keep-room-1 cannot be approved")
        await until(pilot, "mode Recommend")
        await pilot.press("q")


async def test_missing_right_to_decide_is_reported_before_and_on_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Client.create

    async def denied(client: Client, resource: Any, body: Any, **options: Any) -> dict[str, Any]:
        if resource is ACCESS_REVIEWS:
            return {"status": {"allowed": False}}
        return await create(client, resource, body, **options)

    monkeypatch.setattr(Client, "create", denied)
    async with planned(tmp_path) as (loop, app), app.run_test(size=(200, 40), notifications=True) as pilot:
        await until(pilot, "may not approve or reject plans")
        await pilot.press("3")
        await until(pilot, r"pod team/trainer +0 +1 +1 +new")
        await pilot.press("x")
        await until(pilot, "numazones-edit")
        assert not (await spec(loop.client)).get("rejected")
        await pilot.press("q")
    assert "numazones-edit" in MAY_NOT


async def test_plans_in_dumps_or_by_others_cannot_be_decided() -> None:
    app = view()
    async with app.run_test(size=(110, 30), notifications=True) as pilot:
        await press(pilot, "3")
        await until(pilot, "not proposed")
        await press(pilot, "a")
        await until(pilot, "you cannot approve or reject plans here")


async def test_events_are_followed_in_a_list_and_below_the_details(tmp_path: Path) -> None:
    async with planned(tmp_path) as (loop, app), app.run_test(size=(120, 30)) as pilot:
        slow = loop.server.faults.delay(1.0, verb="list", resource="events", count=None)
        await pilot.press("4")
        await until(pilot, "reading the operator's events")
        assert "no events of the operator" not in shown(app)
        loop.server.faults.remove(slow)
        await until(pilot, "there are no events from the operator")
        await said(loop.client, "first", "a plan was found")
        await until(pilot, r"Normal +Told +RebalanceRecommendation keep-room-1 +a plan was found")
        await pilot.press("3")
        await until(pilot, r"pod team/trainer +0 +1 +1 +new")
        await pilot.press("d")
        await until(pilot, r"Events\s[\s\S]*Told +a plan was found")
        await said(loop.client, "second", "it is carried out")
        await until(pilot, r"Told +it is carried out")
        await pilot.press("escape", "q")


async def test_events_opened_before_the_cluster_responds_are_followed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = asyncio.Event()

    async def late(source: Source) -> Client:
        await there.wait()
        return await connect(source)

    monkeypatch.setattr("kubectl_numazones.live.app.connect", late)
    async with planned(tmp_path) as (loop, app), app.run_test(size=(120, 30)) as pilot:
        await pilot.press("4")
        await until(pilot, "reading the cluster")
        await said(loop.client, "first", "a plan was found")
        there.set()
        await until(pilot, r"Normal +Told +RebalanceRecommendation keep-room-1 +a plan was found")
        await pilot.press("q")


async def test_message_on_unread_events_ends_once_they_are_read(tmp_path: Path) -> None:
    async with planned(tmp_path) as (loop, app), app.run_test(size=(120, 30)) as pilot:
        await until(pilot, "worker-1 +0 ")
        refused = StatusError(403, "Forbidden", "no")
        fault = loop.server.faults.add(Fault(verb="list", resource="events", count=None, error=refused))
        await pilot.press("4")
        await until(pilot, "list events: no")
        loop.server.faults.remove(fault)
        await until(pilot, "there are no events from the operator")
        await pilot.press("q")


async def said(client: Client, name: str, message: str) -> None:
    """An event of the operator about the plan."""
    about = {"kind": "RebalanceRecommendation", "name": "keep-room-1", "namespace": "default"}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": about,
        "reason": "Told",
        "message": message,
        "type": "Normal",
        "source": {"component": "numazones-operator"},
        "lastTimestamp": TIME,
    }
    await client.create(EVENTS, body, namespace="default")


def listed(view: ListView, items: list[dict[str, Any]]) -> list[Line]:
    _, found = listing(view, board_of(read_cluster(items, None)), (), (), roomy=False)
    return found


def first_cells(found: list[Line]) -> list[str]:
    return [str(line.cells[0]) for line in found]


def test_many_owners_are_grouped_by_reason() -> None:
    items = dump(4, waiting=30)
    (group, *_) = found = listed(ListView(STUCK), items)
    assert len(found) <= 3
    assert str(group.cells[0]).endswith("owners")
    assert str(group.cells[-1]).startswith("Insufficient cpu, such as shop/rs-trainer-")
    members = listed(ListView(STUCK, group=group.groups), items)
    assert len(members) == int(str(group.cells[0]).split()[0])
    assert all(not line.groups for line in members)
    # Words look into groups, and people may have every line.
    assert first_cells(listed(ListView(STUCK, words="trainer-30"), items)) == ["shop/rs-trainer-30"]
    assert len(listed(ListView(STUCK, grouped={STUCK: False}), items)) == 30


def test_many_zones_share_lines_per_node_or_reason() -> None:
    lost = {f"node-{number}-numa-1" for number in range(1, 41)}
    items = [item for item in dump(120, waiting=0) if item["metadata"]["name"] not in lost]
    found = listed(ListView(ZONES), items)
    assert len(found) == 80 + 2
    assert first_cells(found[-2:]) == ["24 nodes", "16 nodes"]
    assert "of 2 NUMAZones published so far" in found[-2].groups
    node = next(line for line in found if line.groups == "node-50")
    assert len(listed(ListView(ZONES, group="node-50"), items)) == int(str(node.cells[1])[-1]) + 1
    unknown = listed(ListView(ZONES, group=found[-1].groups), items)
    assert len(unknown) == 16


async def test_enter_opens_a_group_and_escape_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": dump(4, waiting=30)}))
    app = view(path)
    async with app.run_test(size=(110, 30), notifications=True) as pilot:
        await press(pilot, "2")
        await until(pilot, r"\d+ owners")
        await press(pilot, "enter")
        await until(pilot, r"only Inadmissible: Insufficient cpu \(escape: all\)")
        await until(pilot, "shop/rs-trainer-")
        await press(pilot, "escape")
        await until(pilot, r"\d+ owners")
        await press(pilot, "g")
        await until_gone(pilot, " owners")


def test_room_held_for_released_pods_shows_on_zone_and_node() -> None:
    items = json.loads(DUMP.read_text())["items"]
    coming = pod_body("coming", 3)
    coming["metadata"]["annotations"] = {RELEASED: TIME}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    coming["spec"]["affinity"] = {"nodeAffinity": required}
    board = board_of(read_cluster([*items, coming], None))
    (held,) = board.held["worker-1"]
    assert held.sentence == (
        "3 CPUs on NUMA node 0 are held for team/coming, released from the gate, until 2026-11-20T10:01:00Z"
    )
    cells = [str(zone_line(zone, board, roomy=False).cells[-1]) for zone in board.zones]
    assert cells == ["3 CPUs held", "", "", ""]
    assert "held for team/coming" in str([str(part) for part in node_details("worker-1", board).renderables])  # type: ignore[union-attr]


async def test_keys_respond_while_advice_is_computed() -> None:
    app = view()
    async with app.run_test(size=(200, 40), notifications=True) as pilot:
        await press(pilot, "2")
        await until(pilot, "What would help:")
        await press(pilot, "1")
        await until(pilot, "socket 0")
    assert await eventually(lambda: not app.is_running)


def test_decisions_are_named_after_their_commands() -> None:
    assert [(decision.value, decision.field) for decision in PlanDecision] == [
        ("approve", "approved"),
        ("reject", "rejected"),
    ]
