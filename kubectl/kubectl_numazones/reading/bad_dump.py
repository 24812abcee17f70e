"""Errors about files that cannot be used."""

from numazones.errors import NumazonesError


class BadDump(NumazonesError):
    """A file holds no objects that can be used; the message names it, and the cure."""
