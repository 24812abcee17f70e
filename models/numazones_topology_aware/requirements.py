"""Requirements of a container, as far as the plugin knows them.

The plugin sees cgroup values, not the pod's spec: it estimates requests from CPU shares and, for
Burstable pods, from the OOM score. The pod annotation ``noderesource.dev/resources`` overrides the
estimate until the first resize.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.documents import JSON_ANNOTATION, UnreadableDocument, read_json
from numazones.apimachinery.quantity import InvalidQuantity
from numazones.kubelet.demand import Container, ContainerKind, QOSClass
from numazones.kubelet.pod import Pod
from numazones_topology_aware.sandbox import CGroup, Sandbox

ANNOTATION = "noderesource.dev/resources"
# Values with which the kubelet and the plugin convert CPU requests to cgroup shares and back.
MIN_SHARES = 2
MAX_SHARES = 262144
_SHARES_PER_CPU = 1024
_PERIOD = 100_000
_MIN_QUOTA = 1000
# OOM scores: Guaranteed, BestEffort, and the bounds between which the kubelet keeps Burstable ones.
_GUARANTEED_SCORE = -997
_BEST_EFFORT_SCORE = 1000
_MIN_BURSTABLE = 3
_MAX_BURSTABLE = 999
# Priority of system-node-critical, whose pods are never to be killed.
_NODE_CRITICAL = 2_000_001_000


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requests and limits; None: not set."""

    cpu_request: int | None = None
    """Milli-CPU."""
    cpu_limit: int | None = None
    memory_request: int | None = None
    """Bytes."""
    memory_limit: int | None = None

    def adds_nothing_to(self, old: "Requirements") -> bool:
        """Return whether every value that is set was the same before; removed values do not count."""
        return all(
            new is None or new == before
            for new, before in (
                (self.cpu_request, old.cpu_request),
                (self.cpu_limit, old.cpu_limit),
                (self.memory_request, old.memory_request),
                (self.memory_limit, old.memory_limit),
            )
        )


def from_annotation(sandbox: Sandbox, container: str) -> Requirements | None:
    """The requirements that the pod's annotation gives a container; None where it gives none."""
    text = sandbox.annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        parsed = read_json(text, JSON_ANNOTATION)
        containers = {name: _from_api(item or {}) for name, item in (parsed.get("containers") or {}).items()}
    except (AttributeError, InvalidQuantity, TypeError, UnreadableDocument):
        return None  # unreadable for the plugin too, which goes on with its estimate
    return containers.get(container)


def _from_api(resources: Mapping[str, Any]) -> Requirements:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    amounts = {
        (kind, name): quantity.parse(amount)
        for kind, values in (("requests", requests), ("limits", limits))
        for name, amount in values.items()
    }
    cpu_request, cpu_limit = amounts.get(("requests", "cpu")), amounts.get(("limits", "cpu"))
    memory_request, memory_limit = amounts.get(("requests", "memory")), amounts.get(("limits", "memory"))
    return Requirements(
        None if cpu_request is None else cpu_request.milli(),
        None if cpu_limit is None else cpu_limit.milli(),
        None if memory_request is None else memory_request.value(),
        None if memory_limit is None else memory_limit.value(),
    )


def estimate(cgroup: CGroup, qos: QOSClass, *, memory_capacity: int) -> Requirements:
    """Estimate requirements from cgroup values, as the plugin does.

    ``memory_capacity`` is the machine's, in bytes.
    """
    cpu_request = _milli_of_shares(cgroup.shares) or None
    memory_limit = cgroup.memory_limit if cgroup.memory_limit > 0 else None
    if qos is QOSClass.GUARANTEED:
        # Copied even where there is nothing to copy: the plugin then has an amount of 0.
        return Requirements(cpu_request, cpu_request or 0, memory_limit or 0, memory_limit)
    memory_request = None
    if qos is QOSClass.BURSTABLE:
        memory_request = _memory_of_score(cgroup.oom_score, memory_limit or 0, memory_capacity) or None
    return Requirements(cpu_request, _milli_of_quota(cgroup) or None, memory_request, memory_limit)


def shares_of_milli(milli: int) -> int:
    """CPU shares for an amount of CPU, as the kubelet and the plugin compute them."""
    return min(max(milli * _SHARES_PER_CPU // 1000, MIN_SHARES), MAX_SHARES)


def _milli_of_shares(shares: int) -> int:
    return 0 if shares == MIN_SHARES else int(shares * 1000 / _SHARES_PER_CPU + 0.5)


def _milli_of_quota(cgroup: CGroup) -> int:
    if not cgroup.quota or not cgroup.period:
        return 0
    return int(cgroup.quota * 1000 / cgroup.period + 0.5)


def _memory_of_score(score: int, limit: int, capacity: int) -> int:
    """Bytes that a Burstable container's OOM score stands for; 0 where they would not be below the limit."""
    if not _MIN_BURSTABLE <= score <= _MAX_BURSTABLE:
        return 0
    request = -(-(1000 - score) * capacity // 1000)
    return request if not limit or request < limit else 0


def cgroup_of(pod: Pod, container: Container, *, memory_capacity: int) -> CGroup:
    """The cgroup values that the kubelet asks the runtime for.

    Rules: ``pkg/kubelet/kuberuntime`` (shares, quota) and ``pkg/kubelet/qos`` (OOM score).
    ``memory_capacity`` is the machine's, in bytes.
    """
    request, limit = dict(container.requests), dict(container.limits)
    cpu_limit = limit["cpu"].milli() if "cpu" in limit else 0
    cpu_request = request["cpu"].milli() if "cpu" in request else (cpu_limit or 0)
    return CGroup(
        shares=shares_of_milli(cpu_request),
        quota=max(cpu_limit * _PERIOD // 1000, _MIN_QUOTA) if cpu_limit else 0,
        period=_PERIOD,
        memory_limit=limit["memory"].value() if "memory" in limit else 0,
        oom_score=_oom_score(pod, container, memory_capacity),
    )


def _oom_score(pod: Pod, container: Container, capacity: int) -> int:
    if pod.qos is QOSClass.GUARANTEED or (pod.priority or 0) >= _NODE_CRITICAL:
        return _GUARANTEED_SCORE
    if pod.qos is QOSClass.BEST_EFFORT:
        return _BEST_EFFORT_SCORE
    request = _memory_request(container)
    if container.kind is ContainerKind.SIDECAR:
        # A sidecar is not killed before the regular containers that it serves.
        regular = (_memory_request(one) for one in pod.containers if one.kind is ContainerKind.APP)
        request = max(request, min(regular, default=0))
    score = 1000 - 1000 * request // capacity if capacity else _MAX_BURSTABLE
    return min(max(score, _MIN_BURSTABLE), _MAX_BURSTABLE)


def _memory_request(container: Container) -> int:
    amount = dict(container.requests).get("memory")
    return 0 if amount is None else amount.value()
