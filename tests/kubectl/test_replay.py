"""``replay``: recorded days agree, and a difference is found and named."""

import base64
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.reading import recording as program
from kubectl_numazones.reading.bad_dump import BadDump
from numazones.whatif.wrong_prediction import Answer, InvalidRecord, write
from numazones_node.sysfs import SysfsReader
from tests.kubectl.recorded_day import recorded_day
from tests.kubectl.small_cluster import written
from tests.numazones.whatif.misses import missed
from tests.places import DATA

Run = Callable[..., Result]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return recorded_day(tmp_path)


def test_a_recorded_day_agrees(run: Run, recording: Path) -> None:
    result = run("replay", recording, "-o", "json")
    counts = {"outcomes": 46, "agree": 46, "outside": 0}
    assert json.loads(result.output) == {**counts, "differ": [], "rejectedAtRestart": []}
    assert result.return_value == 0


def test_all_recorded_kubelets_agree(run: Run, shared: Path) -> None:
    found = json.loads(run("replay", shared / "recordings/four-nodes", "-o", "json").output)
    assert found["differ"] == []
    assert found["agree"] == found["outcomes"] == 199


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("outcome", "message", "Pod was rejected: Resources cannot"), "observed : Resources cannot"),
        (("observed", "default_cpuset", "0"), "shared CPUs: observed 0, model"),
    ],
)
def test_what_differs_is_named(run: Run, recording: Path, change: tuple[str, str, str], said: str) -> None:
    path = recording / "replay.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    part, key, value = change
    lines[0][part][key] = value
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = run("replay", recording)
    assert result.return_value == 1
    assert said in result.output


def test_pods_that_a_restart_would_reject_are_no_difference(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    shutil.copytree(DATA / "kubectl" / "recorded", folder)
    path = folder / "replay.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    line = next(it for it in lines if it["op"] == "hold")
    amounts = {"cpu": "1", "memory": "1000Gi"}
    init = {"name": "init", "image": "image-1", "resources": {"requests": amounts, "limits": amounts}}
    line["pod"]["spec"]["initContainers"] = [init]
    path.write_text("".join(f"{json.dumps(it)}\n" for it in lines))
    result = run("replay", folder)
    assert result.return_value == 0
    name = f"{line['pod']['metadata']['namespace']}/{line['pod']['metadata']['name']}"
    assert f"{name} is running on node-1, but the kubelet would reject it after a restart" in result.output
    found = json.loads(run("replay", folder, "-o", "json").output)
    assert [(it["node"], it["pod"]) for it in found["rejectedAtRestart"]] == [("node-1", name)]
    assert found["differ"] == []


def test_recording_that_is_cut_off_is_named_with_its_line(run: Run, recording: Path) -> None:
    path = recording / "replay.jsonl"
    path.write_text(path.read_text()[:-20])
    error = run("replay", recording).exception
    assert isinstance(error, BadDump)
    assert "replay.jsonl, line" in str(error)


def test_a_directory_that_is_no_recording_is_named(run: Run, tmp_path: Path) -> None:
    error = run("replay", tmp_path).exception
    assert isinstance(error, BadDump)
    assert "a recording contains a replay.jsonl" in str(error)


def test_what_is_not_unpacked_says_nothing_of_a_machine(tmp_path: Path) -> None:
    for packed in sorted(DATA.rglob("sys.tar.gz")):
        whole = tmp_path / str(len(list(tmp_path.iterdir())))
        with tarfile.open(packed) as tree:
            tree.extractall(whole, filter="data")
        expected = SysfsReader(whole / "sys", whole / "proc").read().value.machine
        assert program._machine(packed) == expected
    assert list(tmp_path.iterdir())


def kept(actual: str) -> bytes:
    """A prediction that came out wrong: the model rejects the pod, and ``actual`` is what the kubelet did."""
    return write(replace(missed(cpu=40), actual=Answer(actual)))


@pytest.mark.parametrize(
    ("actual", "code", "last"),
    [
        ("TopologyAffinityError", 0, "the model agrees now"),
        ("Admitted", 1, "the model still differs: please report it"),
    ],
)
def test_a_kept_miss_is_decided_again(run: Run, tmp_path: Path, actual: str, code: int, last: str) -> None:
    path = tmp_path / "miss.json.gz"
    path.write_bytes(kept(actual))
    result = run("replay", path)
    assert result.output.splitlines()[0] == "default/late on node, 2026-01-31T12:00:00Z"
    assert result.output.splitlines()[-1] == last
    assert result.return_value == code
    document = json.loads(run("replay", path, "-o", "json").output)
    assert (document["outcomes"], document["agree"], len(document["differ"])) == (1, 1 - code, code)


def test_a_miss_is_found_in_the_operators_config_map(run: Run, tmp_path: Path) -> None:
    metadata = {"name": "numazones-operator-misses", "namespace": "numazones-operator"}
    data = {"one.json.gz": base64.b64encode(kept("Admitted")).decode(), "two.json.gz": "?"}
    dump = written(tmp_path / "dump.json", [{"kind": "ConfigMap", "metadata": metadata, "binaryData": data}])
    assert run("replay", "one.json.gz", "-f", dump).return_value == 1
    assert "not base64" in str(run("replay", "two.json.gz", "-f", dump).exception)
    unknown = str(run("replay", "three.json.gz", "-f", dump).exception)
    assert "(keys: one.json.gz, two.json.gz)" in unknown
    assert "contains no ConfigMap" in str(run("replay", "one.json.gz", "-n", "other", "-f", dump).exception)


def test_a_file_that_is_no_miss_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "miss.json"
    path.write_text("[]")
    assert isinstance(run("replay", path).exception, InvalidRecord)
