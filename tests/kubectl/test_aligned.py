"""``aligned``: the pods that lie across NUMA nodes or away from their devices, the worst first."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from kubectl_numazones.live.board import board_of
from kubectl_numazones.live.head import title
from kubectl_numazones.live.lines import node_details, zone_line
from kubectl_numazones.reading.cluster import read_cluster
from tests.kubectl.best_effort_cluster import NIC, best_effort_cluster
from tests.kubectl.small_cluster import cluster, node_body, written
from tests.kubectl.terminal import on_terminal
from tests.numazones.dra.building import device, resource_slice
from tests.numazones.dra.test_claimed_alignment import items

Run = Callable[..., Result]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return written(tmp_path / "dump.json", [*best_effort_cluster(), node_body("worker-9")])


def pods(result: Result) -> list[str]:
    """The names in a table's first column."""
    return [line.split()[0] for line in result.output.splitlines()[1:] if "/" in line.split()[0]]


def test_those_that_are_not_are_listed_the_worst_first(run: Run, dump: Path) -> None:
    result = run("aligned", "-A", "-f", dump)
    header, *rows, summary, unknown = result.output.splitlines()
    assert re.split(r" {3,}", header) == [
        "POD",
        "NODE",
        "ALIGNMENT",
        "CPUS",
        "MEMORY",
        "DEVICES",
        "ALIGNABLE",
    ]
    assert [re.split(r" {3,}", row) for row in rows] == [
        ["team/db-1", "worker-1", "spanning 2 NUMA nodes", "0:2 1:4", "-", "-", "now"],
        ["team/batch-1", "worker-2", "spanning 2 NUMA nodes", "0:1 1:8", "-", "-", "never"],
        ["team/router-4", "worker-3", f"remote from {NIC}", "0:2", "-", f"{NIC}@1", "now"],
    ]
    assert (
        summary == "3 of 9 pods not aligned; 3 CPUs on a different NUMA node from the rest of their container"
    )
    assert unknown.startswith("worker-9: ")
    assert result.return_value == 0


def test_wide_shows_the_pcie_roots_of_claimed_devices(run: Run, tmp_path: Path) -> None:
    root = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"}}
    slices = resource_slice(device("gpu-0", 0), device("gpu-1", 1, attributes=root))
    dump = written(tmp_path / "dump.json", items("gpu-0", "gpu-1", cpus=4, slices=(slices,)))
    header, row, *_ = run("aligned", "-o", "wide", "-f", dump).output.splitlines()
    assert header.endswith("PCIE ROOTS")
    assert row.endswith("gpu.example/gpu-1@pci0000:17")
    (pod,) = json.loads(run("aligned", "-o", "json", "-f", dump).output)["items"]
    assert [one.get("pcieRoots") for one in pod["devices"]] == [None, ["pci0000:17"]]


def test_wide_lists_the_aligned_ones_too(run: Run, dump: Path) -> None:
    listed = pods(run("aligned", "-A", "-o", "wide", "-f", dump))
    assert listed[:3] == ["team/db-1", "team/batch-1", "team/router-4"]
    assert sorted(listed[3:]) == listed[3:]
    assert len(listed) == 9


def test_a_selector_and_a_namespace_choose_pods(run: Run, dump: Path) -> None:
    assert pods(run("aligned", "-A", "-l", "app in (db,cache)", "-f", dump)) == ["team/db-1"]
    assert run("aligned", "-f", dump).output.startswith(
        "no running pod in namespace default holds CPUs, memory or devices exclusively"
    )
    assert pods(run("aligned", "-n", "team", "-l", "app=router", "-f", dump)) == ["team/router-4"]
    refused = run("aligned", "-l", "app in", "-f", dump)
    assert isinstance(refused.exception, click.BadParameter)
    assert "app in" in refused.exception.message


def test_where_all_are_aligned_it_says_so(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "dump.json", cluster())
    assert run("aligned", "-A", "-f", path).output == (
        "all 2 pods with exclusive CPUs, memory or devices are aligned\n"
    )


def test_names_can_be_given_to_other_commands(run: Run, dump: Path) -> None:
    assert run("aligned", "-n", "team", "-o", "name", "-f", dump).output.splitlines() == [
        "pod/db-1",
        "pod/batch-1",
        "pod/router-4",
    ]


