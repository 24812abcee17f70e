"""The objects of one kind by key, with a callback for every change.

It connects a ``Reflector``, which knows the API's protocol, with its caller, who knows what the objects
mean. Everything runs on one event loop, so nobody sees half a change.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

TableChange = Callable[[T | None, T | None], None]
"""Called with (before, after): before is None for a new object, after is None for one that is gone."""


class Table(Generic[T]):
    """Objects by key."""

    def __init__(
        self,
        key: Callable[[T], str],
        changed: TableChange[T] | None = None,
        *,
        kept: Callable[[T], T] = lambda item: item,
        outdated: Callable[[T, T], bool] = lambda _known, _item: False,
    ) -> None:
        """Keep objects by ``key``.

        Args:
            key: names an object.
            changed: called for every change.
            kept: reduces an object to what is kept, after ``changed`` has seen all of it.
            outdated: given the known object and an arriving one, whether the arriving one is older.
        """
        self.key = key
        self._changed = changed
        self._kept = kept
        self._outdated = outdated
        self._items: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, key: str) -> T | None:
        """Return the object of that key, or None."""
        return self._items.get(key)

    def put(self, item: T) -> None:
        """Add or replace an object."""
        key = self.key(item)
        old = self._items.get(key)
        if old is not None and self._outdated(old, item):
            return
        self._items[key] = self._kept(item)
        if self._changed is not None:
            self._changed(old, item)

    def remove(self, item: T) -> None:
        """Forget an object; ``item`` is its last state."""
        key = self.key(item)
        old = self._items.get(key)
        if old is None or self._outdated(old, item):
            return
        del self._items[key]
        if self._changed is not None:
            self._changed(old, None)

    def discard(self, key: str) -> None:
        """Forget the object of that key, whatever its last state was; it may have none."""
        old = self._items.pop(key, None)
        if old is not None and self._changed is not None:
            self._changed(old, None)

    def retain(self, keys: Collection[str]) -> None:
        """Forget every object whose key is not among these."""
        for key in [key for key in self._items if key not in keys]:
            self.discard(key)
