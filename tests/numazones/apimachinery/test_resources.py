"""Names of resources, told apart."""

import pytest

from numazones.apimachinery import resources
from numazones.apimachinery.quantity import InvalidQuantity


@pytest.mark.parametrize(
    ("name", "memory", "device"),
    [
        ("cpu", False, False),
        ("memory", True, False),
        ("hugepages-2Mi", True, False),
        ("vendor.example/nic", False, True),
        ("vendor.example/memory", False, True),
    ],
)
def test_a_resource_is_cpus_memory_or_a_device(name: str, *, memory: bool, device: bool) -> None:
    assert (resources.is_memory(name), resources.is_device(name)) == (memory, device)


@pytest.mark.parametrize(
    ("kib", "name"), [(64, "hugepages-64Ki"), (2048, "hugepages-2Mi"), (1 << 20, "hugepages-1Gi")]
)
def test_page_sizes_are_named_and_read_back(kib: int, name: str) -> None:
    assert resources.hugepage_type(kib) == name
    assert resources.page_kib(name) == kib


def test_hugepages_without_a_size_are_rejected() -> None:
    with pytest.raises(InvalidQuantity):
        resources.page_kib("hugepages-")


@pytest.mark.parametrize(
    ("resource", "amounts", "written"),
    [
        ("cpu", (4000, 1900, 250), ("4", "1.9", "0.25")),
        ("memory", (40 << 30, 32212254720), ("40Gi", "30Gi")),
        ("memory", (1 << 30, 25 * (1 << 30) + (7 << 27)), ("1Gi", "25.8Gi")),
        ("ephemeral-storage", (1 << 30, 0), ("1Gi", "0")),
        ("hugepages-2Mi", (3 << 20,), ("3Mi",)),
        ("vendor.example/nic", (2, 1), ("2", "1")),
        # Rounded, both would read 8Gi.
        ("memory", ((8 << 30) + (2 << 20), 8 << 30), ("8194Mi", "8Gi")),
        ("memory", (8 << 30, 8 << 30), ("8Gi", "8Gi")),
    ],
)
def test_amounts_are_written_in_one_notation_and_unequal_ones_differ(
    resource: str, amounts: tuple[int, ...], written: tuple[str, ...]
) -> None:
    assert resources.figures(resource, *amounts) == written