def test_the_document_has_every_pod_and_what_it_holds(run: Run, dump: Path) -> None:
    document = json.loads(run("aligned", "-A", "-o", "json", "-f", dump).output)
    assert document["items"][0] == {
        "namespace": "team",
        "name": "db-1",
        "node": "worker-1",
        "alignment": "spanning",
        "numas": [0, 1],
        "distance": 20,
        "remoteCPUs": 2,
        "remoteMemory": "0",
        "remote": ["cpu"],
        "held": [{"numa": 0, "cpus": 2, "memory": "0"}, {"numa": 1, "cpus": 4, "memory": "0"}],
        "devices": [],
        "alignable": "now",
    }
    assert document["items"][2]["devices"] == [
        {"container": "main", "resource": "nic.example/vf", "numas": [1]}
    ]
    assert [it["alignable"] for it in document["items"]] == ["now", "never", "now", *["yes"] * 6]
    assert [it["node"] for it in document["unknown"]] == ["worker-9"]


def test_owner_with_the_most_misaligned_pods_is_listed_first(run: Run, dump: Path) -> None:
    header, *rows, summary, _ = run("aligned", "-A", "--by", "owner", "-f", dump).output.splitlines()
    assert re.split(r" {3,}", header) == [
        "OWNER",
        "PODS",
        "SPANNING",
        "REMOTE",
        "REMOTE CPUS",
        "REMOTE MEMORY",
        "ALIGNABLE",
    ]
    assert [re.split(r" {3,}", row) for row in rows] == [
        ["team/replicaset/db", "2", "1", "0", "2", "0", "1 now"],
        ["team/replicaset/batch", "1", "1", "0", "1", "0", "1 never"],
        ["team/replicaset/router", "4", "0", "1", "0", "0", "1 now"],
    ]
    assert (
        summary == "3 of 9 pods not aligned; 3 CPUs on a different NUMA node from the rest of their container"
    )
    wide = run("aligned", "-A", "--by", "owner", "-o", "wide", "-f", dump).output
    assert "team/replicaset/cache   " in wide
    names = run("aligned", "-A", "--by", "owner", "-o", "name", "-l", "app!=db", "-f", dump).output
    assert names.splitlines() == ["replicaset/batch", "replicaset/router"]


def test_document_by_owner_lists_every_owner_and_each_bare_pod(run: Run, tmp_path: Path) -> None:
    objects = best_effort_cluster()
    for body in objects:
        if body["metadata"]["name"] == "db-1":
            del body["metadata"]["ownerReferences"]
    path = written(tmp_path / "dump.json", objects)
    document = json.loads(run("aligned", "-A", "--by", "owner", "-o", "json", "-f", path).output)
    assert document["items"] == []
    assert document["owners"][0] == {
        "namespace": "team",
        "kind": "Pod",
        "name": "db-1",
        "pods": {"aligned": 0, "remote": 0, "spanning": 1},
        "alignable": {"now": 1, "emptier": 0, "never": 0, "unknown": 0},
        "cpus": 6,
        "remoteCPUs": 2,
        "memory": "0",
        "remoteMemory": "0",
    }
    assert [(it["kind"], it["name"]) for it in document["owners"][1:]] == [
        ("ReplicaSet", "batch"),
        ("ReplicaSet", "router"),
        ("ReplicaSet", "cache"),
        ("ReplicaSet", "db"),
    ]


def test_why_explains_a_pod_that_runs_and_is_not_aligned(run: Run, dump: Path) -> None:
    result = run("why", "team/db-1", "-f", dump)
    evict = (
        "evict it: its replacement will be aligned, on NUMA node 1 of worker-1, if it is confined to that "
        "node"
    )
    let_in = (
        "policy best-effort admitted it: the kubelet prefers one NUMA node, but uses several if none has "
        "room; unless the policy has changed since, none had room when the pod arrived"
    )
    assert result.output.splitlines() == [
        "team/db-1: runs on worker-1, spanning 2 NUMA nodes",
        "container main has 2 CPUs on NUMA node 0 and 4 on NUMA node 1",
        let_in,
        "worker-1 could align it now on NUMA node 1",
        "",
        "What would help:",
        f"  - {evict} (kubectl numazones plan --align team/db-1)",
    ]
    assert result.return_value == 0
    document = json.loads(run("why", "team/db-1", "-o", "json", "-f", dump).output)["notAligned"]
    assert (document["alignment"], document["sentence"]) == ("spanning", "spanning 2 NUMA nodes")
    assert [*document["why"], "", "What would help:", f"  - {document['help'][0]}"] == (
        result.output.splitlines()[1:]
    )
    assert json.loads(run("why", "team/cache-1", "-o", "json", "-f", dump).output)["notAligned"] is None


