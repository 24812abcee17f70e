"""Allowance shared by all requests in progress: bytes of bodies, values in them, names of nodes.

A limit on each request alone bounds nothing: a dozen bodies that never end would take all memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from numazones.errors import NumazonesError


class TooMuch(NumazonesError):
    """Requests under way hold more than they may; the message says of what, and how many."""


class Share:
    """Part of the allowance that one request holds."""

    def __init__(self, allowance: "Allowance") -> None:
        self._allowance = allowance
        self.held = 0

    def add(self, count: int) -> None:
        """Hold more.

        Raises:
            TooMuch: all requests together would hold more than they may.
        """
        allowance = self._allowance
        if allowance.held + count > allowance.limit:
            raise TooMuch(
                f"the requests in progress exceed the limit of {allowance.limit} {allowance.unit}; only "
                "kube-scheduler should call this address"
            )
        allowance.held += count
        self.held += count


class Allowance:
    """A number of something that requests under way share."""

    def __init__(self, limit: int, unit: str) -> None:
        self.limit = limit
        self.unit = unit
        self.held = 0

    @contextmanager
    def share(self, count: int = 0) -> Iterator[Share]:
        """Hold ``count``, and what is added, until the end.

        Raises:
            TooMuch: all requests together would hold more than they may.
        """
        share = Share(self)
        share.add(count)
        try:
            yield share
        finally:
            self.held -= share.held
