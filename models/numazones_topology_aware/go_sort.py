"""Sorting as Go's ``sort.Slice`` and ``slices.SortFunc`` do.

The policy's comparison of pools contradicts itself at times, and its comparison of partly used cache
groups leaves many undecided; then the outcome depends on the algorithm. Go takes an insertion sort up
to twelve items and a pattern-defeating quicksort (O. Peters, 2021) above, with a pseudo-random
sequence that is seeded by the length, so that equal inputs give equal outputs.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_Item = TypeVar("_Item")

_SHORT = 12
_NINTHER = 50
_MIN_SHIFTING = 50
_PARTIAL_STEPS = 5
_MAX_SWAPS = 12
_PATTERN_BREAKING = 8
_WORD = (1 << 64) - 1

_INCREASING, _DECREASING, _UNKNOWN = "increasing", "decreasing", "unknown"


def go_sorted(items: Sequence[_Item], less: Callable[[_Item, _Item], bool]) -> list[_Item]:
    """Return the items in the order in which Go would leave them."""
    ordered = list(items)
    _Sorter(ordered, less).sort(0, len(ordered), len(ordered).bit_length())
    return ordered


class _Sorter(Generic[_Item]):
    """One sort in progress; positions are those in ``items``."""

    def __init__(self, items: list[_Item], less: Callable[[_Item, _Item], bool]) -> None:
        self.items = items
        self.precedes = less

    def less(self, first: int, second: int) -> bool:
        return self.precedes(self.items[first], self.items[second])

    def swap(self, first: int, second: int) -> None:
        items = self.items
        items[first], items[second] = items[second], items[first]

    def sort(self, low: int, high: int, limit: int) -> None:
        balanced = partitioned = True
        while True:
            length = high - low
            if length <= _SHORT:
                self.insertion(low, high)
                return
            if limit == 0:
                self.heap(low, high)
                return
            if not balanced:
                self.break_patterns(low, high)
                limit -= 1
            pivot, hint = self.choose_pivot(low, high)
            if hint == _DECREASING:
                self.items[low:high] = self.items[low:high][::-1]
                pivot = (high - 1) - (pivot - low)
                hint = _INCREASING
            if balanced and partitioned and hint == _INCREASING and self.partial_insertion(low, high):
                return
            if low > 0 and not self.less(low - 1, pivot):
                low = self.partition_equal(low, high, pivot)
                continue
            middle, partitioned = self.partition(low, high, pivot)
            left, right = middle - low, high - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.sort(low, middle, limit)
                low = middle + 1
            else:
                self.sort(middle + 1, high, limit)
                high = middle

    def insertion(self, low: int, high: int) -> None:
        for start in range(low + 1, high):
            position = start
            while position > low and self.less(position, position - 1):
                self.swap(position, position - 1)
                position -= 1

    def heap(self, low: int, high: int) -> None:
        size = high - low
        for root in range((size - 1) // 2, -1, -1):
            self.sift_down(root, size, low)
        for last in range(size - 1, -1, -1):
            self.swap(low, low + last)
            self.sift_down(0, last, low)

    def sift_down(self, root: int, size: int, first: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self.less(first + child, first + child + 1):
                child += 1
            if not self.less(first + root, first + child):
                return
            self.swap(first + root, first + child)
            root = child

    def break_patterns(self, low: int, high: int) -> None:
        length = high - low
        if length < _PATTERN_BREAKING:
            return
        state = length
        modulus = 1 << length.bit_length()
        middle = low + (length // 4) * 2
        for place in (middle - 1, middle, middle + 1):
            state ^= (state << 13) & _WORD
            state ^= state >> 7
            state ^= (state << 17) & _WORD
            other = state & (modulus - 1)
            if other >= length:
                other -= length
            self.swap(place, low + other)

    def choose_pivot(self, low: int, high: int) -> tuple[int, str]:
        length = high - low
        first, second, third = (low + length // 4 * part for part in (1, 2, 3))
        swaps = 0
        if length >= _PATTERN_BREAKING:
            if length >= _NINTHER:
                first, swaps = self.median(first - 1, first, first + 1, swaps)
                second, swaps = self.median(second - 1, second, second + 1, swaps)
                third, swaps = self.median(third - 1, third, third + 1, swaps)
            second, swaps = self.median(first, second, third, swaps)
        return second, {0: _INCREASING, _MAX_SWAPS: _DECREASING}.get(swaps, _UNKNOWN)

    def median(self, first: int, second: int, third: int, swaps: int) -> tuple[int, int]:
        if self.less(second, first):
            first, second, swaps = second, first, swaps + 1
        if self.less(third, second):
            second, third, swaps = third, second, swaps + 1
        if self.less(second, first):
            first, second, swaps = second, first, swaps + 1
        return second, swaps

    def partial_insertion(self, low: int, high: int) -> bool:
        """Repair a nearly sorted range; True if it is sorted now."""
        position = low + 1
        for _ in range(_PARTIAL_STEPS):
            while position < high and not self.less(position, position - 1):
                position += 1
            if position == high:
                return True
            if high - low < _MIN_SHIFTING:
                return False
            self.swap(position, position - 1)
            if position - low >= 2:  # noqa: PLR2004 - the item and its neighbour
                self.shift(range(position - 1, 0, -1))
            if high - position >= 2:  # noqa: PLR2004
                self.shift(range(position + 1, high))
        return False

    def shift(self, positions: range) -> None:
        for position in positions:
            if not self.less(position, position - 1):
                return
            self.swap(position, position - 1)

    def partition(self, low: int, high: int, pivot: int) -> tuple[int, bool]:
        self.swap(low, pivot)
        left, right = self.approach(low, low + 1, high - 1)
        if left > right:
            self.swap(right, low)
            return right, True
        while left <= right:
            self.swap(left, right)
            left, right = self.approach(low, left + 1, right - 1)
        self.swap(right, low)
        return right, False

    def approach(self, pivot: int, left: int, right: int) -> tuple[int, int]:
        """Return the next pair of items on the wrong sides of the pivot."""
        while left <= right and self.less(left, pivot):
            left += 1
        while left <= right and not self.less(right, pivot):
            right -= 1
        return left, right

    def partition_equal(self, low: int, high: int, pivot: int) -> int:
        """Move items equal to the pivot to the front; return where they end."""
        self.swap(low, pivot)
        left, right = low + 1, high - 1
        while True:
            while left <= right and not self.less(low, left):
                left += 1
            while left <= right and self.less(low, right):
                right -= 1
            if left > right:
                return left
            self.swap(left, right)
            left, right = left + 1, right - 1
