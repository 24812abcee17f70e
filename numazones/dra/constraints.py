"""Constraints of a claim while the allocator searches: equal or distinct values of an attribute.

Rules and quirks are those of ``structured/internal`` in Kubernetes 1.36.3. A constraint remembers the values
of the devices chosen so far; ``add`` refuses a device that does not go with them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from numazones.dra.claims import Constraint
from numazones.dra.devices import LISTS, DeviceAttribute
from numazones.dra.rules import AllocatorRules
from numazones.dra.slices import CandidateDevice

_SCALAR = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}


_UNREAD = object()


class State(ABC):
    """What a constraint on one attribute knows of the devices that are chosen."""

    def __init__(self, name: str, offered: Sequence[CandidateDevice]) -> None:
        self._name = name
        self._offered = offered
        self._values: list[object] = [_UNREAD] * len(offered)

    @abstractmethod
    def add(self, request: str, at: int) -> bool:
        """Take in a device of a request; False: it does not fit, and nothing has changed."""

    @abstractmethod
    def remove(self, request: str) -> None:
        """Forget the device of a request that was taken in last."""

    def value(self, at: int) -> object:
        """The attribute of a device, in the form that this constraint compares; None: it lacks it."""
        found = self._values[at]
        if found is _UNREAD:
            attribute = self._offered[at].device.attribute(self._name)
            found = self._values[at] = None if attribute is None else self.comparable(attribute)
        return found

    def comparable(self, attribute: DeviceAttribute) -> object:
        """An attribute as this constraint compares it."""
        return object() if attribute.kind in LISTS or not attribute.kind else attribute


def state(constraint: Constraint, offered: Sequence[CandidateDevice], rules: AllocatorRules) -> State | None:
    """Return the state of a constraint before any device is chosen; None: it is of no known kind.

    ``add`` takes positions among the ``offered`` devices.
    """
    if constraint.match:
        kind: type[State] = _MatchingSets if rules.lists else _Matching
        return kind(constraint.match, offered)
    if constraint.distinct and rules.distinct:
        kind = _DistinctSets if rules.lists else _Distinct
        return kind(constraint.distinct, offered)
    return None


class _Matching(State):
    """All have the value of the first; a list is like nothing else."""

    _count = 0
    _common: object = None

    def add(self, request: str, at: int) -> bool:  # noqa: ARG002 - of any request
        value = self._values[at]
        if value is _UNREAD:
            value = self.value(at)
        if value is None:
            return False
        if not self._count:
            self._common = value
        elif value != self._common:
            return False
        self._count += 1
        return True

    def remove(self, request: str) -> None:  # noqa: ARG002 - of any request
        self._count -= 1


class _Distinct(State):
    """None has the value of another request's last device, nor of the one before it in its own request."""

    def __init__(self, name: str, offered: Sequence[CandidateDevice]) -> None:
        super().__init__(name, offered)
        self._count = 0
        self._last: dict[str, object] = {}

    def add(self, request: str, at: int) -> bool:
        value = self.value(at)
        if value is None or (self._count and not self._is_distinct(value)):
            return False
        self._last[request] = value
        self._count += 1
        return True

    def _is_distinct(self, value: object) -> bool:
        if not isinstance(value, DeviceAttribute):
            return not self._last
        return all(value != other for other in self._last.values())

    def remove(self, request: str) -> None:
        self._last.pop(request, None)
        self._count -= 1


class _MatchingSets(_Matching):
    """All have an element in common; going back does not bring back what was ruled out."""

    _common: frozenset[object] = frozenset()

    def comparable(self, attribute: DeviceAttribute) -> object:
        return _as_set(attribute)

    def add(self, request: str, at: int) -> bool:  # noqa: ARG002 - of any request
        value = self.value(at)
        if not isinstance(value, frozenset):
            return False
        if not self._count:
            self._common = value
        elif not (common := self._common & value):
            return False
        else:
            self._common = common
        self._count += 1
        return True


class _DistinctSets(_Distinct):
    """Sets that have no element in common."""

    def comparable(self, attribute: DeviceAttribute) -> object:
        return _as_set(attribute)

    def _is_distinct(self, value: object) -> bool:
        assert isinstance(value, frozenset)  # noqa: S101 - made above
        return all(value.isdisjoint(other) for other in self._last.values())  # type: ignore[arg-type]


def _as_set(attribute: DeviceAttribute) -> frozenset[object]:
    """An attribute as the set of its values, each with its type."""
    if attribute.kind in LISTS:
        values = attribute.value
        assert isinstance(values, tuple)  # noqa: S101 - a list has a tuple
        return frozenset(DeviceAttribute(_SCALAR[attribute.kind], value) for value in values)
    return frozenset({attribute})
