"""Names of resources, told apart."""

import pytest

from numazones import resources
from numazones.quantity import InvalidQuantity


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
