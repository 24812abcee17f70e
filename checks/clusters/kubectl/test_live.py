"""``live``: what is on the screen, and what keys do, on a dump and on a cluster that changes."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from textual.widgets import Input

from checks.clusters.operator.closed_loop import closed_loop
from kubectl_numazones.live.app import Live
from kubectl_numazones.live.board import board_of
from kubectl_numazones.live.lines import forbidden
from kubectl_numazones.reading.cluster import read_cluster
from kubectl_numazones.reading.kinds import KINDS
from kubectl_numazones.reading.source import Source
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client
from numazones_client.resources import PODS
from numazones_simulator import node_kinds
from tests import plugin
from tests.kubectl.live_screen import DUMP, press, shown, until, until_gone, view
from tests.kubectl.small_cluster import cluster, node_body, pod_body, written
from tests.waiting import eventually


def recommending(directory: Path) -> Path:
    """The guide's cluster with a recommendation."""
    items = json.loads(DUMP.read_text())["items"]
    move = {
        "pod": {"namespace": "team", "name": "web-1"},
        "source": {"node": "worker-1"},
        "target": {"node": "worker-2"},
        "why": "room for trainer",
    }
    recommendation = {
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "keep-room-1"},
        "spec": {"goal": "pod team/trainer-2", "moves": [move], "gain": {"before": 0, "after": 1}},
        "status": {"phase": "Proposed", "message": "waits for approval"},
    }
    return written(directory / "dump.json", [*items, recommendation])


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 12)])
async def test_zones_are_shown_first_on_any_terminal(size: tuple[int, int]) -> None:
    app = view()
    async with app.run_test(size=size) as pilot:
        await until(pilot, r"1 NUMA nodes 4[\s\S]*worker-1 +1 ")
        # Where there is room, what is chosen is drawn beside the list.
        if size[0] >= 140:
            await until(pilot, "socket 0")
        screen = shown(app)
        assert [line.split()[:2] for line in screen.splitlines() if "worker-1" in line[:12]] == [
            ["worker-1", "0"],
            ["worker-1", "1"],
        ]
        assert ("socket 0" in screen) is (size[0] >= 140)


async def test_digits_and_arrows_turn_between_the_lists() -> None:
    app = view()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "2")
        await until(pilot, r"team/trainer +1 +1 +Inadmissible +needs 5")
        await press(pilot, "right")
        await until(pilot, r"pod team/trainer-2 +0 +1 +1 +not proposed +team/web-1")
        await press(pilot, "right")
        await until(pilot, "there are no events from the operator")
        await press(pilot, "right")
        await until(pilot, "MEMORY")
        await press(pilot, "left", "left", "left")
        await until(pilot, "Inadmissible")


async def test_narrow_terminal_shows_every_word_of_a_reason() -> None:
    app = view()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await press(pilot, "2")
        await until(pilot, r"needs 5 [\s\S]*on one\s+NUMA node; at most[\s\S]*worker-1\)")
        await press(pilot, "3", "a")
        await until(pilot, r"this is a dump, or[\s\S]*has not been read yet")


async def test_keys_group_lines_and_the_header_says_so() -> None:
    app = view()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "sorted by node")
        await press(pilot, "g")
        await until(pilot, r"grouped, by node[\s\S]*worker-1 +0-1 ")
        await press(pilot, "2", "g")
        await until(pilot, r"grouped by reason[\s\S]*1 owner")
        await press(pilot, "question_mark")
        await until(pilot, "show these keys")


