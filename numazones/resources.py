"""Names of resources: CPUs, memory, hugepages by size, and everything else (devices).

``hugepages-<size>`` is core/v1's name for preallocated pages, its size a canonical quantity; cAdvisor and
sysfs tell sizes in KiB.
"""

from numazones import quantity

CPU = "cpu"
MEMORY = "memory"
HUGEPAGES = "hugepages-"
"""What the names of all sizes begin with."""

_KIB = 1024


def is_memory(resource: str) -> bool:
    """Whether a resource is memory or hugepages, which are counted in bytes."""
    return resource == MEMORY or resource.startswith(HUGEPAGES)


def is_device(resource: str) -> bool:
    """Whether a resource of a NUMA node is one of a device plugin."""
    return resource != CPU and not is_memory(resource)


def hugepage_type(kib: int) -> str:
    """The resource of a page size: 2048 → ``hugepages-2Mi``."""
    return HUGEPAGES + quantity.format_bytes(kib * _KIB)


def page_kib(resource: str) -> int:
    """The page size of a hugepages resource, in KiB.

    Raises:
        numazones.quantity.InvalidQuantity: the name holds no size.
    """
    return quantity.parse(resource.removeprefix(HUGEPAGES)).value() // _KIB
