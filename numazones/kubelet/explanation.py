"""Explain why a pod was admitted or rejected, in plain words with numbers.

The decision is made once more with an observer, which notes the hints of every resource and how
they were merged. For a rejection, the *shortfall* names the set of NUMA nodes that came closest to
what was asked and what it lacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from numazones.errors import expect
from numazones.kubelet.admission import Admission, Attempt
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.hints import Hint, ResourceHints, enumeration_order
from numazones.kubelet.machine import name_numas
from numazones.kubelet.rejection import Rejection
from numazones.kubelet.shortfall import Shortage, holders_of, shortfall_of

# With more NUMA nodes than the kubelet takes by default, only preferred hints are listed.
_MAX_NUMAS_LISTED = 8


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of hints."""

    container: str
    """Empty: the pod as a whole (scope pod)."""
    hints: tuple[tuple[str, tuple[Hint, ...]], ...]
    """(resource, hints), in the order in which the managers were asked.

    On machines with more than 8 NUMA nodes only the preferred ones are listed.
    """
    merged: Hint
    admitted: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for one decision.

    >>> from numazones import admit, build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> explain(admit(node, build.pod(cpu=9, memory="1Gi"))).rejected_container
    'main'
    """

    admitted: bool
    merges: tuple[Merge, ...]
    rejected_container: str | None = None
    """Container (empty: the pod as a whole) at which a rejection came about; None if admitted."""
    shortages: tuple[Shortage, ...] = ()
    """What the nearest set of NUMA nodes lacked; empty if admitted."""
    shortfall: str = ""
    """One plain sentence; empty if admitted."""
    holders: tuple[tuple[str, str], ...] = ()
    """(UID, ``8 exclusive CPUs``) of the pods that hold there what was short, most first."""

    def __str__(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines())

    def lines(self) -> tuple[str, ...]:
        """Return everything in lines, one per resource and merge.

        >>> from numazones import admit, build
        >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
        >>> for line in explain(admit(node, build.pod(cpu=2, memory="1Gi"))).lines():
        ...     print(line)
        container main: cpu offers NUMA node 0 (preferred), NUMA node 1 (preferred), ...
        container main: memory offers NUMA node 0 (preferred), NUMA node 1 (preferred), ...
        container main: merged to NUMA node 0 (preferred), admitted
        """
        lines: list[str] = []
        for merge in self.merges:
            owner = f"container {merge.container}" if merge.container else "pod"
            lines.extend(f"{owner}: {name} offers {_hints_text(hints)}" for name, hints in merge.hints)
            verdict = "admitted" if merge.admitted else "rejected"
            lines.append(f"{owner}: merged to {_hint_text(merge.merged)}, {verdict}")
        if self.shortfall:
            lines.append(self.shortfall)
        return tuple(lines)


def explain(admission: Admission) -> Explanation:
    """Explain a decision: hints, merges, and what the nearest set of NUMA nodes lacked.

    Args:
        admission: what ``admit`` returned.

    Raises:
        WrongType: it is something else.

    >>> from numazones import admit, build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> explain(admit(node, build.pod(cpu=9, memory="1Gi"))).shortfall
    'needs 9 exclusive CPUs on one NUMA node, ...'
    """
    expect(admission, Admission, "pass the result of admit")
    node = admission.before
    merges: list[Merge] = []

    def observe(container: str, hints: Sequence[ResourceHints], merged: Hint, admitted: bool) -> None:  # noqa: FBT001 - an Observer
        listable = node.machine.numa_mask.bit_count() <= _MAX_NUMAS_LISTED
        if listable and not admitted and node.kubelet.topology.policy != SINGLE_NUMA_NODE:
            merged = node.kubelet.topology.merge_non_preferred(hints)
        offers = tuple((resource.resource, _offers(resource, complete=listable)) for resource in hints)
        merges.append(Merge(container, offers, merged, admitted))

    attempt = Attempt(node, admission.pod, observe)
    try:
        attempt.run()
    except Rejection as rejection:
        shortfall = shortfall_of(attempt, rejection)
        holders = tuple(
            (uid, shortage.written(amount))
            for shortage in shortfall.shortages[:1]
            for uid, amount in holders_of(shortage, node)
        )
        return Explanation(
            False, tuple(merges), attempt.asking, shortfall.shortages, shortfall.sentence, holders
        )
    return Explanation(True, tuple(merges))


def _offers(resource: ResourceHints, *, complete: bool) -> tuple[Hint, ...]:
    if complete or resource.any_numa is not None:
        return resource.all()
    return tuple(Hint(mask, preferred=True) for mask in sorted(resource.preferred, key=enumeration_order))


def _hint_text(hint: Hint) -> str:
    where = "any NUMA node" if hint.affinity is None else name_numas(hint.affinity)
    return f"{where} ({'preferred' if hint.preferred else 'not preferred'})"


def _hints_text(hints: Sequence[Hint]) -> str:
    if hints == (Hint(None, True),):
        return "no preference"
    if hints == (Hint(None, False),):
        return "nothing that fits"
    return ", ".join(_hint_text(hint) for hint in hints)
