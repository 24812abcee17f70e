"""Effective requests of a pod, as the scheduler counts them.

Rules: KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 (resize in place) and the pod overhead,
as in kube-scheduler 1.36. Amounts are integers, cpu in milli-CPUs and everything else in whole units.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, HUGEPAGES

_POD_LEVEL = frozenset({"cpu", "memory"})


def effective_requests(body: Mapping[str, Any]) -> dict[str, int]:
    """Return what the scheduler counts for a core/v1 Pod; cpu in milli-CPUs, others in whole units.

    While a pod is being resized in place, the larger of what it asks for and what it was given counts;
    a resize that the kubelet calls infeasible does not.

    Raises:
        numazones.apimachinery.quantity.InvalidQuantity: an amount is not a quantity.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    total: dict[str, int] = {}
    resized = _resize_statuses(status.get("containerStatuses"))
    for container in spec.get("containers") or ():
        _add(total, _container_requests(container, resized, infeasible=infeasible))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    resized = _resize_statuses(status.get("initContainerStatuses"))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            requests = _container_requests(container, resized, infeasible=infeasible)
            _add(total, requests)
            _add(sidecars, requests)
            running = sidecars
        else:
            running = amounts((container.get("resources") or {}).get("requests"))
            _add(running, sidecars)
        _raise_to(largest, running)
    _raise_to(total, largest)
    for resource, text in ((spec.get("resources") or {}).get("requests") or {}).items():
        if resource in _POD_LEVEL or resource.startswith(HUGEPAGES):
            total[resource] = amount(resource, text)
    _add(total, amounts(spec.get("overhead")))
    return total


def amounts(quantities: Mapping[str, str | int] | None) -> dict[str, int]:
    """Read a map of quantities; cpu in milli-CPUs, others in whole units, rounded up.

    Raises:
        numazones.apimachinery.quantity.InvalidQuantity: an amount is not a quantity.
    """
    return {resource: amount(resource, text) for resource, text in (quantities or {}).items()}


def amount(resource: str, text: str | int) -> int:
    """Read one quantity; cpu in milli-CPUs, others in whole units, rounded up."""
    parsed = quantity.parse(text)
    return parsed.milli() if resource == CPU else parsed.value()


def _resize_statuses(statuses: Iterable[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {status.get("name", ""): status for status in statuses or () if status.get("resources")}


def _container_requests(
    container: Mapping[str, Any], resized: Mapping[str, Mapping[str, Any]], *, infeasible: bool
) -> dict[str, int]:
    wanted = amounts((container.get("resources") or {}).get("requests"))
    status = resized.get(container.get("name", ""))
    if status is None:
        return wanted
    requests = {} if infeasible else wanted
    _raise_to(requests, amounts((status.get("resources") or {}).get("requests")))
    _raise_to(requests, amounts(status.get("allocatedResources")))
    return requests


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, number in more.items():
        total[resource] = total.get(resource, 0) + number


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for resource, number in least.items():
        if number > total.get(resource, 0):
            total[resource] = number
