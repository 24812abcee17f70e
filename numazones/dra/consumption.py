"""Amounts of a device's capacity that a request takes (KEP-5075).

Rules: ``structured/internal/incubating/consumable_capacity.go`` of Kubernetes 1.36.3. Every capacity of a
device is taken, also one that the request does not name: then its default, or all of it.
"""

from collections.abc import Mapping

from numazones.apimachinery.quantity import Quantity
from numazones.dra.devices import Capacity, CapacityPolicy, PublishedDevice

_NANO = 10**9


def consumption(
    requested: Mapping[str, Quantity] | None, device: PublishedDevice
) -> dict[str, Quantity] | None:
    """Return name of a capacity → amount that a request takes of a device.

    Returns:
        None where the device lacks what is requested, or may not give such an amount.
    """
    if requested and any(name not in device.capacities for name in requested):
        return None
    found = {}
    for name, capacity in device.capacities.items():
        wanted = requested.get(name) if requested else None
        amount = _taken(wanted, capacity)
        if _is_refused(amount, capacity.policy):
            return None
        found[name] = amount
    return found


def exceeds(amounts: Mapping[str, Quantity], used: Mapping[str, int], device: PublishedDevice) -> bool:
    """Return whether amounts are more than is left of a device's capacities; ``used``: in nano units."""
    return any(
        used.get(name, 0) + amount.nanos > device.capacities[name].value.nanos
        for name, amount in amounts.items()
    )


def _taken(wanted: Quantity | None, capacity: Capacity) -> Quantity:
    policy = capacity.policy
    if wanted is None:
        default = None if policy is None else policy.default
        return capacity.value if default is None else default
    if policy is None:
        return wanted
    if policy.has_range and policy.minimum is not None:
        return _in_steps(wanted, policy.minimum, policy.step)
    return next((value for value in policy.valid_values if value >= wanted), wanted)


def _in_steps(wanted: Quantity, minimum: Quantity, step: Quantity | None) -> Quantity:
    if wanted < minimum:
        return minimum
    if step is None or not step.value():
        return wanted
    steps = -(-(wanted.value() - minimum.value()) // step.value())
    amount = minimum.value() + steps * step.value()
    return Quantity(amount * _NANO, amount, binary=True)


def _is_refused(amount: Quantity, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default is not None and _same(amount, policy.default)):
        return False
    if policy.has_range:
        if policy.maximum is not None and amount > policy.maximum:
            return True
        if policy.step is None or not policy.step.value():
            return False
        minimum = 0 if policy.minimum is None else policy.minimum.value()
        return (amount.value() - minimum) % policy.step.value() != 0
    return bool(policy.valid_values) and amount not in policy.valid_values


def _same(one: Quantity, other: Quantity) -> bool:
    """Whether two are of one amount in one form."""
    return (one.nanos, one.binary, one.exponent) == (other.nanos, other.binary, other.exponent)
