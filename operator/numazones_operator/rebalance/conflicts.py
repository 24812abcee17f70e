"""Policies that contradict each other: each would move pods to where a plan of the other has just made room.

The library makes no such plan (``numazones.rebalance.history``). What a search found to be left out for that
reason is kept in the policy's ``status.conflicts``; the condition Conflicted of both policies is made of it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from numazones.api.rebalance import PlanPhase
from numazones.apimachinery import timestamp
from numazones.rebalance.history import FreedNode
from numazones.rebalance.recommendation import Recommendation
from numazones_operator.faults import ObjectFaults
from numazones_operator.rebalance.objects import PolicyObject, emptied_nodes

CONFLICTED = "Conflicted"
_MAX_CONFLICTS = 64
_MAX_NODES = 64
"""Of one conflict."""

Conflicts = tuple[Mapping[str, Any], ...]

ConditionFields = tuple[str, str, str]
"""Status, reason and message of a condition."""


def conflicts_of(undoes: Mapping[str, FreedNode]) -> list[dict[str, Any]] | None:
    """Return a policy's ``status.conflicts``; None where there are none.

    ``undoes``: node that its plans would fill → the plan of another policy that made room there.
    """
    by_policy: dict[str, dict[str, FreedNode]] = {}
    for node, emptied in sorted(undoes.items()):
        by_policy.setdefault(emptied.policy, {})[node] = emptied
    return [
        {
            "policy": policy,
            "nodes": list(nodes)[:_MAX_NODES],
            "until": timestamp.format(max(one.until for one in nodes.values())),
        }
        for policy, nodes in sorted(by_policy.items())[:_MAX_CONFLICTS]
    ] or None


def verdict(policy: str, known: Mapping[str, Conflicts]) -> ConditionFields:
    """Return the condition Conflicted of a policy, by what searches found for it and for the others.

    ``known``: the conflicts of all policies that plans are made for.
    """
    own = [
        f"plans of this policy that would move pods to {_nodes(one)} are postponed until {one['until']}, "
        f"because plans of policy {one['policy']} made room there"
        for one in known.get(policy, ())
        if one["policy"] in known
    ]
    others = [
        f"plans of policy {other} that would move pods to {_nodes(one)} are postponed until "
        f"{one['until']}, because plans of this policy made room there"
        for other, found in known.items()
        for one in found
        if one["policy"] == policy
    ]
    found = own + others
    if not found:
        return (
            "False",
            "NoConflict",
            "the plans of this policy do not conflict with those of any other policy",
        )
    reason = "UndoesOtherPolicy" if own else "UndoneByOtherPolicy"
    return (
        "True",
        reason,
        f"{'; '.join(found)}. Change the goals of one of these policies, or suspend one of them",
    )


def last_to_empty(
    finished: Iterable[Recommendation], since: datetime, faults: ObjectFaults
) -> frozenset[str]:
    """Return, by name, the plans that were the last to make room on some node, after a time."""
    last: dict[str, tuple[datetime, str]] = {}
    for item, emptied in faults.over(finished, emptied_nodes):
        if item.status.phase == PlanPhase.FAILED:
            continue
        for node, when in emptied.items():
            if when > since:
                last[node] = max(last.get(node, (when, item.name)), (when, item.name))
    return frozenset(name for _, name in last.values())


def of_policy(policy: PolicyObject) -> Conflicts:
    """Return what the last search for a policy left out for plans of others."""
    return tuple(policy.status.get("conflicts") or ())


def _nodes(conflict: Mapping[str, Any]) -> str:
    return ", ".join(conflict.get("nodes") or ())
