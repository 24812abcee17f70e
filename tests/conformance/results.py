"""Replaying a scenario and writing the outcome in the vectors' schema."""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, ContainerAllocation, admit, remove
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.conformance import form
from tests.conformance import scenario as reading

_OUTCOMES = ("expect", "invalid", "invalidVaries")


def replay(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with this model's outcome; whatever outcome it came with is dropped.

    A pod on which the kubelet would reach no verdict has ``undecided`` in place of one, and a
    scenario that cannot be read has ``error`` in place of steps.
    """
    given = {key: value for key, value in scenario.items() if key not in _OUTCOMES}
    steps = given.pop("steps", None) or ()
    try:
        form.require(scenario, reading.FORM)
        form.require_fields_of_steps(scenario, reading.STEPS)
        node = reading.node(scenario)
    except InvalidConfiguration as error:
        return {**given, "invalid": str(error)}
    except NumazonesError as error:
        return {**given, "error": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {**given, "error": f"no scenario in the vectors' schema: {error!r}"}
    done = []
    for step in steps:
        bare = {key: value for key, value in step.items() if key not in _OUTCOMES}
        node, outcome = _step(node, step)
        done.append({**bare, "expect": {**outcome, **_state(node)}})
    return {**given, "steps": done}


def _step(node: Node, step: Mapping[str, Any]) -> tuple[Node, dict[str, Any]]:
    """The node after a step, and the step's outcome without the state."""
    if step.get("op") == "remove":
        return remove(node, step.get("uid", "")), {}
    if step.get("op") != "admit":
        return node, {"undecided": f"unknown operation {step.get('op')!r}"}
    try:
        admission = admit(node, Pod.from_api(step.get("pod", {})))
    except NumazonesError as error:
        return node, {"undecided": str(error)}
    return admission.node, _admission(admission)


def _admission(admission: Admission) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "admitted": admission.admitted,
        "reason": admission.reason,
        "message": admission.message,
    }
    if admission.admitted:
        outcome["containers"] = {name: _container(given) for name, given in admission.containers.items()}
    if admission.whole is not None:
        outcome["pod"] = {
            "cpuset": cpuset.format(admission.whole.cpus),
            "memory": _blocks(admission.whole.memory),
        }
    return outcome


def _blocks(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [
        {"numa": list(cpuset.ids(block.affinity)), "type": block.type, "size": block.size}
        for block in sorted(blocks, key=lambda block: block.type)
    ]


def _container(given: ContainerAllocation) -> dict[str, Any]:
    affinity = given.affinity.affinity
    return {
        "cpuset": cpuset.format(given.cpus),
        "memory": _blocks(given.memory),
        "devices": {name: list(ids) for name, ids in given.devices.items()},
        "deviceNuma": {name: list(numas) for name, numas in given.device_numas.items()},
        "affinity": {
            "numa": None if affinity is None else list(cpuset.ids(affinity)),
            "preferred": given.affinity.preferred,
        },
    }


def _state(node: Node) -> dict[str, Any]:
    return {
        "defaultCPUSet": cpuset.format(node.cpus.default),
        "memory": {
            str(numa): {
                "cells": list(cpuset.ids(state.cells)),
                "assignments": state.assignments,
                "types": {
                    kind: {"allocatable": table.allocatable, "free": table.free, "reserved": table.reserved}
                    for kind, table in state.memory.items()
                },
            }
            for numa, state in node.machine_state.items()
        },
    }