def test_stuck_pods_come_first_and_failed_ones_last() -> None:
    items = [item for item in cluster() if item["metadata"]["name"] not in {"waiting", "rejected"}]
    ages = {"failed": "01", "small": "02", "later": "04", "big": "03"}
    bodies = [pod_body(name, 9 if name in {"later", "big"} else 1) for name in ages]
    for body in bodies:
        body["metadata"]["creationTimestamp"] = f"2026-11-20T09:{ages[body['metadata']['name']]}:00Z"
        body["metadata"].pop("ownerReferences", None)
    bodies[0]["spec"]["nodeName"] = "worker-1"
    bodies[0]["status"] = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: x",
    }
    board = board_of(read_cluster([*items, *bodies], None))
    assert [(item.name.split("/")[1], item.verdict) for item in board.stuck] == [
        ("big", "Inadmissible"),
        ("later", "Inadmissible"),
        ("small", "Admissible"),
        ("failed", "Rejected"),
    ]
    assert board.stuck[-1].why == (
        "TopologyAffinityError on worker-1; a failed pod is not retried: delete it"
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["down", "down", "enter"], "worker-2: single-numa-node, scope container"),
        (["j", "j", "j", "k", "enter"], "worker-2: single-numa-node, scope container"),
        (["2", "enter"], "What would help:"),
        (["3", "enter"], "free CPUs on one NUMA node of worker-1 grow"),
    ],
)
async def test_enter_opens_everything_about_a_line_and_escape_closes_it(keys: list[str], said: str) -> None:
    app = view()
    async with app.run_test(size=(120, 30)) as pilot:
        await press(pilot, *keys)
        await until(pilot, re.escape(said))
        await press(pilot, "escape")
        await until_gone(pilot, said)


async def test_a_filter_leaves_the_lines_that_have_all_its_words() -> None:
    app = view()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "slash", *"worker-2", "enter")
        await until_gone(pilot, "worker-1 ")
        assert "worker-2 " in shown(app)
        await press(pilot, "slash", *" q?")
        await until(pilot, r"no line contains '.* q\?'")
        await press(pilot, "escape")
        await until(pilot, "worker-1 ")
        await press(pilot, "q")
    assert app.return_code == 0


async def test_zones_are_sorted_by_one_order_after_the_other() -> None:
    app = view()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "s")
        await until(pilot, r"sorted by cpu")
        await until(pilot, r"^(?:(?!worker)[\s\S])*worker-1 +1 ")


async def test_recommendations_stand_among_the_plans(tmp_path: Path) -> None:
    app = view(recommending(tmp_path))
    async with app.run_test(size=(120, 30)) as pilot:
        await press(pilot, "3")
        await until(pilot, r"pod team/trainer-2 +0 +1 +1 +Proposed +team/web-1 → worker-2")
        await press(pilot, "enter")
        await until(pilot, "RebalanceRecommendation keep-room-1")
        await until(pilot, "room for trainer")


async def test_ctrl_c_ends_live_from_every_view() -> None:
    for keys in (["ctrl+c"], ["enter", "ctrl+c"], ["slash", "ctrl+c"]):
        app = view()
        async with app.run_test(size=(80, 24)) as pilot:
            await press(pilot, *keys)
        assert app.return_code == 130


def test_without_a_terminal_it_says_what_to_use() -> None:
    ended = plugin.ended("live", "-f", DUMP)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: live needs a terminal; in a pipe, use top, why or plan\n"


async def test_it_follows_the_cluster(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        app = Live(Source(kubeconfig=loop.kubeconfig), None)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, r"worker-1 +0 ")
            await pilot.press("2")
            await until(pilot, "no pods are waiting or rejected")
            await until(pilot, r"live \d\d:\d\d:\d\d UTC, last change \d+s ago")
            await loop.create_pod("huge", cpu=40)
            await until(pilot, r"default/huge +1 +0 .*Inadmissible +needs 40")
            await loop.client.delete(PODS, "huge", namespace="default")
            await until(pilot, "no pods are waiting or rejected")
            await pilot.press("q")


async def test_it_ends_only_once_its_connections_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Client] = []
    close = Client.close

    async def close_slowly(client: Client) -> None:
        await asyncio.sleep(0.1)  # as where connections are just being made
        await close(client)
        closed.append(client)

    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        monkeypatch.setattr(Client, "close", close_slowly)
        app = Live(Source(kubeconfig=loop.kubeconfig), None)
        async with app.run_test() as pilot:
            await until(pilot, r"worker-1 +0 ")
            await pilot.press("q")
        assert len(closed) == 1
        monkeypatch.undo()


