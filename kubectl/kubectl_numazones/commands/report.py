"""``report``: the cluster as one self-contained page, for people who are not at the terminal."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from kubectl_numazones.experiments.experiment import label
from kubectl_numazones.printing import answers, screen
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import ClusterView, read, source_options
from kubectl_numazones.reading.files import documents as documents_of
from kubectl_numazones.reading.parsed import SHAPE
from kubectl_numazones.reading.pod_reports import reports_about
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options, read_usage
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pod import Background
from numazones.advice.changes import Advice
from numazones.advice.helpful_changes import plan_made
from numazones.api.rebalance import (
    ENDED,
    RebalancePolicySpec,
)
from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import Shape
from numazones.prediction import doubts
from numazones.prediction.forecast import INADMISSIBLE, PodKind, relevant
from numazones.prediction.held_room import held
from numazones.prediction.room import FittingPods
from numazones.rebalance.custom_resources import policy_of, title
from numazones.rebalance.goals import pending_goals
from numazones.rebalance.recommendation import Recommendation
from numazones.rebalance.whatif import situation_after, what_if
from numazones.wording import first_of, pluralize
from numazones_page import html
from numazones_page.documents import (
    Documents,
    cluster_document,
    node_documents,
    plan_document,
    recommendation_document,
    table_document,
    use_documents,
)
from numazones_page.pods import WaitingPod, held_documents, waiting_documents

_FOUND_HERE = "a plan would make room; run kubectl numazones plan to see it"
_EPILOG = """
\b
Examples:
  kubectl numazones report -o report.html
  kubectl numazones report -f dump.json -o report.html --shape cpu=16,memory=64Gi
