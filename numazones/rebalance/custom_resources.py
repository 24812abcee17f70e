"""From the spec of a RebalancePolicy to the values that planning takes."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from numazones.api.rebalance import FreeZone, Goals, Mode, RebalancePolicySpec
from numazones.apimachinery import duration
from numazones.placement.fragmentation import InvalidShape
from numazones.prediction.wanted_shapes import shape_named
from numazones.rebalance.beneficiaries import Beneficiaries
from numazones.rebalance.goals import Align, FitMore, Goal, Vacate, Wanted
from numazones.rebalance.policy import InvalidPolicy, Policy, ReplacementTarget
from numazones.rebalance.protections import Protections

_MAX_DURATION = "87600h"
_FREE = "free node "
_POD = "pod "
_ALIGN = "align pods"


def policy_of(spec: RebalancePolicySpec, priority_classes: Mapping[str, int]) -> Policy:
    """Return the settings of a policy; ``priority_classes`` gives the value of each class.

    Raises:
        NumazonesError: settings contradict each other or are unknown; the message names them.
    """
    if spec.target not in set(ReplacementTarget):
        raise InvalidPolicy(f"target {spec.target!r} is unknown; use one of {', '.join(ReplacementTarget)}")
    if spec.mode not in set(Mode):
        raise InvalidPolicy(f"mode {spec.mode!r} is unknown; use one of {', '.join(Mode)}")
    _duration("expiry", spec.expiry)
    _duration("searchTime", spec.search_time)
    _duration("schedule.interval", spec.schedule.interval)
    return Policy(
        protections=Protections.of(spec.protections, priority_classes),
        limits=spec.limits,
        target=ReplacementTarget(spec.target),
        beneficiaries=Beneficiaries.from_api(spec.goals.pending_pod_selector),
        min_gain=spec.min_gain,
        cooldown=_duration("cooldown", spec.cooldown),
    )


def _duration(name: str, text: str) -> timedelta:
    try:
        length = duration.parse(text)
    except duration.InvalidDuration as error:
        raise InvalidPolicy(f"{name}: {error}") from error
    if length > duration.parse(_MAX_DURATION):  # added to a date, it would leave the calendar
        raise InvalidPolicy(f"{name}: {text!r} is longer than {_MAX_DURATION}")
    return length


def goals_of(goals: Goals) -> Iterator[Goal]:
    """Yield the goals that a policy names; those for pending pods change all the time and are left out.

    Raises:
        InvalidShape: a shape asks for no CPUs, or for broken amounts; the message names its field.
    """
    for at, shape in enumerate(goals.shapes):
        try:
            yield FitMore((Wanted.shape(shape.name, shape_named(shape), count=shape.count),))
        except InvalidShape as error:
            raise InvalidShape(f"spec.goals.shapes[{at}].resources: {error}") from error
    if goals.free is not None:
        yield free_goal(goals.free)
    if goals.align:
        yield Align()


def free_goal(free: FreeZone) -> Vacate:
    """Return the goal of a node or zone that is to become free."""
    return Vacate(free.node_name, free.numa_id)


def tally(goal: Goal, count: int) -> str:
    """Say what a goal counts: how many fit, or how many pods are still in the way of what is wanted."""
    return tally_of(title(goal), count)


def tally_of(goal: str, count: int) -> str:
    """Say the same of a goal of which the title is known, as recommendations have it."""
    if goal.startswith(_FREE):
        return f"{-count} in the way"
    return f"{-count} not aligned" if goal == _ALIGN else str(count)


def gain_of(goal: str, before: int, after: int, means: str) -> str:
    """Say what a plan brings, by the title of its goal.

    ``means``: what it takes, such as ``1 eviction``; empty: there is no plan.
    """
    if goal.startswith(_POD) and " " not in goal.removeprefix(_POD) and not before:
        return f"{goal}: does not fit now" + (f"; fits after {means}" if after else "")
    now = f"{goal}: {tally_of(goal, before)} now"
    return f"{now}, {tally_of(goal, after)} after {means}" if means else now


def title(goal: Goal) -> str:
    """Say in one line what a goal is; equal goals have equal titles."""
    if isinstance(goal, Vacate):
        return f"{_FREE}{goal.node}" + ("" if goal.zone is None else f", NUMA node {goal.zone}")
    if isinstance(goal, Align):
        return _ALIGN
    if not isinstance(goal, FitMore):
        return type(goal).__name__
    wanted = goal.wanted[0]
    if not wanted.pods:
        return f"shape {wanted.name}" + ("" if wanted.count is None else f" x{wanted.count}")
    more = f" and {len(wanted.pods) - 1} more" if len(wanted.pods) > 1 else ""
    return f"{_POD}{wanted.name}{more}"
