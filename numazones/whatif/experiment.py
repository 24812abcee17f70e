"""The same runs under several settings, compared run by run.

An experiment is data, and each run of it a pure function of the experiment and the run's number: who makes
which runs, in what order and on how many machines, changes nothing. Of every measure the mean over the runs
is given with its 95 % interval, of every further variant also the mean of the differences to the first one in
the same runs. Intervals are normal ones (mean ± 1.96 standard errors): with fewer than 30 runs they are too
narrow. What does not vary has an interval of no width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import Annotated, Self

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.placement.fragmentation import Shape, fragmentation
from numazones.prediction import doubts
from numazones.prediction.node_choice import NodeChoice
from numazones.prediction.wanted_shapes import shape_of_pod
from numazones.whatif.node_template import NodeTemplate, start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.settings import Settings
from numazones.whatif.trial import TrialResult, run
from numazones.whatif.workload import EventSource

_Z = NormalDist().inv_cdf(0.975)
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Variant:
    """The nodes under one choice of settings."""

    settings: tuple[tuple[str, str], ...]
    """What differs from the nodes as they are, gates that options need included; empty: nothing."""
    nodes: tuple[NodeTemplate | ClusterNode, ...]
    """Those that the kubelet places pods on as templates, others without pods."""
    choice: NodeChoice = NodeChoice.DEFAULT
    """How the scheduler chooses among them."""

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.settings) or "current settings"

    @property
    def configurations(self) -> Iterator[tuple[str, KubeletConfiguration]]:
        """Yield (node, configuration of its kubelet)."""
        for node in self.nodes:
            if isinstance(node, NodeTemplate):
                yield node.node.name, node.config
            elif node.state is not None:
                yield node.name, node.state.config


@dataclass(frozen=True, slots=True)
class Experiment:
    """A workload and the settings under which it is run."""

    variants: tuple[Variant, ...]
    """The others are compared with the first."""
    workload: EventSource
    seed: int
    shape: Shape | None = None
    """What free CPUs are measured by: those that no further pod of it could use are stranded."""
    shapes: tuple[Shape, ...] = ()
    """What ``NodeChoice.SHAPES`` keeps room for; none: ``shape``."""

    def check(self) -> None:
        """Start every kubelet once.

        Raises:
            InvalidConfiguration: one would not start; the message names its settings, and is its own.
        """
        for variant in self.variants:
            _nodes(variant)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return what is not certain because of the kubelets' releases, or options that are in none."""
        return doubts.of_configurations(one for variant in self.variants for one in variant.configurations)


def _nodes(variant: Variant) -> list[ClusterNode]:
    try:
        kubelets = iter(start_nodes(node for node in variant.nodes if isinstance(node, NodeTemplate)))
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"with {variant}, {error}; {error.cure}", cure=error.cure) from error
    return [next(kubelets) if isinstance(node, NodeTemplate) else node for node in variant.nodes]


Run = tuple[TrialResult, ...]
"""One outcome per variant."""


def make_runs(experiment: Experiment, numbers: Sequence[int]) -> list[Run]:
    """Make the runs with these numbers, in order."""
    nodes = [_nodes(variant) for variant in experiment.variants]
    return [_run(experiment, nodes, RandomNumbers(experiment.seed, number)) for number in numbers]


def _run(experiment: Experiment, nodes: list[list[ClusterNode]], random: RandomNumbers) -> Run:
    """``nodes``: those of each variant."""
    events = list(experiment.workload.events(random))
    return tuple(
        run(of_variant, events, shape=experiment.shape, choice=variant.choice, shapes=experiment.shapes)
        for variant, of_variant in zip(experiment.variants, nodes, strict=True)
    )


def shape_of(pods: Iterable[ClusterPod], nodes: Iterable[NodeTemplate | ClusterNode]) -> Shape | None:
    """Return the shape of the pod with the most CPUs for which an empty node has a NUMA node large enough.

    None: none of the pods has exclusive CPUs, or none fits one NUMA node.
    """
    kubelets = [node for node in nodes if isinstance(node, NodeTemplate)]
    shapes = {shape for pod in pods if (shape := shape_of_pod(pod)) is not None}
    empty = [node.state for node in start_nodes(kubelets) if node.state is not None]
    for shape in sorted(shapes, key=lambda shape: (-shape.cpus, str(shape))):
        if any(fragmentation(state, shape).fitting for state in empty):
            return shape
    return None


