"""Common parts of ``whatif`` and ``sweep``: options for place, workload and number of runs.

Nodes are those of the cluster, of a dump or recording, or machines described in a line; pods are those of the
cluster in random orders, or drawn by a recipe, or come and go as they were recorded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kubectl_numazones.experiments.execution import Dask, OneCore, Processes, RunExecutor, execute
from kubectl_numazones.experiments.groups import pod_groups
from kubectl_numazones.printing import screen
from kubectl_numazones.reading import recording
from kubectl_numazones.reading.cluster import NotThere, read, source_options
from kubectl_numazones.reading.parsed import SHAPE
from kubectl_numazones.reading.recorded_files import is_recording
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options, read_usage
from numazones.advice.right_sizing import resized
from numazones.api.rebalance import Goals
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import MIRROR, ClusterNode, ClusterPod
from numazones.cluster.usage import MeasuredUse
from numazones.placement.fragmentation import Shape
from numazones.prediction.node_choice import NodeChoice
from numazones.prediction.wanted_shapes import wanted_shapes
from numazones.whatif import settings as kubelet_settings
from numazones.whatif.experiment import (
    EXCLUSIVE,
    REJECTED,
    Comparison,
    Experiment,
    Variant,
    compare,
    shape_of,
)
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate, UnknownNode
from numazones.whatif.settings import Settings, parse_variant, split_variant
from numazones.whatif.workload import EventSource, PodGroup, Recipe, RecordedEvents
from numazones.wording import pluralize

_ENOUGH_RUNS = 30
_SEED = 1
_BOUND_BY_OWNER = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """Values of the options."""

    source: Source
    selector: str
    machine: str | None
    machines: int
    given: tuple[str, ...]
    groups: tuple[str, ...]
    mixed: bool
    churn: int
    away: int
    last: tuple[str, ...]
    reschedule: bool
    usage: bool
    prometheus: str
    window: str
    shape: Shape | None
    runs: int
    workers: int
    scheduler: str | None


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as ``asked``."""

    @wraps(command)
    def gathered(source: Source, **options: Any) -> Any:
        names = ExperimentOptions.__dataclass_fields__.keys() - {"source"}
        asked = ExperimentOptions(source=source, **{name: options.pop(name) for name in names})
        return command(asked=asked, **options)

    found: Callable[..., Any] = source_options(gathered)
    for option in reversed(_OPTIONS):
        found = option(found)
    return prometheus_options("1w")(found)


