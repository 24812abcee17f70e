"""Replaying a scenario and writing the outcome in the vectors' schema."""

from collections.abc import Mapping
from typing import Any

from numazones import cpuset
from numazones.conformance import scenario as reading
from numazones.kubelet.admission import Admission, ContainerAllocation, admit, remove
from numazones.kubelet.config import InvalidConfiguration
from numazones.node import Node
from numazones.pod import Pod

_OUTCOMES = ("expect", "invalid", "invalidVaries", "nondeterministic", "nondeterministicFrom")


def replay(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with this model's outcome; whatever outcome it came with is dropped."""
    given = {key: value for key, value in scenario.items() if key not in _OUTCOMES}
    steps = given.pop("steps", [])
    try:
        node = reading.node(scenario)
    except InvalidConfiguration as error:
        return {**given, "invalid": str(error)}
    done = []
    for step in steps:
        bare = {key: value for key, value in step.items() if key not in _OUTCOMES}
        if step["op"] == "admit":
            admission = admit(node, Pod.from_api(step["pod"]))
            node = admission.node
            outcome = _admission(admission)
        elif step["op"] == "remove":
            node = remove(node, step["uid"])
            outcome = {}
        else:
            raise ValueError(f"scenario {scenario.get('id')}: unknown operation {step['op']!r}")
        done.append({**bare, "expect": {**outcome, **_state(node)}})
    return {**given, "steps": done}


def _admission(admission: Admission) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "admitted": admission.admitted,
        "reason": admission.reason,
        "message": admission.message,
    }
    if admission.admitted:
        outcome["containers"] = {name: _container(given) for name, given in admission.containers.items()}
    return outcome


def _container(given: ContainerAllocation) -> dict[str, Any]:
    affinity = given.affinity.affinity
    return {
        "cpuset": cpuset.format(given.cpus),
        "memory": [
            {"numa": list(cpuset.ids(block.affinity)), "type": block.type, "size": block.size}
            for block in sorted(given.memory, key=lambda block: block.type)
        ],
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
                "cells": list(book.group),
                "assignments": book.assignments,
                "types": {
                    kind: {
                        "allocatable": node.kubelet.memory.allocatable[kind][
                            node.kubelet.memory.numas.index(numa)
                        ],
                        "free": book.free[kind],
                        "reserved": book.reserved[kind],
                    }
                    for kind in node.kubelet.memory.allocatable
                },
            }
            for numa, book in node.memory_state.items()
        },
    }
