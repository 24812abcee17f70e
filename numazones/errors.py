"""The root of every error the library raises.

Callers that want to turn "bad input" into an answer catch ``NumazonesError``; the modules that
detect a problem define the subclass that names it.
"""


class NumazonesError(Exception):
    """Base of all errors of the library; the message names the object and the cure.

    >>> from numazones import quantity
    >>> try:
    ...     quantity.parse("8 Gi")
    ... except NumazonesError as error:
    ...     type(error).__name__
    'InvalidQuantity'
    """


class WrongType(NumazonesError, TypeError):
    """A function was given something else than it takes; the message says how to get what it takes."""


def expect(value: object, kind: type, cure: str) -> None:
    """Check the type of an argument.

    Raises:
        WrongType: it is another one.
    """
    if not isinstance(value, kind):
        raise WrongType(f"expected {kind.__name__}, not {type(value).__name__}; {cure}")


class UnmodelledFeature(NumazonesError):
    """A decision depends on something that is not modelled or not known; the message says what to do."""
