"""Replaying the topology-aware policy's scenarios and writing the outcome in the vectors' schema."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones_topology_aware import events, memory_types
from numazones_topology_aware.admission import scheduling_of
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.cpu_state import Grant
from numazones_topology_aware.events import Outcome
from numazones_topology_aware.node import ContainerUpdate, Node
from numazones_topology_aware.pool_selection import Assessment
from numazones_topology_aware.rejection import StartFailed
from tests.conformance import comparison, form
from tests.conformance import topology_aware_scenario as reading
from tests.conformance.comparison import Difference, compared_steps
from tests.conformance.topology_aware_events import (
    exported_variables,
    finish_cold_start,
    reconfigure,
    resize,
)

_OUTCOMES = ("expect", "invalid", "start", "unorderedFrom", "nondeterministic", "nondeterministicFrom")
_INFORMATIVE = ("errorDetail",)
_LEVELS = {
    "virtual node": "system", "socket": "package", "die": "die", "numa node": "numa", "L3 cache": "l3cache",
}  # fmt: skip

Expectation = dict[str, Any]


def replay(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with this model's outcome; whatever outcome it came with is dropped.

    A step on which the model gives no answer has ``undecided`` in its expectation, and a scenario that
    cannot be read has ``error`` in place of steps.
    """
    given = {key: value for key, value in scenario.items() if key not in _OUTCOMES}
    steps = given.pop("steps", None)
    try:
        form.require(scenario, reading.FORM)
        node = Node.fresh(reading.hardware(scenario["machine"]), _configuration(scenario["config"]))
    except StartFailed as error:
        return {**given, "invalid": error.code}
    except NumazonesError as error:
        return {**given, "error": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {**given, "error": f"no scenario in the vectors' schema: {error!r}"}
    filled: dict[str, Any] = {**given, "start": _start(node), "steps": []}
    for index, step in enumerate(steps or ()):
        bare = {key: value for key, value in step.items() if key not in _OUTCOMES}
        node, expectation = _step(node, step)
        filled["steps"].append({**bare, "expect": expectation})
        if (expectation.get("request") or {}).get("unordered"):
            filled.setdefault("unorderedFrom", index)
    return filled


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences between a recorded scenario and its replay."""
    name = str(expected.get("id"))
    for path, theirs, ours in comparison.unequal("", _frame(expected), _frame(actual)):
        yield Difference(name, None, path, theirs, ours)
    if len(actual.get("steps", ())) < len(expected.get("steps", ())):
        yield Difference(name, None, "steps", len(expected["steps"]), len(actual.get("steps", ())))
        return
    for index in range(compared_steps(expected)):
        recorded, replayed = (_comparable(one["steps"][index]["expect"]) for one in (expected, actual))
        for path, theirs, ours in comparison.unequal("", recorded, replayed):
            yield Difference(name, index, path, theirs, ours)


def _frame(scenario: Mapping[str, Any]) -> dict[str, Any]:
    return {key: scenario.get(key) for key in ("invalid", "error", "start")}


def _comparable(expectation: Mapping[str, Any]) -> Expectation:
    left = {key: value for key, value in expectation.items() if key not in _INFORMATIVE}
    if "error" in left and "updates" in left and not left["updates"]:
        del left["updates"]
    return left


def _configuration(config: Mapping[str, Any]) -> Configuration:
    # The policy part alone: the vectors' pod-resources queries are answered whatever the agent's part says.
    return Configuration.from_spec({**config, "agent": {"podResourceAPI": True}}, path="config")


def _step(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    operation = _OPERATIONS.get(step.get("op", ""))
    if operation is None:
        return node, {"undecided": f"unknown operation {step.get('op')!r}"}
    try:
        after, expectation = operation(node, step)
    except NumazonesError as error:
        return node, {"undecided": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return node, {"undecided": f"no step in the vectors' schema: {error!r}"}
    if step["op"] != "pod":
        expectation["free"] = _free(after)
    if changed := _changed_grants(node, after):
        expectation["grants"] = changed
    return after, expectation


def _pod(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    return events.run_pod(node, reading.sandbox(step["pod"])), {}


def _create(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    outcome = events.create(node, step["pod"]["id"], reading.container(step["container"]))
    expectation = _outcome(outcome)
    expectation["request"] = _request(outcome)
    if outcome.error is None:
        name = step["container"]["id"]
        expectation["adjust"] = _adjustment(outcome, name)
        expectation["exported"] = exported_variables(outcome.node, name)
    return outcome.node, expectation


def _update(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    outcome = resize(node, step["id"], reading.cgroup(step.get("linux") or {}))
    return outcome.node, _outcome(outcome)


def _stop(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    outcome = events.stop(node, step["id"])
    return outcome.node, _outcome(outcome)


def _remove_pod(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    return events.remove_pod(node, step["id"]), {}


def _cold_start_done(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    outcome = finish_cold_start(node, step["id"])
    return outcome.node, {**_outcome(outcome), "updates": _updates(outcome)}


def _reconfigure(node: Node, step: Mapping[str, Any]) -> tuple[Node, Expectation]:
    try:
        config = _configuration(step["config"])
    except StartFailed as error:
        return node, {"undecided": str(error)}
    answer = reconfigure(node, config)
    expectation = {**_outcome(answer.outcome), "updates": _updates(answer.outcome)}
    if answer.revert_error is not None:
        expectation["revertError"] = answer.revert_error.code
    return answer.outcome.node, {**expectation, "start": _start(answer.outcome.node)}


_OPERATIONS: Mapping[str, Callable[[Node, Mapping[str, Any]], tuple[Node, Expectation]]] = {
    "pod": _pod,
    "create": _create,
    "update": _update,
    "stop": _stop,
    "removepod": _remove_pod,
    "coldstartdone": _cold_start_done,
    "reconfigure": _reconfigure,
}


def _outcome(outcome: Outcome) -> Expectation:
    if outcome.error is not None:
        return {"error": outcome.error.code, "errorDetail": outcome.error.message}
    return {"updates": _updates(outcome)}


def _updates(outcome: Outcome) -> Expectation:
    return {name: _update_values(update) for name, update in sorted(outcome.updates.items())}


def _update_values(update: ContainerUpdate) -> Expectation:
    values = {
        "cpus": cpuset.format(update.cpus or 0),
        "mems": cpuset.format(update.mems or 0),
        "shares": update.shares,
        "quota": update.quota,
        "period": update.period,
        "memoryLimit": update.memory_limit,
    }
    return {key: value for key, value in values.items() if value}


def _adjustment(outcome: Outcome, container: str) -> Expectation:
    adjustment = _update_values(outcome.own or ContainerUpdate())
    chosen = scheduling_of(outcome.node, container)
    if chosen is not None and chosen.scheduler is not None:
        adjustment["scheduler"] = {
            "policy": chosen.scheduler.policy,
            "nice": chosen.scheduler.nice,
            "priority": chosen.scheduler.priority,
            "flags": f"[{' '.join(chosen.scheduler.flags)}]",
            "runtime": chosen.scheduler.runtime,
            "deadline": chosen.scheduler.deadline,
            "period": chosen.scheduler.period,
        }
    if chosen is not None and chosen.io_priority is not None:
        adjustment["ioPriority"] = {
            "class": chosen.io_priority.io_class,
            "priority": chosen.io_priority.priority,
        }
    return adjustment


def _request(outcome: Outcome) -> Expectation:
    assessment = outcome.assessment
    error = outcome.error
    if assessment is None:
        code = "" if error is None else error.code
        return {
            "error": code,
            "full": 0,
            "fraction": 0,
            "limit": 0,
            "isolate": False,
            "memReq": 0,
            "memLim": 0,
        }
    wanted, cpu = assessment.request, assessment.request.cpu
    values = {
        "cpuType": cpu.kind.value,
        "full": cpu.full,
        "fraction": cpu.fraction,
        "limit": -1 if cpu.limit is None else cpu.limit,
        "isolate": cpu.isolate,
        "prio": cpu.priority.value,
        "memReq": wanted.memory_request,
        "memLim": wanted.memory_limit,
    }
    if wanted.memory_types:
        values["memType"] = memory_types.name(wanted.memory_types)
    if wanted.cold_start:
        values["coldStart"] = _go_duration(wanted.cold_start)
    if wanted.by_hints:
        values["byHints"] = True
    if assessment.pool is None and error is not None:
        values["error"] = error.code
    return {**values, **_ranking(outcome, assessment)}


def _ranking(outcome: Outcome, assessment: Assessment) -> Expectation:
    if assessment.ranking is None:
        return {}
    values: Expectation = {
        "rank": list(assessment.ranking.order),
        "scores": [
            [
                score.isolated,
                score.shared,
                score.colocated,
                score.affinity,
                None if score.offer is None else cpuset.format(score.offer.zone),
                *(score.hints or ()),
            ]
            for score in assessment.ranking.scores
        ],
    }
    hints = outcome.node.containers[outcome.subject].hints
    if hints:
        values["hints"] = [
            [provider, hint.cpus, hint.numas, hint.sockets] for provider, hint in sorted(hints.items())
        ]
    if assessment.ranking.contradictory:
        values["unordered"] = True
    return values


def _changed_grants(before: Node, after: Node) -> Expectation:
    changed: Expectation = {name: None for name in before.grants if name not in after.grants}
    for name, grant in after.grants.items():
        if before.grants.get(name) is not grant:
            written = _grant(after, grant)
            if name not in before.grants or written != _grant(before, before.grants[name]):
                changed[name] = written
    return changed


def _grant(node: Node, grant: Grant) -> Expectation:
    pool = node.pools[grant.pool]
    isolated = grant.exclusive & pool.isolated
    written = {
        "pool": pool.name,
        "poolID": pool.id,
        "kind": pool.kind.value,
        "depth": pool.depth,
        "cpuType": grant.kind.value,
        "exclusive": cpuset.format(grant.exclusive & ~isolated),
        "isolated": cpuset.format(isolated),
        "shared": grant.shared,
        "reserved": grant.reserved,
        "memType": memory_types.name(grant.memory_types),
        "memZone": cpuset.format(grant.zone),
        "memSize": grant.memory,
    }
    if grant.cold_start:
        written["coldStart"] = _go_duration(grant.cold_start)
    return written


def _go_duration(length: timedelta) -> str:
    """Whole seconds as Go writes them: ``30s``, ``5m0s``."""
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes}m{seconds}s" if hours or minutes else f"{seconds}s"
    return f"{hours}h{text}" if hours else text


def _free(node: Node) -> list[list[Any]]:
    state = node.cpus
    return [
        [
            cpuset.format(state.sharable[pool.id]),
            cpuset.format(state.isolated[pool.id]),
            state.shared[pool.id],
            state.free(pool),
            state.reserved[pool.id],
            node.free_memory(pool),
        ]
        for pool in node.pools
    ]


def _start(node: Node) -> Expectation:
    policy = node.policy
    return {
        "available": cpuset.format(policy.available),
        "reserved": cpuset.format(policy.reserved),
        "unlimitedBurstable": _LEVELS[policy.burstable_level.value],
        "coldStartOff": policy.cold_start_off,
        "priorities": {name.value: cpuset.format(cpus) for name, cpus in policy.cpus.classes.items()},
        "pools": [
            {
                "id": pool.id,
                "name": pool.name,
                "kind": pool.kind.value,
                "depth": pool.depth,
                "parent": pool.parent,
                "isolated": cpuset.format(pool.isolated),
                "reserved": cpuset.format(pool.reserved),
                "sharable": cpuset.format(pool.sharable),
                "dram": cpuset.format(pool.memory[0]),
                "pmem": cpuset.format(pool.memory[1]),
                "hbm": cpuset.format(pool.memory[2]),
            }
            for pool in node.pools
        ],
    }
