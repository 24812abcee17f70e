"""``why`` of several pods, by kubectl's grammar; and of clusters that are too large to list."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from tests.kubectl.small_cluster import cluster, pod_body, written

Run = Callable[..., Result]
NAMESPACES = ("team", "other")


def labelled(body: dict[str, Any], **labels: str) -> dict[str, Any]:
    body["metadata"]["labels"] = labels
    return body


def of_owner(body: dict[str, Any], owner: str) -> dict[str, Any]:
    body["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    ]
    return body


def at(body: dict[str, Any], *, namespace: str = "team", created: str = "") -> dict[str, Any]:
    body["metadata"]["namespace"] = namespace
    if created:
        body["metadata"]["creationTimestamp"] = created
    return body


def rejected(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["nodeName"] = "worker-1"
    body["status"] = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
    return body


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Beside the small cluster's pods two that no node takes, one that fits, and a loop of rejections."""
    items = [item for item in cluster() if item["metadata"]["name"] not in {"waiting", "rejected"}]
    items += [
        at(labelled(pod_body("fits", 2), app="web"), created="2026-11-20T09:00:00Z"),
        at(labelled(pod_body("young", 5), app="web"), created="2026-11-20T11:00:00Z"),
        at(labelled(pod_body("old", 7), app="db"), created="2026-11-20T10:00:00Z"),
        at(pod_body("elsewhere", 7), namespace="other", created="2026-11-20T10:30:00Z"),
        *(
            at(
                of_owner(rejected(pod_body(f"loop-{number}", 5)), "loop"),
                created=f"2026-11-20T0{number}:00:00Z",
            )
            for number in range(3)
        ),
    ]
    return written(tmp_path / "dump.json", items)


def names(output: str) -> list[str]:
    return [line.split()[0] for line in output.splitlines()[1:]]


def test_why_without_names_lists_stuck_pods_worst_first(run: Run, dump: Path) -> None:
    done = run("why", "-n", "team", "-f", dump)
    assert done.stdout.splitlines()[0].split() == ["POD", "STATUS", "AGE", "WHY"]
    assert names(done.stdout) == ["old", "young", "fits", "loop-0"]
    assert done.return_value == 1


def test_a_line_says_what_why_says_of_the_pod(run: Run, dump: Path) -> None:
    for line in run("why", "-n", "team", "-f", dump).stdout.splitlines()[1:]:
        alone = run("why", line.split()[0], "-n", "team", "-f", dump).stdout.splitlines()[0]
        why = line.rsplit("   ", 1)[1]
        assert alone.endswith(why)


def test_pods_of_one_owner_share_a_line(run: Run, dump: Path) -> None:
    (line,) = (line for line in run("why", "-n", "team", "-f", dump).stdout.splitlines() if "loop" in line)
    assert "3 rejected" in line


def test_all_namespaces_are_named(run: Run, dump: Path) -> None:
    done = run("why", "-A", "-n", "team", "-f", dump)
    assert done.stdout.splitlines()[0].split()[:2] == ["NAMESPACE", "POD"]
    assert [tuple(line.split()[:2]) for line in done.stdout.splitlines()[1:3]] == [
        ("team", "old"),
        ("other", "elsewhere"),
    ]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=web", ["young", "fits"]),
        ("app in (web,db),app!=web", ["old"]),
        ("!app", ["loop-0"]),
        ("app=none", []),
    ],
)
def test_labels_select(run: Run, dump: Path, selector: str, found: list[str]) -> None:
    assert names(run("why", "-n", "team", "-l", selector, "-f", dump).stdout) == found


def test_named_pods_are_listed_in_order_with_running_ones(run: Run, dump: Path) -> None:
    done = run("why", "one", "pod/young", "rs/loop", "-n", "team", "-f", dump)
    assert names(done.stdout) == ["one", "young", "loop-0"]
    assert [line.split()[1:3] for line in done.stdout.splitlines()[1:]] == [
        ["running", "60m"],
        ["waiting", "0s"],
        ["3", "rejected"],
    ]
    assert done.stdout.splitlines()[1].endswith("runs on worker-1, aligned")
    assert done.return_value == 1


def test_nothing_that_is_stuck_is_no_error(run: Run, dump: Path) -> None:
    done = run("why", "-f", dump)
    assert (done.stdout, done.return_value) == ("", 0)
    assert done.stderr == "No stuck pods in namespace default (3 in other namespaces: use -A)\n"
    nothing = run("why", "-l", "app=none", "-f", dump)
    assert nothing.stderr == "No stuck pods in namespace default\n"
    document = json.loads(run("why", "-f", dump, "-o", "json").stdout)
    assert (document["items"], document["counts"]["stuck"]) == ([], 0)


@pytest.mark.parametrize(
    ("selector", "code"),
    [("app=web", 1), ("app=web,app!=db", 1), ("app=none", 0)],
)
def test_the_exit_code_is_that_of_the_worst(run: Run, dump: Path, selector: str, code: int) -> None:
    assert run("why", "-n", "team", "-l", selector, "-f", dump).return_value == code


def test_names_are_for_pipes(run: Run, dump: Path) -> None:
    said = run("why", "-n", "team", "-l", "app", "-o", "name", "-f", dump).stdout
    assert said.splitlines() == ["pod/old", "pod/young", "pod/fits"]


