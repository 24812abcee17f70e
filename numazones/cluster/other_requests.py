"""A pod that asks for something else: other amounts, or another resource, of one of its containers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, MEMORY, STORAGE, is_memory
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.demand import Demand
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import counted_requests
from numazones.kubelet.pod import Pod
from numazones.wording import pluralize

_MEBI = 1 << 20


def managed_amounts(demand: Demand) -> Iterator[tuple[str, int]]:
    """Yield what a container asks of the managers: resource, and number of CPUs, bytes or devices."""
    if demand.cpus:
        yield CPU, demand.cpus
    yield from demand.memory or ()
    for resource, count in demand.limits:
        if resource not in {CPU, STORAGE} and not is_memory(resource):
            yield resource, count


def with_requests(
    pod: ClusterPod,
    state: Node | None,
    container: str,
    amounts: Mapping[str, int],
    *,
    names: Mapping[str, str] | None = None,
) -> ClusterPod:
    """Return the pod with other requests (and limits) of one container, as the scheduler counts it, too."""
    if pod.admission is None or state is None:
        return pod
    changed = pod.admission
    for resource, amount in amounts.items():
        changed = with_request(changed, container, resource, amount)
    for old, new in (names or {}).items():
        changed = _with_name(changed, container, old, new)
    requests = recounted(pod.requests, pod.admission, changed, state.config)
    return replace(pod, admission=changed, requests=requests)


def recounted(
    requests: Mapping[str, int], before: Pod, after: Pod, config: KubeletConfiguration
) -> dict[str, int]:
    """Return what the scheduler counts for a pod after a change of its requests."""
    old, new = (counted_requests(pod, config) for pod in (before, after))
    return {name: requests.get(name, 0) + new.get(name, 0) - old.get(name, 0) for name in {**requests, **new}}


def whole_cores(pod: Pod, state: Node) -> tuple[tuple[str, int, int], ...]:
    """Return (container, CPUs, CPUs in the next whole cores) where only whole cores are assigned.

    Left out are containers that request whole cores.
    """
    manager = state.kubelet.cpus
    per_core = manager.topology.cpus_per_core if manager.full_cores_only else 1
    demands = state.kubelet.demand_of(pod).demands
    return tuple(
        (container.name, demand.cpus, demand.cpus + -demand.cpus % per_core)
        for container, demand in zip(pod.containers, demands, strict=True)
        if demand.cpus % per_core
    )


def with_request(pod: Pod, container: str, resource: str, amount: int) -> Pod:
    """Return the pod with another request (and limit, where there is one) for one of its containers."""
    value = quantity.parse(quantity.format_bytes(amount) if is_memory(resource) else amount)
    return _with_amounts(pod, container, lambda name, old: (name, value if name == resource else old))


def _with_name(pod: Pod, container: str, before: str, after: str) -> Pod:
    return _with_amounts(pod, container, lambda name, old: (after if name == before else name, old))


def _with_amounts(
    pod: Pod,
    container: str,
    change: Callable[[str, quantity.Quantity], tuple[str, quantity.Quantity]],
) -> Pod:
    def changed(
        amounts: tuple[tuple[str, quantity.Quantity], ...],
    ) -> tuple[tuple[str, quantity.Quantity], ...]:
        return tuple(change(name, old) for name, old in amounts)

    return replace(
        pod,
        containers=tuple(
            item._replace(requests=changed(item.requests), limits=changed(item.limits))
            if item.name == container
            else item
            for item in pod.containers
        ),
    )


def round_down(resource: str, amount: int) -> int:
    """Round memory down to what people can write, and pages to whole ones."""
    if resource == MEMORY:
        return amount // _MEBI * _MEBI
    if is_memory(resource):
        page = quantity.parse(resource.partition("-")[2]).value()
        return amount // page * page
    return amount


def amount_with_resource(resource: str, amount: int) -> str:
    """Return an amount with the name of what it is of: ``4 CPUs``, ``2Gi memory``."""
    if resource == CPU:
        return pluralize(amount, "CPU")
    return f"{amount_in_words(resource, amount)} {resource}"


def amount_in_words(resource: str, amount: int) -> str:
    """Return an amount as pods ask for it: memory as a quantity, CPUs and devices as a number."""
    return quantity.format_bytes(amount) if is_memory(resource) else str(amount)
