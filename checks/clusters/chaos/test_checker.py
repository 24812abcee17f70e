"""The checker itself, on histories written by hand: it names what is not right, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.chaos import checker
from checks.clusters.chaos.checker import Event

OPERATOR = {"client": "numazones-operator", "verb": "patch", "sub": "status", "body": None}
PEOPLE = {"client": "people", "verb": "create", "sub": "", "body": None}


def kubelet(
    t: float,
    free: tuple[int, int],
    pods: dict[str, tuple[str, int]],
    *,
    uid: str = "",
    what: str = "admitted",
) -> Event:
    zones = {str(zone): cpus for zone, cpus in enumerate(free)}
    held = {name: list(place) for name, place in pods.items()}
    return {"t": t, "kind": "kubelet", "node": "n1", "uid": uid, "what": what, "free": zones, "pods": held}


def changed(t: float, resource: str, name: str, after: dict[str, Any], **request: Any) -> Event:
    after = {"metadata": {"name": name, "uid": name, **after.pop("metadata", {})}, **after}
    event = {"t": t, "kind": "object", "resource": resource, "name": name, "type": "MODIFIED", "after": after}
    return {**event, **PEOPLE, **request}


def pod(
    t: float,
    name: str,
    *,
    cpus: int = 10,
    node: str = "n1",
    phase: str = "Running",
    priority: int = 0,
    **request: Any,
) -> Event:
    container = {"resources": {"requests": {"cpu": str(cpus)}}}
    spec = {"containers": [container], "priority": priority} | ({"nodeName": node} if node else {})
    metadata = {"labels": {"app": name}}
    return changed(
        t, "pods", name, {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, **request
    )


def plan(t: float, phase: str, move: str, *, waits: str = "", after_pending: bool = False) -> Event:
    place = {"node": "n1"}
    moved = {"pod": {"uid": "mover"}, "source": place, "target": place, "afterPending": after_pending}
    placements = [{"pod": {"uid": waits}, "target": place}] if waits else []
    spec = {"policy": "room", "moves": [moved], "placements": placements}
    status = {"phase": phase, "progress": [{"pod": {"uid": "mover"}, "phase": move}]}
    return changed(t, "rebalancerecommendations", "plan", {"spec": spec, "status": status}, **OPERATOR)


def policy(t: float, mode: str = "Auto") -> Event:
    spec = {"mode": mode, "goals": {"shapes": [{"resources": {"cpu": "20"}}]}}
    return changed(t, "rebalancepolicies", "room", {"spec": spec})


def eviction(t: float) -> Event:
    event = pod(t, "mover", client="numazones-operator", verb="create", sub="eviction")
    event["after"]["metadata"]["deletionTimestamp"] = "2026-01-31T08:00:00Z"
    return event


SETTING = [
    kubelet(0, (10, 15), {"mover": ("1", 10)}),
    policy(1),
    pod(2, "mover"),
    plan(3, "Executing", "Evicting"),
]
"""Without the mover, zone 1 would have the 20 CPUs that the policy wants; it fits into zone 0."""
FOR_A_POD = [
    kubelet(0, (10, 15), {"mover": ("1", 10)}),
    policy(1),
    pod(2, "mover"),
    pod(2, "waits", cpus=20, node="", phase="Pending"),
    plan(3, "Executing", "Evicting", waits="waits"),
]
"""Moved to zone 0, the mover leaves 25 CPUs in zone 1."""
GONE = {**pod(4, "waits", cpus=20, node="", phase="Pending"), "type": "DELETED"}
BUDGET = changed(
    4,
    "poddisruptionbudgets",
    "b",
    {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "mover"}}}},
)


def prediction(t: float, verdict: str) -> Event:
    after = {"spec": {"podUID": "waits"}, "status": {"verdict": verdict}}
    return changed(t, "admissionpredictions", "waits", after, **OPERATOR)


def zone(t: float, free: int) -> Event:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "resources": [{"name": "cpu", "allocatable": "30", "assigned": str(30 - free)}],
    }
    request = {**OPERATOR, "client": "numazones-exporter"}
    after = {"spec": {"nodeName": "n1", "numaID": 0}, "status": status}
    return changed(t, "numazones", "n1-numa-0", after, **request)


def release(t: float) -> Event:
    body: dict[str, Any] = {"spec": {"schedulingGates": [], "affinity": {}}}
    return pod(t, "waits", node="", phase="Pending", client="numazones-operator", verb="patch", body=body)


DENIED = {"t": 1, "kind": "denied", "client": "numazones-operator", "message": "it may not"}
WAITS = pod(1, "waits", cpus=20, node="", phase="Pending")
HOSTILE = changed(
    3,
    "pods",
    "waits",
    {
        "metadata": {"labels": {"hostile": "greedy"}},
        "spec": WAITS["after"]["spec"],
        "status": {"phase": "Pending"},
    },
)


@pytest.mark.parametrize(
    ("history", "rules"),
    [
        ([*SETTING, eviction(5)], []),
        ([*SETTING[:3], eviction(5)], ["eviction"]),
        ([*SETTING[:3], plan(3, "Executing", "Pending"), eviction(5)], ["eviction"]),
        ([*SETTING, policy(4, "Recommend"), eviction(5)], ["eviction"]),
        ([*SETTING, policy(4, "Approve"), eviction(5)], ["eviction"]),
        ([*SETTING, kubelet(4, (0, 15), {"mover": ("1", 10)}), eviction(20)], ["eviction"]),
        ([*SETTING, kubelet(4, (0, 15), {"mover": ("1", 10)}), eviction(5)], []),
        ([*SETTING, BUDGET, eviction(5)], ["budget"]),
        ([*SETTING, BUDGET, pod(5, "mover", client="numazones-operator", verb="delete")], ["budget"]),
        ([*SETTING[:3], pod(5, "mover", client="numazones-operator", verb="delete")], ["eviction"]),
        ([*SETTING[:3], pod(5, "mover", client="people", verb="delete")], []),
        ([*FOR_A_POD, eviction(5)], []),
        ([*FOR_A_POD, GONE, eviction(5)], []),
        ([*FOR_A_POD, GONE, eviction(15)], ["eviction"]),
        ([*FOR_A_POD, kubelet(4, (20, 15), {"mover": ("1", 10)}), eviction(15)], ["eviction"]),
        ([*FOR_A_POD, kubelet(4, (5, 15), {"mover": ("1", 10)}), eviction(15)], ["eviction"]),
        (
            [
                *FOR_A_POD[:1],
                kubelet(1, (10, 10), {"mover": ("1", 10)}),
                *FOR_A_POD[1:4],
                plan(3, "Executing", "Evicting", waits="waits", after_pending=True),
                eviction(15),
            ],
            [],
        ),
        ([*FOR_A_POD, pod(3, "mover", priority=5), eviction(5)], ["outranked"]),
        ([*FOR_A_POD, pod(3, "waits", cpus=20, node="", phase="Pending", priority=5), eviction(5)], []),
        ([*FOR_A_POD, HOSTILE, eviction(5)], ["outranked"]),
        ([*SETTING, eviction(5), pod(6, "mover"), eviction(7)], ["double"]),
        ([kubelet(0, (19, 19), {}), WAITS, HOSTILE, prediction(9, "Admissible")], []),
        ([HOSTILE, {"t": 2, "kind": "calm"}, {"t": 4, "kind": "end"}], []),
        ([plan(1, "Executing", "Evicted"), plan(2, "Executing", "Evicting")], ["status"]),
        ([plan(1, "Executing", "Evicting"), plan(2, "Executing", "Pending")], []),
        ([plan(1, "Succeeded", "Verified"), plan(2, "Executing", "Verified")], ["status"]),
        ([kubelet(0, (20, 0), {}), WAITS, prediction(9, "Admissible")], []),
        ([kubelet(0, (19, 19), {}), WAITS, prediction(9, "Admissible")], ["prediction"]),
        ([kubelet(0, (20, 0), {}), WAITS, prediction(9, "Inadmissible")], ["prediction"]),
        ([kubelet(0, (19, 19), {}), WAITS, prediction(9, "Unknown")], []),
        ([kubelet(0, (20, 0), {}), kubelet(5, (0, 0), {}), WAITS, prediction(9, "Admissible")], []),
        ([kubelet(0, (30, 0), {}), zone(1, 30), kubelet(2, (20, 0), {}), zone(3, 20)], []),
        ([kubelet(0, (30, 0), {}), kubelet(2, (20, 0), {}), zone(3, 20), zone(4, 30)], ["zone"]),
        ([kubelet(0, (30, 0), {}), zone(1, 29)], ["zone"]),
        ([WAITS, release(5), kubelet(6, (0, 0), {}, uid="waits", what="rejected")], ["opening"]),
        ([WAITS, kubelet(6, (0, 0), {}, uid="waits", what="rejected")], []),
        (
            [
                WAITS,
                release(5),
                kubelet(5.5, (0, 0), {}, uid="other"),
                kubelet(6, (0, 0), {}, uid="waits", what="rejected"),
            ],
            [],
        ),
        ([DENIED], ["denied"]),
        ([{**DENIED, "client": "tenant"}], []),
        ([WAITS, {"t": 2, "kind": "calm"}, prediction(3, "Inadmissible"), {"t": 4, "kind": "end"}], []),
        ([WAITS, {"t": 2, "kind": "calm"}, {"t": 4, "kind": "end"}], ["calm"]),
        ([{"t": 2, "kind": "calm"}, {"t": 200, "kind": "end"}], ["calm"]),
    ],
)
def test_what_breaks_a_rule_is_named_and_nothing_else(history: list[Event], rules: list[str]) -> None:
    assert [violation.rule for violation in checker.violations(history)] == rules


def test_knowledge_from_before_a_fault_may_be_used_after_it() -> None:
    cut_off = {"t": 2.0, "kind": "fault", "until": 30.0}
    history = [kubelet(0, (20, 0), {}), cut_off, kubelet(3, (0, 0), {}), WAITS, prediction(31, "Admissible")]
    assert checker.violations(history) == []
    assert checker.violations([event for event in history if event is not cut_off]) != []


def test_the_checker_shares_no_code_with_the_programs() -> None:
    lines = Path(checker.__file__).read_text().splitlines()
    assert not [line for line in lines if re.match(r"\s*(from|import) .*(numazones|tests)", line)]
