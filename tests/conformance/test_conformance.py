"""The reference vectors: replayed, compared, and through the command line."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.comparison import compared_steps, differences
from tests.conformance.results import replay
from tests.places import DATA

SAMPLES = DATA / "conformance"


def scenarios(*names: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name in names or ("sample",)
        for line in gzip.decompress((SAMPLES / f"{name}.jsonl.gz").read_bytes()).splitlines()
    ]


def admitting() -> dict[str, Any]:
    """A scenario whose first step admits a pod with exclusive CPUs, and which is reliable throughout."""
    for scenario in scenarios():
        if scenario.get("steps") and not scenario.get("nondeterministic"):
            outcome = scenario["steps"][0]["expect"]
            if outcome.get("admitted") and any(given["cpuset"] for given in outcome["containers"].values()):
                return scenario
    raise AssertionError("the sample holds no such scenario")


@pytest.mark.parametrize("scenario", scenarios("sample", "releases"), ids=lambda scenario: scenario["id"])
def test_sampled_scenarios_agree_to_the_letter(scenario: dict[str, Any]) -> None:
    assert list(differences(scenario, replay(scenario))) == []


@pytest.mark.parametrize("name", ["dev", "kep6007-dev", "kep6007-cases", "releases/dev"])
def test_all_reference_vectors_agree_to_the_letter(
    name: str, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(shared / f"conformance/{name}.jsonl.gz")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["agree"] == report["scenarios"] > 0
    assert report["differences"] == []


def spoiled(change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Paths that differ after a change of what is expected."""
    recorded = json.loads(json.dumps(admitting()))
    change(recorded)
    return [one.path for one in differences(recorded, replay(admitting()))]


def first(scenario: dict[str, Any]) -> dict[str, Any]:
    expected: dict[str, Any] = scenario["steps"][0]["expect"]
    return expected


def test_any_difference_is_found() -> None:
    name = next(iter(first(admitting())["containers"]))
    assert spoiled(lambda _: None) == []
    assert spoiled(lambda scenario: first(scenario).update(message="other")) == ["message"]
    assert spoiled(lambda scenario: first(scenario).update(defaultCPUSet="0")) == ["defaultCPUSet"]
    assert spoiled(lambda scenario: first(scenario)["containers"][name].update(cpuset="0")) == [
        f"containers.{name}.cpuset"
    ]
    assert spoiled(lambda scenario: scenario.update(invalid="rejected")) == ["invalid"]


def test_what_a_kubelet_may_answer_differently_is_not_compared() -> None:
    name = next(iter(first(admitting())["containers"]))
    assert spoiled(lambda scenario: first(scenario)["containers"][name].update(devices={"x": ["y"]})) == []
    assert spoiled(lambda scenario: first(scenario).update(message="other", messageVaries=True)) == []
    assert spoiled(lambda scenario: first(scenario).update(reason="other", messageVaries=True)) == ["reason"]

    def unreliable(scenario: dict[str, Any]) -> None:
        scenario.update(nondeterministic=True, nondeterministicFrom=0)
        first(scenario).update(defaultCPUSet="0")

    assert spoiled(unreliable) == []
    assert compared_steps({"steps": [{}, {}, {}], "nondeterministic": True, "nondeterministicFrom": 1}) == 1


def test_emit_ignores_the_outcomes_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = scenarios("sample", "releases")
    for scenario in given:
        if "invalid" in scenario:
            scenario["invalid"] = "something else"
        for step in scenario.get("steps", []):
            step["expect"] = {"admitted": None}
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(scenario) + "\n" for scenario in given)))
    assert main(["emit"]) == 0
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for recorded, mine in zip(scenarios("sample", "releases"), emitted, strict=True):
        assert list(differences(recorded, mine)) == []
        assert mine["machine"] == recorded["machine"]


def test_the_release_and_the_gates_of_a_scenario_decide() -> None:
    scenario = next(item for item in scenarios("releases") if item["kubelet"]["version"].startswith("v1.31"))
    older = replay(scenario)
    scenario["kubelet"]["version"] = "v1.36.2"
    assert list(differences(older, replay(scenario))) != []


def test_undecidable_scenario_is_reported_without_ending_the_run() -> None:
    scenario = admitting()
    scenario["kubelet"] = {
        "memoryManagerPolicy": "Static",
        "reservedMemory": scenario["kubelet"]["reservedMemory"],
    }
    scenario["kubelet"]["reservedMemory"] = [
        {"numaNode": scenario["machine"]["numa"][0]["id"], "limits": {"memory": "1Mi"}}
    ]
    amounts = {"cpu": "1", "memory": "1Mi", "hugepages-16Ki": "16Ki"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"metadata": {"uid": "u"}, "spec": {"containers": [container]}}
    scenario["steps"] = [{"op": "admit", "pod": pod}, {"op": "paint"}]
    crash, unknown = replay(scenario)["steps"]
    assert "would crash" in crash["expect"]["undecided"]
    assert unknown["expect"]["undecided"] == "unknown operation 'paint'"
    scenario["machine"] = {"cpus": [], "numa": []}
    assert "at least one CPU" in replay(scenario)["error"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1 is not valid JSON"),
        ("[]", "line 1 is not a JSON object"),
        (None, "scenarios.jsonl: No such file or directory; name a file of scenarios"),
    ],
)
def test_files_that_hold_no_scenarios_are_told_and_fail(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scenarios.jsonl"
    if text is not None:
        path.write_text(text)
    assert main(["check", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_an_object_that_is_no_scenario_is_told() -> None:
    assert "no scenario in the vectors' schema" in replay({"id": "x"})["error"]


def test_check_reports_differences_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = admitting()
    first(recorded)["defaultCPUSet"] = "7"
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(recorded) + "\n")
    assert main(["check", str(path)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["scenarios"], report["agree"]) == (1, 0)
    assert report["differences"][0]["path"] == "defaultCPUSet"
    assert report["differences"][0]["expected"] == "7"


def test_an_unknown_model_is_rejected_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["emit", "--model", "slurm"])
    assert "kubelet" in capsys.readouterr().err
