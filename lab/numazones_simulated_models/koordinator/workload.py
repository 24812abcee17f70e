"""Pods for Koordinator's nodes, in the forms that it tells apart; most of them are its scheduler's."""

import json
import random
from typing import Any

from numazones_koordinator.annotations import NUMA_TOPOLOGY_SPEC, QOS_CLASS
from numazones_koordinator.scheduler import SCHEDULER_NAME
from numazones_simulated_models.koordinator.node_kinds import GPU
from numazones_simulator.placement_models import PodForm
from numazones_simulator.workload import container

Body = dict[str, Any]


def _memory(draw: random.Random) -> str:
    return draw.choice(("256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"))


def _pod_of_scheduler(
    draw: random.Random, policies: tuple[str, ...], cpus: tuple[str, ...], **more: str
) -> Body:
    spec: dict[str, str] = {"numaTopologyPolicy": draw.choice(policies)}
    if draw.random() < 1 / 4:
        spec["singleNUMANodeExclusive"] = draw.choice(("Required", "Preferred"))
    qos = draw.choice(("LSR", "LSR", "LSR", "LSE", "LS"))
    limits = {"cpu": draw.choice(cpus), "memory": _memory(draw), **more}
    return {
        "metadata": {
            "labels": {QOS_CLASS: qos},
            "annotations": {NUMA_TOPOLOGY_SPEC: json.dumps(spec)},
        },
        "schedulerName": SCHEDULER_NAME,
        "containers": [container("app", limits)],
    }


def _aligned(draw: random.Random) -> Body:
    return _pod_of_scheduler(draw, ("SingleNUMANode",), ("1", "2", "2", "4", "4", "6", "8", "12"))


def _restricted(draw: random.Random) -> Body:
    return _pod_of_scheduler(draw, ("Restricted", "BestEffort"), ("2", "4", "8", "16", "24", "36"))


def _with_gpus(draw: random.Random) -> Body:
    gpus = {GPU: draw.choice(("1", "1", "2"))}
    return _pod_of_scheduler(draw, ("SingleNUMANode", "Restricted"), ("2", "4", "8"), **gpus)


def _without_policy(draw: random.Random) -> Body:
    limits = {"cpu": draw.choice(("1", "2", "4", "500m")), "memory": _memory(draw)}
    return {
        "metadata": {"labels": {QOS_CLASS: "LS"}},
        "schedulerName": SCHEDULER_NAME,
        "containers": [container("app", limits)],
    }


def _of_other_scheduler(draw: random.Random) -> Body:
    limits = {"cpu": draw.choice(("1", "2", "4")), "memory": _memory(draw)}
    return {"containers": [container("app", limits)]}


FORMS: tuple[PodForm, ...] = (
    PodForm(40, "aligned", _aligned),
    PodForm(20, "restricted", _restricted),
    PodForm(12, "gpus", _with_gpus),
    PodForm(14, "plain", _without_policy),
    PodForm(8, "default", _of_other_scheduler),
)
