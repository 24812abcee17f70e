"""``doctor --restart``: what a restart of a kubelet would do, before it is done."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit
from numazones.kubelet.machine import Machine, NUMANode
from numazones.kubelet.pod import Pod
from tests.kubectl.healthy_cluster import healthy
from tests.kubectl.small_cluster import cluster, node_body, pod_body, written
from tests.numazones.kubelet import building

Run = Callable[..., Result]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return written(tmp_path / "dump.json", cluster())


def test_a_restart_that_changes_nothing_is_said_to_be_safe(run: Run, dump: Path) -> None:
    result = run("doctor", "--all", "-f", dump)
    assert result.output == (
        "worker-1: 2 of 2 pods would be admitted again\nworker-2: 0 of 0 pods would be admitted again\n"
    )
    assert result.return_value == 0


def test_a_restart_goes_by_allocated_resources_after_an_infeasible_resize(run: Run, tmp_path: Path) -> None:
    items = cluster()
    (resized,) = (it for it in items if it["kind"] == "Pod" and it["metadata"]["name"] == "one")
    (container,) = resized["spec"]["containers"]
    before = dict(container["resources"]["limits"])
    for amounts in container["resources"].values():
        amounts["cpu"] = "60"
    path = written(tmp_path / "dump.json", items)
    assert "team/one on worker-1\n  its kubelet would reject it" in run("doctor", "--all", "-f", path).output
    resized["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": before}]
    path = written(tmp_path / "dump.json", items)
    assert run("doctor", "--all", "-f", path).output.startswith(
        "worker-1: 2 of 2 pods would be admitted again\n"
    )


def test_changed_policy_names_the_file_and_each_pods_outcome(run: Run, dump: Path) -> None:
    result = run("doctor", "--restart", "worker-1", "--set", "cpuManagerPolicy=none", "-f", dump)
    assert result.output == (
        "ERROR restart of worker-1: worker-1\n"
        '  its kubelet would not start: configured policy "none" differs from state checkpoint policy '
        '"static"\n'
        "  cure: drain worker-1, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start "
        "it again; if the pods stay there, the lines below show what happens to each\nWARNING restart of "
        "worker-1: team/one on worker-1\n  it would run in the shared pool, no longer on its exclusive "
        "CPUs 1,8-9\n  cure: drain the node first\nWARNING restart of worker-1: team/two on worker-1\n  "
        "it would run in the shared pool, no longer on its exclusive CPUs 4-6,12-14\n  cure: drain the "
        "node first\nworker-1: 2 of 2 pods would be admitted again\n"
    )
    assert result.return_value == 1


def test_a_whole_configuration_is_read_from_a_file(run: Run, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        "kind: KubeletConfiguration\ntopologyManagerPolicy: best-effort\ncpuManagerPolicy: none\n"
    )
    document = found(run, "--restart", "worker-1", "--kubelet-config", path, "-f", dump)
    messages = [it["message"] for it in document["findings"]]
    assert any("memory_manager_state" in it["cure"] for it in document["findings"])
    assert any('policy "None" differs from state checkpoint policy "Static"' in it for it in messages)


def found(run: Run, *arguments: Any) -> dict[str, Any]:
    result = run("doctor", *arguments, "-o", "json")
    assert result.exception is None, result.exception
    return dict(json.loads(result.output))


SUM = (
    'the total amount "2Gi" of type "memory" is not equal to the value "1Gi" determined by Node Allocatable '
    "feature"
)


def test_reserved_memory_that_does_not_add_up_is_refused(run: Run, shared: Path) -> None:
    case = shared / "cases/reserved-memory-sum/dump.json"
    change = ("--set", "reservedMemory.0.memory=2Gi", "-f", case)
    (finding,) = found(run, "--restart", "worker-0", *change)["findings"]
    assert finding["message"] == f"its kubelet would not start: {SUM}"
    assert finding["cure"].startswith("make reservedMemory add up to 1Gi (1073741824 bytes), which is ")
    assert (
        "or change kubeReserved or systemReserved by the same amount: 1Gi more; if you change"
        in finding["cure"]
    )
    error = run("whatif", "--pods", "4xcpu=4,memory=8Gi", *change).exception
    assert f"the kubelet of worker-0 would not start: {SUM}; make reservedMemory add up" in str(error)


def test_reserved_memory_may_move_and_grow(run: Run, dump: Path) -> None:
    def starts(*settings: str) -> bool:
        changes = [part for setting in settings for part in ("--set", setting)]
        messages = [it["message"] for it in found(run, "--all", *changes, "-f", dump)["findings"]]
        return not any("Node Allocatable" in it for it in messages)

    assert starts("reservedMemory.0.memory=512Mi", "reservedMemory.1.memory=512Mi")
    assert not starts("reservedMemory.0.memory=512Mi", "reservedMemory.1.memory=513Mi")
    kept = ("kubeReserved.memory=2Gi", "systemReserved.memory=0", "evictionHard.memory.available=0%")
    assert not starts(*kept)
    assert starts("reservedMemory.0.memory=2Gi", *kept)


def test_one_kept_amount_alone_says_which_others_are_needed(run: Run, dump: Path) -> None:
    change = ("--set", "kubeReserved.memory=2Gi", "-f", dump)
    (why, *_) = found(run, "--restart", "worker-1", *change)["notChecked"].values()
    assert "set systemReserved.memory and evictionHard.memory.available too" in why


PERCENT = """
cpuManagerPolicy: static
reservedSystemCPUs: "0"
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
kubeReserved: {memory: 500Mi}
evictionHard: {memory.available: "2.5%"}
reservedMemory: [{numaNode: 1, limits: {memory: 1300Mi}}]
"""


def test_the_right_reserved_memory_is_computed_to_the_byte(run: Run, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(PERCENT)
    arguments = ("--restart", "worker-2", "--kubelet-config", path, "--reserved-memory", "-f", dump)
    refusal, hint = found(run, *arguments)["findings"]
    assert 'the total amount "1300Mi" of type "memory" is not equal to the value' in refusal["message"]
    # 2.5 % of 32Gi in single precision is 858993472 bytes.
    assert "1383281472 bytes" in hint["message"]
    assert "kubeReserved.memory 500Mi + evictionHard.memory.available 2.5%" in hint["message"]
    assert hint["cure"] == (
        'reservedMemory: [{numaNode: 0, limits: {memory: "20132672"}}, '
        '{numaNode: 1, limits: {memory: "1363148800"}}]'
    )
    path.write_text(PERCENT.partition("reservedMemory:")[0] + hint["cure"])
    messages = [it["message"] for it in found(run, *arguments)["findings"]]
    assert not any("not equal to the value" in it for it in messages)


def test_options_written_as_yaml_booleans_are_refused(run: Run, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text("cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: true}\n")
    document = found(run, "--restart", "worker-2", "--kubelet-config", path, "-f", dump)
    (finding,) = document["findings"]
    assert finding["message"] == (
        "its kubelet would not start: json: cannot unmarshal bool into Go struct field "
        "KubeletConfiguration.cpuManagerPolicyOptions of type string"
    )
    assert finding["cure"] == "write cpuManagerPolicyOptions as text, in quotes"


@pytest.mark.parametrize("value", ["5.5.%", "1GiB", "x%"])
def test_threshold_that_is_no_amount_keeps_the_kubelet_from_starting(
    run: Run, dump: Path, tmp_path: Path, value: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"kind": "KubeletConfiguration", "evictionHard": {"memory.available": value}}))
    document = found(run, "--restart", "worker-2", "--kubelet-config", path, "-f", dump)
    (finding,) = document["findings"]
    assert finding["message"].startswith("its kubelet would not start: ")
    assert value in finding["message"]
    assert finding["cure"] == "correct the configuration"


@pytest.mark.parametrize(
    ("ids", "change", "said"),
    [
        (range(34), "memoryManagerPolicy=Static", "KubeletHang: the kubelet would hang: for memory"),
        ((0, 64), "topologyManagerPolicy=restricted", "KubeletCrash: the kubelet would crash under"),
    ],
)
def test_pod_that_a_starting_kubelet_hangs_on_is_named(
    run: Run, tmp_path: Path, ids: Iterable[int], change: str, said: str
) -> None:
    machine = Machine(building.machine(1).cpus, tuple(NUMANode(numa, 16 << 30) for numa in ids))
    node = building.node(machine, policy="none", memory="None", reservedMemory=[])
    body = pod_body("a", 2, spec={"nodeName": "worker-1"})
    held = admit(node, Pod.from_api(body)).node
    zones = zones_from_node(held, node_name="worker-1", pods={"a": ("team", "a")}, version="v1.36.2")
    path = written(tmp_path / "d.json", [node_body("worker-1"), body, *(zone.to_api() for zone in zones)])
    more = ("--set", "reservedMemory.0.memory=1Gi") if "Static" in change else ()
    findings = found(run, "--restart", "worker-1", "--set", change, *more, "-f", path)["findings"]
    (stuck,) = [it for it in findings if "get beyond" in it["message"]]
    assert stuck["message"].startswith(f"its kubelet would not get beyond team/a: {said}")
    assert stuck["cure"].startswith(("set ", "drain the node, set "))


def test_node_of_unknown_state_is_not_said_to_be_safe(run: Run, tmp_path: Path) -> None:
    items = [it for it in healthy() if it["kind"] != "NUMAZone" or it["spec"]["nodeName"] != "worker-2"]
    path = written(tmp_path / "dump.json", items)
    result = run("doctor", "--restart", "worker-2", "-f", path)
    assert result.output.startswith("worker-2: cannot be predicted: ")
    assert result.return_value == 1
    assert list(found(run, "--restart", "worker-2", "-f", path)["notChecked"]) == ["restart of worker-2"]


def test_configuration_that_no_kubelet_accepts_is_rejected_in_its_words(run: Run, dump: Path) -> None:
    document = found(run, "--restart", "worker-1", "--set", "topologyManagerPolicy=sngle", "-f", dump)
    (finding,) = document["findings"]
    assert finding["message"].startswith("its kubelet would not start: invalid configuration: ")
    assert finding["cure"] == "correct the configuration"
    result = run("doctor", "--restart", "worker-1", "--set", "topologyManagerPolicy=sngle", "-f", dump)
    assert result.output.endswith("worker-1: no kubelet would start with this configuration\n")


WRONG: dict[str, tuple[list[str], str]] = {
    "no such node": (
        ["--restart", "wroker-1"],
        "node wroker-1 is not among the 2 nodes read (worker-1, worker-2)",
    ),
    "a node and all": (
        ["--restart", "worker-1", "--all"],
        "--all covers all nodes: use either --all or --restart",
    ),
    "settings of nothing": (
        ["--set", "cpuManagerPolicy=none"],
        "--set, --kubelet-config, --reboot and --reserved-memory need --restart",
    ),
    "no such setting": (["--all", "--set", "colour=red"], "colour is not a setting that affects admission"),
    "no such file": (["--all", "--kubelet-config", "absent.yaml"], "absent.yaml: No such file or directory"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_asked_is_said(run: Run, dump: Path, arguments: list[str], message: str) -> None:
    result = run("doctor", *arguments, "-f", dump)
    assert message in str(result.exception or "") + result.output + result.stderr
    assert result.exit_code != 0 or result.exception is not None


def test_a_file_that_is_no_configuration_is_refused(run: Run, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    for text, message in (
        ("", "contains 0 documents"),
        ("[]", "must be a mapping, not list"),
        ("a: 1\n---\nb: 2\n", "contains 2 documents"),
    ):
        path.write_text(text)
        result = run("doctor", "--all", "--kubelet-config", path, "-f", dump)
        assert message in str(result.exception or "") + result.output + result.stderr
