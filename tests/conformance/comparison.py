"""Comparing a replayed scenario with the recorded one.

Everything is compared to the letter, except what a kubelet itself may answer differently the next
time: device ids (their NUMA nodes count), messages marked as varying (the reason counts), and steps
from the one marked nondeterministic on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs."""

    scenario: str
    step: int | None
    """Index of the step; None: the scenario as a whole."""
    path: str
    expected: Any
    actual: Any


def compared_steps(scenario: Mapping[str, Any]) -> int:
    """Return the number of reliable steps of a scenario."""
    steps = len(scenario.get("steps", []))
    if scenario.get("nondeterministic"):
        return min(steps, int(scenario.get("nondeterministicFrom", 0)))
    return steps


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Difference]:
    """All differences of one scenario."""
    name = str(expected.get("id"))
    if "invalid" in expected or "invalid" in actual:
        ours, theirs = actual.get("invalid"), expected.get("invalid")
        if ours != theirs and not (expected.get("invalidVaries") and ours is not None and theirs is not None):
            yield Difference(name, None, "invalid", theirs, ours)
        return
    if "error" in actual:
        yield Difference(name, None, "error", expected.get("error"), actual["error"])
        return
    for index in range(compared_steps(expected)):
        recorded = expected["steps"][index]["expect"]
        replayed = actual["steps"][index]["expect"]
        for path, theirs, ours in unequal(
            "", _comparable(recorded, recorded), _comparable(replayed, recorded)
        ):
            yield Difference(name, index, path, theirs, ours)


def _comparable(outcome: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome without what may vary."""
    left = {key: value for key, value in outcome.items() if key != "messageVaries"}
    if recorded.get("messageVaries"):
        left.pop("message", None)
    if "containers" in left:
        left["containers"] = {
            name: {key: value for key, value in given.items() if key != "devices"}
            for name, given in left["containers"].items()
        }
    return left


def unequal(path: str, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    """(path, expected, actual) of every value that differs in two nested mappings."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in sorted({*expected, *actual}):
            yield from unequal(f"{path}.{key}" if path else key, expected.get(key), actual.get(key))
    elif expected != actual:
        yield path, expected, actual
