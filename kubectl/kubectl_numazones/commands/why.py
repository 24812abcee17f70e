"""``why``: the one question everybody has. The answer first, then what would help, then the nodes."""

from typing import Any

import click

from kubectl_numazones import answers, screen
from kubectl_numazones.cluster import Seen, Source, read, said_about, source_options
from kubectl_numazones.stuck import Background, explanation_lines, helpful_changes, is_running, most_telling
from numazones.cluster import ClusterNode, ClusterPod
from numazones.prediction import ADMISSIBLE, INADMISSIBLE, Prediction

_EPILOG = """
\b
Examples:
  kubectl numazones why my-pod -n team
  kubectl numazones why deploy/web              what its replicas wait for
  kubectl numazones why my-pod --node worker-3  hints, merge, rule and holders there
"""


@click.command("why", epilog=_EPILOG)
@click.argument("name", metavar="POD|deploy/NAME|rs/NAME")
@click.option("--node", "node_name", help="Explain in full what is decided on this node.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, name: str, node_name: str | None, output: str) -> int:
    """Say why a pod is stuck or was rejected, and what would help.

    One sentence, then changes that would help (each tried on a copy before it is said), then one line per
    node. A pod may wait for something else than a node: a scheduling gate, a claim, a scheduler; then that is
    said first. The exit code is 0 if the pod runs, or some node would admit it and nothing else is known to
    keep it waiting; 1 if no node would, or something else does; 2 if that is unknown.
    """
    seen = read(source)
    pods = seen.named(name)
    pod = most_telling(pods)
    nodes = seen.situation.cluster.nodes
    if node_name is not None:
        _explain_on(pod, seen.node(node_name))
        return 0
    forecast = answers.forecast_of(pod, nodes)
    prediction = answers.prediction_of(pod, forecast)
    if not is_running(pod):
        screen.warn(answers.newer_release_warning(answers.answering_nodes(forecast, nodes)))
    said = [] if is_running(pod) else said_about(pod, seen, source)
    background = Background.of(pod, prediction, seen, said)
    if output == "json":
        screen.print_json(_document(pods, pod, prediction, seen, background))
    else:
        for line in explanation_lines(pods, pod, prediction, seen, background):
            click.echo(line)
        if not is_running(pod):
            click.echo()
            screen.print_table(("NODE", "VERDICT", "WHY"), answers.node_lines(pod, nodes, forecast))
    if background.waits:
        return answers.EXIT_CODES[INADMISSIBLE]
    return answers.EXIT_CODES[ADMISSIBLE if is_running(pod) else prediction.verdict]


def _explain_on(pod: ClusterPod, node: ClusterNode) -> None:
    """Everything about one node: hints, merge, rule, shortfall, and who holds what is missing."""
    click.echo(f"{pod.full_name} on {node.name}")
    for obstacle in answers.scheduler_obstacles(pod, node):
        click.echo(f"  scheduler: {obstacle}")
    decision = answers.decide(pod, node)
    if isinstance(decision, str):
        click.echo(f"  {decision}")
        return
    screen.warn(answers.newer_release_warning([node]))
    for line in decision.explain():
        click.echo(f"  {line}")
    rows = [] if decision.admitted else list(answers.holders(node))
    if rows:
        click.echo("\nWho holds what:")
        screen.print_table(("NUMA", "POD", "CPUS", "MEMORY", "DEVICES"), rows, right=("CPUS", "MEMORY"))


def _document(
    pods: list[ClusterPod], pod: ClusterPod, prediction: Prediction, seen: Seen, background: Background
) -> dict[str, Any]:
    helpful = helpful_changes(pod, prediction, seen)
    return {
        "pod": {"namespace": pod.namespace, "name": pod.name, "node": pod.node, "phase": pod.phase},
        "rejected": {"node": pod.node, "reason": pod.reason, "message": pod.message}
        if pod.reason and pod.node
        else None,
        "then": list(background.then),
        "waits": [{"reason": wait.reason, "sentence": wait.sentence} for wait in background.waits],
        "scheduler": background.scheduler,
        "held": list(background.held),
        "verdict": prediction.verdict,
        "sentence": prediction.sentence,
        "nodes": {
            "evaluated": prediction.evaluated,
            "admissible": prediction.admissible,
            "unknown": prediction.stale,
            "excluded": prediction.excluded,
        },
        "reasons": [
            {
                "reason": item.reason,
                "source": str(item.source),
                "nodes": item.count,
                "example": item.node,
                "message": item.message,
                "sentence": item.sentence or item.message or item.reason,
                "model": item.model,
            }
            for item in prediction.reasons
        ],
        "advice": [
            {"node": item.node, "change": str(item.change), "sentence": item.sentence} for item in helpful
        ],
        "recommendations": seen.recommendations(pods),
    }
