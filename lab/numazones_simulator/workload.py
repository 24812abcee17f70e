"""Draws pods as they are in clusters with NUMA policies, in every form that the kubelet treats differently.

Most are Guaranteed with whole CPUs; some have several containers, init containers, sidecars, devices or
hugepages; some are Guaranteed with a fraction of a CPU, Burstable, BestEffort, or set their resources for the
pod as a whole. The same seed gives the same pods.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from numazones_simulator.node_kinds import GPU, LICENCE, NIC

Spec = dict[str, Any]
_Amounts = dict[str, str]

APP_LABEL = "app"
_IMAGE = "registry.example/app:1"


class PodStream:
    """An endless, reproducible stream of pods."""

    def __init__(self, seed: int, *, namespace: str = "default") -> None:
        self._draw = random.Random(seed)
        self._namespace = namespace
        self._forms: tuple[tuple[int, str, Callable[[], Spec]], ...] = (
            (30, "single", self._single),
            (14, "several", self._several),
            (10, "init", self._with_init),
            (8, "sidecar", self._with_sidecar),
            (12, "devices", self._with_devices),
            (6, "hugepages", self._with_hugepages),
            (5, "wide", self._wide),
            (5, "fraction", self._fraction),
            (6, "burstable", self._burstable),
            (2, "besteffort", self._best_effort),
            (2, "podlevel", self._pod_level),
        )

    def pods(self) -> Iterator[dict[str, Any]]:
        """Yield pods as they would be submitted, named in order of creation."""
        weights = [weight for weight, _, _ in self._forms]
        for number in count(1):
            _, form, spec = self._draw.choices(self._forms, weights)[0]
            yield manifest(f"{form}-{number:05}", self._namespace, form, spec())

    def _cpus(self) -> str:
        return str(self._draw.choice((1, 1, 2, 2, 2, 3, 4, 4, 4, 6, 8, 8, 10, 12, 16)))

    def _memory(self) -> str:
        return self._draw.choice(("256Mi", "512Mi", "1Gi", "1500M", "2Gi", "4Gi", "6039M", "8Gi", "12Gi"))

    def _guaranteed(self) -> _Amounts:
        return {"cpu": self._cpus(), "memory": self._memory()}

    def _single(self) -> Spec:
        return {"containers": [container("app", self._guaranteed())]}

    def _several(self) -> Spec:
        numbers = range(self._draw.randint(2, 3))
        return {"containers": [container(f"app-{number}", self._guaranteed()) for number in numbers]}

    def _with_init(self) -> Spec:
        numbers = range(self._draw.randint(1, 2))
        inits = [container(f"init-{number}", self._guaranteed()) for number in numbers]
        return {"initContainers": inits, "containers": [container("app", self._guaranteed())]}

    def _with_sidecar(self) -> Spec:
        sidecar = container("sidecar", {"cpu": self._draw.choice(("1", "500m")), "memory": "256Mi"})
        inits = [{**sidecar, "restartPolicy": "Always"}]
        if self._draw.random() < 1 / 2:
            inits.insert(self._draw.randint(0, 1), container("init", self._guaranteed()))
        return {"initContainers": inits, "containers": [container("app", self._guaranteed())]}

    def _with_devices(self) -> Spec:
        resource = self._draw.choice((NIC, NIC, NIC, GPU, LICENCE))
        amounts = self._guaranteed() | {resource: str(self._draw.randint(1, 2))}
        containers = [container("app", amounts)]
        if self._draw.random() < 1 / 4:
            containers.append(container("helper", {"cpu": "1", "memory": "256Mi", NIC: "1"}))
        return {"containers": containers}

    def _with_hugepages(self) -> Spec:
        kind = self._draw.choice(("hugepages-2Mi", "hugepages-2Mi", "hugepages-1Gi"))
        size = "1Gi" if kind.endswith("Gi") else self._draw.choice(("128Mi", "256Mi", "512Mi"))
        return {"containers": [container("app", self._guaranteed() | {kind: size})]}

    def _wide(self) -> Spec:
        """Return a pod that asks for more than one NUMA node of most machines has."""
        cpus = self._draw.choice(("18", "20", "24", "28", "32"))
        memory = self._draw.choice(("16Gi", "36Gi", "50Gi"))
        return {"containers": [container("app", {"cpu": cpus, "memory": memory})]}

    def _fraction(self) -> Spec:
        cpus = self._draw.choice(("500m", "1500m", "2500m"))
        return {"containers": [container("app", {"cpu": cpus, "memory": self._memory()})]}

    def _burstable(self) -> Spec:
        nics = {NIC: "1"} if self._draw.random() < 1 / 3 else {}
        requests = {"cpu": "500m", "memory": "256Mi", **nics}
        return {"containers": [container("app", {"memory": "1Gi", **nics}, requests)]}

    def _best_effort(self) -> Spec:
        return {"containers": [best_effort()]}

    def _pod_level(self) -> Spec:
        amounts = self._guaranteed()
        return {
            "resources": {"requests": dict(amounts), "limits": dict(amounts)},
            "containers": [best_effort()],
        }


def manifest(
    name: str, namespace: str, form: str, spec: Spec, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a pod of one of the forms, as it would be submitted."""
    given = metadata or {}
    labels = {APP_LABEL: form, **given.get("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**given, "name": name, "namespace": namespace, "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, **spec},
    }


def container(name: str, limits: Mapping[str, str], requests: Mapping[str, str] | None = None) -> Spec:
    """Return a container; its requests equal its limits where none are given."""
    resources = {"requests": dict(limits if requests is None else requests), "limits": dict(limits)}
    return {"name": name, "image": _IMAGE, "resources": resources}


def best_effort() -> Spec:
    """Return a container that asks for nothing."""
    return {"name": "app", "image": _IMAGE}
