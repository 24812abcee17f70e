"""Pods for nodes of the topology-aware policy, in the forms that it tells apart."""

import random
from typing import Any

from numazones_simulator.placement_models import PodForm
from numazones_simulator.workload import best_effort, container

Body = dict[str, Any]

_ANNOTATION = "resource-policy.nri.io"


def _memory(draw: random.Random) -> str:
    return draw.choice(("256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"))


def _guaranteed(draw: random.Random) -> Body:
    cpus = draw.choice(("1", "2", "2", "3", "4", "4", "6", "8", "12", "16"))
    return {"containers": [container("app", {"cpu": cpus, "memory": _memory(draw)})]}


def _mixed(draw: random.Random) -> Body:
    cpus = draw.choice(("500m", "1500m", "1200m", "2500m"))
    return {"containers": [container("app", {"cpu": cpus, "memory": _memory(draw)})]}


def _burstable(draw: random.Random) -> Body:
    requests = {"cpu": draw.choice(("100m", "250m", "1", "2")), "memory": "256Mi"}
    limits = draw.choice(({"memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}))
    return {"containers": [container("app", limits, requests)]}


def _best_effort(_draw: random.Random) -> Body:
    return {"containers": [best_effort()]}


def _annotated(draw: random.Random) -> Body:
    key, value = draw.choice(
        (
            ("prefer-shared-cpus", "true"),
            ("prefer-isolated-cpus", "false"),
            ("hide-hyperthreads", "true"),
            ("memory-type", "dram"),
        )
    )
    made = _guaranteed(draw)
    return {"metadata": {"annotations": {f"{key}.{_ANNOTATION}/pod": value}}, **made}


def _several(draw: random.Random) -> Body:
    cpus = ("1", "2", "4", "1500m")
    containers = [
        container(f"app-{number}", {"cpu": draw.choice(cpus), "memory": _memory(draw)})
        for number in range(draw.randint(2, 3))
    ]
    init = [container("init", {"cpu": draw.choice(cpus), "memory": "256Mi"})]
    return {"containers": containers, **({"initContainers": init} if draw.random() < 1 / 2 else {})}


FORMS: tuple[PodForm, ...] = (
    PodForm(36, "guaranteed", _guaranteed),
    PodForm(14, "mixed", _mixed),
    PodForm(20, "burstable", _burstable),
    PodForm(5, "besteffort", _best_effort),
    PodForm(10, "annotated", _annotated),
    PodForm(15, "several", _several),
)
