"""What is said of files that cannot be used."""

from numazones.errors import NumazonesError

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading an object raises that has not the form that Kubernetes gives it."""


class BadDump(NumazonesError):
    """A file holds no objects that can be used; the message names it, and the cure."""
