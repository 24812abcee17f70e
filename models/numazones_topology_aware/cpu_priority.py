"""Priority classes of CPUs: which are fast, which are slow (``pkg/cpuallocator``).

Per package: with more than one base frequency the lowest is low and all others high. More than one
energy preference overrides that: the weakest is low, stronger ones are high. E-cores are low whatever
the rest says. Intel Speed Select is not modelled.
"""

from enum import StrEnum

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_topology_aware.hardware import CPUDetails
from numazones_topology_aware.topology import Topology

_STRENGTH = {"performance": 0, "balance_performance": 1, "balance_power": 2, "power": 3}


class Priority(StrEnum):
    """Kind of exclusive CPUs that a container may prefer."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    NONE = "none"


_CLASSES = (Priority.HIGH, Priority.NORMAL, Priority.LOW)

Classes = dict[Priority, CPUSet]
"""Class → CPUs; high, normal and low, in this order."""


def classify(topology: Topology) -> Classes:
    """Return the class of every online CPU."""
    classes: Classes = dict.fromkeys(_CLASSES, 0)
    details = topology.hardware.details
    for package in topology.packages:
        members = {cpu: details.get(cpu, CPUDetails()) for cpu in cpuset.ids(package.cpus)}
        preferences = {one.energy_preference for one in members.values()}
        strengths = {_STRENGTH[preference] for preference in preferences if preference in _STRENGTH}
        frequencies = {one.base_frequency for one in members.values() if one.base_frequency > 0}
        for cpu, own in members.items():
            low = bool(topology.efficient >> cpu & 1)
            priority = Priority.LOW if low else _class(own, strengths, frequencies)
            classes[priority] |= 1 << cpu
    return classes


def _class(own: CPUDetails, strengths: set[int], frequencies: set[int]) -> Priority:
    """The class of a CPU among the energy preferences and base frequencies of its package."""
    if len(strengths) > 1:
        weakest = _STRENGTH.get(own.energy_preference, len(_STRENGTH)) >= max(strengths)
        return Priority.LOW if weakest else Priority.HIGH
    if len(frequencies) > 1:
        return Priority.HIGH if own.base_frequency > min(frequencies) else Priority.LOW
    return Priority.NORMAL


def compare(classes: Classes, first: CPUSet, second: CPUSet, *, wanted: Priority, count: int) -> int:
    """Compare how well two CPU sets suit a wanted class: positive if the first does better, 0 if neither.

    With a positive count, the tightest set that has so many CPUs of the class is better.
    """
    if wanted is Priority.NONE:
        return 0
    if count > 0 and wanted is not Priority.NORMAL:
        one, other = ((cpus & classes[wanted]).bit_count() for cpus in (first, second))
        if wanted is Priority.HIGH and not one and not other:
            one, other = ((cpus & classes[Priority.NORMAL]).bit_count() for cpus in (first, second))
        if one >= count and other >= count:
            return other - one
        if one >= count or other >= count:
            return one - other
    return _compare_class_by_class(classes, first, second, wanted=wanted, count=count)


def _compare_class_by_class(
    classes: Classes, first: CPUSet, second: CPUSet, *, wanted: Priority, count: int
) -> int:
    position = _CLASSES.index(wanted)
    for priority in _CLASSES[position:]:
        one, other = ((cpus & classes[priority]).bit_count() for cpus in (first, second))
        if count > 0 and priority is wanted and one >= count and other >= count:
            return other - one
        if one != other:
            return one - other
    for priority in _CLASSES[:position]:
        one, other = ((cpus & classes[priority]).bit_count() for cpus in (first, second))
        if one != other:
            return other - one
    return 0
