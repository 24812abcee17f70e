"""``why``: the one question everybody has. The answer first, then what would help, then the nodes."""

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
from kubectl_numazones.stuck import stuck_list
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pod import Background, exit_code, explanation_lines, is_running, to_explain
from kubectl_numazones.stuck.stuck_pods import Stuck, stuck_pods
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.prediction import doubts
from numazones.prediction.device_answer import device_answer

_EPILOG = """
\b
Examples:
  kubectl numazones why my-pod -n team
  kubectl numazones why deploy/web              what its replicas wait for
  kubectl numazones why my-pod --node worker-3  hints, merge, rule and holders there
  kubectl numazones why my-pod -o wide          every node, not grouped by reason
  kubectl numazones why -A                      all pods that wait or were rejected
  kubectl numazones why -l app=web -o name      for a pipe
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
    """Say why a pod is stuck, was rejected or runs across NUMA nodes, and what would help.

    Prints the reason in one sentence, then changes that would help (each tried on a copy of the cluster),
    then the nodes grouped by reason, or one line per node with -o wide. If the pod waits for something other
    than a node (a scheduling gate, a claim, a scheduler), that comes first. For a pod that runs across NUMA
    nodes, it shows why the kubelet admitted it and whether its node could hold it aligned. TYPE is pod,
    deploy, rs, sts, ds or job.

    With several names or none, prints a list, most urgent first. Without names, it lists the pods of the
    namespace that wait or were rejected; pods of one owner share a line.

    The exit code is 0 if the pod runs, or if some node would admit it and nothing else is known to keep it
    waiting; 1 if it is stuck; 2 if this is unknown. For several pods it is 1 if any of them is stuck.
    """
    names = joined(names, (*OWNER_TYPES, *POD_TYPES))
    check_names(names, everywhere=everywhere, selector=selector)
    if node_name is not None and len(names) != 1:
        raise click.UsageError("--node explains one pod: name it")
    seen = read(source)
    if len(names) == 1:
        return _explain(names[0], seen, source, node_name, output)
    outlooks = Outlooks(seen)
    if names:
        found = [_named(name, outlooks) for name in names]
        return stuck_list.show(found, outlooks, source, output, everywhere=False, counts=None)

    def selected(pod: ClusterPod) -> bool:
        return selector is None or selector.matches(pod.labels)

    def here(pod: ClusterPod) -> bool:
        return selected(pod) and (everywhere or pod.namespace == seen.namespace)

    counts = outlooks.counts(here)
    where = "" if everywhere else none_here(seen.namespace, outlooks.counts(selected).stuck - counts.stuck)
    found = stuck_pods(outlooks, here)
    return stuck_list.show(found, outlooks, source, output, everywhere=everywhere, counts=counts, where=where)


def _named(name: str, outlooks: Outlooks) -> Stuck:
    """The pods of a name, as a line of the list."""
    pods = outlooks.seen.named(name)
    pod = to_explain(pods, outlooks.seen)
    return Stuck(pods, pod, outlooks.prediction(pod))


def _explain(name: str, seen: ClusterView, source: Source, node_name: str | None, output: Output) -> int:
    """Everything about the pods of one name."""
    pods = seen.named(name)
    pod = to_explain(pods, seen)
    nodes = seen.situation.cluster.nodes
    if node_name is not None:
        _explain_on(pod, seen.node(node_name))
        return 0
    outlooks = Outlooks(seen)
    forecast, prediction = outlooks.forecast(pod), outlooks.prediction(pod)
    if not is_running(pod):
        screen.warn_of(prediction.doubts)
    said = [] if is_running(pod) else reports_about([pod], seen, source)[pod.uid]
    background = Background.of(pod, prediction, outlooks, said)
    if output.is_document:
        # Imported late: text does without all that planning needs.
        from kubectl_numazones.stuck.why_document import why_document  # noqa: PLC0415

        output.write(why_document(Stuck(pods, pod, prediction), seen, background))
    elif output.form == "name":
        screen.echo(f"pod/{pod.name}")
    else:
        for line in explanation_lines(pods, pod, prediction, seen, background):
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
