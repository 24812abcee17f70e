"""The root of every error the library raises, and errors about one object among many that no rule foresees.

Callers that want to turn "bad input" into an answer catch ``NumazonesError``; the modules that
detect a problem define the subclass that names it.

A decision asks thousands of pods and nodes. ``About`` marks the blocks that concern one of them, so that
whoever decides about all can leave out the one at fault, and goes on with the others.
"""

from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self


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


class Subject(Protocol):
    """Object that a block is about."""

    @property
    def KIND(self) -> str:  # noqa: N802 - a constant of the class
        """Its kind, as Kubernetes has it."""

    @property
    def name(self) -> str:
        """Its name."""


class NodeName(NamedTuple):
    """A node, where a block knows only its name."""

    name: str
    KIND: str = "Node"


class Passing(Exception):
    """Base of what is raised on purpose in a block about an object, and is no fault of the object."""


class ObjectFault(NumazonesError):
    """Raised in place of an unforeseen error about one object, or two; the message names them."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
        self.objects: list[Subject] = []
        """Those that the error is about, the innermost first."""

    @classmethod
    def about(cls, error: Exception, *objects: Subject) -> Self:
        """Return an error about objects."""
        fault = cls(error)
        fault.objects += objects
        return fault

    @property
    def problem(self) -> str:
        """The error, without the objects."""
        return f"{type(self.error).__name__}: {self.error}"

    def __str__(self) -> str:
        """Return the innermost object, and the error."""
        return f"{title(self.objects[0])}: {self.problem}" if self.objects else self.problem


class About:
    """Raises what a block raises as an ``ObjectFault`` about objects; blocks inside name others first.

    >>> from numazones.cluster.cluster import ClusterPod
    >>> try:
    ...     with About(ClusterPod("default", "web", "1")):
    ...         [][0]
    ... except ObjectFault as fault:
    ...     print(fault)
    pod default/web: IndexError: list index out of range
    """

    __slots__ = ("_objects", "_otherwise")

    def __init__(self, *objects: Subject, otherwise: bool = False) -> None:
        """``otherwise``: name them only where no block inside names any."""
        self._objects = objects
        self._otherwise = otherwise

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Name the objects in what was raised."""
        if not isinstance(error, Exception) or isinstance(error, Passing):
            return
        fault = error if isinstance(error, ObjectFault) else ObjectFault(error)
        if not (self._otherwise and fault.objects):
            fault.objects += self._objects
        if fault is not error:
            raise fault from error


def title(one: Subject) -> str:
    """Return kind and name of an object, for a sentence."""
    kind = one.KIND.lower() if one.KIND in {"Pod", "Node"} else one.KIND
    return f"{kind} {full_name(one)}"


def full_name(one: Any) -> str:
    """Return NAMESPACE/NAME, or the name of an object without a namespace."""
    return "/".join(filter(None, (getattr(one, "namespace", ""), one.name)))
