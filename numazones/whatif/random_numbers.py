"""Random numbers that depend only on where they are drawn.

Each is a hash of the seed, the run and the place in the program. None is drawn after another, so a run gives
the same numbers in whatever process and order runs are made, and a new place of drawing changes no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import xxhash

_T = TypeVar("_T")
_BITS = 64


@dataclass(frozen=True, slots=True)
class RandomNumbers:
    """The random numbers of one run."""

    seed: int
    run: int

    def below(self, bound: int, *place: int | str) -> int:
        """Return a whole number from 0 to ``bound`` - 1."""
        return self._number(*place) * bound >> _BITS

    def permutation(self, items: Sequence[_T], *place: int | str) -> list[_T]:
        """Return the items in random order."""
        order = sorted(range(len(items)), key=lambda index: (self._number(*place, index), index))
        return [items[index] for index in order]

    def _number(self, *place: int | str) -> int:
        return xxhash.xxh3_64_intdigest(repr((self.seed, self.run, *place)).encode())