"""


@click.command("report", epilog=_EPILOG)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=Path("report.html"),
    show_default=True,
    help="File to write; - for standard output.",
)
@click.option(
    "--shape",
    "shapes",
    type=SHAPE,
    multiple=True,
    default=("cpu=4", "cpu=8", "cpu=16"),
    show_default=True,
    metavar="SHAPE",
    help="Show fragmentation for pods of this shape; may be given several times.",
)
@click.option("--title", "name", default="", help="Cluster name to show on the page.")
@click.option(
    "--plans/--no-plans",
    default=True,
    show_default=True,
    help="Plan moves that make room for stuck pods.",
)
@click.option(
    "--whatif",
    "comparisons",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Include the output of whatif or sweep -o json; may be given several times.",
)
@click.option(
    "--effort",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Maximum number of steps in the search for a plan.",
)
@click.option("--usage", is_flag=True, help="Show how many of the held CPUs are in use.")
@prometheus_options("1d")
@source_options
def command(
    source: Source,
    *,
    usage: bool,
    prometheus: str,
    window: str,
    output: Path,
    shapes: tuple[Shape, ...],
    name: str,
    plans: bool,
    comparisons: tuple[Path, ...],
    effort: int,
) -> int:
    """Describe the cluster on one page: NUMA nodes, fragmentation, why pods are stuck, and animated plans.

    The page is a single file and needs no network: send it by email, or attach it to a ticket.
    """
    tables = _tables(comparisons)
    seen = read(source)
    outlooks = Outlooks(seen)
    waiting = list(_waiting_pods(outlooks, source))
    made, left_out = _recommendations(seen)
    screen.warn(left_out)
    stuck = [item.pod for item in waiting if item.prediction.verdict == INADMISSIBLE]
    shown = made | (_plans(seen, stuck, effort) if plans else {})
    uncertain = doubts.of_nodes(seen.situation.cluster.nodes.values())
    screen.warn_of(uncertain)
    documents = cluster_document(
        source=name or _name_of(source),
        shapes=shapes,
        generated=timestamp.format(seen.situation.context.now),
        version=version("numazones"),
        note=left_out,
        doubts=uncertain,
    )
    nodes = seen.situation.cluster.nodes
    fitting = FittingPods()
    measured = read_usage(source, UsageSource(prometheus, window, seconds=0)) if usage or prometheus else None
    for node in nodes.values():
        documents |= node_documents(node, shapes, fitting)
        if measured is not None:
            documents |= use_documents(node, measured)
    documents |= waiting_documents(waiting, ended=seen.ended, plans=_plans_by_pod(shown, made))
    cluster = seen.situation.cluster
    now = seen.situation.context.now.timestamp()
    documents |= held_documents(held(cluster.pending.values(), list(nodes.values()), now=now), nodes.get)
    documents |= shown | tables
    page = html.report(documents, title=f"{name or _name_of(source)} · numazones")
    if str(output) == "-":
        click.echo(page, nl=False)
        return 0
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror or error}") from error
    figures = (
        pluralize(len(nodes), "node"),
        pluralize(documents["counts/"]["stuck"], "stuck pod"),
        pluralize(len(shown), "plan"),
    )
    screen.echo(f"{output}: {', '.join(figures)}")
    return 0


def _name_of(source: Source) -> str:
    if source.files:
        return ", ".join(path.name for path in source.files)
    return source.context or "the current context's cluster"


def _waiting_pods(outlooks: Outlooks, source: Source) -> Iterator[WaitingPod]:
    """Yield each waiting pod that NUMA placement concerns, with what would help those of its kind."""
    seen = outlooks.seen
    known: dict[tuple[PodKind | None, str], tuple[Advice, ...]] = {}
    waiting = [pod for pod in seen.situation.cluster.pending.values() if relevant(pod) and not pod.deleting]
    said = reports_about(waiting, seen, source) if source.files else {}
    for pod in waiting:
        prediction = outlooks.prediction(pod)
        background = Background.of(pod, prediction, outlooks, said.get(pod.uid, ()))
        kind = PodKind.of(pod), pod.namespace  # advice names pods of the same namespace first
        if kind not in known:
            found = answers.advice_for(pod, seen.situation, prediction, outlooks.forecast(pod))
            known[kind] = tuple(found)
        advice = known[kind]
        yield WaitingPod(pod, prediction, advice, background.waits, background.scheduler, background.held)


def _recommendations(seen: ClusterView) -> tuple[Documents, str]:
    """The plans that the operator made, and which of them are left out and why; empty for none."""
    nodes = seen.situation.cluster.nodes
    pods = {pod.uid: pod for pod in seen.pods}
    documents: Documents = {}
    problems = []
    for body in seen.made:
        try:
            item = Recommendation.from_api(body)
        except (NumazonesError, ValueError) as error:
            problems.append(str(error))
            continue
        mode = seen.policy_mode(item.spec.policy)
        documents |= recommendation_document(
            item.name, item.spec, item.status, nodes.get, pods.get, mode=mode
        )
    return documents, f"left out, because it cannot be read: {first_of(problems)}" if problems else ""


def _plans(seen: ClusterView, stuck: Iterable[ClusterPod], effort: int) -> Documents:
    """Plans for pods that fit nowhere, each made on the cluster as the one before leaves it."""
    documents: Documents = {}
    policy = policy_of(RebalancePolicySpec(), {})
    for goal in pending_goals(stuck):
        situation = seen.situation
        for made in what_if(goal, situation, policy, effort=effort).plans:
            name = f"proposal-{len(documents) + 1}"
            documents |= plan_document(title(goal), made, situation.cluster.nodes, name=name)
            situation = situation_after(made, situation)
    return documents


_MAX_SIDE_BY_SIDE = 4
"""Variants that stand side by side; more of them stand one below the other."""


def _tables(paths: Iterable[Path]) -> Documents:
    """Return the results of comparisons of settings."""
    tables: Documents = {}
    for path in paths:
        for document in documents_of(path):
            try:
                tables |= _table(f"{len(tables) + 1}", document)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                cure = "create one with kubectl numazones whatif -o json"
                raise BadDump(f"{path} contains no comparison of settings; {cure}") from error
    return tables


def _table(name: str, document: Mapping[str, Any]) -> Documents:
    variants = document["variants"]
    names = [
        ", ".join(f"{key}={value}" for key, value in item["settings"].items()) or "current settings"
        for item in variants
    ]
    measures = {measure: label(measure, document["shape"]).strip() for measure in variants[0]["measures"]}
    if len(variants) <= _MAX_SIDE_BY_SIDE:
        columns = ["Measure", *names]
        rows = [
            [
                says,
                *(
                    _measure_text(item["measures"][measure], item["differences"].get(measure))
                    for item in variants
                ),
            ]
            for measure, says in measures.items()
        ]
    else:
        columns = ["Settings", *measures.values()]
        rows = [
            [says, *(f"{item['measures'][measure]['mean']:.2f}" for measure in measures)]
            for says, item in zip(names, variants, strict=True)
        ]
    note = f"{pluralize(int(document['runs']), 'run')} with seed {document['seed']}: means"
    if len(variants) <= _MAX_SIDE_BY_SIDE:
        note += ", with their 95 % intervals, then the differences from the first column within the same run"
    return table_document(name, title="Kubelet settings compared", columns=columns, rows=rows, note=note)


def _measure_text(measure: Mapping[str, float], difference: Mapping[str, float] | None) -> str:
    """Mean and interval of a measure, or its mean and the difference with the interval of that."""
    if difference is None:
        return f"{measure['mean']:.2f} ({measure['low']:.2f} to {measure['high']:.2f})"
    interval = f"{difference['low']:+.2f} to {difference['high']:+.2f}"
    return f"{measure['mean']:.2f} ({difference['mean']:+.2f}: {interval})"


def _plans_by_pod(plans: Documents, made: Documents) -> dict[str, dict[str, str]]:
    """NAMESPACE/NAME of a pod → the plans that place it → what is to be said; ``made``: by the operator."""
    found: dict[str, dict[str, str]] = {}
    for key, plan in plans.items():
        name = key.removeprefix("plan/")
        for placement in plan["placements"] if plan["phase"] not in ENDED else ():
            found.setdefault(placement["pod"], {})[name] = plan_made(name) if key in made else _FOUND_HERE
    return found
