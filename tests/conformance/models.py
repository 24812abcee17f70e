"""Placement models with vectors: one entry per model.

A model replays a scenario of its own schema and says what differs from the recorded outcome; all
vectors agree on the frame (``id``, ``steps``, ``nondeterministic``, ``nondeterministicFrom``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance import comparison, dra, koordinator, results, topology_aware
from tests.conformance.comparison import Difference

Scenario = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """The replay and comparison of one placement model's scenarios."""

    replay: Callable[[Scenario], dict[str, Any]]
    """The scenario with this model's outcome; whatever outcome it came with is dropped."""
    differences: Callable[[Scenario, Scenario], Iterator[Difference]]
    """What differs between the recorded scenario and the replayed one."""


MODELS: Mapping[str, Model] = {
    "kubelet": Model(results.replay, comparison.differences),
    "koordinator": Model(koordinator.replay, koordinator.differences),
    "dra": Model(dra.replay, dra.differences),
    "topology-aware": Model(topology_aware.replay, topology_aware.differences),
}