_OPTIONS = (
    click.option(
        "--nodes", "selector", default="", metavar="SELECTOR", help="Use only nodes with these labels."
    ),
    click.option(
        "--machine",
        metavar="TYPE",
        help="Use machines of this type instead of a cluster: "
        "sockets=2,numa=2,cores=32,threads=2,memory=256Gi.",
    ),
    click.option(
        "--machines",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of such machines.",
    ),
    click.option("--given", multiple=True, metavar="KEY=VALUE", help="Setting that applies to all variants."),
    click.option(
        "--pods",
        "groups",
        multiple=True,
        metavar="GROUP",
        help="Use these pods instead of the cluster's: 20xcpu=2-8,memory=4Gi, or a manifest (FILE.yaml). "
        "Groups arrive one after the other.",
    ),
    click.option("--mixed", is_flag=True, help="Mix the groups, in a new order in each run."),
    click.option(
        "--churn",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Number of times that a random pod leaves and later returns, once all pods have arrived.",
    ),
    click.option(
        "--away",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of pods that are away at the same time during the churn.",
    ),
    click.option("--last", multiple=True, metavar="GROUP", help="Pods that arrive last, after the churn."),
    click.option(
        "--reschedule", is_flag=True, help="Let the scheduler choose new nodes for the cluster's pods."
    ),
    click.option(
        "--usage",
        is_flag=True,
        help="Let the cluster's pods request only the exclusive CPUs that they use (see "
        "kubectl numazones idle).",
    ),
    click.option(
        "--shape",
        type=SHAPE,
        metavar="SHAPE",
        help="Treat CPUs as stranded if no further pod of this shape can use them; placement=shapes keeps "
        "room for such pods. Default: the largest shape that fits on one NUMA node; for placement=shapes, "
        "the shapes in RebalancePolicies and those of the arriving pods.",
    ),
    click.option(
        "--runs", type=click.IntRange(min=1), default=100, show_default=True, help="Number of random runs."
    ),
    click.option(
        "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of processes."
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler."),
)


@dataclass(frozen=True, slots=True)
class _Scene:
    """Place and workload of an experiment."""

    nodes: tuple[NodeTemplate, ...]
    workload: EventSource
    examples: Sequence[ClusterPod]
    """Pods that show what is asked for."""
    pods: str
    """What arrives, in words."""
    random: bool
    """Whether runs differ."""
    goals: tuple[Goals, ...] = ()
    """Those of the cluster's RebalancePolicies."""


def experiment_of(asked: ExperimentOptions, variants: Iterable[Settings]) -> tuple[Experiment, str, bool]:
    """Return the experiment, what happens in words, and whether its runs differ at all.

    Raises:
        NumazonesError: nodes or pods cannot be had, or a setting is none that a kubelet would start with.
    """
    given, choice = split_variant(parse_variant(asked.given))
    scene = _scene(asked, given)
    made = tuple(_variant(scene.nodes, settings, choice or NodeChoice.DEFAULT) for settings in variants)
    shape = asked.shape or shape_of(scene.examples, scene.nodes)
    kept = (asked.shape,) if asked.shape else wanted_shapes(scene.goals, scene.examples)
    experiment = Experiment(made, scene.workload, _SEED, shape, kept)
    experiment.check()
    happens = f"{scene.pods} on {pluralize(len(scene.nodes), 'node')}{_afterwards(asked)}"
    return experiment, happens, scene.random


def perform(asked: ExperimentOptions, experiment: Experiment, *, random: bool) -> Comparison:
    """Make the runs and compare the variants; after Ctrl-C, over the runs that were made.

    Raises:
        CannotExecute: workers cannot be had, or ended.
        click.Abort: Ctrl-C came before any run was made.
    """
    runs = asked.runs if random else 1
    done = execute(experiment, range(runs), _executor(asked, runs))
    if not done:
        raise click.Abort
    if len(done) < runs:
        made = f"{len(done)} of {runs} runs have finished"
        screen.echo(f"interrupted: {made}; the figures cover only these", err=True)
    comparison = compare(experiment, [run for _, run in sorted(done.items())], asked=runs)
    screen.warn_of(comparison.doubts)
    return comparison


def _executor(asked: ExperimentOptions, runs: int) -> RunExecutor:
    if asked.scheduler is not None:
        return Dask(asked.scheduler)
    workers = min(asked.workers, runs)
    return Processes(workers) if workers > 1 else OneCore()


def _variant(nodes: Sequence[NodeTemplate], settings: Settings, given: NodeChoice) -> Variant:
    """The nodes under some settings, with the gates that their options need on any of them."""
    of_kubelets, choice = split_variant(settings)
    whole: dict[str, str] = dict(of_kubelets)
    for node in nodes:
        whole |= kubelet_settings.with_needed_gates(node.config, of_kubelets)
    changed = tuple(node.with_settings(whole) for node in nodes)
    return Variant(tuple({**settings, **whole}.items()), changed, choice or given)


def _scene(asked: ExperimentOptions, given: Settings) -> _Scene:
    files = asked.source.files
    if asked.machine is not None:
        return _of_machine(asked, asked.machine, given)
    if files and is_recording(files[0]):
        return _of_recording(asked, files[0], given)
    seen = read(asked.source)
    cluster = seen.situation.cluster
    selector = LabelSelector.parse(asked.selector)
    chosen = [node for node in cluster.nodes.values() if selector.matches(node.labels)]
    nodes = _known_kubelets(chosen, given)
    goals = tuple(seen.goals())
    if asked.groups:
        return replace(_random_pods(asked, nodes), goals=goals)
    names = {node.node.name for node in nodes}
    bound = [node for node in chosen if node.name in names]
    here = [pod for node in bound for pod in node.pods.values() if not pod.stopped]
    if asked.usage or asked.prometheus:
        here = sized_to_use(here, cluster.nodes, asked.source, UsageSource(asked.prometheus, asked.window, 0))
    pods = (*(map(_without_node, here) if asked.reschedule else here), *cluster.pending.values())
    if not pods:
        raise NotThere(
            "these nodes run no pods and none are waiting; specify the pods to place: "
            "--pods 20xcpu=4,memory=8Gi"
        )
    recipe = _recipe(asked, (pods,))
    words = pluralize(len(pods), "pod")
    return _Scene(nodes, recipe, recipe.examples(), words, random=True, goals=goals)


def sized_to_use(
    pods: Iterable[ClusterPod], nodes: Mapping[str, ClusterNode], source: Source, where: UsageSource
) -> list[ClusterPod]:
    """Return the pods with requests that fit their measured use, where that is known."""
    found = read_usage(source, where)
    uses: dict[tuple[str, str], list[MeasuredUse]] = {}
    for use in found.containers:
        uses.setdefault((use.namespace, use.pod), []).append(use)
    for node, why in found.unknown.items():
        screen.warn(f"{node}: {why}; its pods keep their requests")
    return [resized(pod, uses.get((pod.namespace, pod.name), ()), nodes[pod.node]) for pod in pods]


def _of_machine(asked: ExperimentOptions, machine: str, given: Settings) -> _Scene:
    if asked.source.files or asked.selector:
        raise click.UsageError("--machine replaces the nodes; do not use it with -f or --nodes")
    if asked.usage or asked.prometheus:
        raise click.UsageError("--machine has no pods whose usage was measured; omit --usage")
    if not asked.groups:
        raise click.UsageError("specify the pods to place on the machine: --pods 20xcpu=4,memory=8Gi")
    made = with_settings(node_template(machine, name="machine-1"), given)
    nodes = (
        replace(made, node=replace(made.node, name=f"machine-{n}")) for n in range(1, asked.machines + 1)
    )
    return _random_pods(asked, tuple(nodes))


def _random_pods(asked: ExperimentOptions, nodes: tuple[NodeTemplate, ...]) -> _Scene:
    """Pods by recipe."""
    groups = pod_groups(asked.groups)
    recipe = _recipe(asked, groups)
    words = (" mixed with " if asked.mixed else ", then ").join(map(str, groups))
    drawn = any(group.is_drawn for group in (*groups, *recipe.last))
    random = bool(asked.churn) or (asked.mixed and len(groups) > 1) or drawn
    return _Scene(nodes, recipe, recipe.examples(), words, random)


def _recipe(asked: ExperimentOptions, groups: tuple[PodGroup | tuple[ClusterPod, ...], ...]) -> Recipe:
    last = pod_groups(asked.last)
    return Recipe(groups, mixed=asked.mixed, churn=asked.churn, away=asked.away, last=last)


def _afterwards(asked: ExperimentOptions) -> str:
    """Say what happens once the pods have arrived."""
    times = f"; then a random pod leaves and returns {asked.churn} times ({asked.away} away at a time)"
    return (times if asked.churn else "") + "".join(f"; last {group}" for group in asked.last)


def _of_recording(asked: ExperimentOptions, directory: Path, given: Settings) -> _Scene:
    """Pods as they came and went."""
    if asked.groups or asked.churn or asked.last or asked.reschedule:
        raise click.UsageError(
            "a recording has its own pods in their own order: omit --pods and related options"
        )
    nodes, events = recording.history(directory)
    pods = [event for event in events if isinstance(event, ClusterPod)]
    words = f"{pluralize(len(pods), 'pod')} as recorded"
    return _Scene(_known_kubelets(nodes, given), RecordedEvents(tuple(events)), pods, words, random=False)


def _known_kubelets(nodes: Sequence[ClusterNode], given: Settings) -> tuple[NodeTemplate, ...]:
    """The nodes whose kubelets' settings decide; the others are named, and left out."""
    found, left_out = [], []
    for node in nodes:
        try:
            found.append(with_settings(NodeTemplate.of(node), given))
        except UnknownNode as error:
            left_out.append(str(error))
    if left_out:
        more = f", and {pluralize(len(left_out) - 1, 'other')}" if len(left_out) > 1 else ""
        screen.warn(f"left out: {left_out[0]}{more}")
    if not found:
        raise NotThere(
            "no nodes are left: their states are unknown, or their kubelets do not decide placement"
        )
    return tuple(found)


def with_settings(node: NodeTemplate, given: Settings) -> NodeTemplate:
    """Return the node with settings, and the gates that their options need."""
    return node.with_settings(kubelet_settings.with_needed_gates(node.config, given)) if given else node


def _without_node(pod: ClusterPod) -> ClusterPod:
    """The pod for the scheduler to place anew; those that belong to their node stay there."""
    if MIRROR in pod.annotations or any(owner.kind in _BOUND_BY_OWNER for owner in pod.owners):
        return pod
    return pod.placed("")


# In words


_LABELS = {
    "largest pod": "largest pod that still fits (CPUs)",
    "free CPUs": "CPUs free for exclusive use",
    "imbalance of those": "  CPU gap between such a pod's NUMA nodes",
    "spread over NUMA nodes": "  CPU gap between a node's NUMA nodes",
}


def label(name: str, shape: Shape | None) -> str:
    """Say a measure in words, with its unit."""
    if name == "stranded CPUs":
        return f"  stranded for {shape}"
    if name.startswith(REJECTED):
        return f"  {name.removeprefix(REJECTED)}"
    if name.startswith(EXCLUSIVE):
        return f"CPUs allocated exclusively on NUMA node {name.removeprefix(EXCLUSIVE)}"
    return _LABELS.get(name, name)


def summary(comparison: Comparison, happens: str) -> str:
    """Say what was done."""
    runs = pluralize(comparison.runs, "run")
    rough = (
        "; with fewer than 30 runs, the intervals are too narrow"
        if 1 < comparison.runs < _ENOUGH_RUNS
        else ""
    )
    return f"{happens}; {runs} with seed {comparison.seed}{rough}"
