"""``why``: the one question everybody has. The answer first, then what would help, then the nodes."""

from collections import Counter
from typing import Any

import click

from kubectl_numazones import answers, screen
from kubectl_numazones.cluster import Seen, Source, read, source_options
from numazones.cluster import ClusterNode, ClusterPod
from numazones.fragmentation import zones_of
from numazones.kubelet.explanation import explain
from numazones.prediction import ADMISSIBLE, Prediction

_LOOP = (
    "Its controller makes a new pod for each one rejected, so this goes on until one fits; "
    "the scheduling gate numazones.io/admission ends such loops."
)
_EPILOG = """
\b
Examples:
  kubectl numazones why my-pod -n team
  kubectl numazones why deploy/web              what its replicas wait for
  kubectl numazones why my-pod --node worker-3  hints, merge, rule and holders there
"""


@click.command("why", epilog=_EPILOG)
@click.argument("name", metavar="POD|deploy/NAME|rs/NAME")
@click.option("--node", "node_name", help="Explain in full what this node's kubelet says.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, name: str, node_name: str | None, output: str) -> int:
    """Say why a pod is stuck or was rejected, and what would help.

    One sentence, then changes that would help (each proven by deciding again), then one line per node.
    The exit code is 0 if the pod runs or some node would admit it, 1 if none would, 2 if that is unknown.
    """
    seen = read(source)
    pods = seen.named(name, source)
    pod = _most_telling(pods)
    nodes = seen.situation.cluster.nodes
    if node_name is not None:
        _explain_on(pod, seen.node(node_name))
        return 0
    prediction = answers.foresee(pod, nodes)
    if output == "json":
        screen.print_json(_document(pods, pod, prediction, seen))
    else:
        _tell(pods, pod, prediction, seen)
    return answers.EXIT_CODES[ADMISSIBLE if _runs(pod) else prediction.verdict]


def _runs(pod: ClusterPod) -> bool:
    """Whether a kubelet has admitted the pod, so that nothing is to be explained."""
    return bool(pod.node) and not pod.terminal


def _most_telling(pods: list[ClusterPod]) -> ClusterPod:
    """The pod to explain of an owner's: one that waits, else one that was rejected, else any."""
    return min(pods, key=lambda pod: (bool(pod.node), not pod.reason, pod.created, pod.name))


def _tell(pods: list[ClusterPod], pod: ClusterPod, prediction: Prediction, seen: Seen) -> None:
    click.echo(f"{pod.namespace}/{pod.name}: {_headline(pod, prediction)}")
    for line in _loop(pods):
        click.echo(line)
    if _runs(pod):
        return
    nodes = seen.situation.cluster.nodes
    helpful = (
        []
        if prediction.verdict == ADMISSIBLE
        else answers.advice_for(pod, nodes, answers.nearest(prediction, nodes))
    )
    made = [] if prediction.verdict == ADMISSIBLE else seen.recommendations(pods)
    if helpful or made:
        click.echo("\nWhat would help:")
        for node, item in helpful:
            click.echo(
                f"  - {item.sentence} ({node})" if node not in item.sentence else f"  - {item.sentence}"
            )
        for recommendation in made:
            click.echo(f"  - a plan was made: kubectl describe rebalancerecommendation {recommendation}")
    click.echo()
    screen.print_table(("NODE", "VERDICT", "WHY"), answers.node_lines(pod, nodes))


def _headline(pod: ClusterPod, prediction: Prediction) -> str:
    if _runs(pod):
        return f"runs on {pod.node}"
    past = ""
    if pod.reason and pod.node:
        said = pod.message.removeprefix("Pod was rejected: ")
        past = f"rejected on {pod.node} with {pod.reason} ({said}); as things are now, "
    return past + prediction.sentence


def _loop(pods: list[ClusterPod]) -> list[str]:
    """How the owner's replicas have fared, where there are several."""
    rejected = [pod for pod in pods if pod.terminal and pod.reason and not pod.acknowledged]
    if not rejected:
        return []
    waiting = sum(1 for pod in pods if not pod.node and not pod.terminal)
    running = sum(1 for pod in pods if pod.node and not pod.terminal)
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in Counter(pod.reason for pod in rejected).most_common()
    )
    first, last = (choice(pod.created for pod in rejected) for choice in (min, max))
    since = f"since {first}" + (f", the last at {last}" if last != first else "")
    were = "was" if len(rejected) == 1 else "were"
    now = f"{running} running, {waiting} waiting"
    lines = [f"{len(rejected)} of its pods {were} rejected {since} ({reasons}); now {now}"]
    if len(rejected) > 1 and rejected[0].controller is not None:
        lines.append(_LOOP)
    return lines


def _explain_on(pod: ClusterPod, node: ClusterNode) -> None:
    """Everything about one node: hints, merge, rule, shortfall, and who holds what is missing."""
    click.echo(f"{pod.namespace}/{pod.name} on {node.name}")
    for obstacle in answers.scheduler_obstacles(pod, node):
        click.echo(f"  scheduler: {obstacle}")
    said = answers.policy_lines(pod, node)
    if said:
        for line in said:
            click.echo(f"  {line}")
        return
    decision = answers.decide(pod, node)
    if isinstance(decision, str):
        click.echo(f"  {decision}")
        return
    for line in explain(decision).lines():
        click.echo(f"  {line}")
    if decision.admitted:
        zones = ", ".join(map(str, zones_of(decision.node, decision.pod.uid)))
        click.echo(f"  admitted{f', on NUMA node {zones}' if zones else ''}")
        return
    click.echo(f"  {decision.reason}: {decision.message}")
    rows = list(answers.holders(node))
    if rows:
        click.echo("\nWho holds what:")
        screen.print_table(("NUMA", "POD", "CPUS", "MEMORY", "DEVICES"), rows, right=("CPUS", "MEMORY"))


def _document(pods: list[ClusterPod], pod: ClusterPod, prediction: Prediction, seen: Seen) -> dict[str, Any]:
    nodes = seen.situation.cluster.nodes
    helpful = (
        []
        if prediction.verdict == ADMISSIBLE or _runs(pod)
        else answers.advice_for(pod, nodes, answers.nearest(prediction, nodes))
    )
    return {
        "pod": {"namespace": pod.namespace, "name": pod.name, "node": pod.node, "phase": pod.phase},
        "rejected": {"node": pod.node, "reason": pod.reason, "message": pod.message}
        if pod.reason and pod.node
        else None,
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
            {"node": node, "change": str(item.change), "sentence": item.sentence} for node, item in helpful
        ],
        "recommendations": seen.recommendations(pods),
    }
