"""Transition times of conditions (metav1.Condition's ``lastTransitionTime``).

The rule is the Kubernetes API conventions': the time changes with the status, not with reason or message.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

Transitions = Mapping[str, tuple[str, str]]
"""Type of a condition → its status, and since when it has it."""

TRANSITION_TIME = "lastTransitionTime"


def transitions(conditions: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the status of each condition and since when it has it, by type."""
    return {
        condition.get("type", ""): (condition.get("status", ""), condition.get(TRANSITION_TIME) or "")
        for condition in conditions
    }


def stamp(conditions: Iterable[MutableMapping[str, Any]], before: Transitions, now: str) -> None:
    """Write into each condition since when it has its status: as before where that is the same, else now."""
    for condition in conditions:
        status, since = before.get(condition["type"], ("", ""))
        condition[TRANSITION_TIME] = (since if status == condition["status"] else "") or now
