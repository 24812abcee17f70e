"""Whatever others write, every parser answers or says what is wrong in an error of its own."""

import json
import logging
import resource
from collections.abc import Iterator
from random import Random

import pytest

from checks.laws.fuzz.all_targets import TARGETS
from checks.laws.fuzz.mutation import mutate

NAMES = sorted(TARGETS)


MOST_MEMORY = 256 * 1024
"""KiB by which the process may grow while a target's inputs are read; they have a few KiB each."""


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_as_it_should_be_is_read(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert seeds
    for seed in seeds:
        assert TARGETS[name].check(seed), seed[:200]


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_were_kept_are_read_or_named(name: str) -> None:
    for path in TARGETS[name].kept():
        TARGETS[name].check(path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_changed_inputs_are_read_or_named(name: str) -> None:
    target, draw = TARGETS[name], Random(name)
    inputs = [*target.seeds(), *(path.read_bytes() for path in target.kept())]
    read = sum(target.check(mutate(draw.choice(inputs), draw)) for _ in range(target.executions))
    assert read  # some changes do not matter


def test_changes_keep_documents_documents() -> None:
    draw, seed = Random(1), json.dumps({"a": [1, {"b": "c"}], "note": '{"x": 1}'}).encode()
    kept = 0
    for _ in range(200):
        try:
            json.loads(mutate(seed, draw))
        except ValueError:
            continue
        kept += 1
    assert 150 < kept < 200