# What came out


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure over the runs, with its 95 % interval."""

    mean: Annotated[float, "Mean over the runs."]
    low: Annotated[float, "Lower end of its 95 % interval."]
    high: Annotated[float, "Upper end of its 95 % interval."]

    @classmethod
    def of(cls, values: Sequence[float], *counts: int) -> Self:
        """Estimate from one value per run; ``counts``: of a difference, the runs with more and with less."""
        mean = fmean(values)
        half = _Z * stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0
        return cls(round(mean, _DIGITS), round(mean - half, _DIGITS), round(mean + half, _DIGITS), *counts)


@dataclass(frozen=True, slots=True)
class EstimatedDifference(Estimate):
    """Difference from the first variant, within the same run."""

    more: Annotated[int, "Runs in which the value was higher."]
    less: Annotated[int, "Runs in which the value was lower."]


@dataclass(frozen=True, slots=True)
class VariantFigures:
    """One combination of settings."""

    settings: Annotated[Settings, "Settings that are changed."]
    measures: Annotated[Mapping[str, Estimate], "Figures of CPUs and pods, by name."]
    differences: Annotated[Mapping[str, EstimatedDifference], "Empty for the first variant."]


def _text(shape: Shape | None) -> str | None:
    return None if shape is None else str(shape)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``whatif``: the same pods under several settings."""

    seed: Annotated[int, "Seed of the random runs."]
    runs: Annotated[int, "Runs that were made."]
    asked: Annotated[int, "Runs that were requested."]
    shape: Annotated[Shape | None, "CPUs that no further pod of this shape can use are stranded.", _text]
    variants: Annotated[tuple[VariantFigures, ...], "The others are compared with the first one."]
    doubts: Annotated[tuple[str, ...], "Doubts about the kubelets' releases and options; usually empty."] = ()


def compare(experiment: Experiment, runs: Sequence[Run], *, asked: int) -> Comparison:
    """Compare the variants over the runs that were made, in the order of their numbers; at least one."""
    reasons = sorted({reason for outcomes in runs for outcome in outcomes for reason, _ in outcome.rejected})
    columns = [
        [dict(_measures(outcomes[index], reasons)) for outcomes in runs]
        for index in range(len(experiment.variants))
    ]
    first = columns[0]
    compared = []
    for variant, column in zip(experiment.variants, columns, strict=True):
        measures = {name: Estimate.of([row[name] for row in column]) for name in column[0]}
        differences = {} if column is first else {name: _difference(name, first, column) for name in measures}
        compared.append(VariantFigures(dict(variant.settings), measures, differences))
    return Comparison(experiment.seed, len(runs), asked, experiment.shape, tuple(compared), experiment.doubts)


def _difference(
    name: str, first: list[dict[str, float]], column: list[dict[str, float]]
) -> EstimatedDifference:
    values = [row[name] - other[name] for row, other in zip(column, first, strict=True)]
    return EstimatedDifference.of(
        values, sum(value > 0 for value in values), sum(value < 0 for value in values)
    )


REJECTED = "rejected "
"""What the names of measures by reason begin with."""
EXCLUSIVE = "exclusive on NUMA node "


def _measures(outcome: TrialResult, reasons: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield (name, value), in the order in which people want to see them."""
    rejected = dict(outcome.rejected)
    yield "admitted", outcome.admitted
    yield "rejected", outcome.arrived - outcome.admitted
    for reason in reasons:
        yield REJECTED + reason, rejected.get(reason, 0)
    yield "largest pod", outcome.largest
    yield "free CPUs", outcome.free
    if outcome.stranded is not None:
        yield "stranded CPUs", outcome.stranded
    yield "pods across NUMA nodes", outcome.crossing
    yield "imbalance of those", outcome.lopsided / outcome.crossing if outcome.crossing else 0.0
    for numa, cpus in outcome.exclusive:
        yield f"{EXCLUSIVE}{numa}", cpus
    yield "spread over NUMA nodes", outcome.spread
