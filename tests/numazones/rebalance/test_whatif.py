"""What a policy would do to a dump, through the command and through the function."""

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from numazones.api.rebalance import RebalancePolicy
from numazones.api.zones import zones_from_node
from numazones.dump import Dump, InvalidDump
from numazones.fragmentation import Shape
from numazones.rebalance.__main__ import main
from numazones.rebalance.custom_resources import policy_of
from numazones.rebalance.dump import situation_of
from numazones.rebalance.goals import FitMore, Wanted
from numazones.rebalance.limits import Limits
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import Effort, what_if

NOW = datetime.fromisoformat("2026-01-31T12:00:00Z")
POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "keep-room"},
    "spec": {
        "goals": {"shapes": [{"name": "large", "resources": {"cpu": "5", "memory": "1Gi"}}]},
        "limits": {"maxNoOfPodsToEvictTotal": 1, "evictSingleReplicas": True},
    },
}


@pytest.fixture
def dump(build: Any) -> dict[str, Any]:
    """Two nodes with a pod of one CPU in the way of five, two with room for it; as kubectl prints them."""
    nodes = [build.put(build.node(f"n{n}", zones=1, cpus=6), build.pod(f"p{n}", 1)) for n in range(2)]
    nodes += [build.node(f"free-{index}", zones=1, cpus=3) for index in range(2)]
    items: list[dict[str, Any]] = []
    for node in nodes:
        items.append(
            {
                "kind": "Node",
                "metadata": {"name": node.name, "labels": dict(node.labels)},
                "status": {
                    "allocatable": {"cpu": f"{node.allocatable['cpu']}m", "memory": "100Gi", "pods": "20"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        pods = {pod.uid: (pod.namespace, pod.name) for pod in node.pods.values()}
        items += [zone.to_api() for zone in zones_from_node(node.state, node_name=node.name, pods=pods)]
        for pod in node.pods.values():
            amounts = {"cpu": "1", "memory": "1Gi"}
            items.append(
                {
                    "kind": "Pod",
                    "metadata": {
                        "namespace": pod.namespace,
                        "name": pod.name,
                        "uid": pod.uid,
                        "creationTimestamp": "2026-01-31T10:00:00Z",
                        "ownerReferences": [
                            {"kind": "ReplicaSet", "name": "rs", "uid": f"{pod.name}-rs", "controller": True}
                        ],
                    },
                    "spec": {
                        "nodeName": node.name,
                        "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
                    },
                    "status": {"phase": "Running", "startTime": "2026-01-31T10:00:00Z"},
                }
            )
    return {"kind": "List", "items": items}


def test_the_command_prints_plan_after_plan(
    dump: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, file = tmp_path / "policy.yaml", tmp_path / "dump.json"
    policy.write_text(yaml.safe_dump(POLICY))
    file.write_text(json.dumps(dump))
    assert main(["--policy", str(policy), "--dump", str(file)]) == 0
    report = json.loads(capsys.readouterr().out)
    (goal,) = report["goals"]
    assert report["protections"][0] == "PodsWithLocalStorage"
    assert (goal["goal"], goal["before"], goal["after"], goal["evictions"]) == ("shape large", 0, 2, 2)
    assert [plan["moves"][0]["pod"] for plan in goal["plans"]] == ["default/p0", "default/p1"]
    assert [plan["moves"][0]["affinity"] for plan in goal["plans"]] == [["free-0"], ["free-0"]]
    assert goal["unmovable"] == {}
    assert goal["reason"].startswith("after these 2 plans, ")


def test_pods_that_stay_are_counted_by_rule(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "Pod":
            item["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    situation = situation_of(Dump.of(dump["items"]), now=_moment())
    goal = FitMore((Wanted.shape("large", Shape.parse("cpu=5")),))
    answer = what_if(goal, situation, Policy(limits=Limits(single_replicas=True)), effort=1000)
    assert (answer.plans, answer.reason) == ((), "no pod may be moved")
    assert answer.unmovable == {"PodsWithLocalStorage": 2}


@pytest.mark.parametrize(
    ("policy", "items", "message"),
    [
        (POLICY, [], "the dump holds no nodes"),
        ({**POLICY, "kind": "Pod"}, [], "expected a RebalancePolicy, not a 'Pod'"),
        ({**POLICY, "spec": {"target": "There"}}, [], "target 'There' is unknown; write Other, Same, Any"),
        (
            {**POLICY, "spec": {"modee": "Auto", "goals": {"pendingPod": True}}},
            [],
            "unknown: spec.goals.pendingPod (did you mean pendingPods?), spec.modee (did you mean mode?)",
        ),
        ([POLICY], [], "expected a RebalancePolicy, not ["),
    ],
)
def test_what_makes_no_sense_is_said(
    policy: Any,
    items: list[Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"items": items})))
    assert main(["--policy", str(file), "--dump", "-"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dump", "options", "message"),
    [
        ("[]", [], "the dump is not a List; kubectl get nodes,pods,numazones -A -o json prints one"),
        (
            '{"items": []}',
            ["--now", "today"],
            "'today' is not a time; write RFC 3339 such as 2026",
        ),
    ],
)
def test_a_dump_or_time_that_cannot_be_read_is_said(
    dump: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, file = tmp_path / "policy.yaml", tmp_path / "dump.json"
    policy.write_text(yaml.safe_dump(POLICY))
    file.write_text(dump)
    assert main(["--policy", str(policy), "--dump", str(file), *options]) == 1
    assert message in capsys.readouterr().err


def test_a_plan_that_reaches_the_goal_is_not_said_to_be_needless(dump: dict[str, Any]) -> None:
    goal = FitMore((Wanted.shape("large", Shape.parse("cpu=5"), count=1),))
    policy = policy_of(RebalancePolicy.from_api(POLICY).spec, {})
    answer = what_if(goal, situation_of(Dump.of(dump["items"]), now=_moment()), policy, effort=1000)
    assert len(answer.plans) == 1
    assert answer.reason == "after this plan, there is nothing to do: the goal is reached"


def test_a_dump_without_nodes_is_rejected() -> None:
    with pytest.raises(InvalidDump, match="kubectl get nodes,pods,numazones"):
        situation_of(Dump.of([{"kind": "Pod", "metadata": {"name": "a"}}]), now=_moment())


def test_nodes_whose_zones_make_no_sense_take_part_in_nothing(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "NUMAZone" and item["spec"]["nodeName"] == "n0":
            item["status"]["zones"] = 2
    situation = situation_of(Dump.of(dump["items"]), now=_moment())
    assert situation.cluster.nodes["n0"].state is None
    assert situation.cluster.nodes["n1"].state is not None


def test_nodes_of_silent_exporters_take_part_in_nothing(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "NUMAZone":
            item["status"]["silence"] = {"ready": "Unknown", "message": "the exporter is silent"}
    situation = situation_of(Dump.of(dump["items"]), NOW)
    unknown = [node.unknown for node in situation.cluster.nodes.values()]
    assert [(one.reason, one.message) for one in unknown if one] == [
        ("ExporterSilent", "the exporter is silent")
    ] * 4


def test_effort_runs_out_the_same_everywhere() -> None:
    effort = Effort(2)
    assert [effort(), effort(), effort(), effort()] == [False, False, True, True]


def _moment() -> Any:
    from datetime import datetime  # noqa: PLC0415

    return datetime.fromisoformat("2026-01-31T12:00:00Z")


def test_one_pod_can_be_asked_about(
    dump: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, file = tmp_path / "policy.yaml", tmp_path / "dump.json"
    protections = {"minReplicas": 2, "minPodAge": "9h"}
    policy.write_text(yaml.safe_dump({**POLICY, "spec": {"protections": protections}}))
    file.write_text(json.dumps(dump))
    arguments = ["--policy", str(policy), "--dump", str(file), "--why-not"]
    assert main([*arguments, "default/p0"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "pod": "default/p0",
        "objections": [
            {"rule": "MinReplicas", "message": "owner has 1 replica which is less than minReplicas of 2"},
            {"rule": "MinPodAge", "message": "pod age is not older than MinPodAge: 9:00:00"},
            {
                "rule": "Limits",
                "message": "pod is the only replica of its workload; limits.evictSingleReplicas lets it go",
            },
        ],
    }
    limits = {"maxNoOfPodsToEvictPerNode": 1}
    policy.write_text(yaml.safe_dump({**POLICY, "spec": {"limits": limits}}))
    assert main([*arguments, "default/p0"]) == 0
    assert json.loads(capsys.readouterr().out)["objections"] == [
        {
            "rule": "Limits",
            "message": "pod is the only replica of its workload; limits.evictSingleReplicas lets it go",
        }
    ]
    assert main([*arguments, "default/gone"]) == 1
    assert "the dump holds no pod default/gone on a node" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["policy", "dump"])
def test_a_missing_file_is_named_with_what_it_should_be(
    missing: str, dump: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"policy": tmp_path / "policy.yaml", "dump": tmp_path / "dump.json"}
    paths["policy"].write_text(yaml.safe_dump(POLICY))
    paths["dump"].write_text(json.dumps(dump))
    paths[missing].unlink()
    assert main(["--policy", str(paths["policy"]), "--dump", str(paths["dump"])]) == 1
    said = capsys.readouterr().err
    wanted = {"policy": "the policy, a RebalancePolicy in YAML", "dump": "a dump, as kubectl get nodes,pods,"}
    assert (
        f"cannot read {paths[missing]}: No such file or directory; name a file with {wanted[missing]}" in said
    )


def test_what_a_template_leaves_open_is_filled_in_as_on_pods(dump: dict[str, Any]) -> None:
    """Limits alone make a Guaranteed pod: its replacement needs CPUs of its own, and has nowhere to go."""
    container = {"name": "c", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}
    owner = {
        "kind": "ReplicaSet",
        "metadata": {"namespace": "default", "name": "rs", "uid": "p0-rs"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    dump["items"].append(owner)
    template = situation_of(Dump.of(dump["items"]), NOW).templates["p0-rs"]
    assert template.admission is not None
    assert template.requests["cpu"] == 4000
