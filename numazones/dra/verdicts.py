"""Which devices the selectors of a class and of a request select, as the allocator evaluates them.

Rules: ``isSelectable`` and ``selectorsMatch`` of ``structured/internal`` in Kubernetes 1.36.3. The class's
selectors come first, and the first that is false ends the evaluation. An error ends the pod's scheduling.
"""

from collections.abc import Mapping

from numazones.apimachinery.cel.values import Unsupported
from numazones.dra.claims import RequestChoice
from numazones.dra.device_classes import DeviceClass
from numazones.dra.rules import AllocatorRules
from numazones.dra.selectors import DeviceSelector, InvalidDeviceSelector, selector
from numazones.dra.slices import AllocationNode, CandidateDevice, is_accessible
from numazones.errors import NumazonesError


class AllocationError(NumazonesError):
    """The scheduler gives up on the pod; the message is the scheduler's."""


class UnknownSelector(NumazonesError):
    """A selector cannot be evaluated; the message names the class or claim and says why."""


class Verdicts:
    """Evaluates selectors for one node."""

    def __init__(
        self, classes: Mapping[str, DeviceClass], rules: AllocatorRules, place: AllocationNode
    ) -> None:
        self._classes, self._rules, self._place = classes, rules, place

    def selects(self, claim: str, choice: RequestChoice, candidate: CandidateDevice) -> bool:
        """Return whether a request's class and selectors select a device that the node can use.

        Raises:
            AllocationError: a selector cannot be compiled, or fails for the device.
            UnknownSelector: a selector cannot be evaluated here.
        """
        if not self._rules.binding and candidate.device.binding_conditions:
            return False
        of_class = self._classes[choice.device_class].selectors
        for expressions, owner, name in (
            (of_class, "class", choice.device_class),
            (choice.selectors, "claim", claim),
        ):
            for at, text in enumerate(expressions):
                verdict = self._verdict(text, candidate)
                if verdict is False:
                    return False
                if verdict is not True:
                    raise _error(verdict, f"{owner} {name}: selector #{at}")
        return is_accessible(candidate, self._place)

    def of_class(self, choice: RequestChoice, candidate: CandidateDevice) -> bool:
        """Return whether a device is of a request's class; errors as for ``selects``."""
        bare = RequestChoice("", choice.device_class)
        return self.selects("", bare, candidate)

    def _verdict(self, text: str, candidate: CandidateDevice) -> object:
        """True or False, or the text of an error, or the cause why it is not known."""
        key = (text, self._rules.lists_in_selectors, self._rules.consumable)
        known = candidate.verdicts
        if known is None:
            known = candidate.verdicts = {}
        found = known.get(key)
        if found is None:
            found = known[key] = self._evaluated(text, candidate)
        return found

    def _evaluated(self, text: str, candidate: CandidateDevice) -> object:
        try:
            compiled: DeviceSelector = selector(text, lists=self._rules.lists_in_selectors)
            shareable = candidate.device.shareable and self._rules.consumable
            result, _ = compiled.evaluate(candidate.device, shareable=shareable)
        except InvalidDeviceSelector as error:
            return f"CEL compile error: {error}"
        except Unsupported as error:
            return error
        return result if isinstance(result, bool) else f"CEL runtime error: {result.message}"


def _error(verdict: object, where: str) -> NumazonesError:
    if isinstance(verdict, Unsupported):
        return UnknownSelector(f"{where} cannot be evaluated by numazones: it uses {verdict}")
    return AllocationError(f"{where}: {verdict}")
