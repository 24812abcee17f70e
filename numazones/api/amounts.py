"""How much of each resource a zone has, has given away and could still give.

Rules: design of NUMAZone (capacity is hardware, reserved is what the kubelet keeps, memory's
allocatable also excludes hugepages, assigned is exclusively held, available is allocatable minus
assigned); memory hints of KEP-1769 (a NUMA node bound to others takes no further request alone).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from numazones import quantity
from numazones.api.numazone import Headroom, Kubelet, Resource, Summary
from numazones.api.snapshot import Holder, KnownDevice, NodeSnapshot
from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_manager import NONE as NO_CPUS
from numazones.kubelet.cpu_manager import STATIC as STATIC_CPUS
from numazones.kubelet.memory_manager import STATIC as STATIC_MEMORY
from numazones.machine import Machine, NUMANode
from numazones.resources import CPU, MEMORY, hugepage_type, is_device

_UNIT = 1024
_MAX_SUMMARY = 256


def resources_of(
    snapshot: NodeSnapshot,
    node: NUMANode,
    devices: Iterable[KnownDevice],
    holders: Iterable[Holder],
    *,
    first: bool,
) -> Iterator[Resource]:
    """Yield the amounts of a zone: cpu, memory, hugepages by size, devices by name.

    ``devices`` and ``holders`` are those of the zone; ``first``: it is the node's first zone.
    """
    yield _cpu_resource(snapshot, snapshot.machine.cpus_of_numa[node.id])
    pages = {hugepage_type(size): number * size * 1024 for size, number in node.hugepages}
    known = not snapshot.memory_unknown >> node.id & 1
    yield _memory_resource(
        snapshot, node.id, MEMORY, node.memory if known else None, elsewhere=sum(pages.values())
    )
    for kind, total in pages.items():
        yield _memory_resource(snapshot, node.id, kind, total)
    yield from _device_resources(devices, holders, node.id, complete=snapshot.devices_complete)
    if first:
        for name in sorted(snapshot.resources_without_devices):
            yield _amounts(name, capacity=0, reserved=0, allocatable=0, assigned=0, available=0)


def _cpu_resource(snapshot: NodeSnapshot, own: CPUSet) -> Resource:
    reserved, exclusive = snapshot.reserved_cpus, snapshot.exclusive_cpus
    assigned = None if exclusive is None else own & exclusive
    if reserved is None:
        return _amounts(CPU, capacity=own.bit_count(), assigned=_count(assigned))
    allocatable = own & ~reserved
    return _amounts(
        CPU,
        capacity=own.bit_count(),
        reserved=(own & reserved).bit_count(),
        allocatable=allocatable.bit_count(),
        assigned=_count(assigned),
        available=None if assigned is None else (allocatable & ~assigned).bit_count(),
    )


def _count(cpus: CPUSet | None) -> int | None:
    return None if cpus is None else cpus.bit_count()


def _memory_resource(
    snapshot: NodeSnapshot, numa: int, kind: str, total: int | None, *, elsewhere: int = 0
) -> Resource:
    """Amounts of memory or of one size of hugepages; ``elsewhere``: bytes that hugepages take of memory."""
    reserved = None if snapshot.memory_reserved is None else snapshot.memory_reserved.get((numa, kind), 0)
    assigned = None if snapshot.memory_assigned is None else snapshot.memory_assigned.get((numa, kind), 0)
    allocatable = None if total is None or reserved is None else max(0, total - reserved - elsewhere)
    available = None if allocatable is None or assigned is None else max(0, allocatable - assigned)
    return _amounts(
        kind,
        capacity=total,
        reserved=reserved,
        allocatable=allocatable,
        assigned=assigned,
        available=available,
        write=quantity.format_bytes,
    )


def _device_resources(
    devices: Iterable[KnownDevice], holders: Iterable[Holder], numa: int, *, complete: bool
) -> Iterator[Resource]:
    held = {device for holder in holders for device in holder.devices}
    close = [device for device in devices if device.numa >> numa & 1]
    for name, found in groupby(close, lambda device: device.resource):
        members = list(found)
        if not complete:
            yield _amounts(name, assigned=sum((name, device.id) in held for device in members))
            continue
        usable = [device for device in members if device.healthy and device.registered]
        yield _amounts(
            name,
            capacity=sum(device.registered for device in members),
            reserved=0,
            allocatable=len(usable),
            assigned=sum((name, device.id) in held for device in members),
            available=sum((name, device.id) not in held for device in usable),
        )


def _amounts(
    name: str,
    *,
    capacity: int | None = None,
    reserved: int | None = None,
    allocatable: int | None = None,
    assigned: int | None = None,
    available: int | None = None,
    write: Callable[[int], str] = str,
) -> Resource:
    def text(amount: int | None) -> str | None:
        return None if amount is None else write(amount)

    return Resource(
        name=name,
        capacity=text(capacity),
        reserved=text(reserved),
        allocatable=text(allocatable),
        assigned=text(assigned),
        available=text(available),
    )


def headroom_of(snapshot: NodeSnapshot, numa: int, resources: Iterable[Resource]) -> Headroom | None:
    """Return the largest requests that the zone alone could still take."""
    if snapshot.kubelet is None:
        return None
    free = _free_cpus(snapshot, snapshot.kubelet) if snapshot.reserved_cpus is not None else None
    headroom = Headroom(
        exclusive_cpus=None if free is None else (free & snapshot.machine.cpus_of_numa[numa]).bit_count(),
        full_core_cpus=None if free is None else _full_cores(snapshot.machine, numa, free).bit_count(),
        memory=_free_memory(snapshot, snapshot.kubelet, numa, resources),
    )
    return headroom if headroom.to_api() else None


def _free_cpus(snapshot: NodeSnapshot, kubelet: Kubelet) -> CPUSet | None:
    """Return the CPUs that can still be given exclusively; none without the static policy."""
    if kubelet.cpu_manager_policy == NO_CPUS:
        return 0
    if kubelet.cpu_manager_policy != STATIC_CPUS or snapshot.reserved_cpus is None:
        return None
    if snapshot.default_cpus is not None:
        return snapshot.default_cpus & ~snapshot.reserved_cpus
    if snapshot.exclusive_cpus is None:
        return None
    return snapshot.machine.all_cpus & ~snapshot.reserved_cpus & ~snapshot.exclusive_cpus


def _full_cores(machine: Machine, numa: int, free: CPUSet) -> CPUSet:
    """Return the CPUs of the zone's cores that are free as a whole."""
    found = 0
    for (core_numa, _, _), cpus in machine.cpus_of_core.items():
        if core_numa == numa and not cpus & ~free:
            found |= cpus
    return found


