"""Resource lists: resource → amount in units of 10**-9, exact as ``resource.Quantity`` is.

Rules of arithmetic: ``k8s.io/apiserver/pkg/quota/v1``. Whether a key is there matters: a resource
that a NUMA node lists with 0 is another thing than one that it does not list.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, is_memory
from numazones.kubelet.demand import Container, ContainerKind, Resources
from numazones.kubelet.pod import Pod

Amounts: TypeAlias = Mapping[str, int]
"""Resource → amount in units of 10**-9."""
Counted: TypeAlias = Mapping[str, int]
"""Resource → amount as the scheduler counts it: CPU in thousandths, all else in whole units."""

NANO = 10**9
MICRO = 10**6


def whole(amount: int) -> int:
    """Return the amount in whole units, rounded away from zero."""
    return -(-amount // NANO) if amount >= 0 else amount // NANO


def milli(amount: int) -> int:
    """Return the amount in thousandths, rounded away from zero."""
    return -(-amount // MICRO) if amount >= 0 else amount // MICRO


def parse_amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """Read quantities as Kubernetes writes them.

    Raises:
        InvalidQuantity: a value is no quantity.
    """
    return {name: quantity.parse(amount).nanos for name, amount in resources.items()}


def format_amounts(resources: Amounts) -> dict[str, str]:
    """Return quantities as canonical text, ordered by resource; memory of any kind with binary units."""
    return {
        name: quantity.Quantity(amount, binary=is_memory(name) or name.endswith("memory")).canonical()
        for name, amount in sorted(resources.items())
    }


def scheduler_counts(resources: Amounts) -> dict[str, int]:
    """Return the amounts as the scheduler counts them."""
    return {name: milli(amount) if name == CPU else whole(amount) for name, amount in resources.items()}


def plus(first: Amounts, second: Amounts) -> dict[str, int]:
    """Return the sum, with the keys of both."""
    total = dict(first)
    for name, amount in second.items():
        total[name] = total.get(name, 0) + amount
    return total


def minus(first: Amounts, second: Amounts) -> dict[str, int]:
    """Return the difference, at least 0, with the keys of both."""
    rest = {name: max(0, amount - second.get(name, 0)) for name, amount in first.items()}
    for name in second:
        rest.setdefault(name, 0)
    return rest


def within(request: Amounts, available: Amounts) -> bool:
    """Return whether no resource listed as available is exceeded; unlisted resources do not count."""
    return all(request[name] <= amount for name, amount in available.items() if name in request)


def nothing(resources: Amounts) -> bool:
    """Return whether all amounts are 0."""
    return not any(resources.values())


def requests(pod: Pod) -> dict[str, int]:
    """Return what the scheduler counts as requested: containers (KEP-753), pod-level resources, overhead."""
    total = _of_containers(pod.containers)
    for_pod = () if pod.resources is None else pod.resources.requests
    total.update({name: amount.nanos for name, amount in for_pod if _settable_for_pod(name)})
    return plus(total, _plain(pod.overhead))


def _of_containers(containers: Iterable[Container]) -> dict[str, int]:
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        asked = _plain(container.requests)
        if container.kind is ContainerKind.INIT:
            for name, amount in plus(sidecars, asked).items():
                peak[name] = max(peak.get(name, 0), amount)
            continue
        running = plus(running, asked)
        if container.kind is ContainerKind.SIDECAR:
            sidecars = plus(sidecars, asked)
    for name, amount in peak.items():
        running[name] = max(running.get(name, 0), amount)
    return running


def _plain(resources: Resources) -> dict[str, int]:
    return {name: amount.nanos for name, amount in resources}


def _settable_for_pod(name: str) -> bool:
    return name == CPU or is_memory(name)
