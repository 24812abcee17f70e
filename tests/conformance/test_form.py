"""Scenarios that have not the form of their vectors: one field is named, nothing crashes."""

import copy
import gzip
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import form
from tests.conformance.models import MODELS
from tests.places import DATA

SAMPLES = DATA / "conformance"
FILES = {
    "dra": "dra-sample",
    "kubelet": "releases",
    "koordinator": "koordinator",
    "topology-aware": "topology-aware-sample",
}
ODD: tuple[Any, ...] = (None, -1, 0, 2**70, 1.5, "", "x", "0-", True, [], {}, ["x"], {"x": 1}, [None])
SCHEMA = "no scenario in the vectors' schema: "
OUTCOMES = {"expect", "start", "invalid"}
ANSWERS = {"error", "invalid", "steps", "expect", "result", "runtimeError", "compileError", "unknown"}


def sample(model: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((SAMPLES / f"{FILES[model]}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("value", "wanted", "told"),
    [
        ({"a": 1}, {"a": int}, ""),
        ({"a": None}, {"a?": int}, ""),
        ({"free": []}, {}, ""),
        ({}, {"a": int}, "a is missing"),
        ({"a": True}, {"a": int}, "a: an integer is expected, not True"),
        ({"a": [{"b": 1}]}, {"a": [{"b": str}]}, "a[0].b: a string is expected, not 1"),
        ({"a": {"x": 1}}, {"a": {"*": bool}}, "a.x: true or false is expected, not 1"),
        ({"a": "x" * 99}, {"a": [str]}, f"a: a list is expected, not '{'x' * 59}…"),
        ([], {}, "the scenario: an object is expected, not []"),
    ],
)
def test_the_first_field_of_another_form_is_named(value: object, wanted: form.Form, told: str) -> None:
    if not told:
        form.require(value, wanted)
        return
    with pytest.raises(form.Malformed) as error:
        form.require(value, wanted)
    assert str(error.value) == SCHEMA + told


@pytest.mark.parametrize(
    ("model", "change", "told"),
    [
        ("kubelet", {"steps": "x"}, "steps: a list is expected, not 'x'"),
        ("kubelet", {"steps": [7]}, "steps[0]: an object is expected, not 7"),
        ("kubelet", {"steps": [{"op": "admit"}]}, "steps[0].pod is missing"),
        ("kubelet", {"steps": [{"op": "remove", "uid": []}]}, "steps[0].uid: a string is expected, not []"),
        ("kubelet", {"kubelet": None}, "kubelet is missing"),
        ("kubelet", {"kubelet": {"featureGates": {"A": 1}}}, "kubelet.featureGates.A: true or false is"),
        ("koordinator", {"steps": [{"op": "running", "pod": {}}]}, "steps[0].node is missing"),
        ("koordinator", {"steps": [{"op": "schedule", "pod": ""}]}, "steps[0].pod: an object is expected"),
        ("koordinator", {"nodes": [{"name": 1}]}, "nodes[0].name: a string is expected, not 1"),
        ("topology-aware", {"steps": [1.5]}, "steps[0]: an object is expected, not 1.5"),
        ("topology-aware", {"machine": {"online": 1}}, "machine.online: a string is expected, not 1"),
    ],
)
def test_malformed_scenario_has_an_error_that_names_the_field(
    model: str, change: dict[str, Any], told: str
) -> None:
    scenario = next(one for one in sample(model) if one.get("steps"))
    assert MODELS[model].replay({**scenario, **change})["error"].startswith(SCHEMA + told)


@pytest.mark.parametrize("model", FILES)
def test_odd_values_anywhere_never_crash(model: str) -> None:
    """Each sampled scenario with one field dropped, and with one field replaced."""
    draw = random.Random(6)
    for scenario in sample(model)[:40]:
        bare = without_outcomes(scenario)
        for replaces in (False, True):
            odd = copy.deepcopy(bare)
            *path, last = draw.choice(list(paths(odd)))
            place = odd
            for key in path:
                place = place[key]
            if replaces:
                place[last] = draw.choice(ODD)
            else:
                del place[last]
            outcome = MODELS[model].replay(odd)
            assert outcome.keys() & ANSWERS, (path, last)


@pytest.mark.parametrize("model", FILES)
def test_the_order_of_keys_means_nothing(model: str) -> None:
    draw = random.Random(7)
    for scenario in sample(model)[:20]:
        bare = without_outcomes(scenario)
        assert MODELS[model].replay(shuffled(bare, draw)) == MODELS[model].replay(bare)


def without_outcomes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_outcomes(item) for key, item in value.items() if key not in OUTCOMES}
    return [without_outcomes(item) for item in value] if isinstance(value, list) else value


def shuffled(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw.sample(list(value), len(value))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


def paths(value: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each field, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*before, key)
        yield from paths(item, *before, key)
