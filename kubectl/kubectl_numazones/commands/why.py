"""``why``: the one question everybody has. The answer first, then what would help, then the nodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import click

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import ClusterView, read, source_options
from kubectl_numazones.reading.names import (
    OWNER_TYPES,
    POD_TYPES,
    complete_nodes,
    complete_pods,
    joined,
)
from kubectl_numazones.reading.pod_reports import reports_about
from kubectl_numazones.reading.selection import (
    all_namespaces_option,
    check_names,
    none_here,
    selector_option,
)
from kubectl_numazones.reading.source import Source
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pod import (
    Background,
    exit_code,
    explanation_lines,
    is_running,
    now,
    runs,
    to_explain,
)
from kubectl_numazones.stuck.stuck_pods import StuckPods, stuck_pods
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.prediction import doubts
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones.prediction.pod_devices import device_answer
from numazones.prediction.stuck import PodCounts
from numazones_program.columns import Column

_CODES = (answers.EXIT_CODES[INADMISSIBLE], answers.EXIT_CODES[UNKNOWN], answers.EXIT_CODES[ADMISSIBLE])
"""The worst first."""
_EPILOG = """
\b
Examples:
  kubectl numazones why my-pod -n team
  kubectl numazones why deploy/web              what its replicas wait for
  kubectl numazones why my-pod --node worker-3  that node's decision, step by step
  kubectl numazones why my-pod -o wide          every node, not grouped by reason
  kubectl numazones why -A                      all pods that are waiting or were rejected
  kubectl numazones why -l app=web -o name      only names, for scripts
