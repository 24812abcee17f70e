"""``replay``: recorded days agree, and a difference is found and named."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.cluster import BadDump

Run = Callable[..., Result]

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """The project's own sample of one node, as a recorded cluster."""
    day = json.loads(gzip.decompress((DATA / "conformance/recorded-day.json.gz").read_bytes()))
    folder = tmp_path / day["node"]
    shutil.copytree(DATA / "recordings/one-node" / day["node"], folder)
    (folder / "device_plugins.json").write_text(json.dumps(day["plugins"]))
    lines = "".join(f"{json.dumps(operation)}\n" for operation in day["operations"])
    (tmp_path / "replay.jsonl").write_text(lines)
    return tmp_path


def test_a_recorded_day_agrees(run: Run, recording: Path) -> None:
    result = run("replay", recording, "-o", "json")
    assert json.loads(result.output) == {"outcomes": 46, "agree": 46, "outside": 0, "differ": []}
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


def test_a_recording_that_is_cut_off_is_named_with_its_line(run: Run, recording: Path) -> None:
    path = recording / "replay.jsonl"
    path.write_text(path.read_text()[:-20])
    error = run("replay", recording).exception
    assert isinstance(error, BadDump)
    assert "replay.jsonl, line" in str(error)


def test_a_directory_that_is_no_recording_is_named(run: Run, tmp_path: Path) -> None:
    error = run("replay", tmp_path).exception
    assert isinstance(error, BadDump)
    assert "a recording has a replay.jsonl" in str(error)
