"""Explain why a pod was placed or rejected, and which known defects of koord-scheduler decided.

The stages are run once more, and what they were given is told: policies, hints per resource, what the
merge made of them, exclusivity, what the pod gets. Defects are named only where they bear on this pod.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numazones import cpuset
from numazones_koordinator.admission import Admission, Stage
from numazones_koordinator.amounts import format_amounts
from numazones_koordinator.annotations import Exclusive, TopologyPolicy
from numazones_koordinator.books import Use
from numazones_koordinator.cycle import NOT_MATCHING, Candidate
from numazones_koordinator.hints import masks
from numazones_koordinator.status import Code, Rejected
from numazones_koordinator.topology_manager import Hint, Hints
from numazones_koordinator.trial import Trials

# Of more hints only the preferred ones are listed.
_MAX_LISTED = 15
_EFFECTS = {
    Use.SINGLE: "no set of several NUMA nodes with {} is preferred",
    Use.SHARED: "none of {} alone is preferred",
}
# On larger machines it is not asked whether the order of spreading was to blame: there are too many sets.
_MAX_NUMA_NODES = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for one decision."""

    admitted: bool
    policy: str
    """Which policy applies, and whose."""
    hints: tuple[str, ...] = ()
    """What each resource could use; empty where no NUMA nodes were sought."""
    exclusivity: str = ""
    """How NUMA nodes are used by others, where the pod minds."""
    verdict: str = ""
    """What became of the pod."""
    defects: tuple[str, ...] = ()
    """Known defects of the released scheduler that bear on this decision."""

    def lines(self) -> tuple[str, ...]:
        """The whole story, one line per fact."""
        told = (self.policy, *self.hints, self.exclusivity, self.verdict, *self.defects)
        return tuple(line for line in told if line)


def explain(admission: Admission) -> Explanation:
    """Explain a decision of ``admit``.

    Raises:
        SchedulerCrash, UnmodelledFeature: as ``admit``.
    """
    node, request, outcome = admission.before, admission.request, admission.outcome
    if outcome.stage is Stage.PRE_FILTER:
        return Explanation(False, "", verdict=f"rejected before any node is considered: {admission.message}")
    if request.status.code is Code.SKIP:
        return Explanation(
            True, "", verdict="admitted: the pod requests nothing, so nothing is assigned to it"
        )
    candidate = Candidate(node, request)
    aligned = bool(outcome.policy) and bool(node.host.zones)
    return Explanation(
        admitted=admission.admitted,
        policy=_policy(admission),
        hints=tuple(_hints(candidate)) if aligned else (),
        exclusivity=_exclusivity(admission) if aligned else "",
        verdict=_verdict(admission),
        defects=tuple(_defects(admission, candidate)),
    )


def _policy(admission: Admission) -> str:
    own, theirs = admission.request.numa.policy, admission.before.host.topology_policy
    if admission.outcome.policy is None:
        return f"the pod's policy {own} and the node's policy {theirs} conflict"
    if not admission.outcome.policy:
        return "neither the pod nor the node has a NUMA topology policy: nothing is aligned"
    if own and theirs:
        return f"policy {own}, set by both the pod and the node"
    return f"policy {own or theirs}, set by {'the pod' if own else 'the node'}"


def _hints(candidate: Candidate) -> Iterator[str]:
    for provider, hints in (("NUMA resources", candidate.hints), ("devices", candidate.device_hints)):
        try:
            yield from _hint_lines(hints())
        except Rejected as rejected:
            yield f"{provider}: {rejected.status.message}"


def _hint_lines(hints: Hints | None) -> Iterator[str]:
    for name, offered in sorted((hints or {}).items()):
        yield f"{name} could use {_sets(offered)}" if offered else f"{name} fits on no set of NUMA nodes"


def _sets(hints: Sequence[Hint]) -> str:
    preferred = [hint for hint in hints if hint.preferred]
    shown = hints if len(hints) <= _MAX_LISTED else preferred
    told = ", ".join(
        f"{_numas(hint.numas)} ({'preferred, ' if hint.preferred else ''}score {hint.score})"
        for hint in shown
    )
    rest = len(hints) - len(shown)
    return f"{told} and {rest} larger sets" if rest else told


