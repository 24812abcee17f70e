"""Memory that a node keeps from pods: kubeReserved, systemReserved and the hard eviction threshold together.

The sum of ``reservedMemory`` must be equal to it, to the byte, or a kubelet with the Static Memory Manager
does not start (``validateReservedMemory``, kubelet 1.36). A threshold in per cent is of the node's memory,
computed in floating point as ``eviction.parsePercentage`` does; NUMA nodes add up to that memory.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import Quantity
from numazones.kubelet import go

SYSTEM_RESERVED, KUBE_RESERVED = "systemReserved.memory", "kubeReserved.memory"
HARD_EVICTION = "evictionHard.memory.available"
FIELDS = (SYSTEM_RESERVED, KUBE_RESERVED, HARD_EVICTION)
"""In the order in which a kubelet adds them up."""

_NO_THRESHOLD = frozenset({"0%", "100%"})


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """Memory that is kept from pods."""

    amount: Quantity
    share: float = 0.0
    """Of the node's memory, in addition to the amount."""
    fields: tuple[tuple[str, str], ...] = ()
    """The fields that say so, as written; empty: only their sum is known."""

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> "KeptMemory":
        """Add fields up; one that is missing is zero.

        Args:
            fields: those of ``FIELDS`` that are set, as written.

        Raises:
            InvalidQuantity: a value is neither an amount nor, for the threshold, a percentage.

        >>> KeptMemory.read({"kubeReserved.memory": "924Mi", HARD_EVICTION: "100Mi"}).of(0).canonical()
        '1Gi'
        """
        amount, share = quantity.ZERO, 0.0
        for name in FIELDS:
            text = fields.get(name, "0")
            if name == HARD_EVICTION and text.endswith("%"):
                share = 0.0 if text in _NO_THRESHOLD else _share(text)
            else:
                amount += quantity.parse(text)
        return cls(amount, share, tuple((name, fields[name]) for name in FIELDS if name in fields))

    def of(self, memory: int) -> Quantity:
        """Return the sum on a node of so many bytes of memory.

        >>> KeptMemory.read({HARD_EVICTION: "10%"}).of(1 << 30).value()
        107374184
        """
        threshold = int(memory * self.share)
        return self.amount + Quantity(threshold * 10**9, threshold, binary=True)

    def __str__(self) -> str:
        """Name the fields with their values."""
        return " + ".join(f"{name} {value}" for name, value in self.fields if value != "0")


def in_bytes(amount: Quantity) -> str:
    """Return an amount as Kubernetes writes it, and to the byte.

    >>> in_bytes(quantity.parse("1Gi")), in_bytes(quantity.parse("12345"))
    ('1Gi (1073741824 bytes)', '12345 bytes')
    """
    exact = f"{amount.value()} bytes"
    return exact if amount.canonical() == str(amount.value()) else f"{amount.canonical()} ({exact})"


def _share(text: str) -> float:
    try:
        return _float32(_float32(float(text.rstrip("%"))) / 100)
    except ValueError as error:
        raise quantity.InvalidQuantity(
            f"{HARD_EVICTION}: {go.quote(text)} is neither a quantity nor a percentage"
        ) from error


def _float32(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found