async def test_forbidden_kinds_are_named_with_consequences_until_they_are_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        faults = loop.server.faults
        denied = [
            faults.add(
                Fault(verb="list", resource=name, count=None, error=StatusError(403, "Forbidden", "no"))
            )
            for name in ("replicasets", "rebalancerecommendations")
        ]
        app = Live(Source(kubeconfig=loop.kubeconfig), None)
        async with app.run_test(size=(100, 24)) as pilot:
            kinds = "ReplicaSet, RebalanceRecommendation"
            await until(pilot, f"cannot list {kinds}: uncertain plans, no rebalancing")
            await until(pilot, "worker-1 +0 ")
            # Asked again, and rejected again, it says nothing more.
            await eventually(lambda: denied[0].struck > 2)
            assert sum("replicasets" in record.getMessage() for record in caplog.records) == 1
            for fault in denied:
                faults.remove(fault)
            await until_gone(pilot, "cannot list")
            await pilot.press("q")


async def test_why_a_cluster_cannot_be_shown_stays_on_the_screen(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        refused = StatusError(403, "Forbidden", "no")
        denied = loop.server.faults.add(Fault(verb="list", resource="jobs", count=None, error=refused))
        app = Live(Source(kubeconfig=loop.kubeconfig), None)
        async with app.run_test(size=(160, 30)) as pilot:
            await until(pilot, "has no nodes")
            await until(pilot, "cannot list Job")
            loop.server.faults.remove(denied)
            await until_gone(pilot, "cannot list")  # how the watches fare is looked at again
            assert "has no nodes" in shown(app)
            await pilot.press("q")


@pytest.mark.parametrize("width", [78, 118, 200])
@pytest.mark.parametrize("number", range(1, 12))
def test_forbidden_kinds_share_one_line(number: int, width: int) -> None:
    kinds = [kind for kind in KINDS if not kind.needed][-number:]
    told = forbidden(kinds, width)
    assert len(told) <= width
    assert told.startswith("cannot list ")
    for kind in kinds:
        assert kind.without
        assert kind.without in told
    assert number > 1 or kinds[0].kind in told


async def test_missing_cluster_configuration_ends_live_with_the_reason(tmp_path: Path) -> None:
    app = Live(Source(kubeconfig=tmp_path / "nowhere"), None)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
    assert "nowhere" in str(app.failure)


HOSTILE = "[bold]x[/bold] [/] [red"


async def test_brackets_in_names_and_messages_are_shown_as_they_are(tmp_path: Path) -> None:
    """None of them is markup, which would swallow names, and end the view where it does not close."""
    pods = [
        pod_body(f"holder{HOSTILE}", 3, phase="Running", spec={"nodeName": "worker-9[/]"}),
        pod_body(f"a{HOSTILE}", 99),
    ]
    path = written(tmp_path / "dump.json", [node_body("worker-9[/]"), *cluster(), *pods])
    recommendation = {
        "kind": "RebalanceRecommendation",
        "metadata": {"name": f"plan{HOSTILE}"},
        "spec": {"goal": f"goal{HOSTILE}", "moves": [{"why": HOSTILE}]},
        "status": {"phase": "[/]", "message": HOSTILE},
    }
    items = json.loads(path.read_text())["items"]
    app = view(written(path, [*items, recommendation]))
    async with app.run_test(size=(200, 40)) as pilot:
        await until(pilot, r"worker-9\[/\]")
        await press(pilot, "2")
        await until(pilot, re.escape(f"team/a{HOSTILE}"))
        await press(pilot, "enter")
        await until(pilot, f"─ +{re.escape(f'team/a{HOSTILE}')} +─")
        await press(pilot, "escape", "3")
        await until(pilot, re.escape(f"goal{HOSTILE}"))
        await press(pilot, "enter")
        await until(pilot, re.escape(f"RebalanceRecommendation plan{HOSTILE}: goal{HOSTILE}"))
        await press(pilot, "escape", "slash")
        app.query_one("#filter", Input).value = "[/]nobody"
        await until(pilot, r"no line contains '\[/\]nobody'")