def _numas(numas: int | None) -> str:
    if numas is None:
        return "any NUMA node"
    several = numas.bit_count() > 1
    return f"NUMA {'nodes' if several else 'node'} {cpuset.format(numas)}"


def _exclusivity(admission: Admission) -> str:
    if admission.request.exclusive != Exclusive.REQUIRED:
        return ""
    node = admission.before
    origin = "by its annotation" if admission.request.numa.exclusive else "by default, as it has a policy"
    effects = []
    for use, effect in _EFFECTS.items():
        numas = [str(numa) for numa in node.host.numa_ids if node.use(numa) is use]
        if numas:
            several = len(numas) > 1
            which = f"NUMA nodes {', '.join(numas)} count" if several else f"NUMA node {numas[0]} counts"
            effects.append(f"{which} as {use}, so {effect.format('them' if several else 'it')}")
    return f"the pod requires exclusivity ({origin}); {'; '.join(effects) or 'no NUMA node counts as used'}"


def _verdict(admission: Admission) -> str:
    if not admission.admitted:
        again = " permanently" if admission.reason == Code.UNRESOLVABLE else ""
        return f"rejected{again} at {admission.outcome.stage}: {admission.message}"
    given = []
    if admission.outcome.affinity is not None:
        given.append(f"on {_numas(admission.outcome.affinity.numas)}")
    if admission.cpus:
        given.append(f"with CPUs {cpuset.format(admission.cpus)}")
    for numa, resources in admission.numa_resources:
        amounts = ", ".join(f"{name} {amount}" for name, amount in format_amounts(resources).items())
        given.append(f"{amounts} of NUMA node {numa}")
    for type_, parts in sorted(admission.devices.items()):
        given.append(f"{type_} {', '.join(str(minor) for minor, _ in parts)}")
    return f"admitted {'; '.join(given)}" if given else "admitted; nothing is recorded for it"


def _defects(admission: Admission, candidate: Candidate) -> Iterator[str]:
    """Return the known defects of the released code that decided here."""
    node, outcome = admission.before, admission.outcome
    yield from (f"node {node.name}: {warning}" for warning in node.host.warnings)
    if outcome.stage is Stage.FILTER and admission.message == NOT_MATCHING:
        return
    if outcome.policy == TopologyPolicy.BEST_EFFORT and outcome.stage is Stage.RESERVE:
        yield "BestEffort never rejects in Filter, but its choice may still not fit at Reserve"
    if outcome.policy and not admission.admitted and _fits_if_spread_well(candidate):
        yield (
            "the pod fits, but koord-scheduler spreads amounts over several NUMA nodes in the wrong order, "
            "so part of the request remains unplaced"
        )
    if admission.admitted and outcome.policy and outcome.grant is not None:
        yield from _gaps_in_the_records(admission)
    if outcome.grant is not None and admission.cpus.bit_count() > admission.request.cpus:
        yield "the pod gets more CPUs than it requests: whole cores are taken from one socket too many"


def _gaps_in_the_records(admission: Admission) -> Iterator[str]:
    topology = admission.before.host.topology
    if topology is None or not topology.valid:
        yield "the node has no CPU topology: nothing is recorded, and further pods get the same amounts again"
    elif not admission.numa_resources:
        yield "nothing is charged to the NUMA nodes: the merge left the pod without a set of NUMA nodes"
    elif not admission.cpus:
        yield "exclusivity looks at CPU sets alone: this pod has none, so it counts as using no NUMA node"


def _fits_if_spread_well(candidate: Candidate) -> bool:
    """Return whether a set of NUMA nodes would do if the fullest gave first, as is intended."""
    node = candidate.node
    if not 1 < len(node.host.zones) <= _MAX_NUMA_NODES:
        return False
    try:
        released = candidate.trials
        sorted_ = Trials(node, candidate.request, sorted_spread=True)
    except Rejected:
        return False
    return any(sorted_.fits(numas) and not released.fits(numas) for numas in masks(node.host.numa_ids))
