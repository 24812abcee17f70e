"""Counters that the partitions of a pool's devices share (KEP-4815), while devices are searched.

Rules and quirks are those of ``checkAvailableCounters`` in Kubernetes 1.36.3: what is left is remembered
under the name of the pool alone, so pools of two drivers that have the same name, as usual the node's, mix.
Whichever is tried first decides which counters there are.
"""

from numazones.dra.allocated import AllocatedDevices
from numazones.dra.devices import PublishedDevice
from numazones.dra.slices import NodePool

_Amounts = dict[str, dict[str, int]]
"""Counter set → counter → amount, in nano units."""


class Counters:
    """What allocated devices have left of counters; one for all nodes of a scheduling cycle."""

    def __init__(self, allocated: AllocatedDevices) -> None:
        self._allocated = allocated
        self._left: dict[str, _Amounts] = {}

    def left(self, pool: NodePool) -> _Amounts:
        """Return what is left in the pool of this name; negative where too much is taken."""
        found = self._left.get(pool.name)
        if found is None:
            found = self._left[pool.name] = {name: dict(amounts) for name, amounts in pool.counters.items()}
            for device in pool.partitions:
                if self._allocated.holds(device.key):
                    for name, counter, amount in device.counters:
                        found[name][counter] -= amount.nanos
        return found

    def search(self) -> "CountersInSearch":
        """Return the counters for one search, of which it takes and gives back."""
        return CountersInSearch(self)


class CountersInSearch:
    """Counters that the devices chosen so far have taken."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._taken: dict[str, _Amounts] = {}

    def take(self, pool: NodePool, device: PublishedDevice) -> bool:
        """Take a device's counters; False: there are not enough, and nothing has changed.

        One counter that is negative keeps away every device of the pool that needs any.
        """
        left = self._counters.left(pool)
        taken = self._taken.setdefault(pool.name, {})
        self._add(taken, device, 1)
        if all(
            amount >= taken.get(name, _NOTHING).get(counter, 0)
            for name, amounts in left.items()
            for counter, amount in amounts.items()
        ):
            return True
        self._add(taken, device, -1)
        return False

    def give_back(self, pool: NodePool, device: PublishedDevice) -> None:
        """Give back a device's counters."""
        self._add(self._taken[pool.name], device, -1)

    def _add(self, taken: _Amounts, device: PublishedDevice, sign: int) -> None:
        for name, counter, amount in device.counters:
            amounts = taken.setdefault(name, {})
            amounts[counter] = amounts.get(counter, 0) + sign * amount.nanos


_NOTHING: dict[str, int] = {}
