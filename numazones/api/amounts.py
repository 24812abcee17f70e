"""Amounts of each resource that a NUMA node has, has assigned and has left.

Rules: design of NUMAZone (capacity is hardware, reserved is what the kubelet keeps, memory's
allocatable also excludes hugepages, assigned is exclusively held, available is allocatable minus
assigned); memory hints of KEP-1769 (a NUMA node bound to others takes no further request alone).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from numazones import cpuset
from numazones.api.numazone import READY, Headroom, KubeletSettings, Summary, ZoneResource
from numazones.api.snapshot import KnownDevice, NodeSnapshot
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, HUGEPAGES, MEMORY, hugepage_type, is_device
from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_manager import NONE as NO_CPUS
from numazones.kubelet.cpu_manager import STATIC as STATIC_CPUS
from numazones.kubelet.machine import Machine, NUMANode
from numazones.kubelet.memory_manager import STATIC as STATIC_MEMORY

_GIB = 1 << 30
_MAX_SUMMARY = 256
_DEVICE_COLUMN = 24
"""Characters that devices may take in a table; the first resource is shown at any length."""


@dataclass(frozen=True, slots=True)
class ResourceAmounts:
    """The amounts of one resource in one zone: CPUs, bytes or devices; None where unknown."""

    name: str
    capacity: int | None = None
    reserved: int | None = None
    allocatable: int | None = None
    assigned: int | None = None
    available: int | None = None

    def to_resource(self) -> ZoneResource:
        """Write them as quantities."""
        in_bytes = self.name == MEMORY or self.name.startswith(HUGEPAGES)
        write = quantity.format_bytes if in_bytes else str

        def text(amount: int | None) -> str | None:
            return None if amount is None else write(amount)

        return ZoneResource(
            name=self.name,
            capacity=text(self.capacity),
            reserved=text(self.reserved),
            allocatable=text(self.allocatable),
            assigned=text(self.assigned),
            available=text(self.available),
        )


def amounts_of(snapshot: NodeSnapshot, node: NUMANode) -> tuple[ResourceAmounts, ...]:
    """Return the amounts of a zone: cpu, memory, hugepages by size, devices by name."""
    return tuple(_amounts_of(snapshot, node))


def _amounts_of(snapshot: NodeSnapshot, node: NUMANode) -> Iterator[ResourceAmounts]:
    yield _cpu_amounts(snapshot, snapshot.machine.cpus_of_numa[node.id])
    pages = {hugepage_type(size): number * size * 1024 for size, number in node.hugepages}
    known = not snapshot.memory_unknown >> node.id & 1
    yield _memory_amounts(
        snapshot, node.id, MEMORY, node.memory if known else None, elsewhere=sum(pages.values())
    )
    for kind, total in pages.items():
        yield _memory_amounts(snapshot, node.id, kind, total)
    close = sorted(
        (device for device in snapshot.devices if device.numa >> node.id & 1),
        key=lambda device: (device.resource, device.id),
    )
    for name, found in groupby(close, lambda device: device.resource):
        yield _device_amounts(snapshot, name, list(found))
    if node is snapshot.machine.numa_nodes[0]:
        for name in sorted(snapshot.resources_without_devices):
            yield ResourceAmounts(name, capacity=0, reserved=0, allocatable=0, assigned=0, available=0)


def _cpu_amounts(snapshot: NodeSnapshot, own: CPUSet) -> ResourceAmounts:
    reserved, exclusive = snapshot.reserved_cpus, snapshot.exclusive_cpus
    assigned = None if exclusive is None else own & exclusive
    if reserved is None:
        return ResourceAmounts(CPU, capacity=own.bit_count(), assigned=_count(assigned))
    allocatable = own & ~reserved
    return ResourceAmounts(
        CPU,
        capacity=own.bit_count(),
        reserved=(own & reserved).bit_count(),
        allocatable=allocatable.bit_count(),
        assigned=_count(assigned),
        available=None if assigned is None else (allocatable & ~assigned).bit_count(),
    )


def _count(cpus: CPUSet | None) -> int | None:
    return None if cpus is None else cpus.bit_count()


def _memory_amounts(
    snapshot: NodeSnapshot, numa: int, kind: str, total: int | None, *, elsewhere: int = 0
) -> ResourceAmounts:
    """Amounts of memory or of one size of hugepages; ``elsewhere``: bytes that hugepages take of memory."""
    reserved = None if snapshot.memory_reserved is None else snapshot.memory_reserved.get((numa, kind), 0)
    assigned = None if snapshot.memory_assigned is None else snapshot.memory_assigned.get((numa, kind), 0)
    allocatable = None if total is None or reserved is None else max(0, total - reserved - elsewhere)
    available = None if allocatable is None or assigned is None else max(0, allocatable - assigned)
    return ResourceAmounts(kind, total, reserved, allocatable, assigned, available)


def _device_amounts(snapshot: NodeSnapshot, name: str, devices: list[KnownDevice]) -> ResourceAmounts:
    held = {device for holder in snapshot.holders for device in holder.devices}
    assigned = sum((name, device.id) in held for device in devices)
    if not snapshot.devices_complete:
        return ResourceAmounts(name, assigned=assigned)
    usable = [device for device in devices if device.healthy and device.registered]
    return ResourceAmounts(
        name,
        capacity=sum(device.registered for device in devices),
        reserved=0,
        allocatable=len(usable),
        assigned=assigned,
        available=sum((name, device.id) not in held for device in usable),
    )


def headroom_of(snapshot: NodeSnapshot, numa: int, amounts: Iterable[ResourceAmounts]) -> Headroom | None:
    """Return the largest requests that the zone alone could still take."""
    if snapshot.kubelet is None:
        return None
    free = _free_cpus(snapshot, snapshot.kubelet) if snapshot.reserved_cpus is not None else None
    memory = _free_memory(snapshot, snapshot.kubelet, numa, amounts)
    headroom = Headroom(
        exclusive_cpus=None if free is None else (free & snapshot.machine.cpus_of_numa[numa]).bit_count(),
        full_core_cpus=None if free is None else _full_cores(snapshot.machine, numa, free).bit_count(),
        memory=None if memory is None else quantity.format_bytes(memory),
    )
    return headroom if headroom.to_api() else None


def _free_cpus(snapshot: NodeSnapshot, kubelet: KubeletSettings) -> CPUSet | None:
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
    snapshot: NodeSnapshot, kubelet: KubeletSettings, numa: int, amounts: Iterable[ResourceAmounts]
) -> int | None:
    """Return the memory one container could be bound to here; without policy Static none is bound."""
    if kubelet.memory_manager_policy != STATIC_MEMORY or snapshot.machine_state is None:
        return None
    if snapshot.machine_state[numa].cells != 1 << numa:
        return 0
    return next((item.available for item in amounts if item.name == MEMORY), None)


_STATES = {"True": "", "False": "NotReady", "Unknown": "Unknown"}
"""Status of the condition Ready → what columns say of it."""


def summary_of(snapshot: NodeSnapshot, numa: int, amounts: Iterable[ResourceAmounts]) -> Summary:
    """Round the amounts for the columns of kubectl get; each column has one notation."""
    amounts = tuple(amounts)
    cpus = next(item for item in amounts if item.name == CPU)
    memory = next(item for item in amounts if item.name == MEMORY)
    return Summary(
        state=next((_STATES[one.status] for one in snapshot.conditions if one.type == READY), ""),
        assigned="" if cpus.assigned is None else str(cpus.assigned),
        free="" if cpus.available is None else str(cpus.available),
        memory=in_gibibytes(memory.capacity),
        memory_free=in_gibibytes(memory.available),
        devices=_device_summary(snapshot, numa, [item.name for item in amounts if is_device(item.name)]),
    )


def in_gibibytes(amount: int | None) -> str:
    """Round bytes for people, always in the same unit: 63.9Gi; unknown is ``?``."""
    if amount is None:
        return "?"
    return "<0.1Gi" if 0 < amount < _GIB // 10 else f"{amount / _GIB:.1f}Gi"


def _device_summary(snapshot: NodeSnapshot, numa: int, names: list[str]) -> str:
    """Write free/allocatable by name, as many as a column holds: ``nic:3/4,gpu:2/2@0-3,+1``.

    Devices that are close to several NUMA nodes stand apart, with these nodes: they are the same ones in
    each of the zones.
    """
    short = [name.rpartition("/")[2] for name in names]
    parts: list[str] = []
    for name, last in zip(names, short, strict=True):
        label = last if short.count(last) == 1 else name
        found = [device for device in snapshot.devices if device.resource == name and device.numa >> numa & 1]
        masks = sorted({device.numa for device in found}, key=lambda mask: (mask.bit_count(), mask))
        for mask in masks or [1 << numa]:
            amounts = _device_amounts(snapshot, name, [device for device in found if device.numa == mask])
            free = "?" if amounts.available is None else f"{amounts.available}/{amounts.allocatable}"
            parts.append(f"{label}:{free}" + ("" if mask == 1 << numa else f"@{cpuset.format(mask)}"))
    shown = 1
    while shown < len(parts) and len(",".join(parts[: shown + 1])) <= _DEVICE_COLUMN:
        shown += 1
    rest = [f"+{len(parts) - shown}"] if shown < len(parts) else []
    return ",".join(parts[:shown] + rest)[:_MAX_SUMMARY]
