"""Replay of decisions of the real topology-aware policy."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.topology_aware import differences, replay
from tests.places import DATA

SAMPLE = DATA / "conformance/topology-aware-sample.jsonl.gz"


def scenarios() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_sampled_scenarios_agree_to_the_letter(scenario: dict[str, Any]) -> None:
    assert list(differences(scenario, replay(scenario))) == []


@pytest.mark.parametrize("name", ["cases", "dev"])
def test_all_reference_vectors_agree_to_the_letter(
    name: str, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = shared / f"conformance/topology-aware/{name}.jsonl.gz"
    assert main(["check", "--model", "topology-aware", str(vectors)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["agree"] == report["scenarios"] > 0
    assert report["differences"] == []


def test_what_is_emitted_is_a_scenario_with_an_outcome() -> None:
    scenario = next(one for one in scenarios() if "steps" in one)
    bare = {key: value for key, value in scenario.items() if key != "start"}
    bare["steps"] = [
        {key: value for key, value in step.items() if key != "expect"} for step in scenario["steps"]
    ]
    assert list(differences(scenario, replay(bare))) == []


def spoiled(path: tuple[Any, ...], value: Any) -> list[str]:
    """Paths that differ after a change of what is expected."""
    scenario = next(one for one in scenarios() if "steps" in one and not one.get("nondeterministic"))
    changed = json.loads(json.dumps(scenario))
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return [one.path for one in differences(changed, replay(scenario))]


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        (("start", "reserved"), "77", "start.reserved"),
        (("steps", 1, "expect", "error"), "cpu-shared", "error"),
        (("steps", 1, "expect", "free"), [], "free"),
    ],
)
def test_any_difference_is_found(path: tuple[Any, ...], value: Any, found: str) -> None:
    assert found in spoiled(path, value)


def test_an_unreadable_scenario_is_reported_as_such() -> None:
    assert "no scenario" in replay({"id": "broken", "machine": {}, "config": {}})["error"]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"op": "dance"}, "unknown operation 'dance'"),
        ({"op": "create"}, "no step in the vectors' schema"),
        ({"op": "create", "pod": {"id": "unknown"}, "container": {"id": "a", "name": "a"}}, "no step in"),
        ({"op": "reconfigure", "config": {"pinCPU": "yes"}}, "config.pinCPU: 'yes' is not a boolean"),
    ],
)
def test_a_step_that_cannot_be_taken_is_left_undecided(step: dict[str, Any], reason: str) -> None:
    scenario = next(one for one in scenarios() if "steps" in one)
    replayed = replay({**scenario, "steps": [step]})
    assert reason in replayed["steps"][0]["expect"]["undecided"]


def test_a_machine_that_cannot_be_is_reported_as_such() -> None:
    scenario = next(one for one in scenarios() if "steps" in one)
    machine = {**scenario["machine"], "isolated": "900"}
    assert "isolated CPUs 900 do not exist" in replay({**scenario, "machine": machine})["error"]


def test_a_replay_that_ends_early_differs() -> None:
    scenario = next(one for one in scenarios() if one.get("steps"))
    assert "steps" in [one.path for one in differences(scenario, {**replay(scenario), "steps": []})]
