"""Bad input ends with one line that names the thing and the cure, and with a fitting exit code."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from kubectl_numazones.main import main
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import NotThere
from numazones.errors import NumazonesError
from tests import plugin
from tests.kubectl.small_cluster import TIME, cluster, written

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("command", "dumps"), [("top", ", or read a dump (-f DUMP)"), ("approve x --yes", "")]
)
def test_without_a_cluster_the_error_names_the_options(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, dumps: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cure = f"does not exist; use --kubeconfig FILE, or set KUBECONFIG{dumps}"
    assert str(run(*command.split()).exception).endswith(cure)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cut.json", '{"kind": "List", "items": [{"ki', "is truncated or not JSON"),
        ("list.json", "[1, 2]", "not a Kubernetes object"),
        ("text.yaml", "just words", "not a Kubernetes object"),
        ("bad.yaml", "a: [", "is truncated or not valid YAML"),
        ("cut.yaml", "kind: List\nitems:\n- kind: Pod\n  metada", "is truncated or not valid YAML"),
        (
            "forbidden.json",
            '{"kind": "Status", "status": "Failure", "message": "pods is forbidden"}',
            "contains no objects, only an error from the API server: pods is forbidden",
        ),
        ("items.json", '{"kind": "List", "items": [3]}', "are not objects"),
        ("empty.json", '{"kind": "List", "items": []}', "has no nodes"),
    ],
)
def test_a_dump_that_is_none_is_named(run: Run, tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    error = run("top", "-f", path).exception
    assert isinstance(error, NumazonesError)
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "arguments", [("top",), ("why", "waiting", "-n", "team"), ("fit", "cpu=1"), ("plan",)]
)
def test_no_answer_is_not_the_answer_no(arguments: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"kind": "List", "items": []}')
    with pytest.raises(SystemExit) as end:
        main([*arguments, "-f", str(path)])
    assert end.value.code == 2


def test_objects_that_are_there_several_times_count_once(run: Run, dump: Path, tmp_path: Path) -> None:
    for arguments in (("top",), ("why", "waiting", "-n", "team"), ("fit", "cpu=1", "--replicas", "9")):
        once, twice = run(*arguments, "-f", dump), run(*arguments, "-f", dump, "-f", dump)
        assert (twice.output, twice.return_value) == (once.output, once.return_value)
    later = [item for item in cluster() if item["metadata"]["name"] == "worker-2"]
    later[0]["spec"] = {}  # uncordoned since
    result = run("fit", "cpu=7", "-f", dump, "-f", written(tmp_path / "later.json", later))
    assert result.stderr == (
        "warning: Node worker-2 appears several times with different contents; the last one is used\n"
    )
    assert "worker-2" in result.output


def test_invalid_numazone_does_no_harm_if_a_valid_one_follows(run: Run, dump: Path, tmp_path: Path) -> None:
    zone = next(item for item in cluster() if item["kind"] == "NUMAZone")
    zone["status"]["zones"] = "two"
    bad = written(tmp_path / "bad.json", [zone])
    for command in (("top",), ("fit", "cpu=1")):
        assert run(*command, "-f", bad, "-f", dump).output.endswith(run(*command, "-f", dump).output)
        assert f"NUMAZone {zone['metadata']['name']}: status.zones" in str(
            run(*command, "-f", dump, "-f", bad).exception
        )


def test_objects_of_another_version_are_read_with_a_warning(run: Run, tmp_path: Path) -> None:
    items = cluster()
    for item in items:
        if item["kind"] == "NUMAZone":
            item["apiVersion"] = "numazones.io/v1beta1"
    result = run("top", "-f", written(tmp_path / "dump.json", items))
    assert result.return_value == 0
    assert result.stderr == (
        "warning: numazones.io/v1beta1 (4 NUMAZones) is read as numazones.io/v1alpha1; "
        "if an answer looks wrong, use the numazones release for numazones.io/v1beta1\n"
    )


def test_times_in_yaml_need_no_quotes(run: Run, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump(json.loads(dump.read_text())).replace("'2026-11-20T10:00:00Z'", TIME))
    assert run("top", "-f", path).output == run("top", "-f", dump).output


def test_a_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    error = run("top", "-f", tmp_path / "nowhere.json").exception
    assert isinstance(error, BadDump)
    assert "nowhere.json: No such file" in str(error)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("why", "nobody"), "pod default/nobody was not found among the 4 pods that were read"),
        (("why", "waitnig", "-n", "team"), "found among the 4 pods that were read; did you mean waiting?"),
        (("why", "waiting"), "there is one in namespace team: -n team"),
        (("who", "nowhere"), "node nowhere is not among the 2 nodes read (worker-1, worker-2)"),
        (("who", "worker-1", "7"), "node worker-1 has no NUMA node 7; it has 0, 1"),
        (("why", "deploy/web"), "Deployment default/web owns none of the "),
    ],
)
def test_missing_names_are_answered_with_the_existing_ones(
    run: Run, dump: Path, arguments: tuple[str, ...], said: str
) -> None:
    error = run(*arguments, "-f", dump).exception
    assert isinstance(error, NotThere)
    assert said in str(error)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("fit", "cpu=none"), 2, "invalid quantity 'none' for cpu"),
        (("fit", "cpu=1,memory=1GB"), 2, "vendor.example/nic=1; write 1Gi or 1G"),
        (("fit", "cpu=1", "--replicas", "many"), 2, "'many' is not a whole number"),
        (("fit",), 2, "specify either a SHAPE"),
        (("fit", "--cpu", "4"), 2, "write the amounts as one argument: kubectl numazones fit cpu=4"),
        (("fit", "--memory=4Gi"), 2, "as one argument: kubectl numazones fit cpu=16,memory=4Gi"),
        (("fit", "--cpu", "18X"), 2, "'--cpu': '18X' is not a Kubernetes quantity"),
        (("wy", "pod"), 2, "unknown command 'wy'; did you mean why?"),
        (("who", "nowhere"), 2, "error: node nowhere is not among"),
    ],
)
def test_the_program_ends_with_one_line_on_stderr(
    dump: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    extra = ("-f", str(dump)) if arguments[0] != "wy" else ()
    ended = plugin.ended(*arguments, *extra)
    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ended.stdout


def test_usage_error_names_the_help_in_a_second_line() -> None:
    said = plugin.ended("top", "--watchh").stderr
    assert re.fullmatch(r"error: No such option .*\nsee: kubectl.numazones top --help\n", said)


CONTAINER = "kind: Pod\nspec: {containers: [{name: c, resources: %s}]}\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: Pod\nspec: [1]\n", "spec must be a mapping, not [1]"),
        ("kind: Pod\nmetadata: 3\n", "metadata must be a mapping, not 3"),
        ("kind: Pod\n  a: b: c\n", "is truncated or not valid YAML"),
        (CONTAINER % "{request: {cpu: 4}}", "spec.containers[0].resources.request is not a field of a pod"),
        ("kind: Deployment\nspec: {template: 7}\n", "spec.template must be a mapping, not 7"),
        ("kind: CronJob\nspec: {jobTemplate: 7}\n", "spec.jobTemplate must be a mapping, not 7"),
        ("kind: Pod\nspec: {}\n", "spec.containers is missing"),
        ("kind: Pod\nspec: {containers: text}\n", "spec.containers must be a list, not 'text'"),
        ("kind: Pod\nspec: {containers: [7]}\n", "spec.containers[0] must be a mapping, not 7"),
        (CONTAINER % "[1]", "spec.containers[0].resources must be a mapping, not [1]"),
        (CONTAINER % "{limits: [1]}", "spec.containers[0].resources.limits must be a mapping, not [1]"),
        (CONTAINER % "{limits: {cpu: four}}", "spec.containers[0].resources.limits.cpu: 'four' is not a"),
        (CONTAINER % "{requests: {cpu: -5}}", "resources.requests.cpu is -5; it must not be below 0"),
        (CONTAINER % "{limits: {memory: -1Gi}}", "resources.limits.memory is -1Gi; it must not be below 0"),
        (
            CONTAINER % "{requests: {cpu: 5}, limits: {cpu: 4}}",
            "resources.requests.cpu is 5, more than the limit of 4",
        ),
        (
            "kind: Pod\nspec: {overhead: {cpu: -1}, containers: [{name: c}]}\n",
            "spec.overhead.cpu is -1; it must not be below 0",
        ),
        (
            "kind: Pod\nspec: {resources: {requests: {cpu: -1}}, containers: [{name: c}]}\n",
            "spec.resources.requests.cpu is -1; it must not be below 0",
        ),
        (
            "kind: Pod\nspec: {priority: high, containers: [{name: c}]}\n",
            "priority must be an integer, not 'high'",
        ),
        (
            "kind: Pod\nspec: {affinity: text, containers: [{name: c}]}\n",
            "is not a valid manifest (Pod default/pod is malformed",
        ),
        (
            "kind: Pod\nspec: {schedulerName: [1], containers: [{name: c}]}\n",
            "is not a valid manifest",
        ),
    ],
)
def test_manifest_that_cannot_be_applied_is_named_with_its_field(
    run: Run, dump: Path, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(content)
    error = run("fit", "--pod", path, "-f", dump).exception
    assert isinstance(error, BadDump)
    assert str(error).startswith(str(path))
    assert said in str(error)
    assert "dump" not in str(error)
