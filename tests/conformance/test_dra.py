"""Reference vectors of the structured DRA allocator: replayed and compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.dra import differences, replay
from tests.conformance.test_conformance import scenarios


@pytest.mark.parametrize("scenario", scenarios("dra-sample"), ids=lambda scenario: scenario["id"])
def test_sampled_lines_agree_to_the_letter(scenario: dict[str, Any]) -> None:
    assert list(differences(scenario, replay(scenario))) == []


@pytest.mark.parametrize("name", ["dev", "cases", "upstream", "extended", "cel"])
def test_all_reference_vectors_agree(name: str, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--model", "dra", str(shared / f"conformance/dra/{name}.jsonl.gz")])
    report = json.loads(capsys.readouterr().out)
    assert report["differences"] == []
    assert report["agree"] == report["scenarios"] > 0


def test_spoiled_outcomes_are_found() -> None:
    allocated, selected = (
        next(one for one in scenarios("dra-sample") if found(one))
        for found in (_is_allocated, lambda one: "result" in one)
    )
    answer = replay(allocated)
    answer["expect"]["results"][0]["allocations"][0]["devices"]["results"][0]["device"] = "other"
    (difference,) = differences(allocated, answer)
    assert (difference.step, difference.path) == (0, "allocations")
    assert [one.path for one in differences(selected, {**replay(selected), "result": None})] == ["result"]


def _is_allocated(line: dict[str, Any]) -> bool:
    results = (line.get("expect") or {}).get("results") or [{}]
    return bool(results[0].get("allocations"))
