"""Draws pods for nodes on which others than the kubelet place them, in the forms that these tell apart.

As with ``workload``, the same seed gives the same pods.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from numazones.placement import Model
from numazones_koordinator.annotations import NUMA_TOPOLOGY_SPEC, QOS_CLASS
from numazones_koordinator.scheduler import SCHEDULER_NAME
from numazones_simulator.node_kinds import KOORDINATOR_GPU, MODEL_LABEL
from numazones_simulator.workload import best_effort, container, manifest

Body = dict[str, Any]
_Form = tuple[int, str, Callable[[random.Random], Body]]

_ANNOTATION = "resource-policy.nri.io"


def koordinator_pods(seed: int, *, namespace: str = "default") -> Iterator[Body]:
    """Yield pods for Koordinator's nodes, most of them by its scheduler."""
    return _pods(seed, namespace, Model.KOORDINATOR, _KOORDINATOR)


def topology_aware_pods(seed: int, *, namespace: str = "default") -> Iterator[Body]:
    """Yield pods for nodes of the topology-aware policy."""
    return _pods(seed, namespace, Model.TOPOLOGY_AWARE, _TOPOLOGY_AWARE)


def _pods(seed: int, namespace: str, model: Model, forms: tuple[_Form, ...]) -> Iterator[Body]:
    draw = random.Random(seed)
    weights = [weight for weight, _, _ in forms]
    for number in count(1):
        _, form, make = draw.choices(forms, weights)[0]
        made = make(draw)
        metadata = made.pop("metadata", {})
        spec = {
            "nodeSelector": {MODEL_LABEL: str(model)},
            "tolerations": [{"key": MODEL_LABEL, "value": str(model)}],
            **made,
        }
        yield manifest(f"{model}-{form}-{number:05}", namespace, form, spec, metadata)


def _memory(draw: random.Random) -> str:
    return draw.choice(("256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"))


# Koordinator


def _koordinated(draw: random.Random, policies: tuple[str, ...], cpus: tuple[str, ...], **more: str) -> Body:
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
    return _koordinated(draw, ("SingleNUMANode",), ("1", "2", "2", "4", "4", "6", "8", "12"))


def _restricted(draw: random.Random) -> Body:
    return _koordinated(draw, ("Restricted", "BestEffort"), ("2", "4", "8", "16", "24", "36"))


def _with_gpus(draw: random.Random) -> Body:
    gpus = {KOORDINATOR_GPU: draw.choice(("1", "1", "2"))}
    return _koordinated(draw, ("SingleNUMANode", "Restricted"), ("2", "4", "8"), **gpus)


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


_KOORDINATOR: tuple[_Form, ...] = (
    (40, "aligned", _aligned),
    (20, "restricted", _restricted),
    (12, "gpus", _with_gpus),
    (14, "plain", _without_policy),
    (8, "default", _of_other_scheduler),
)

# The topology-aware policy


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


_TOPOLOGY_AWARE: tuple[_Form, ...] = (
    (36, "guaranteed", _guaranteed),
    (14, "mixed", _mixed),
    (20, "burstable", _burstable),
    (5, "besteffort", _best_effort),
    (10, "annotated", _annotated),
    (15, "several", _several),
)


def of_all_models(seed: int, kubelets: Iterator[Body]) -> Iterator[Body]:
    """Yield pods for nodes of all models: half from ``kubelets``, a quarter for each of the others."""
    draw = random.Random(seed)
    streams = (kubelets, koordinator_pods(seed), topology_aware_pods(seed))
    while True:
        yield next(draw.choices(streams, (2, 1, 1))[0])