def test_the_wide_list_counts_nodes(run: Run, dump: Path) -> None:
    lines = run("why", "-n", "team", "-l", "app=web", "-o", "wide", "-f", dump).stdout.splitlines()
    assert lines[0].split() == ["POD", "STATUS", "AGE", "VERDICT", "NODES", "WHY"]
    assert [line.split()[3:5] for line in lines[1:]] == [["Inadmissible", "0/2"], ["Admissible", "1/2"]]


def test_a_document_of_several_holds_those_of_each(run: Run, dump: Path) -> None:
    items = json.loads(run("why", "-n", "team", "-l", "app", "-o", "json", "-f", dump).stdout)["items"]
    assert [item["pod"]["name"] for item in items] == ["old", "young", "fits"]
    for item in items:
        alone = run("why", item["pod"]["name"], "-n", "team", "-o", "json", "-f", dump).stdout
        assert json.loads(alone) == item


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("web", "-l", "app=web"), "use either names or -l"),
        (("web", "-A"), "-A cannot be combined with names"),
        (("a", "b", "--node", "worker-1"), "--node explains one pod"),
    ],
)
def test_what_contradicts_is_said(run: Run, dump: Path, arguments: tuple[str, ...], said: str) -> None:
    error = run("why", *arguments, "-f", dump).exception
    assert isinstance(error, click.UsageError)
    assert said in str(error)


def test_a_selector_that_is_none_is_a_usage_error(run: Run, dump: Path) -> None:
    assert isinstance(run("why", "-l", "a b", "-f", dump).exception, click.UsageError)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """400 nodes like worker-1, and 100 that are cordoned."""
    items = cluster()
    made = [item for item in items if item["metadata"]["name"] == "waiting"]
    for name, numbers in (("worker-1", range(100, 500)), ("worker-2", range(500, 600))):
        text = json.dumps([item for item in items if item["metadata"]["name"].startswith(name)])
        made += [item for number in numbers for item in json.loads(text.replace(name, f"node-{number}"))]
    return written(tmp_path / "large.json", made)


def test_five_hundred_nodes_are_grouped_by_common_traits(run: Run, large: Path) -> None:
    lines = run("why", "waiting", "-n", "team", "-f", large).stdout.splitlines()
    table = lines[lines.index("NODES   NEAREST    VERDICT        WHY") :]
    assert [line.split()[:3] for line in table[1:]] == [
        ["400", "node-100", "Inadmissible"],
        ["100", "node-500", "Excluded"],
    ]
    assert len(lines) < 25


def test_the_wide_form_has_a_line_for_each_node(run: Run, large: Path) -> None:
    lines = run("why", "waiting", "-n", "team", "-o", "wide", "-f", large).stdout.splitlines()
    assert sum(line.startswith("node-") for line in lines) == 500


def test_fit_says_why_the_other_nodes_do_not_take_it(run: Run, large: Path) -> None:
    done = run("fit", "cpu=4", "-f", large)
    lines = done.stdout.splitlines()
    assert lines[0] == "1 of 1 fit"
    assert lines[-3:-1] == ["Not placed on 100 nodes:", "NODES   NEAREST    VERDICT    WHY"]
    assert lines[-1].split(maxsplit=3) == ["100", "node-500", "Excluded", "node(s) were unschedulable"]


def test_fit_says_why_no_further_one_fits(run: Run, large: Path) -> None:
    done = run("fit", "cpu=4", "--replicas", "1000", "-f", large)
    document = json.loads(run("fit", "cpu=4", "--replicas", "1000", "-o", "json", "-f", large).stdout)
    assert (document["fitting"], sum(one["nodes"] for one in document["reasons"])) == (400, 500)
    assert f"no more fit: {document['sentence']}\n" in done.stdout
    assert "Not placed on 500 nodes:" in done.stdout


def test_fit_of_all_has_no_sentence(run: Run, large: Path) -> None:
    assert json.loads(run("fit", "cpu=4", "-o", "json", "-f", large).stdout)["sentence"] == ""


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [
        (("worker-2",), {"worker-2"}),
        (("node/worker-1", "worker-2"), {"worker-1", "worker-2"}),
        (("-l", "kubernetes.io/hostname=worker-1"), {"worker-1"}),
        (("-l", "kubernetes.io/hostname"), {"worker-1", "worker-2"}),
    ],
)
def test_top_shows_the_nodes_that_are_asked_for(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], nodes: set[str]
) -> None:
    items = cluster()
    for item in items:
        if item["kind"] == "Node":
            item["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = item["metadata"]["name"]
    shown = run("top", *arguments, "-f", written(tmp_path / "dump.json", items)).stdout
    assert set(names(shown)) == nodes


def test_top_of_no_node_says_so(run: Run, dump: Path) -> None:
    done = run("top", "-l", "a=b", "-f", dump)
    assert (done.stdout, done.stderr) == ("", "no node has these labels\n")
    assert "node gone is not among the 2 nodes read" in str(run("top", "gone", "-f", dump).exception)


def test_a_plan_is_for_the_pods_that_are_asked_for(run: Run, dump: Path) -> None:
    def goals(*arguments: str) -> list[str]:
        return [
            one["goal"]
            for one in json.loads(run("plan", *arguments, "-o", "json", "-f", dump).stdout)["items"]
        ]

    assert goals("-l", "app=web") == ["pod team/fits", "pod team/young"]
    assert goals("old", "-n", "team") == ["pod team/old"]
    assert goals() == ["pod team/fits", "pod team/old and 1 more", "pod team/young"]
    assert "is not waiting for a node" in str(run("plan", "one", "-n", "team", "-f", dump).exception)
    assert isinstance(run("plan", "old", "--shape", "cpu=2", "-f", dump).exception, click.UsageError)