def test_of_an_owners_running_pods_the_worst_is_explained(run: Run, dump: Path) -> None:
    assert run("why", "rs/db", "-n", "team", "-f", dump).output.startswith(
        "team/db-1: runs on worker-1, spanning 2 NUMA nodes\n"
    )
    assert run("why", "rs/router", "-n", "team", "-f", dump).output.startswith("team/router-4: ")
    listed = run("why", "rs/cache", "rs/router", "-n", "team", "-f", dump).output.splitlines()
    assert [line.split("   ")[-1].strip() for line in listed[1:]] == [
        "runs on worker-1, aligned",
        "runs on worker-3, remote from nic.example/vf",
    ]


def test_aligned_and_why_say_the_same_of_every_pod(run: Run, dump: Path) -> None:
    for item in json.loads(run("aligned", "-A", "-o", "json", "-f", dump).output)["items"]:
        name = f"{item['namespace']}/{item['name']}"
        told = json.loads(run("why", name, "-o", "json", "-f", dump).output)["notAligned"]
        assert (item["alignment"] == "aligned") == (told is None)
        assert told is None or told["alignable"] == item["alignable"]


def test_who_tree_top_and_live_agree_on_a_nodes_pods(run: Run, dump: Path) -> None:
    rows = [re.split(r" {3,}", row) for row in run("who", "worker-1", "-f", dump).output.splitlines()[1:]]
    assert {(row[1], row[-1]) for row in rows} == {
        ("team/cache-1", "aligned"),
        ("team/db-1", "spanning"),
        ("team/router-1", "aligned"),
    }
    who = json.loads(run("who", "worker-3", "-o", "json", "-f", dump).output)["items"]
    assert {(item["pod"], item["alignment"]) for item in who} == {
        ("team/router-3", "aligned"),
        ("team/router-4", "remote"),
    }
    tree = run("tree", "worker-1", "-f", dump).output.splitlines()
    assert tree[-4:-1] == [
        "A team/cache-1: 1-2,8-10",
        "B team/db-1: 3,6-7,11,14-15  spanning 2 NUMA nodes",
        "C team/router-1: 4,12",
    ]
    svg = run("tree", "worker-1", "-o", "svg", "-f", dump).output
    assert "<title>3,6-7,11,14-15: spanning 2 NUMA nodes</title>spanning 3,6-7,11,14-15</text>" in svg
    assert svg.count('class="w"') == 1
    header, *rows_of_top = run("top", "worker-1", "worker-4", "-o", "wide", "-f", dump).output.splitlines()
    assert header.split("   ")[-2:] == ["NOT ALIGNED", "DEVICES"]
    assert [row.split()[-2] for row in rows_of_top] == ["1", "1", "0", "0"]
    top = json.loads(run("top", "-o", "json", "-f", dump).output)["items"]
    assert [(item["node"], item["notAligned"]) for item in top[4:]] == [
        ("worker-3", 1),
        ("worker-3", 1),
        ("worker-4", 0),
        ("worker-4", 0),
    ]
    board = board_of(read_cluster(best_effort_cluster(), None))
    cells = [str(zone_line(zone, board, roomy=False).cells[-1]) for zone in board.zones]
    assert cells[0] == "1 not aligned vf:2/2"
    assert cells[6:] == ["vf:2/2", "vf:2/2"]
    assert "3 pods not aligned" in str(title(board, "", None))
    details = [str(part) for part in node_details("worker-1", board).renderables]  # type: ignore[union-attr]
    assert "B team/db-1: 3,6-7,11,14-15  spanning 2 NUMA nodes" in details[0]


def test_what_why_advises_can_be_planned_for_that_pod_alone(run: Run, dump: Path) -> None:
    planned = json.loads(run("plan", "--align", "team/db-1", "-o", "json", "-f", dump).output)["items"]
    assert [move["pod"] for one in planned for made in one["plans"] for move in made["moves"]] == [
        "team/db-1"
    ]
    none = run("plan", "--align", "-l", "app=router", "-o", "json", "-f", dump)
    assert [one["plans"] for one in json.loads(none.output)["items"]] == [[]]
    assert none.return_value == 1


def test_the_table_by_owner_fits_a_terminal_of_80_columns(dump: Path) -> None:
    table = on_terminal(80, "aligned", "-A", "--by", "owner", "-f", dump).splitlines()[:4]
    assert max(map(len, table)) <= 80
    assert table[0].split()[:4] == ["OWNER", "PODS", "SPANNING", "REMOTE"]
    assert table[0].split()[-1] == "ALIGNABLE"


def test_the_table_fits_a_terminal_of_80_columns(dump: Path) -> None:
    shown = on_terminal(80, "aligned", "-A", "-f", dump)
    table = shown.splitlines()[:4]
    assert max(map(len, table)) <= 80
    assert table[0].split() == ["POD", "NODE", "ALIGNMENT", "CPUS", "ALIGNABLE"]
    assert re.split(r" {3,}", table[3].strip())[2] == f"remote from {NIC}"
