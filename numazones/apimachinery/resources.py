"""Names of resources: CPUs, memory, hugepages by size, and everything else (devices).

``hugepages-<size>`` is core/v1's name for preallocated pages, its size a canonical quantity; cAdvisor and
sysfs give sizes in KiB.
"""

from numazones.apimachinery import quantity

CPU = "cpu"
MEMORY = "memory"
STORAGE = "ephemeral-storage"
HUGEPAGES = "hugepages-"
"""What the names of all sizes begin with."""
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of every DeviceClass's own resource; the name of the class follows."""

_KIB = 1024


def is_memory(resource: str) -> bool:
    """Return whether a resource is memory or hugepages, which are counted in bytes."""
    return resource == MEMORY or resource.startswith(HUGEPAGES)


def is_device(resource: str) -> bool:
    """Return whether a resource of a NUMA node is one of a device plugin."""
    return resource != CPU and not is_memory(resource)


def figures(resource: str, *amounts: int) -> tuple[str, ...]:
    """Write amounts of one resource for people, cpu given in milli-CPUs, others in whole units.

    Bytes are rounded down to a tenth of a unit, unless that makes unequal amounts look equal.
    """
    if resource == CPU:
        return tuple(map(quantity.format_decimal, amounts))
    if not is_memory(resource) and resource != STORAGE:
        return tuple(map(str, amounts))
    rounded = tuple(map(quantity.format_rounded, amounts))
    return rounded if len(set(rounded)) == len(set(amounts)) else tuple(map(quantity.format_bytes, amounts))


def hugepage_type(kib: int) -> str:
    """Return the resource of a page size: 2048 → ``hugepages-2Mi``."""
    return HUGEPAGES + quantity.format_bytes(kib * _KIB)


def page_kib(resource: str) -> int:
    """Return the page size of a hugepages resource, in KiB.

    Raises:
        numazones.apimachinery.quantity.InvalidQuantity: the name holds no size.
    """
    return quantity.parse(resource.removeprefix(HUGEPAGES)).value() // _KIB
