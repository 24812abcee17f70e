"""Koordinator's reference vectors: replayed, compared, and through the command line."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.koordinator import differences, replay
from tests.places import DATA

SAMPLE = DATA / "conformance/koordinator.jsonl.gz"


def scenarios() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_sampled_scenarios_agree_to_the_letter(scenario: dict[str, Any]) -> None:
    assert list(differences(scenario, replay(scenario))) == []


@pytest.mark.parametrize("name", ["cases", "dev", "gpu-dev"])
def test_all_reference_vectors_agree_to_the_letter(
    name: str, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared / f"conformance/koordinator/{name}.jsonl.gz"
    assert main(["check", "--model", "koordinator", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["agree"] == report["scenarios"] > 0
    assert report["differences"] == []


def placing() -> dict[str, Any]:
    """A scenario whose first step places a pod with CPUs of its own on a set of NUMA nodes."""
    return next(
        scenario
        for scenario in scenarios()
        if scenario["steps"][0]["expect"].get("cpuset") and "affinity" in scenario["steps"][0]["expect"]
    )


def spoiled(change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Paths that differ after a change of what is expected of the first step."""
    recorded = json.loads(json.dumps(placing()))
    change(recorded["steps"][0]["expect"])
    return [one.path for one in differences(recorded, replay(placing()))]


def test_any_difference_is_found() -> None:
    assert spoiled(lambda _: None) == []
    assert spoiled(lambda expected: expected.update(cpuset="0")) == ["cpuset"]
    assert spoiled(lambda expected: expected["affinity"].update(score=1)) == ["affinity.score"]
    assert spoiled(lambda expected: expected["reserve"].update(code="Error")) == ["reserve.code"]
    assert spoiled(lambda expected: expected["nodes"]["n0"].update(score=-1)) == ["nodes.n0.score"]
    assert spoiled(lambda expected: expected["nodes"]["n0"].pop("hints")) == ["nodes.n0.hints"]
    assert spoiled(lambda expected: expected["state"]["n0"].update(freeCPUs="")) == ["state.n0.freeCPUs"]


def test_emit_ignores_the_outcomes_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = scenarios()
    for scenario in given:
        for step in scenario["steps"]:
            step["expect"] = {"chosen": "elsewhere"}
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(scenario) + "\n" for scenario in given)))
    assert main(["emit", "--model", "koordinator"]) == 0
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for recorded, mine in zip(scenarios(), emitted, strict=True):
        assert list(differences(recorded, mine)) == []
        assert mine["nodes"] == recorded["nodes"]


def test_where_the_scheduler_crashes_the_scenario_ends_without_a_verdict() -> None:
    crashing = next(one for one in scenarios() if any("panic" in step["expect"] for step in one["steps"]))
    steps = replay(crashing)["steps"]
    assert "panic" in steps[-1]["expect"]
    steps[-1]["expect"] = {"reserve": {"code": "Success"}}
    assert [one.path for one in differences(crashing, {"steps": steps})] == ["panic"]


def test_undecidable_scenario_is_reported_without_ending_the_run() -> None:
    scenario = placing()
    scenario["steps"] = [{"op": "paint"}, {"op": "paint"}]
    assert [step["expect"] for step in replay(scenario)["steps"]] == [
        {"undecided": "unknown operation 'paint'"}
    ]
    scenario["args"] = {"numaScoringStrategy": {"type": "Random"}}
    assert "Random is not supported" in replay(scenario)["error"]
    assert "no scenario in the vectors' schema" in replay({"id": "x"})["error"]
    assert [one.path for one in differences(placing(), replay({"id": "x"}))] == ["error"]