"""


@click.command("why", epilog=_EPILOG)
@click.argument("names", metavar="[POD|TYPE/NAME|TYPE NAME]...", nargs=-1, shell_complete=complete_pods)
@selector_option("pods")
@all_namespaces_option
@click.option(
    "--node",
    "node_name",
    help="Explain this node's decision in full.",
    shell_complete=complete_nodes,
)
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source,
    *,
    names: tuple[str, ...],
    selector: LabelSelector | None,
    everywhere: bool,
    node_name: str | None,
    output: Output,
) -> int:
    """Explain why a pod is stuck, was rejected or runs across NUMA nodes, and what would help.

    Prints the reason in one sentence, then changes that would help (each tried on a copy of the cluster),
    then the nodes grouped by reason, or one line per node with -o wide. If the pod is waiting for something
    other than a node (a scheduling gate, a claim, a scheduler), that comes first. For a pod that runs across
    NUMA nodes, it shows why the kubelet admitted the pod and whether its node could align it. TYPE is pod,
    deploy, rs, sts, ds or job.

    With several names, or without names, prints a list, most urgent first. Without names, it lists the pods
    in the namespace that are waiting or were rejected; pods of one owner share a line.

    The exit code is 0 if the pod is running, or if some node would admit it and nothing else is known to keep
    it waiting; 1 if it is stuck; 2 if this is unknown. For several pods, it is 1 if any of them is stuck.
    With --node, it is 0 if that node would admit the pod if it arrived now, 1 if it would not, 2 if this is
    unknown.
    """
    names = joined(names, (*OWNER_TYPES, *POD_TYPES))
    check_names(names, everywhere=everywhere, selector=selector)
    if node_name is not None and len(names) != 1:
        raise click.UsageError("--node explains one pod: specify its name")
    seen = read(source)
    if len(names) == 1:
        return _explain(names[0], seen, source, node_name, output)
    outlooks = Outlooks(seen)
    if names:
        found = [_named(name, outlooks) for name in names]
        return _show(found, outlooks, source, output, everywhere=False, counts=None)

    def selected(pod: ClusterPod) -> bool:
        return selector is None or selector.matches(pod.labels)

    def here(pod: ClusterPod) -> bool:
        return selected(pod) and (everywhere or pod.namespace == seen.namespace)

    counts = outlooks.counts(here)
    where = "" if everywhere else none_here(seen.namespace, outlooks.counts(selected).stuck - counts.stuck)
    found = stuck_pods(outlooks, here)
    return _show(found, outlooks, source, output, everywhere=everywhere, counts=counts, where=where)


def _named(name: str, outlooks: Outlooks) -> StuckPods:
    """The pods of a name, as a line of the list."""
    pods = outlooks.seen.named(name)
    pod = to_explain(pods, outlooks.seen)
    return StuckPods(pods, pod, outlooks.prediction(pod))


def _explain(name: str, seen: ClusterView, source: Source, node_name: str | None, output: Output) -> int:
    """Everything about the pods of one name."""
    pods = seen.named(name)
    pod = to_explain(pods, seen)
    nodes = seen.situation.cluster.nodes
    if node_name is not None:
        node = seen.node(node_name)
        _explain_on(pod, node)
        (answer,) = answers.node_lines(pod, {node.name: node})
        return answers.EXIT_CODES.get(answer.verdict, answers.EXIT_CODES[INADMISSIBLE])
    outlooks = Outlooks(seen)
    forecast, prediction = outlooks.forecast(pod), outlooks.prediction(pod)
    if not is_running(pod):
        screen.warn_of(prediction.doubts)
    said = [] if is_running(pod) else reports_about([pod], seen, source)[pod.uid]
    background = Background.of(pod, prediction, outlooks, said)
    if output.is_document:
        # Imported late: text does without all that planning needs.
        from kubectl_numazones.stuck.why_document import why_document  # noqa: PLC0415

        output.write(why_document(StuckPods(pods, pod, prediction), outlooks, background))
    elif output.form == "name":
        screen.echo(f"pod/{pod.name}")
    else:
        for line in explanation_lines(pods, pod, prediction, outlooks, background):
            screen.say(line)
        if not is_running(pod):
            screen.echo()
            if output.form == "wide":
                screen.print_table(answers.NODES, answers.node_lines(pod, nodes, forecast))
            else:
                groups = list(answers.node_groups(pod, nodes, prediction, forecast))
                if groups:
                    screen.print_table(answers.NODE_GROUPS, groups)
    return exit_code(pod, prediction.verdict, background)


def _explain_on(pod: ClusterPod, node: ClusterNode) -> None:
    """Everything about one node: hints, merge, rule, shortfall, and who holds what is missing."""
    screen.say(f"{pod.full_name} on {node.name}")
    for obstacle in answers.scheduler_obstacles(pod, node):
        screen.say(f"  scheduler: {obstacle}")
    decision = answers.decide(pod, node)
    admitted = None if isinstance(decision, str) or not decision.admitted else decision
    zones, shares = (None, ()) if admitted is None else (admitted.zones, admitted.shares)
    kind = PodKind.of(pod)
    devices = None if kind is None else device_answer(kind, node, zones, shares)
    if devices is not None and devices.sentence:
        screen.say(f"  scheduler: {devices.sentence}")
    if isinstance(decision, str):
        screen.say(f"  {decision}")
        return
    screen.warn_of(doubts.of_nodes([node]))
    for line in decision.explain():
        screen.say(f"  {line}")
    rows = [] if decision.admitted else list(answers.holders(node))
    if rows:
        screen.echo("\nWho holds what:")
        figures = {"CPUS", "MEMORY"}
        columns = (replace(column, right=column.title in figures) for column in answers.HOLDERS)
        screen.print_table(columns, rows)


def _show(
    found: Sequence[StuckPods],
    outlooks: Outlooks,
    source: Source,
    output: Output,
    *,
    everywhere: bool,
    counts: PodCounts | None,
    where: str = "",
) -> int:
    """Print a line per owner, with the sentence said of one pod; return the exit code, that of the worst.

    ``counts``: number of stuck pods, None where pods were named; ``where``: the namespace that has none.
    """
    seen = outlooks.seen
    said = reports_about([item.example for item in found if not is_running(item.example)], seen, source)
    items = [
        (item, Background.of(item.example, item.prediction, outlooks, said.get(item.example.uid, ())))
        for item in found
    ]
    if items:
        screen.warn_of(doubts.of_nodes(seen.situation.cluster.nodes.values()))
    if output.is_document:
        # Imported late: text does without all that planning needs.
        from kubectl_numazones.stuck.why_document import WhyListDocument, why_document  # noqa: PLC0415

        documents = [why_document(item, outlooks, background) for item, background in items]
        output.write(WhyListDocument(documents, counts))
    elif output.form == "name":
        for item, _ in items:
            for pod in item.pods:
                screen.echo(f"pod/{pod.name}")
    elif not items:
        screen.echo(f"No stuck pods{where}", err=True)
    else:
        _print_list(items, seen, everywhere=everywhere, wide=output.form == "wide")
        if counts is not None:
            screen.echo(counts.sentence, err=True)
    codes = {exit_code(item.example, item.prediction.verdict, background) for item, background in items}
    return next((code for code in _CODES if code in codes), 0)


def _print_list(
    items: Sequence[tuple[StuckPods, Background]], seen: ClusterView, *, everywhere: bool, wide: bool
) -> None:
    by_namespace = everywhere or len({item.example.namespace for item, _ in items}) > 1
    namespace: Column[tuple[StuckPods, Background]] = Column(
        "NAMESPACE", lambda row: row[0].example.namespace
    )
    columns: tuple[Column[tuple[StuckPods, Background]], ...] = (
        *((namespace,) if by_namespace else ()),
        Column("POD", lambda row: row[0].example.name),
        Column("STATUS", lambda row: _status(row[0])),
        Column("AGE", lambda row: screen.age(row[0].since, seen.situation.context.now)),
        Column("VERDICT", lambda row: _unless_running(row[0], row[0].prediction.verdict), wide=True),
        Column("NODES", lambda row: _unless_running(row[0], _admitting(row[0].prediction)), wide=True),
        Column("WHY", lambda row: _why(*row, seen)),
    )
    screen.print_table(columns, items, wide=wide)


def _unless_running(item: StuckPods, text: str) -> str:
    return "" if is_running(item.example) else text


def _admitting(prediction: Prediction) -> str:
    return f"{prediction.nodes.admissible}/{prediction.nodes.all}"


def _why(item: StuckPods, background: Background, seen: ClusterView) -> str:
    if is_running(item.example) and not background.waits:
        return runs(item.example, seen)
    return now(item.prediction, background)


def _status(item: StuckPods) -> str:
    """Say what has become of the pods: what one did, or how many did what."""
    counts = Counter(map(_word, item.pods))
    if len(item.pods) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def _word(pod: ClusterPod) -> str:
    if is_running(pod):
        return "running"
    if not pod.terminal:
        return "waiting"
    return "rejected" if pod.reason else "ended"
