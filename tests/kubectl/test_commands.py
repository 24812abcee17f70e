"""Tests of what each command says about a small cluster, and of its exit code."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kubectl_numazones.live import head
from kubectl_numazones.live.board import board_of
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import NotThere, read_cluster
from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.machine import Machine
from numazones.kubelet.versions import NEWEST
from tests.kubectl.small_cluster import cluster, node_body, pod_body, written
from tests.models.koordinator import building as koordinator
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result
from tests.numazones.kubelet import building

Run = Callable[..., Result]


def test_why_names_reason_cures_and_nodes(run: Run, dump: Path) -> None:
    result = run("why", "waiting", "-n", "team", "-f", dump)
    assert result.output == (
        "team/waiting: needs 5 exclusive CPUs on one NUMA node; "
        "at most 4 are free on one NUMA node (NUMA node 0 of worker-1)\n"
        "\n"
        "What would help:\n"
        "  - worker-2 would admit it, but it is cordoned: kubectl uncordon worker-2\n"
        "  - request 4 CPUs instead of 5 in container main (worker-1)\n"
        "  - set topologyManagerPolicy: best-effort on worker-1, which gives up alignment for all pods there "
        "(on a drained node)\n"
        "  - remove team/one, which holds 3 CPUs (no plan does this: nothing would recreate it) "
        "(worker-1)\n"
        "  - remove team/two, which holds 6 CPUs (no plan does this: nothing would recreate it) "
        "(worker-1)\n"
        "\n"
        "NODES   NEAREST    VERDICT        WHY\n"
        "    1   worker-1   Inadmissible   TopologyAffinityError: needs 5 exclusive CPUs on one NUMA node; "
        "at most 4 are free on one NUMA node (NUMA node 0)\n"
        "    1   worker-2   Excluded       node(s) were unschedulable\n"
    )
    assert result.return_value == 1


def test_why_of_a_rejected_pod_repeats_the_kubelets_reason(run: Run, dump: Path) -> None:
    result = run("why", "team/rejected", "-f", dump)
    assert result.output.splitlines()[0].startswith(
        "team/rejected: rejected on worker-1 with TopologyAffinityError "
        "(Resources cannot be allocated with Topology locality); now: needs 5 exclusive CPUs"
    )


def test_why_with_a_node_shows_hints_merge_and_holders(run: Run, dump: Path) -> None:
    result = run("why", "team/waiting", "--node", "worker-1", "-f", dump)
    assert "container main: merged to" in result.output
    assert "TopologyAffinityError: Resources cannot be allocated with Topology locality" in result.output
    assert "team/one" in result.output
    assert "team/two" in result.output
    assert result.return_value == 1


def test_exit_code_of_why_with_a_node_is_its_answer(run: Run, tmp_path: Path) -> None:
    items = [*cluster(), pod_body("small", 3), node_body("without-zones")]
    items[1]["spec"] = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    dump = written(tmp_path / "dump.json", items)
    nodes = ("worker-1", "worker-2", "without-zones")
    codes = [run("why", "team/small", "--node", node, "-f", dump).return_value for node in nodes]
    assert codes == [0, 1, 2]


def test_why_as_json_carries_verdict_reasons_and_advice(run: Run, dump: Path) -> None:
    found = json.loads(run("why", "team/waiting", "-f", dump, "-o", "json").output)
    assert found["verdict"] == "Inadmissible"
    assert found["nodes"] == {"evaluated": 1, "admissible": 0, "unknown": 0, "excluded": 1}
    assert {item["change"] for item in found["advice"]} == {"request", "setting", "eviction", "placement"}


@pytest.mark.parametrize(
    ("shape", "replicas", "code", "first"),
    [
        ("cpu=4", 1, 0, "1 of 1 fit"),
        ("cpu=4", 2, 1, "1 of 2 fit"),
        ("cpu=7", 1, 1, "0 of 1 fit"),
    ],
)
def test_fit_counts_and_ends_with_the_answer(
    run: Run, dump: Path, shape: str, replicas: int, code: int, first: str
) -> None:
    result = run("fit", shape, "--replicas", replicas, "-f", dump)
    assert (result.return_value, result.output.splitlines()[0]) == (code, first)


def test_fit_names_the_nodes_that_take_pods(run: Run, dump: Path) -> None:
    result = run("fit", "cpu=2", "--replicas", 2, "-f", dump, "-o", "name")
    assert (result.output, result.return_value) == ("node/worker-1\n", 0)
    none = run("fit", "cpu=7", "-f", dump, "-o", "name")
    assert (none.output, none.return_value) == ("", 1)


def test_wide_fit_names_each_node_that_rejects_the_pod(run: Run, dump: Path) -> None:
    narrow, wide = (run("fit", "cpu=7", "-f", dump, "-o", form).output for form in ("text", "wide"))
    refusing = wide.partition("Not placed on ")[2].splitlines()
    assert refusing[1].split() == ["NODE", "VERDICT", "WHY"]
    assert [line.split()[0] for line in refusing[2:]] == sorted(line.split()[0] for line in refusing[2:])
    assert len(refusing) - 2 == int(refusing[0].split()[0])
    assert wide.partition("Not placed on ")[0] == narrow.partition("Not placed on ")[0]


def test_fit_of_a_template_applies_the_api_servers_defaults(run: Run, dump: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "deployment.yaml"
    manifest.write_text(
        "kind: Deployment\nmetadata: {name: web, namespace: team}\n"
        "spec:\n  template:\n    spec:\n      containers:\n"
        "      - {name: main, resources: {limits: {cpu: 4, memory: 1Gi}}}\n"
    )
    result = run("fit", "--pod", manifest, "-f", dump, "-o", "json")
    assert json.loads(result.output)["placements"] == [
        {"node": "worker-1", "numas": [0], "cpus": "2-3,10-11"}
    ]


def test_unknown_nodes_make_the_answer_unknown(run: Run, tmp_path: Path) -> None:
    bare = written(tmp_path / "bare.json", [item for item in cluster() if item["kind"] != "NUMAZone"])
    result = run("fit", "cpu=4", "-f", bare)
    assert result.return_value == 2
    assert "unknown for 1 node" in result.output
    said = "the dump has no NUMAZones of worker-1; add numazones to kubectl get, or check that the exporter"
    for command in ("plan", "why team/waiting"):
        assert said in run(*command.split(), "-f", bare).output


def test_devices_that_the_scheduler_allocates_make_the_answer_unknown(run: Run, tmp_path: Path) -> None:
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpus", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"extendedResourceName": "gpu.example/large"},
    }
    dump = written(tmp_path / "dump.json", [*cluster(), device_class])
    result = run("fit", "cpu=1,memory=1Gi,gpu.example/large=1", "-f", dump)
    assert result.return_value == 2
    assert result.output == (
        "0 of 1 fit; unknown for 1 node\nit requests gpu.example/large, which dynamic resource "
        "allocation provides (DeviceClass gpus): only the scheduler's allocator knows which nodes "
        "have such devices free\n\nNot placed on 2 nodes:\nNODES   NEAREST    VERDICT    WHY\n    1   "
        "worker-1   Unknown    it requests gpu.example/large, which dynamic resource allocation provides "
        "(DeviceClass gpus): only the scheduler's allocator knows which nodes have such devices "
        "free\n    1   worker-2   Excluded   node(s) were unschedulable\n"
    )
    unmapped = run("fit", "cpu=1,memory=1Gi,gpu.example/small=1", "-f", dump)
    assert unmapped.return_value == 1
    assert "no node offers gpu.example/small" in unmapped.output


def upgraded(path: Path, *nodes: str) -> Path:
    """The cluster, with a kubelet on some nodes that is newer than any whose rules are known."""
    items = cluster()
    for item in items:
        if item["kind"] == "NUMAZone" and item["spec"]["nodeName"] in nodes:
            item["status"]["kubelet"]["version"] = "v1.99.0"
    return written(path, items)


NEWER = f"kubelet 1.99 is predicted with the rules of 1.{NEWEST}, the newest known (worker-1)"


@pytest.mark.parametrize(
    "asked",
    [
        ("why", "waiting", "-n", "team"),
        ("why", "waiting", "-n", "team", "-o", "json"),
        ("why", "waiting", "-n", "team", "--node", "worker-1"),
        ("fit", "cpu=5"),
        ("fit", "cpu=5", "-o", "json"),
        ("plan", "--shape", "cpu=5"),
        ("plan", "--shape", "cpu=5", "-o", "json"),
        ("top",),
        ("top", "-o", "json"),
        ("size", "2xcpu=2", "--node", "worker-1", "-o", "json"),
        ("whatif", "--runs", "1", "--set", "topologyManagerScope=pod", "-o", "json"),
    ],
)
def test_answer_modelling_a_newer_kubelet_as_older_notes_it_once(
    asked: tuple[str, ...], run: Run, dump: Path, tmp_path: Path
) -> None:
    before = run(*asked, "-f", dump)
    # worker-2 is cordoned: nobody asks its kubelet about one pod.
    newer = ("worker-1",) if asked[0] in {"plan", "whatif", "top"} else ("worker-1", "worker-2")
    after = run(*asked, "-f", upgraded(tmp_path / "upgraded.json", *newer))
    assert "not certain" not in before.stderr
    assert f"warning: not certain: {NEWER}\n" in after.stderr
    if asked[-1] == "json":
        said, unsaid = json.loads(after.stdout), json.loads(before.stdout)
        assert (said.pop("doubts"), unsaid.pop("doubts")) == ([NEWER], [])
        assert said == unsaid
    else:
        assert after.stdout == before.stdout


def test_report_and_live_note_a_newer_kubelet_once(run: Run, tmp_path: Path) -> None:
    newer = upgraded(tmp_path / "upgraded.json", "worker-1")
    report = run("report", "--no-plans", "-f", newer, "-o", tmp_path / "report.html")
    assert f"warning: not certain: {NEWER}\n" in report.stderr
    assert f'"doubts":["{NEWER}"]' in (tmp_path / "report.html").read_text(encoding="utf-8")
    board = board_of(read_cluster(json.loads(newer.read_text(encoding="utf-8"))["items"], None))
    assert f"not certain: {NEWER}" in head.title(board, "", None).plain


@pytest.mark.parametrize(
    "asked",
    [
        ("why", "one", "-n", "team"),  # it runs
        ("why", "waiting", "-n", "team"),
        ("why", "waiting", "-n", "team", "--node", "worker-1"),
        ("fit", "cpu=5"),
    ],
)
def test_answer_independent_of_a_newer_kubelet_omits_the_note(
    asked: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    newer = "worker-1" if "one" in asked else "worker-2"
    assert run(*asked, "-f", upgraded(tmp_path / "upgraded.json", newer)).stderr == ""


def test_of_many_newer_kubelets_some_are_named(run: Run, tmp_path: Path) -> None:
    like = [item for item in cluster() if item["metadata"]["name"].startswith("worker-1")]
    text = json.dumps(like).replace("v1.36.2", "v1.99.1")
    items = [
        item for number in range(1, 6) for item in json.loads(text.replace("worker-1", f"worker-{number}"))
    ]
    said = run("fit", "cpu=2", "-f", written(tmp_path / "dump.json", items)).stderr
    assert said.endswith(" (worker-1, worker-2, worker-3 and 2 more)\n")


@pytest.mark.parametrize(
    ("version", "doubt"),
    [
        ("v1.37.1", "kubelet 1.37.1 is predicted with the rules of 1.37.0, because its changes are unknown"),
        ("v1.38.0", "kubelet 1.38 is not released yet: it is predicted with the rules of its second alpha"),
    ],
)
def test_releases_that_are_not_certain_are_named(version: str, doubt: str, run: Run, tmp_path: Path) -> None:
    items = json.loads(json.dumps(cluster()).replace("v1.36.2", version))
    found = json.loads(run("fit", "cpu=2", "-o", "json", "-f", written(tmp_path / "d.json", items)).stdout)
    assert found["doubts"][0].startswith(doubt)


def test_option_that_no_rule_covers_is_named_with_its_release(run: Run, tmp_path: Path) -> None:
    items = cluster()
    for item in items:
        if item["kind"] == "NUMAZone":
            kubelet = item["status"]["kubelet"]
            kubelet["version"] = "v1.38.0"
            kubelet["topologyManagerPolicyOptions"] = {"restrict-to-cpu-numa-nodes": "true"}
    path = written(tmp_path / "dump.json", items)
    named = "its kubelet v1.38.0 runs with policy option restrict-to-cpu-numa-nodes"
    assert named in run("fit", "cpu=2", "-f", path).output
    said = run("doctor", "-f", path).output
    assert named in " ".join(said.split())
    assert "manifests/exporter" not in said


def test_who_lists_holders_by_zone(run: Run, dump: Path) -> None:
    result = run("who", "worker-1", "-f", dump)
    assert [line.split() for line in result.output.splitlines()] == [
        ["NUMA", "POD", "CPUS", "MEMORY", "DEVICES", "ALIGNMENT"],
        ["0", "team/one", "1,8-9", "1Gi", "aligned"],
        ["1", "team/two", "4-6,12-14", "1Gi", "aligned"],
    ]


def test_top_shows_use_per_zone(run: Run, dump: Path) -> None:
    lines = run("top", "-f", dump, "--sort-by", "free").output.splitlines()
    assert lines[0].split() == ["NODE", "NUMA", "POLICY", "CPU", "FREE", "MEMORY", "MEM-FREE", "DEVICES"]
    assert [tuple(line.split()[:2]) for line in lines[1:]] == [
        ("worker-2", "1"),
        ("worker-2", "0"),
        ("worker-1", "0"),
        ("worker-1", "1"),
    ]


def test_tree_marks_every_thread_with_its_holder(run: Run, dump: Path) -> None:
    drawn = run("tree", "worker-1", "--ascii", "-f", dump).output
    assert drawn.splitlines()[:5] == [
        "worker-1: single-numa-node, scope container, CPU manager static, memory manager Static",
        "+ socket 0",
        "|  NUMA node 0  1Gi of 15Gi in use",
        "|    #A AA .. ..",
        "+ socket 1",
    ]
    assert "A team/one: 1,8-9" in drawn
    assert drawn.isascii()


def test_tree_draws_memory_without_cpus_next_to_the_sockets(run: Run, tmp_path: Path) -> None:
    whole = building.machine(3)
    nodes = (whole.numa_nodes[0], whole.numa_nodes[1]._replace(memory=0), whole.numa_nodes[2])
    odd = building.node(Machine(tuple(cpu for cpu in whole.cpus if cpu.numa != 2), nodes))
    zones = [zone.to_api() for zone in zones_from_node(odd, node_name="n", pods={}, version="v1.36.2")]
    drawn = run(
        "tree", "n", "--ascii", "-f", written(tmp_path / "dump.json", [node_body("n"), *zones])
    ).output
    assert drawn.splitlines()[4:9] == [
        "+ socket 1",
        "|  NUMA node 1  no memory",
        "|    .. .. .. ..",
        "+ no socket: memory only",
        "|  NUMA node 2  0 of 16Gi in use",
    ]


def drawn(run: Run, path: Path, machine: Machine, **given: Any) -> list[str]:
    """Return what ``tree`` draws of an empty node."""
    zones = zones_from_node(building.node(machine, **given), node_name="n", pods={}, version="v1.36.2")
    dump = written(path / "dump.json", [node_body("n"), *(zone.to_api() for zone in zones)])
    return str(run("tree", "n", "--ascii", "-f", dump).output).splitlines()


def test_tree_draws_and_names_offline_cpus(run: Run, tmp_path: Path) -> None:
    whole = building.machine(2, cores=8)
    nodes = (whole.numa_nodes[0], whole.numa_nodes[1]._replace(offline=0b11 << 30))
    online = Machine(tuple(cpu for cpu in whole.cpus if cpu.id < 30), nodes)
    lines = drawn(run, tmp_path, online)
    assert lines[4:8] == [
        "+ socket 1",
        "|  NUMA node 1  0 of 16Gi in use",
        "|    .. .. .. .. .. .. . .",
        "|    offline 30-31: - -",
    ]
    assert lines[-1] == "# reserved   . free (shared pool)   - offline"


def test_tree_folds_long_rows_of_cores_inside_the_frame(run: Run, tmp_path: Path) -> None:
    lines = drawn(run, tmp_path, building.machine(1, cores=128))
    rows = [line for line in lines if line.startswith("|    ")]
    assert sum(line.count(".") + line.count("#") for line in rows) == 256
    assert len(rows) == 4
    assert max(map(len, rows)) <= 100


def test_tree_shows_memory_of_a_two_socket_numa_node_once(run: Run, tmp_path: Path) -> None:
    one = building.machine(1)
    machine = Machine(tuple(cpu._replace(socket=cpu.core // 2) for cpu in one.cpus), one.numa_nodes)
    lines = drawn(run, tmp_path, machine, devices=building.gpus((0,)))
    assert lines[1:9] == [
        "+ socket 0",
        "|  NUMA node 0  0 of 15Gi in use",
        "|    #. ..",
        "|    vendor/gpu 1 of 1 free",
        "+ socket 1",
        "|  NUMA node 0  continued from socket 0",
        "|    .. ..",
        "",
    ]


def test_plan_knows_the_priority_classes_that_a_policy_names(run: Run, tmp_path: Path) -> None:
    named = {"kind": "PriorityClass", "metadata": {"name": "batch"}, "value": 500}
    dump = written(tmp_path / "dump.json", [node_body("n"), named, pod_body("one", 1, phase="Succeeded")])
    policy = tmp_path / "policy.yaml"
    protections = {"priorityThreshold": {"name": "batch"}}
    body = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": "p"},
        "spec": {"protections": protections},
    }
    policy.write_text(json.dumps(body))
    assert run("plan", "-f", dump, "--policy", policy).return_value == 0
    body["spec"] = {"protections": {"priorityThreshold": {"name": "gone"}}}
    policy.write_text(json.dumps(body))
    assert "no PriorityClass gone exists" in str(run("plan", "-f", dump, "--policy", policy).exception)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "Pod"}, "expected a RebalancePolicy, not a 'Pod'"),
        ({"apiVersion": "numazones.io/v1"}, 'apiVersion is "numazones.io/v1"; use numazones.io/v1alpha1'),
        ({"apiVersion": None}, "policy.yaml: apiVersion is missing; use numazones.io/v1alpha1"),
        ({"metadata": None}, "policy.yaml: metadata.name is missing; give the policy a name"),
        ({"spec": {"goals": {"pendingPods": "yes"}}}, 'pendingPods: must be true or false, not "yes"'),
        (
            {"spec": {"goals": {"shapes": [{"name": "a", "resources": {"cpu": "1500m"}}]}}},
            "policy.yaml: spec.goals.shapes[0].resources: cpu=1500m is not whole CPUs",
        ),
        ({"spec": {"target": "There"}}, 'spec.target: "There" is not one of Other, Same, Any'),
        (
            {"spec": {"modee": "Auto", "goals": {"pendingPod": True}}},
            "spec.goals.pendingPod: unknown field; did you mean pendingPods?",
        ),
    ],
)
def test_plan_says_what_is_wrong_with_a_policy(
    fields: dict[str, Any], message: str, run: Run, dump: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    body = {"apiVersion": "numazones.io/v1alpha1", "kind": "RebalancePolicy", "metadata": {"name": "p"}}
    kept = {name: value for name, value in {**body, **fields}.items() if value is not None}
    policy.write_text(json.dumps(kept))
    assert message in str(run("plan", "-f", dump, "--policy", policy).exception)


def test_plan_for_a_dump_without_pods_asks_for_them(run: Run, tmp_path: Path) -> None:
    without = written(tmp_path / "dump.json", [item for item in cluster() if item["kind"] != "Pod"])
    error = run("plan", "-f", without).exception
    assert isinstance(error, BadDump)
    assert "the dump has no pods; include them: kubectl get nodes,pods,numazones -A" in str(error)
    none = tmp_path / "pods.json"
    none.write_text('{"apiVersion": "v1", "kind": "PodList", "items": []}')
    assert run("plan", "-f", without, "-f", none).return_value == 0
    long = [{"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * (9 << 20)}}] * 2
    larger = written(
        tmp_path / "larger.json", [*(item for item in cluster() if item["kind"] != "Pod"), *long]
    )
    assert "the dump has no pods" in str(run("plan", "-f", larger).exception)


def test_plan_moves_nothing_that_no_owner_replaces(run: Run, dump: Path) -> None:
    result = run("plan", "-f", dump)
    assert result.return_value == 1
    assert ": does not fit now\n" in result.output
    assert "  2 pods stay: nothing recreates a pod without an owner (rule FailedBarePods)" in result.output


def test_nodes_of_koordinator_answer_with_their_own_model(run: Run, tmp_path: Path) -> None:
    zones = {numa: {"cpu": "8", "memory": "16Gi"} for numa in (0, 1)}
    topology = koordinator.nrt(koordinator.detail(2, 4, 2), zones)
    topology["metadata"]["name"] = "worker-3"
    wanted = koordinator.pod_object("aligned", policy="SingleNUMANode", cpu="6")
    too_big = koordinator.pod_object("too-big", policy="SingleNUMANode", cpu="10")
    pods = ({"kind": "Pod", **body, "status": {"phase": "Pending"}} for body in (wanted, too_big))
    items = [node_body("worker-3"), {"kind": "NodeResourceTopology", **topology}, *pods]
    dump = written(tmp_path / "dump.json", items)

    why = run("why", "aligned", "-n", "d", "-f", dump)
    assert "1   worker-3   Admissible   on NUMA node 0, by koord-scheduler" in why.output
    assert why.return_value == 0
    rejected = json.loads(run("why", "too-big", "-n", "d", "-o", "json", "-f", dump).output)
    assert [(one["model"], one["source"]) for one in rejected["reasons"]] == [("koordinator", "Koordinator")]
    assert "admitted" in run("why", "aligned", "-n", "d", "--node", "worker-3", "-f", dump).output

    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps({"kind": "Pod", **wanted}))
    fit = run("fit", "--pod", manifest, "--replicas", "3", "-f", dump)
    assert fit.output.startswith("2 of 3 fit")
    assert fit.return_value == 1
    assert [line.split() for line in fit.output.splitlines()[2:4]] == [
        ["worker-3", "0", "0-2,8-10"],
        ["worker-3", "1", "4-6,12-14"],
    ]
    said = run("why", "too-big", "-n", "d", "-f", dump).output
    assert "numazones cannot yet compute what would help on nodes where koord-scheduler decides." in said
    status = {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "2Gi"}}]}
    runs = koordinator.pod_object("runs", cpu="4", status=status)
    runs["spec"]["nodeName"] = "worker-3"
    running = written(tmp_path / "running.json", [*items[:2], {"kind": "Pod", **runs}])
    assert run("who", "worker-3", "-f", running).output.splitlines()[1].split() == [
        "0", "d/runs", "0-3", "2Gi", "aligned",
    ]  # fmt: skip
    top = json.loads(run("top", "-o", "json", "-f", running).output)
    assert [(zone["numa"], zone["policy"], zone["cpu"]) for zone in top["items"]] == [
        (0, "koordinator", {"assigned": 4, "allocatable": 8}),
        (1, "koordinator", {"assigned": 0, "allocatable": 8}),
    ]
    drawn = run("tree", "worker-3", "--ascii", "-f", running).output
    assert drawn.startswith("worker-3: koord-scheduler, NUMA policy none")
    assert "A d/runs: 0-3" in drawn


def test_dump_without_a_models_inputs_leaves_its_nodes_unknown(run: Run, tmp_path: Path) -> None:
    items = cluster()
    for item in items:
        if item["kind"] == "NUMAZone" and item["spec"]["nodeName"] == "worker-1":
            item["status"]["placement"] = {
                "model": "koordinator",
                "decider": "koord-scheduler",
                "objects": ["NodeResourceTopology", "Device"],
            }
    dump = written(tmp_path / "dump.json", items)
    said = (
        "koord-scheduler places the node's pods, but the objects that it reads are missing: "
        "NodeResourceTopology and Device; dump noderesourcetopologies.topology.node.k8s.io and "
        "devices.scheduling.koordinator.sh as well"
    )
    assert f"worker-1   Unknown    {said}" in re.sub(
        " {4,}", "    ", run("why", "waiting", "-n", "team", "-f", dump).output
    )
    assert f"worker-1: unknown: {said}" in run("top", "-f", dump).output
    assert f"the state of node worker-1 is unknown: {said}" in str(
        run("who", "worker-1", "-f", dump).exception
    )
    assert f"  {said}\n" in run("doctor", "-f", dump).output
    for item in items:
        if item["kind"] == "NUMAZone":
            item["status"]["placement"] = {"model": "of-next-year", "decider": "next year's scheduler"}
    newer = written(tmp_path / "newer.json", items)
    assert (
        "the node's pods are placed by next year's scheduler, which this installation does not support"
        in run("top", "-f", newer).output
    )


def test_a_shortage_that_the_scheduler_sees_comes_with_amounts(run: Run, tmp_path: Path) -> None:
    huge = pod_body("huge", 20)
    dump = written(tmp_path / "dump.json", [*cluster(), huge])
    result = run("why", "huge", "-n", "team", "-f", dump)
    assert result.output.splitlines()[0] == (
        "team/huge: no node has 20 CPUs at all; the most is 15, on worker-1"
    )
    assert "worker-1   Excluded   Insufficient cpu: 20 requested, 6 free" in result.output
    reasons = json.loads(run("why", "huge", "-n", "team", "-f", dump, "-o", "json").output)["reasons"]
    said = {item["reason"]: item["sentence"] for item in reasons}
    assert said["Insufficient cpu"] == "no node has 20 CPUs at all; the most is 15, on worker-1"


def test_repeatedly_rejected_replicas_count_as_a_loop(run: Run, tmp_path: Path) -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": True}
    pods = []
    for minute in range(3):
        body = pod_body(f"web-{minute}", 5, phase="Failed", spec={"nodeName": "worker-1"})
        body["status"] |= {"reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
        body["metadata"] |= {"creationTimestamp": f"2026-11-20T10:0{minute}:00Z"}
        pods.append(body)
    pods.append(pod_body("web-3", 5))
    pods.append(pod_body("web-4", 1, phase="Running", spec={"nodeName": "worker-1"}))
    pods.append(pod_body("web-5", 1, spec={"nodeName": "worker-1"}))  # bound, not admitted yet
    for body in pods:
        body["metadata"]["ownerReferences"] = [owner]
    result = run("why", "rs/web", "-n", "team", "-f", written(tmp_path / "dump.json", [*cluster(), *pods]))
    assert result.output.splitlines()[1:3] == [
        (
            "3 pods of ReplicaSet web have been rejected since 2026-11-20T10:00:00Z, the last at "
            "2026-11-20T10:02:00Z (3 TopologyAffinityError); now 1 running, 1 starting, 1 waiting"
        ),
        (
            "Its controller replaces each rejected pod, so this repeats until one fits; the scheduling "
            "gate numazones.io/admission prevents such loops."
        ),
    ]


@pytest.mark.parametrize(
    ("phase", "placed", "linked"),
    [
        ("Proposed", "waiting", True),
        ("Executing", "waiting", True),
        ("Superseded", "waiting", False),
        ("Succeeded", "waiting", False),
        ("Proposed", "waiting-2", False),
    ],
)
def test_the_recommendation_in_force_that_places_the_pod_is_named(
    run: Run, tmp_path: Path, phase: str, placed: str, *, linked: bool
) -> None:
    pod = {"namespace": "team", "name": placed}
    recommendation = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "keep-room-1"},
        "spec": {"goal": "pod team/waiting", "placements": [{"pod": pod, "target": {"node": "worker-1"}}]},
        "status": {"phase": phase},
    }
    dump = written(tmp_path / "dump.json", [*cluster(), recommendation])
    said = run("why", "waiting", "-n", "team", "-f", dump).output
    assert ("kubectl describe rebalancerecommendation keep-room-1" in said) is linked


def replica_of(name: str, replica_set: str, **labels: str) -> Any:
    body = pod_body(name, 5)
    body["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": replica_set, "uid": replica_set, "controller": True}
    ]
    body["metadata"]["labels"] = labels
    return body


def test_deployments_pods_are_found_in_dumps_without_replicasets(run: Run, tmp_path: Path) -> None:
    hashed = replica_of("web-7d4b9c5f6d-x2x07", "web-7d4b9c5f6d", **{"pod-template-hash": "7d4b9c5f6d"})
    dump = written(tmp_path / "dump.json", [*cluster(), hashed, replica_of("lone-1", "lone")])
    for name in ("deploy/web", "deployment.apps/web"):
        assert run("why", name, "-n", "team", "-f", dump).output.startswith("team/web-7d4b9c5f6d-x2x07: ")
    assert run("why", "rs/lone", "-n", "team", "-f", dump).output.startswith("team/lone-1: ")

    def problem(*arguments: str) -> str:
        error = run("why", *arguments, "-f", dump).exception
        assert isinstance(error, NotThere)
        return str(error)

    found = problem("deploy/lone", "-n", "team")
    assert re.fullmatch(
        r"Deployment team/lone owns none of the \d+ pods that were read; Deployments with pods: team/web",
        found,
    ), found
    assert problem("deploy/web").endswith("pods that were read; there is one in namespace team: -n team")
    assert problem("sts/x").endswith(
        "pods that were read; no StatefulSet owns any of them; see the pods' ownerReferences"
    )


def test_fit_says_whether_foreseen_devices_lie_with_the_cpus(run: Run, tmp_path: Path) -> None:
    slices = resource_slice(device("gpu-0", 0), device("gpu-1", 1), device("gpu-2", 1))
    classes = device_class("gpus", f'device.driver == "{GPU}"', resource="gpu.example/large")
    dump = written(tmp_path / "dump.json", [*cluster(), classes, slices, claim(result("gpu-0"))])
    asked = ("fit", "cpu=1,memory=1Gi,gpu.example/large=1", "-f", dump)
    fits = run(*asked)
    assert fits.return_value == 0
    assert (
        "worker-1: gpu.example/gpu-1 on NUMA node 1, CPUs and memory on NUMA node 0: not aligned"
        in fits.output.splitlines()
    )
    (place,) = json.loads(run(*asked, "-o", "json").output)["placements"]
    assert place["alignment"] == "notAligned"
    assert place["devices"] == [
        {
            "request": "container-0-request-1",
            "driver": GPU,
            "pool": "worker-1",
            "device": "gpu-1",
            "numa": 1,
            "containers": ["shape"],
        }
    ]
    sentence = "gpu.example/gpu-1 on NUMA node 1, CPUs and memory on NUMA node 0: not aligned"
    (whole,) = place["containers"]
    assert whole == {
        "container": "",
        "numas": [0],
        "devices": ["gpu.example/gpu-1"],
        "alignment": "notAligned",
        "sentence": sentence,
    }
    short = run(*asked, "--replicas", "3")
    assert short.return_value == 1
    assert short.output.splitlines()[0] == "2 of 3 fit"
    assert "needs 1 device of class gpus; none is free (3 on the node: 3 allocated)" in short.output


def test_why_on_a_node_says_where_its_free_devices_are(run: Run, tmp_path: Path) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    waiting = pod_body("claims", 1, spec={"resourceClaims": claims})
    slices = resource_slice(device("gpu-0", 0), device("gpu-1", 1))
    dump = written(tmp_path / "dump.json", [*cluster(), waiting, slices])
    shown = run("why", "claims", "-n", "team", "--node", "worker-1", "-f", dump).output
    assert "scheduler: it claims devices through resourceClaims" in shown
    assert (
        "has free gpu.example devices (1 on NUMA node 0, 1 on NUMA node 1); alignment is not guaranteed"
        in shown
    )


def test_rejected_pods_of_a_dump_are_listed_and_not_deleted(run: Run, tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "team", "uid": "rs"},
        "spec": {"replicas": 1},
    }
    items = cluster()
    items[0]["metadata"]["creationTimestamp"] = "2026-11-20T10:05:00Z"  # the latest in the dump
    for name, phase in (("bad", "Failed"), ("good", "Running")):
        rejection = {"reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
        items.append(
            {
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "team", "uid": name, "ownerReferences": [owner]},
                "spec": {"nodeName": "worker-1", "containers": [{"name": "main"}]},
                "status": {"phase": phase, **(rejection if phase == "Failed" else {})},
            }
        )
    path = written(tmp_path / "dump.json", items)
    without = run("clean", "--rejected", "-n", "team", "-f", path).stdout
    assert "team/bad" in without
    assert "its ReplicaSet was deleted or was not read" in without
    ages = {line.split()[0]: line.split()[3] for line in without.splitlines()}
    assert ages["team/rejected"] == "5m"
    path = written(tmp_path / "dump.json", [*items, replica_set])
    found = json.loads(run("clean", "--rejected", "-n", "team", "-f", path, "-o", "json").stdout)["items"]
    assert {one["name"]: one["replaced"] for one in found}["bad"] is True
    assert "needs a live cluster" in str(run("clean", "--rejected", "--yes", "-f", path).exception)
    assert "say what to clean: --rejected" in str(run("clean", "-f", path).exception)