def _free_memory(
    snapshot: NodeSnapshot, kubelet: Kubelet, numa: int, resources: Iterable[Resource]
) -> str | None:
    """Return the memory one container could be bound to here; without policy Static none is bound."""
    if kubelet.memory_manager_policy != STATIC_MEMORY or snapshot.machine_state is None:
        return None
    if snapshot.machine_state[numa].cells != 1 << numa:
        return "0"
    return next((resource.available for resource in resources if resource.name == MEMORY), None)


def summary_of(resources: Iterable[Resource]) -> Summary:
    """Round the amounts for the columns of kubectl get."""
    by_name = {resource.name: resource for resource in resources}
    memory = by_name[MEMORY]
    devices = [name for name in by_name if is_device(name)]
    short = [name.rpartition("/")[2] for name in devices]
    parts = [
        f"{last if short.count(last) == 1 else name}:{by_name[name].available}/{by_name[name].allocatable}"
        for name, last in zip(devices, short, strict=True)
    ]
    return Summary(
        memory=readable_bytes(memory.capacity),
        memory_free=readable_bytes(memory.available),
        devices=",".join(parts)[:_MAX_SUMMARY],
    )


def readable_bytes(amount: str | None) -> str:
    """Round a quantity of bytes for people: ``65436Mi`` → ``63.9Gi``; unknown is ``?``."""
    if amount is None:
        return "?"
    value = float(quantity.parse(amount).value())
    unit = ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        if value < _UNIT:
            break
        value /= _UNIT
        unit = larger
    return f"{value:.1f}".removesuffix(".0") + unit
