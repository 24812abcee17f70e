"""The number of stuck pods is the same on the page, in ``why``, in ``live`` and in ``report``."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_numazones.live.board import board_of
from kubectl_numazones.main import commands
from kubectl_numazones.reading.cluster import read_cluster
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterPod
from numazones_simulator import node_kinds
from numazones_simulator.node_spec import node_object
from tests.operator.page.changes import changes
from tests.operator.page.updates import Updates
from tests.operator.pods import pod_body

REJECTED = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
COUNTS = {"stuck": 4, "nowhere": 2, "unknown": 0, "kept": 2, "fitting": 1, "rejected": 3}
SENTENCE = (
    "4 pods are stuck: 2 fit nowhere, 2 would fit but are kept waiting; "
    "1 fits and is about to get a node; 3 were rejected and stay until deleted"
)


def pod(name: str, cpu: int = 2, owner: str = "", gate: str = "", **status: Any) -> dict[str, Any]:
    body: dict[str, Any] = pod_body(name, cpu=cpu, nodeName="node" if status else "")
    body |= {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending", **status}}
    body["metadata"] |= {"namespace": "default", "uid": f"uid-{name}"}
    body["metadata"]["creationTimestamp"] = "2026-01-31T08:00:00Z"
    if owner:
        body["metadata"]["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    if gate:
        body["spec"]["schedulingGates"] = [{"name": gate}]
    return body


@pytest.fixture
def pods() -> list[dict[str, Any]]:
    """Two pods of an owner that fit nowhere and two gated ones, among others that are not stuck."""
    plain = pod("plain", gate="example.com/gate")
    plain["spec"]["containers"][0]["resources"] = {}
    leaving = pod("leaving", 60)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-31T08:00:01Z"
    return [
        pod("big-1", 60, "big"),
        pod("big-2", 60, "big"),
        pod("big-0", 60, "big", **REJECTED),
        pod("gated-1", gate="example.com/gate"),
        pod("half-gated", owner="half", gate="example.com/gate"),
        pod("half-free", owner="half"),
        pod("lost-1", 60, "lost", **REJECTED),
        pod("lost-2", 60, "lost", **REJECTED),
        plain,
        leaving,
    ]


@pytest.fixture
def cluster(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    spec = node_kinds.single_numa_node("node", "10.0.0.1")
    node = {**node_object(spec, now="2026-01-31T08:00:00Z"), "kind": "Node"}
    return [
        node,
        *(zone.to_api() for zone in zones_from_node(spec.empty_node(), node_name="node", pods={})),
        *pods,
    ]


def run(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(item) for item in arguments], standalone_mode=False)


@pytest.fixture
def dump(cluster: list[dict[str, Any]], tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster}))
    return path


async def test_the_live_page_counts_and_names_them(pods: list[dict[str, Any]]) -> None:
    updates = Updates()
    for body in pods:
        updates.setting.state.pods.put(ClusterPod.from_api(body))
    await updates.setting.renew()
    async with updates.running():
        await updates.round()
        shown = changes(updates.documents)
    assert {name: shown["counts/"][name] for name in COUNTS} == COUNTS
    assert shown["counts/"]["headline"] == "4 pods are stuck"
    stuck = {name for item in shown.values() if item.get("stuck") is True for name in item["pods"]}
    assert stuck == {"big-1", "big-2", "gated-1", "half-gated"}
    assert shown["waiting/default/big-1"]["rejected"]["pods"] == ["big-0"]
    lost = shown["waiting/default/lost-1"]
    assert (lost["verdict"], sorted(lost["rejected"]["pods"])) == ("Rejected", ["lost-1", "lost-2"])
    assert lost["sentence"] == "TopologyAffinityError on node; a failed pod is not retried: delete it"


def test_why_counts_and_marks_them(dump: Path) -> None:
    listed = run("why", "-A", "-f", dump)
    assert listed.stderr.splitlines()[-1] == SENTENCE
    document = json.loads(run("why", "-A", "-f", dump, "-o", "json").stdout)
    assert document["counts"] == COUNTS
    marked = {item["pod"]["name"]: item["stuck"] for item in document["items"]}
    assert {name for name, stuck in marked.items() if stuck} >= {"big-1", "gated-1"}
    assert not marked["lost-1"]


def test_live_shows_the_same_number(cluster: list[dict[str, Any]]) -> None:
    board = board_of(read_cluster(cluster, None))
    assert board.counts.sentence == SENTENCE
    assert not {item.name for item in board.stuck if item.is_stuck} & {"default/lost", "default/half-free"}


def test_report_shows_the_same_number(dump: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert run("report", "-f", dump, "-o", target).stdout == f"{target}: 1 node, 4 stuck pods, 0 plans\n"
    found = re.search(r'<script[^>]* id="documents"[^>]*>(.*?)</script>', target.read_text(), re.DOTALL)
    assert found
    assert {name: json.loads(found[1])["counts/"][name] for name in COUNTS} == COUNTS
