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


class UnmodelledFeature(NumazonesError):
    """A decision depends on something that is not modelled or not known; the message says what to do."""
